"""Makes numbers of tables; the transformers are fitted anew in every fold."""

from collections import Counter
from typing import Any

import numpy as np
import scipy.sparse as sp
from sklearn.base import TransformerMixin
from sklearn.compose import ColumnTransformer
from sklearn.impute import SimpleImputer
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import MaxAbsScaler, MinMaxScaler, OneHotEncoder

from margindist.datasets.dataset import DataError, counted

_MOST_CATEGORIES = 50


def encoder(X: Any) -> TransformerMixin:
    """Return an unfitted transformer that makes numbers within [0, 1] of data like X.

    Numbers: missing values become the column's mean, then each column is scaled to [0, 1]. Categories (categorical,
    string, object and bool columns): missing values become the most frequent one, then one 0/1 column per category;
    beyond 50 categories the rarest share one column, and categories not seen in ``fit`` count as rare, or as none.
    Sparse matrices: each column is divided by its largest absolute value, which keeps zeros. Missing is NaN, and null
    in polars and pyarrow, whose tables are encoded as :func:`tidy` makes them; columns of pandas that use None or NA
    are to be made categorical first, as it does, too.

    Parameters
    ----------
    X : ndarray, sparse matrix, or table of pandas, polars or pyarrow, of shape (n_samples, n_features)
        The data; what is looked at are the kinds of its columns.

    Returns
    -------
    ColumnTransformer, Pipeline or MaxAbsScaler
        To be put before a classifier in a pipeline, so that cross-validation fits it on the training part alone.

    Examples
    --------
    >>> import pandas as pd
    >>> X = pd.DataFrame({"height": [1.0, None, 3.0], "colour": pd.Categorical(["red", "blue", None])})
    >>> numbers = encoder(X).fit(X)
    >>> numbers.transform(X).tolist()
    [[0.0, 0.0, 1.0], [0.5, 1.0, 0.0], [1.0, 1.0, 0.0]]
    >>> numbers.get_feature_names_out().tolist()
    ['height', 'colour_blue', 'colour_red']
    """
    if sp.issparse(X):
        return MaxAbsScaler()
    if is_foreign(X):
        by_kind = encoder(tidy(X))
        return ForeignEncoder(by_kind.transformers, sparse_threshold=0.0, verbose_feature_names_out=False)
    if not hasattr(X, "columns"):
        return _imputed("mean", "scale", MinMaxScaler())
    kinds = _kinds(X)
    if len(kinds["numbers"]) == X.shape[1]:
        kinds["numbers"] = slice(None)  # all columns: found by name in tables, by position in arrays
    parts = (
        ("numbers", _imputed("mean", "scale", MinMaxScaler())),
        ("categories", _imputed("most_frequent", "encode", _one_hot())),
        ("flags", _one_hot()),
    )
    steps = [(kind, transformer, kinds[kind]) for kind, transformer in parts if kinds[kind]]
    return ColumnTransformer(steps, sparse_threshold=0.0, verbose_feature_names_out=False)


def encoding_notes(X: Any) -> tuple[str, ...]:
    """Return sentences on what :func:`encoder` does to this data.

    Parameters
    ----------
    X : ndarray, sparse matrix, or table of pandas, polars or pyarrow, of shape (n_samples, n_features)
        The data.

    Returns
    -------
    tuple of str
        One sentence per step.

    Examples
    --------
    >>> import numpy as np
    >>> encoding_notes(np.array([[1.0, np.nan], [0.0, 2.0]]))
    ('1 missing number (25.0 %) in 1 column is replaced by the mean of its column in the training part.',
     '2 columns of numbers are scaled to [0, 1] on the training part.')
    """
    if sp.issparse(X):
        return (f"{counted(X.shape[1], 'column')} are divided by the largest absolute value in the training part.",)
    X = tidy(X) if is_foreign(X) else X
    if not hasattr(X, "columns"):
        return _number_notes(_missing(X))
    kinds = _kinds(X)
    notes = list(_number_notes(X[kinds["numbers"]].isna().to_numpy())) if kinds["numbers"] else []
    categories = kinds["categories"] + kinds["flags"]
    if categories:
        missing = X[categories].isna().to_numpy()
        if missing.any():
            notes.append(_missing_note(missing, "category", "categories", "the most frequent of its column"))
        width = sum(min(int(X[name].nunique()), _MOST_CATEGORIES) for name in categories)
        verb = "becomes" if len(categories) == 1 else "become"
        notes.append(
            f"{counted(len(categories), 'column')} of categories {verb} {counted(width, 'column')} of 0 and 1."
        )
        many = [name for name in categories if X[name].nunique() > _MOST_CATEGORIES]
        if many:
            listed = ", ".join(map(repr, many[:5]))
            notes.append(f"Beyond {_MOST_CATEGORIES} categories the rarest share one column: {listed}.")
    return tuple(notes)


def tidy(X: Any) -> Any:
    """Return a pandas frame whose columns are float64, bool or categorical, with NaN for every missing value.

    Parameters
    ----------
    X : table of pandas, polars or pyarrow, of shape (n_samples, n_features)
        Its columns may be of any kind but dates.

    Returns
    -------
    DataFrame
        X itself where nothing is to be changed.

    Examples
    --------
    >>> import pandas as pd
    >>> tidy(pd.DataFrame({"n": pd.array([1, None], dtype="Int64"), "c": ["red", None]})).dtypes.astype(str).tolist()
    ['float64', 'category']
    """
    if is_foreign(X):
        X = as_pandas(X)
    changed = {}
    for name, dtype in X.dtypes.items():
        kind = getattr(dtype, "kind", "O")
        plain = isinstance(dtype, np.dtype)
        if kind in "iuf" and not plain:
            changed[name] = X[name].astype(np.float64)
        elif kind == "b" and not plain:
            whole = X[name].notna().all()
            texts = X[name].astype(object).map(str, na_action="ignore")
            changed[name] = X[name].astype(bool) if whole else texts.astype("category")
        elif kind not in "iufbmM" and str(dtype) != "category":
            changed[name] = X[name].astype(object).where(X[name].notna(), np.nan).astype("category")
    return X.assign(**changed) if changed else X


def fit_encoder(tables):
    """Return :func:`encoder`, fitted to all of these tables together, each of which is met once.

    The result is that of ``encoder(X).fit(X)`` for the tables stacked on each other. What is kept of them are extremes
    and sums of numbers, and counts of categories. The encoder is fitted to a few rows that have the same extremes and
    the same categories, those beyond the limit rarer than the others; the values for what is missing are then set.
    """
    summary = None
    for X in tables:
        if summary is None:
            coder = encoder(X)
            summary = _Summary(X)
        summary.add(X)
    if isinstance(coder, MaxAbsScaler):
        return summary.scaler
    rows = summary.few_rows()
    coder.fit(rows)
    inner = coder.named_transformers_ if isinstance(coder, ColumnTransformer) else {"numbers": coder}
    if "numbers" in inner:
        inner["numbers"][0].statistics_ = summary.means()
        inner["numbers"][1].n_samples_seen_ = summary.n_rows
    if "categories" in inner:
        inner["categories"][0].statistics_ = np.array(summary.most_frequent("categories"), dtype=object)
    return coder


class _Summary:
    """What :func:`fit_encoder` keeps of the tables it has met."""

    def __init__(self, X):
        self.n_rows = 0
        self.scaler = MaxAbsScaler() if sp.issparse(X) else None
        self._names = list(X.columns) if hasattr(X, "columns") else None
        if self.scaler is not None:
            return
        self._kinds = _kinds(X) if self._names else {"numbers": list(range(X.shape[1])), "categories": [], "flags": []}
        width = len(self._kinds["numbers"])
        self._dtype = X.dtype if self._names is None and X.dtype.kind == "f" else np.float64
        self._least, self._most = np.full(width, np.inf), np.full(width, -np.inf)
        self._sums, self._counts = np.zeros(width), np.zeros(width)
        self._levels = {name: Counter() for name in (*self._kinds["categories"], *self._kinds["flags"])}

    def add(self, X):
        """Take in one table."""
        self.n_rows += X.shape[0]
        if self.scaler is not None:
            self.scaler.partial_fit(X)
            return
        numbers = X if self._names is None else X[self._kinds["numbers"]].to_numpy(dtype=np.float64)
        known = ~_missing(numbers)
        self._least = np.minimum(self._least, np.min(numbers, axis=0, initial=np.inf, where=known))
        self._most = np.maximum(self._most, np.max(numbers, axis=0, initial=-np.inf, where=known))
        self._sums += np.sum(numbers, axis=0, dtype=np.float64, where=known)
        self._counts += known.sum(axis=0)
        for name, counter in self._levels.items():
            counter.update(X[name].value_counts(dropna=True).to_dict())

    def means(self):
        """Return the mean of each column of numbers; zero for one without any, as scikit-learn does."""
        return self._sums / np.maximum(self._counts, 1.0)

    def most_frequent(self, kind):
        """Return the most frequent category of each column, the first of several."""
        result = []
        for name in self._kinds[kind]:
            counts = self._levels[name]
            most = max(counts.values(), default=0)
            result.append(min((level for level, count in counts.items() if count == most and count), default=0))
        return result

    def _by_count(self, name):
        """Return categories, the rarest first; among equals, the order in which scikit-learn cuts."""
        counts = {level: count for level, count in self._levels[name].items() if count}
        return sorted(sorted(counts), key=counts.get)

    def few_rows(self):
        """Return a table with the extremes and categories of all: the most frequent categories are there twice."""
        columns = {name: self._by_count(name) for name in self._levels}
        columns = {name: levels + levels[1 - _MOST_CATEGORIES :] for name, levels in columns.items()}
        height = max([2, *map(len, columns.values())])
        for k, name in enumerate(self._kinds["numbers"]):
            extremes = [self._least[k], self._most[k]] if self._counts[k] else [np.nan, np.nan]
            columns[name] = extremes + extremes[:1] * (height - 2)
        if self._names is None:
            return np.array([columns[k] for k in range(len(columns))], dtype=self._dtype).T
        import pandas as pd

        filled = {name: values + values[-1:] * (height - len(values)) for name, values in columns.items()}
        for name in self._kinds["categories"]:
            filled[name] = pd.Categorical(filled[name] or [np.nan] * height)
        return pd.DataFrame({name: filled[name] for name in self._names})


class ForeignEncoder(ColumnTransformer):
    """A ColumnTransformer that takes tables of polars, pyarrow and pandas alike: what it sees of them is pandas'.

    scikit-learn reads such tables by NumPy, which takes a missing category for another one.
    """

    def fit_transform(self, X, y=None, **params):
        """Fit to a table, and return it as numbers."""
        return super().fit_transform(_with_text_for_flags(X), y, **params)

    def transform(self, X, **params):
        """Return a table as numbers."""
        return super().transform(_with_text_for_flags(X), **params)


def _with_text_for_flags(X):
    """Return a tidy frame in which flags are text, as they are where some are missing."""
    X = tidy(X)
    flags = [name for name, dtype in X.dtypes.items() if getattr(dtype, "kind", "O") == "b"]
    return X.assign(**{name: X[name].map(str).astype("category") for name in flags})


def is_foreign(X):
    """Tell whether data are a table of polars or pyarrow."""
    return type(X).__module__.partition(".")[0] in ("polars", "pyarrow")


def as_pandas(X):
    """Return a table of polars or pyarrow in pandas, by way of NumPy: polars' own way there needs pyarrow."""
    kind = f"{type(X).__module__.partition('.')[0]} {type(X).__name__}"
    try:
        import narwhals
        import pandas as pd
    except ImportError as error:
        raise DataError(f"A {kind} is read by narwhals and pandas; install {error.name}.") from error
    if not narwhals.dependencies.is_into_dataframe(X):
        raise DataError(f"Expected a table of rows in memory, got a {kind}; a LazyFrame is one after its collect().")
    columns = {}
    for column in narwhals.from_native(X, eager_only=True).iter_columns():
        if isinstance(column.dtype, (narwhals.Categorical, narwhals.Enum)):
            column = column.cast(narwhals.String)
        flags = column.dtype == narwhals.Boolean
        columns[column.name] = pd.array(column.to_list(), "boolean") if flags else column.to_numpy()
    return pd.DataFrame(columns)


def _imputed(strategy, name, transformer):
    """Return a pipeline that imputes and transforms; new rows may miss values where no training row did."""
    impute = SimpleImputer(strategy=strategy, keep_empty_features=True)
    return Pipeline([("impute", impute), (name, transformer)])


def _missing(X):
    return np.isnan(X) if X.dtype.kind == "f" else np.zeros(X.shape, dtype=bool)


def _one_hot():
    return OneHotEncoder(
        handle_unknown="infrequent_if_exist", max_categories=_MOST_CATEGORIES, sparse_output=False, dtype=np.float64
    )


def _kinds(X):
    """Return the names of the columns by what is done to them; SimpleImputer does not take booleans."""
    kinds = {"numbers": [], "categories": [], "flags": []}
    for name, dtype in X.dtypes.items():
        kind = getattr(dtype, "kind", "O")
        if kind in "mM":
            raise DataError(
                f"The column {name!r} holds dates; make numbers of it first, such as days since one of them."
            )
        if kind not in "iuf" and _has_other_gaps(X[name]):
            raise DataError(
                f"The column {name!r} has missing values that are not NaN; make it categorical: "
                f"X[{name!r}].astype('category')."
            )
        what = {"i": "numbers", "u": "numbers", "f": "numbers", "b": "flags"}.get(kind, "categories")
        kinds[what].append(name)
    return kinds


def _has_other_gaps(column):
    """Tell whether a column has None or pandas' NA among its values, which SimpleImputer does not take for missing."""
    if str(column.dtype) == "category":
        return False
    gaps = column[column.isna()]
    return any(not isinstance(gap, float) for gap in gaps)


def _number_notes(missing):
    notes = []
    if missing.any():
        notes.append(_missing_note(missing, "number", "numbers", "the mean of its column in the training part"))
    n_columns = missing.shape[1]
    verb = "is" if n_columns == 1 else "are"
    notes.append(f"{counted(n_columns, 'column')} of numbers {verb} scaled to [0, 1] on the training part.")
    return tuple(notes)


def _missing_note(missing, one, more, by):
    count = int(missing.sum())
    where = counted(int(missing.any(axis=0).sum()), "column")
    verb = "is" if count == 1 else "are each"
    return f"{count} missing {one if count == 1 else more} ({missing.mean():.1%}".replace("%", " %") + (
        f") in {where} {verb} replaced by {by}."
    )
