"""Makes numbers of tables; the transformers are fitted anew in every fold."""

import numpy as np
import scipy.sparse as sp
from sklearn.compose import ColumnTransformer
from sklearn.impute import SimpleImputer
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import MaxAbsScaler, MinMaxScaler, OneHotEncoder

from margindist.datasets.dataset import DataError, counted

_MOST_CATEGORIES = 50


def encoder(X):
    """Return an unfitted transformer that makes numbers within [0, 1] of data like X.

    Numbers: missing values become the column's mean, then each column is scaled to [0, 1]. Categories (categorical,
    string, object and bool columns): missing values become the commonest one, then one 0/1 column per category; beyond
    50 categories the rarest share one column, and categories not seen in ``fit`` count as rare, or as none. Sparse
    matrices: each column is divided by its largest absolute value, which keeps zeros. Missing is NaN; columns that use
    None or pandas' NA are to be made categorical first, which :func:`tidy` does.

    Parameters
    ----------
    X : ndarray, sparse matrix or DataFrame of shape (n_samples, n_features)
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


def encoding_notes(X):
    """Return sentences on what :func:`encoder` does to this data.

    Parameters
    ----------
    X : ndarray, sparse matrix or DataFrame of shape (n_samples, n_features)
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
    if not hasattr(X, "columns"):
        return _number_notes(_missing(X))
    kinds = _kinds(X)
    notes = list(_number_notes(X[kinds["numbers"]].isna().to_numpy())) if kinds["numbers"] else []
    categories = kinds["categories"] + kinds["flags"]
    if categories:
        missing = X[categories].isna().to_numpy()
        if missing.any():
            notes.append(_missing_note(missing, "category", "categories", "the commonest of its column"))
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


def tidy(X):
    """Return a frame whose columns are float64, bool or categorical, with NaN for every missing value.

    Parameters
    ----------
    X : DataFrame of shape (n_samples, n_features)
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
    changed = {}
    for name, dtype in X.dtypes.items():
        kind = getattr(dtype, "kind", "O")
        plain = isinstance(dtype, np.dtype)
        if kind in "iuf" and not plain:
            changed[name] = X[name].astype(np.float64)
        elif kind == "b" and not plain:
            whole = X[name].notna().all()
            changed[name] = X[name].astype(bool) if whole else X[name].map(str, na_action="ignore").astype("category")
        elif kind not in "iufbmM" and str(dtype) != "category":
            changed[name] = X[name].astype(object).where(X[name].notna(), np.nan).astype("category")
    return X.assign(**changed) if changed else X


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
