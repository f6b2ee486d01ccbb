"""Rows in parts, loaded one at a time: training data larger than memory."""

import copy
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, Self

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike, DTypeLike
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.utils.validation import check_is_fitted

from margindist.datasets.dataset import DataError
from margindist.datasets.encoding import fit_encoder, is_foreign, tidy
from margindist.datasets.sources import ArraySource, NpySource, Split, SvmlightSource, in_memory, kind_of_file
from margindist.datasets.tables import TableSource, formats_of, guessed_target
from margindist.spaces.partitions import Encoder, LocalPlace, PartitionedData, Piece
from margindist.spaces.sparse import checked_csr


class Partitions(PartitionedData):
    """Rows in parts that are loaded one at a time, and forgotten: training data that need not fit into memory.

    Made by :meth:`from_parquet`, :meth:`from_feather`, :meth:`from_csv`, :meth:`from_npy`, :meth:`from_svmlight` or
    :meth:`from_arrays`. Estimators whose
    solvers work in rounds take it for X: ``LDMClassifier().fit(rows)``, ``decision_function``, ``predict`` and
    ``score`` likewise. Labels and weights are part of it. The optimum is that of the same rows in memory.

    A fit reads all parts in most of its rounds. In memory are the part that is worked on, the next one, what the solver
    keeps for every row (about 45 bytes for two classes, and 30 for each class beyond two), and copies of the rows that
    it needs most, of at most 1 GB. With ``memory`` the constructors choose the size of parts and of these copies so
    that all of it fits, or say what is needed.

    Parameters
    ----------
    source : object
        What reads parts, see :mod:`margindist.datasets.sources`; the other constructors make it.
    transformers : tuple of fitted transformers, default=()
        What is applied to the features of a part when it is loaded; see :meth:`encoded` and :meth:`transformed`.

    Attributes
    ----------
    n_partitions : int
        Number of parts.
    sizes : tuple of int
        Rows of each part.
    n_rows : int
        Rows of all parts.
    n_features : int
        Columns, after the transformers.
    feature_names : tuple of str or None
        Their names where the files have names and no transformer has made others.
    dtype : numpy dtype
        float32 if that is what the files hold, else float64.
    notes : tuple of str
        Sentences: what was guessed or left out.
    name, target_name : str
        Name of the file or folder without its ending, and of the labels.
    spellings : dict of str to dict
        How columns of CSV files are read, as in :class:`Dataset`.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> import numpy as np
    >>> from sklearn.datasets import load_breast_cancer
    >>> from margindist import LDMClassifier
    >>> from margindist.datasets import Partitions
    >>> X, y = load_breast_cancer(return_X_y=True)
    >>> folder = tempfile.TemporaryDirectory()
    >>> np.save(pathlib.Path(folder.name, "X.npy"), X)
    >>> rows = Partitions.from_npy(pathlib.Path(folder.name, "X.npy"), y, rows_per_partition=100)
    >>> rows
    Partitions of 569 rows and 30 columns in 6 parts
    >>> scaled = rows.encoded()
    >>> model = scaled.pipeline(LDMClassifier().fit(scaled))
    >>> model.score(X, y) > 0.95
    True
    """

    def __init__(self, source: Any, transformers: tuple = ()):
        self._source = source
        self._watch = None
        self.transformers = tuple(transformers)
        self.sizes = tuple(source.sizes)
        self.n_partitions = len(self.sizes)
        self.n_rows = sum(self.sizes)
        if not self.n_rows:
            raise DataError("Partitions: there are no rows in any part.")
        self.notes = source.notes
        self.name, self.target_name = source.label, source.target_name
        self.spellings = getattr(source, "spellings", {})
        self.dtype, self.n_features, self.feature_names = source.dtype, source.n_columns, source.names
        if self.transformers:
            X = self[next(i for i, size in enumerate(self.sizes) if size)].X
            self.dtype, self.n_features, self.feature_names = X.dtype, X.shape[1], None

    @classmethod
    def from_arrays(
        cls,
        X: Any,
        y: Any = None,
        sample_weight: Any = None,
        *,
        rows_per_partition: int | None = None,
        memory: str | int | None = None,
    ) -> Self:
        """Make parts of arrays that are in memory, or that the system maps into it.

        Parameters
        ----------
        X : array-like, sparse matrix or DataFrame, or a list of them
            The parts, or all rows in one, which are then split. A :class:`numpy.memmap` is read from its file.
        y : array-like of shape (n_rows,), or a list of one per part, default=None
            Labels.
        sample_weight : array-like of shape (n_rows,), or a list of one per part, default=None
            How often each row counts.
        rows_per_partition : int, default=None
            Rows of a part where X is in one; None makes parts of 64 MB.
        memory : str or int, default=None
            Instead of that, the most memory that a fit shall take, such as "2GB": parts are as small as that asks for.

        Returns
        -------
        Partitions
        """
        split = Split.of(rows_per_partition, memory)
        if isinstance(X, np.memmap) and X.ndim == 2 and isinstance(X.filename, (str, os.PathLike)):
            return cls(NpySource(X, y, sample_weight, split, None, None))
        if isinstance(X, (list, tuple)):
            if not X:
                raise DataError("Partitions.from_arrays: expected at least one part, got an empty list.")
            beside = [[None] * len(X) if given is None else list(given) for given in (y, sample_weight)]
            if any(len(given) != len(X) for given in beside):
                raise DataError(
                    f"Partitions.from_arrays: expected labels and weights for each of {len(X)} parts, got "
                    f"{len(beside[0])} and {len(beside[1])}."
                )
            return cls(ArraySource([Piece(_as_table(part), *rest) for part, *rest in zip(X, *beside, strict=True)]))
        X = _as_table(X)
        beside = [in_memory(y, X.shape[0], "labels"), in_memory(sample_weight, X.shape[0], "sample weights")]
        step = split.step(X.shape[0], 8 * X.shape[1])
        take = X.iloc.__getitem__ if hasattr(X, "iloc") else X.__getitem__
        spans = [(first, min(first + step, X.shape[0])) for first in range(0, X.shape[0], step)]
        return cls(ArraySource([Piece(take(slice(*span)), *(rows.read(*span) for rows in beside)) for span in spans]))

    @classmethod
    def from_npy(
        cls,
        X: str | os.PathLike | np.memmap,
        y: str | os.PathLike | ArrayLike | None = None,
        sample_weight: str | os.PathLike | ArrayLike | None = None,
        *,
        rows_per_partition: int | None = None,
        memory: str | int | None = None,
        feature_names: Sequence[str] | None = None,
        dtype: DTypeLike | None = None,
    ) -> Self:
        """Read rows of NPY files, as :func:`numpy.save` writes them.

        Parameters
        ----------
        X : path or numpy.memmap
            A file with rows and columns, or a folder of such files, which continue each other in order of their names.
        y : path or array-like of shape (n_rows,), default=None
            Labels: a file, a folder of files that continue each other, or an array.
        sample_weight : path or array-like of shape (n_rows,), default=None
            How often each row counts, likewise.
        rows_per_partition : int, default=None
            Rows of a part; None makes parts of 64 MB.
        memory : str or int, default=None
            Instead of that, the most memory that a fit shall take, such as "2GB": parts are as small as that asks for.
        feature_names : sequence of str, default=None
            Names of the columns.
        dtype : {float32, float64}, default=None
            Type of the features in memory; None keeps float32 and makes float64 of everything else.

        Returns
        -------
        Partitions
        """
        split = Split.of(rows_per_partition, memory)
        return cls(NpySource(X, y, sample_weight, split, feature_names, _checked_dtype(dtype)))

    @classmethod
    def from_parquet(
        cls,
        path: str | os.PathLike,
        target: str | None = None,
        *,
        weight: str | None = None,
        columns: Sequence[str] | None = None,
        rows_per_partition: int | None = None,
        memory: str | int | None = None,
        dtype: DTypeLike | None = None,
    ) -> Self:
        """Read a Parquet file, or a folder of such files with the same columns, by row groups.

        Parameters
        ----------
        path : path
            The file or folder.
        target : str, default=None
            Column of the labels; None for rows to be predicted.
        weight : str, default=None
            Column that says how often each row counts.
        columns : sequence of str, default=None
            Columns of the features; None takes all others. Numbers and booleans become floats. If there are columns of
            text, a part's X is a DataFrame, of which :meth:`encoded` makes numbers.
        rows_per_partition : int, default=None
            Row groups that follow each other in a file are read together up to so many rows; None is as many as make 64
            MB. A row group is never split: a file with large ones takes their memory.
        memory : str or int, default=None
            Instead of that, the most memory that a fit shall take, such as "2GB": parts are as small as that asks for.
        dtype : {float32, float64}, default=None
            Type of the features in memory; None is float32 if all columns of numbers are that, else float64.

        Returns
        -------
        Partitions
        """
        split = Split.of(rows_per_partition, memory)
        files = formats_of("parquet", path, split)
        return cls(TableSource(path, files, target, weight, columns, split, _checked_dtype(dtype)))

    @classmethod
    def from_feather(
        cls,
        path: str | os.PathLike,
        target: str | None = None,
        *,
        weight: str | None = None,
        columns: Sequence[str] | None = None,
        rows_per_partition: int | None = None,
        memory: str | int | None = None,
        dtype: DTypeLike | None = None,
    ) -> Self:
        """Read a Feather file (of version 2, which is Arrow's file format), or a folder of them, by record batches.

        Parameters
        ----------
        path : path
            The file or folder.
        target, weight, columns, rows_per_partition, memory, dtype
            As for :meth:`from_parquet`; a record batch is never split.

        Returns
        -------
        Partitions
        """
        split = Split.of(rows_per_partition, memory)
        files = formats_of("feather", path, split)
        return cls(TableSource(path, files, target, weight, columns, split, _checked_dtype(dtype)))

    @classmethod
    def from_csv(
        cls,
        path: str | os.PathLike,
        target: str | None = None,
        *,
        weight: str | None = None,
        columns: Sequence[str] | None = None,
        rows_per_partition: int | None = None,
        memory: str | int | None = None,
        dtype: DTypeLike | None = None,
        spellings: Mapping[str, Mapping[str, str]] | None = None,
    ) -> Self:
        """Read delimited text in UTF-8, or a folder of such files with the same first line, cut where lines end.

        The files are read once to find which columns hold numbers, dates and text, as :func:`read_file` does, and
        again whenever a part is loaded; Parquet and Feather files are read several times faster.

        Parameters
        ----------
        path : path
            The file, not compressed, or the folder.
        target, weight, columns
            As for :meth:`from_parquet`.
        rows_per_partition : int, default=None
            About how many rows a part has; None makes parts of 64 MB.
        memory, dtype
            As for :meth:`from_parquet`.
        spellings : mapping, default=None
            How columns are to be read, as for :func:`read_file`.

        Returns
        -------
        Partitions
        """
        split = Split.of(rows_per_partition, memory)
        files = formats_of("csv", path, split, spellings)
        return cls(TableSource(path, files, target, weight, columns, split, _checked_dtype(dtype)))

    @classmethod
    def from_svmlight(
        cls,
        path: str | os.PathLike,
        *,
        n_features: int | None = None,
        rows_per_partition: int | None = None,
        memory: str | int | None = None,
        dtype: DTypeLike | None = None,
    ) -> Self:
        """Read LIBSVM text, cut where lines end; the file is read once to find its columns and check its lines.

        Parameters
        ----------
        path : path
            The file, not compressed.
        n_features : int, default=None
            Number of columns, if the file may lack the last ones.
        rows_per_partition : int, default=None
            About how many rows a part has; None makes parts of 32 MB of text.
        memory : str or int, default=None
            Instead of that, the most memory that a fit shall take, such as "2GB": parts are as small as that asks for.
        dtype : {float32, float64}, default=None
            Type of the values in memory; None is float32 where that is exact for all of a file above 64 MB, else
            float64, as in :func:`read_file`.

        Returns
        -------
        Partitions
        """
        split = Split.of(rows_per_partition, memory)
        return cls(SvmlightSource(path, n_features, split, _checked_dtype(dtype)))

    @classmethod
    def from_path(
        cls,
        path: str | os.PathLike,
        target: str | None = None,
        *,
        labels: str | os.PathLike | None = None,
        memory: str | int | None = None,
        predicting: Sequence[str] | None = None,
        spellings: Mapping[str, Mapping[str, str]] | None = None,
    ) -> Self:
        """Read a file or folder in the way that its ending asks for: Parquet, Feather, CSV, NPY, or LIBSVM text.

        Parameters
        ----------
        path : path
            The file or folder.
        target : str, default=None
            Column of the labels of files with columns. None guesses: a column called target, class, label, y or the
            like, or else the last; ``notes`` says which.
        labels : path, default=None
            NPY file or folder with the labels of NPY files.
        memory : str or int, default=None
            The most memory that a fit shall take, such as "2GB".
        predicting : sequence of str, default=None
            For rows to be predicted, which need no labels: the columns to read, of those that the files have.
        spellings : mapping, default=None
            How columns of CSV files are to be read, as for :func:`read_file`.

        Returns
        -------
        Partitions
        """
        kind = kind_of_file(path)
        if labels is not None and kind != "npy":
            raise DataError(f"{path}: only NPY files have their labels in another file, so labels cannot be {labels}.")
        if target is not None and kind in ("npy", "svmlight"):
            raise DataError(f"{path}: the columns of such files have no names, so target cannot be {target!r}.")
        if kind == "npy":
            return cls.from_npy(path, labels, memory=memory)
        if kind == "svmlight":
            return cls.from_svmlight(path, memory=memory)
        split, columns, note = Split.of(None, memory), None, ()
        files = formats_of(kind, path, split, spellings)
        if predicting is not None:
            columns = [name for name, held in files.kinds.items() if held is not None and name in predicting] or None
        elif target is None:
            target, note = guessed_target(files)
        made = cls(TableSource(path, files, target, None, columns, split, None))
        made.notes = (*note, *made.notes)
        return made

    def watched(self, report: Callable[[str], None] | None = None, seconds: float = 10.0) -> "Partitions":
        """Return the same rows, which say how far a fit has come in reading them.

        Parameters
        ----------
        report : callable, default=None
            Called with a sentence; None prints it.
        seconds : float, default=10.0
            From one sentence to the next, at least.

        Returns
        -------
        Partitions
        """
        made = copy.copy(self)
        made._watch = _Watch(self.n_partitions, report or print, seconds)
        return made

    def __len__(self) -> int:
        return self.n_partitions

    def __iter__(self) -> Iterator[Piece]:
        return (self[i] for i in range(self.n_partitions))

    def __getitem__(self, i: int) -> Piece:
        """Load part i: features, labels and weights; the last two are None if there are none."""
        if not 0 <= i < self.n_partitions:
            raise IndexError(f"Partitions: there is no part {i}; they are numbered from 0 to {self.n_partitions - 1}.")
        piece = self._source.read(i)
        if not self.transformers or not self.sizes[i]:
            return piece
        X = piece.X
        with self._named_errors(i):
            for number, transformer in enumerate(self.transformers):
                X = transformer.transform(self._named(X) if number == 0 else X)
        return piece._replace(X=X)

    def __repr__(self) -> str:
        return f"Partitions of {self.n_rows} rows and {self.n_features} columns in {self.n_partitions} parts"

    # ------------------------------------------------------------------ features

    def encoded(self) -> "Partitions":
        """Return the same rows with all features as numbers within [0, 1], as :func:`encoder` makes them.

        One pass finds extremes, means and categories. Nothing is written: parts are encoded whenever they are loaded.

        Returns
        -------
        Partitions
        """
        return self._with(fit_encoder(self._features()))

    def transformed(self, transformer: Any) -> "Partitions":
        """Return the same rows with a transformer applied whenever a part is loaded.

        Parameters
        ----------
        transformer : transformer of scikit-learn
            A fitted one is used as it is. Another is copied, and fitted in one pass by its ``partial_fit``, which
            :class:`~sklearn.preprocessing.StandardScaler`, :class:`~sklearn.preprocessing.MinMaxScaler` and
            :class:`~sklearn.preprocessing.MaxAbsScaler` have.

        Returns
        -------
        Partitions
        """
        try:
            check_is_fitted(transformer)
        except NotFittedError:
            if not hasattr(transformer, "partial_fit"):
                raise DataError(
                    f"Partitions.transformed: {type(transformer).__name__} cannot learn from parts, as it has no "
                    "partial_fit; fit it to a sample of the rows first."
                ) from None
            transformer = clone(transformer)
            for X in self._features():
                transformer.partial_fit(X)
        return self._with(transformer)

    def _with(self, transformer):
        made = Partitions(self._source, (*self.transformers, transformer))
        made.notes, made._watch = self.notes, self._watch
        return made

    def pipeline(self, model: Any) -> Pipeline:
        """Return a pipeline that applies the transformers, then a model: it takes rows as the files have them.

        Parameters
        ----------
        model : classifier
            Fitted to these rows.

        Returns
        -------
        Pipeline
        """
        return make_pipeline(*self.transformers, model)

    def sample(self, n_rows: int, seed: int = 0) -> Piece:
        """Return some rows of all parts, drawn without replacement, in their order; parts without any are not read.

        Parameters
        ----------
        n_rows : int
            How many; all of them, if there are fewer.
        seed : int, default=0
            Determines which.

        Returns
        -------
        Piece
            ``X``, ``y`` and ``weights``.
        """
        chosen = np.sort(np.random.default_rng(seed).choice(self.n_rows, min(n_rows, self.n_rows), replace=False))
        edges = np.searchsorted(chosen, np.cumsum((0, *self.sizes)))
        starts = np.cumsum((0, *self.sizes))
        pieces = []
        for i in range(self.n_partitions):
            rows = chosen[edges[i] : edges[i + 1]] - starts[i]
            if len(rows):
                X, y, weights = self[i]
                X = X.iloc[rows] if hasattr(X, "iloc") else X[rows]
                pieces.append(Piece(X, *(None if given is None else np.asarray(given)[rows] for given in (y, weights))))
        return Piece(*(_stacked(values) for values in zip(*pieces, strict=True)))

    def _features(self):
        """Load the features of all parts that have rows, one after the other, with names where there are any."""
        for i, size in enumerate(self.sizes):
            if size:
                X = self[i].X
                yield X if self.transformers else self._named(X)

    def _named(self, X):
        """Return features as they are given to the first transformer: with the names that the files have."""
        names = self._source.names
        if names is None or hasattr(X, "columns") or sp.issparse(X):
            return X
        try:
            import pandas as pd
        except ImportError:
            return X
        return pd.DataFrame(X, columns=list(names), copy=False)

    # ------------------------------------------------------------------ what estimators ask for

    def place(self, y: ArrayLike | None = None, sample_weight: ArrayLike | None = None, n_jobs: int = 1) -> LocalPlace:
        """Return where the parts are, for solvers; see :mod:`margindist.spaces.partitions`.

        Parameters
        ----------
        y : array-like of shape (n_rows,), default=None
            Labels, if others than those of the parts.
        sample_weight : array-like of shape (n_rows,), default=None
            Weights, if others than those of the parts.
        n_jobs : int, default=1
            Threads.

        Returns
        -------
        LocalPlace
        """
        labels = in_memory(y, self.n_rows, "labels")
        weights = in_memory(sample_weight, self.n_rows, "sample weights")
        loader = Encoder(partial(self._piece, labels, weights), self._source.where)
        place = LocalPlace(loader, self.n_partitions, n_jobs=n_jobs, read_ahead=1)
        place.spare_bytes = self._source.spare_bytes // self.n_partitions
        place.cache_bytes = np.inf if self._source.is_in_memory else self._source.spare_bytes // 2
        return place

    def _piece(self, labels, weights, i):
        """Return part i for an estimator, whose words an error is not to need."""
        piece = self[i]
        first = sum(self.sizes[:i])
        span = first, first + self.sizes[i]
        if labels.values is not None:
            piece = piece._replace(y=labels.read(*span))
        if weights.values is not None:
            piece = piece._replace(weights=weights.read(*span))
        if piece.y is None:
            raise DataError(
                f"{self._source.where(i)}: there are no labels; name a target, or give y, where the parts are made."
            )
        self._refuse_text(piece.X)
        if self._watch is not None:
            self._watch.loaded(i)
        return piece

    def _refuse_text(self, X):
        if not hasattr(X, "columns"):
            return
        texts = [str(name) for name, dtype in X.dtypes.items() if getattr(dtype, "kind", "O") not in "iufb"]
        if texts:
            raise DataError(f"Partitions: the column {texts[0]!r} is text; make numbers of it: rows.encoded().")

    def map_rows(self, function: Callable[[Any], np.ndarray]) -> np.ndarray:
        """Apply a function to the features of one part after the other, and join what it returns.

        Parameters
        ----------
        function : callable
            From features to an array of one row for each of theirs.

        Returns
        -------
        ndarray of shape (n_rows, ...)
        """
        result = []
        for i, size in enumerate(self.sizes):
            if size:
                X = self[i].X
                self._refuse_text(X)
                with self._named_errors(i):
                    result.append(function(X))
        return np.concatenate(result)

    @contextmanager
    def _named_errors(self, i):
        """Say in errors on values which part they are about."""
        try:
            yield
        except ValueError as error:
            sentence = str(error).split("\n")[0].strip(" .")
            raise DataError(f"{self._source.where(i)}: {sentence}.") from error


class _Watch:
    """Says now and then how far the reading has come; a pass begins where a part comes before the last one."""

    def __init__(self, n_parts, report, seconds):
        self._n_parts, self._report, self._seconds = n_parts, report, seconds
        self._passes, self._last = 0, n_parts
        self._begun = self._said = time.monotonic()

    def loaded(self, i):
        """Take note of a part."""
        if i <= self._last:
            self._passes += 1
        self._last = i
        now = time.monotonic()
        if now - self._said >= self._seconds:
            self._said = now
            self._report(f"pass {self._passes}: {i + 1} of {self._n_parts} parts read ({now - self._begun:.0f} s)")


def _as_table(X):
    """Return rows as an array, a CSR matrix or a tidy frame."""
    if hasattr(X, "iloc") or is_foreign(X):
        return tidy(X)
    X = checked_csr(X, "Partitions.from_arrays") if sp.issparse(X) else np.asarray(X)
    if X.ndim != 2:
        raise DataError(f"Partitions.from_arrays: expected rows and columns, got an array of {X.ndim} dimensions.")
    return X


def _stacked(values):
    if any(value is None for value in values):
        return None
    if sp.issparse(values[0]):
        return sp.vstack(values, format="csr")
    if hasattr(values[0], "iloc"):
        import pandas as pd
        from pandas.api.types import union_categoricals

        stacked = {}
        for name in values[0].columns:
            columns = [value[name] for value in values]
            categorical = str(columns[0].dtype) == "category"
            stacked[name] = (
                union_categoricals(columns, sort_categories=True) if categorical else np.concatenate(columns)
            )
        return pd.DataFrame(stacked)
    return np.concatenate(values)


def _checked_dtype(dtype):
    if dtype is not None and np.dtype(dtype) not in (np.float32, np.float64):
        raise DataError(f"Partitions: dtype must be float32 or float64, got {np.dtype(dtype)}.")
    return dtype
