"""Dask arrays, dataframes and delayed partitions as training data.

``fit``, ``predict``, ``decision_function`` and ``score`` take Dask collections as they take arrays: rows stay on the
workers, and only sums and weights travel (:mod:`margindist.spaces.cluster`). What is predicted of a collection is lazy.
:class:`DaskPartitions` is for those who want to name a client or a time limit.
"""

import functools
import itertools
import operator
import uuid
from collections.abc import Callable
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike

from margindist.spaces.cluster import Chunk, ClusterPlace, runs
from margindist.spaces.partitions import PartitionedData, Piece
from margindist.spaces.sparse import checked_csr

__all__ = ["DaskPartitions", "persist"]

_TIMEOUT = 600.0
_NUMBERS = "biuf"  # kinds of dtypes that are numbers


def is_dask(data: Any) -> bool:
    """Tell whether data are a Dask collection, or a list of delayed partitions or futures, without importing Dask."""
    first = data[0] if isinstance(data, (list, tuple)) and len(data) else data
    return type(first).__module__.partition(".")[0] in ("dask", "dask_expr", "distributed")


def as_partitions(X: Any) -> PartitionedData | None:
    """Return data in partitions (:class:`PartitionedData`), made of a Dask collection if need be, or None."""
    if isinstance(X, PartitionedData):
        return X
    return DaskPartitions(X) if is_dask(X) else None


class DaskPartitions(PartitionedData):
    """Rows in a Dask collection, for ``fit`` and its companions.

    Estimators make one of every collection they are given; make it yourself to choose the client or a time limit.

    Parameters
    ----------
    X : dask array, dask dataframe, or list of delayed objects or futures
        Rows. Every chunk has all columns; chunks may be NumPy arrays, SciPy's CSR or pandas dataframes, of any length.

    client : distributed.Client, default=None
        Connection to the cluster; None is the current one.

    timeout : float, default=None
        Seconds without any progress after which a fit gives up; None is ``dask.config.get("margindist.timeout")``, or
        600.

    classes : array-like, default=None
        All labels there may be, also those without a row; others are refused. None takes those that occur.

    Attributes
    ----------
    n_partitions : int
        Number of chunks.

    feature_names : list or None
        Columns of a dataframe.

    Examples
    --------
    >>> import dask.array as da
    >>> from margindist.dask import DaskPartitions
    >>> DaskPartitions(da.ones((100, 3), chunks=(20, 3))).n_partitions
    5
    """

    def __init__(self, X: Any, *, client: Any = None, timeout: float | None = None, classes: ArrayLike | None = None):
        if not is_dask(X):
            raise TypeError(
                f"expected a Dask array or dataframe, or a list of delayed partitions, got {type(X).__name__}."
            )
        self._X = X
        self._client = client
        self._timeout = timeout
        self.classes = None if classes is None else np.unique(np.asarray(classes))
        self._check_rows()
        self.n_partitions = _n_partitions(X)
        self.feature_names = list(X.columns) if _is_frame(X) else None

    def _check_rows(self):
        """Refuse what is plainly no table of numbers, before anything is computed."""
        X = self._X
        if _is_array(X):
            if X.ndim != 2:
                raise ValueError(f"expected X with rows and columns, got a Dask array of {X.ndim} dimensions.")
            if X.numblocks[1] != 1:
                raise ValueError(
                    f"expected chunks with all columns of X, got {X.numblocks[1]} chunks side by side; "
                    f"use X.rechunk({{1: -1}})."
                )
            if X.dtype is not None and X.dtype.kind not in _NUMBERS:
                raise ValueError(f"expected X of numbers, got a Dask array of {X.dtype}; encode it before the fit.")
        elif _is_frame(X):
            other = [f"{name!r} ({kind})" for name, kind in X.dtypes.items() if kind.kind not in _NUMBERS]
            if other:
                raise ValueError(
                    f"expected columns of numbers, got {', '.join(other[:5])}{', ...' if other[5:] else ''}; encode "
                    f"them, for instance by dd.get_dummies, or leave them out."
                )
        elif not isinstance(X, (list, tuple)):
            raise TypeError(f"expected X with rows and columns, got a Dask {type(X).__name__}.")

    # ------------------------------------------------------------------ training

    def place(self, y: Any, sample_weight: Any = None, n_jobs: int = 1) -> ClusterPlace:
        """Return the place that a solver visits.

        Parameters
        ----------
        y : dask array, dask series, or list of delayed objects or futures
            Labels, with the chunks of X.
        sample_weight : as y, default=None
            How often each row counts.
        n_jobs : int, default=1
            Ignored: each worker uses the threads it has.

        Returns
        -------
        ClusterPlace
        """
        for name, values in (("y", y), ("sample_weight", sample_weight)):
            if values is not None or name == "y":
                self._check_alignment(name, values)
        client = _connected(self._client)
        columns = [_delayed_partitions(values) for values in (self._X, y)]
        columns.append([None] * self.n_partitions if sample_weight is None else _delayed_partitions(sample_weight))
        rows = _futures_of_partitions(self._X, self.n_partitions)
        chunks = [Chunk(functools.partial(_delayed_piece, *parts), rows[i]) for i, parts in enumerate(zip(*columns))]
        return ClusterPlace(client, chunks, self._limit())

    def _limit(self):
        import dask

        return float(dask.config.get("margindist.timeout", _TIMEOUT) if self._timeout is None else self._timeout)

    def _check_alignment(self, name, values):
        """Refuse labels or weights that do not lie beside the rows."""
        if not is_dask(values):
            raise TypeError(
                f"expected {name} as a Dask collection with the chunks of X, got {type(values).__name__}; "
                f"use dask.array.from_array({name}, chunks=X.chunks[0])."
            )
        if getattr(values, "ndim", 1) != 1:
            raise ValueError(
                f"expected {name} with one dimension, got a Dask {type(values).__name__} of {values.ndim}."
            )
        if _n_partitions(values) != self.n_partitions:
            raise ValueError(
                f"expected {name} in {self.n_partitions} partitions like X, got {_n_partitions(values)}; "
                f"{_like_X(name, values)}."
            )
        if _is_array(self._X) and _is_array(values):
            pairs = zip(self._X.chunks[0], values.chunks[0], strict=True)
            different = [(i, a, b) for i, (a, b) in enumerate(pairs) if a != b and not np.isnan([a, b]).any()]
            if different:
                i, expected, got = different[0]
                raise ValueError(
                    f"expected {name} with the chunks of X, got {got} instead of {expected} entries in partition {i}; "
                    f"{_like_X(name, values)}."
                )
        if _is_frame(self._X) and hasattr(values, "known_divisions"):
            both = self._X.known_divisions and values.known_divisions
            if both and self._X.divisions != values.divisions:
                raise ValueError(
                    f"expected {name} with the divisions of X, got others; take both from one dataframe, or use "
                    f"{name}.repartition(divisions=X.divisions)."
                )

    # ------------------------------------------------------------------ prediction

    def map_rows(self, function: Callable[[Any], np.ndarray]) -> Any:
        """Apply a function to the rows of every partition, when the result is computed.

        Parameters
        ----------
        function : callable
            From rows to an array with as many entries.

        Returns
        -------
        dask array, or list of delayed objects
            A list for a list of partitions.
        """
        import dask
        import dask.array as da

        task = dask.delayed(function, pure=True)
        if not (_is_array(self._X) or _is_frame(self._X)):
            return [dask.delayed(_apply)(task, rows) for rows in self._X]
        trial = self._trial()
        like = function(trial)
        if _is_frame(self._X):
            parts = [dask.delayed(_apply)(task, rows, like[:0]) for rows in self._X.to_delayed()]
            shape = (np.nan, *like.shape[1:])
            return da.concatenate([da.from_delayed(part, shape, like.dtype) for part in parts])
        sizes = {"drop_axis": 1} if like.ndim == 1 else {"chunks": (self._X.chunks[0], (like.shape[1],))}
        return self._X.map_blocks(_apply_to, function=task, none=like[:0], dtype=like.dtype, meta=like[:0], **sizes)

    def _trial(self):
        """Return one row of zeros, with names if there are names."""
        zeros = np.zeros((1, self._X.shape[1]))
        if not _is_frame(self._X):
            return zeros
        return type(self._X._meta)(zeros, columns=self._X.columns)


def _is_array(data):
    return hasattr(data, "numblocks") and hasattr(data, "chunks")


def _is_frame(data):
    return hasattr(data, "npartitions") and hasattr(data, "columns") and getattr(data, "ndim", 0) == 2


def _n_partitions(data):
    if isinstance(data, (list, tuple)):
        return len(data)
    return data.numblocks[0] if _is_array(data) else data.npartitions


def _like_X(name, values):
    """Return what makes labels or weights lie beside the rows."""
    if isinstance(values, (list, tuple)):
        return f"give one of {name} per partition"
    return f"use {name}.rechunk((X.chunks[0],))" if _is_array(values) else f"use {name}.repartition(X.npartitions)"


def _delayed_partitions(data):
    if isinstance(data, (list, tuple)):
        return list(data)
    return np.ravel(data.to_delayed()).tolist() if _is_array(data) else list(data.to_delayed())


def _futures_of_partitions(X, n_partitions):
    """Return the future of each partition's rows, or None, where none are computed or they cannot be told apart."""
    from distributed import futures_of

    if isinstance(X, (list, tuple)):
        result = [futures_of([rows]) for rows in X]
        return [futures[0] if len(futures) == 1 else None for futures in result]
    numbered = {}
    for future in futures_of(X):
        if isinstance(future.key, tuple) and len(future.key) > 1:
            numbered.setdefault(future.key[0], {})[future.key[1]] = future
    for futures in numbered.values():
        if sorted(futures) == list(range(n_partitions)):
            return [futures[i] for i in range(n_partitions)]
    return [None] * n_partitions


# ---------------------------------------------------------------------- before several fits


def persist(*collections: Any, client: Any = None) -> tuple[Any, ...]:
    """Compute collections once for several fits, each worker a run of neighbouring partitions.

    A fit leaves persisted rows where they are. Dask's own ``persist`` deals partitions out like cards; then a worker's
    sums cannot be added up before they are sent, and a round moves one record per partition instead of a few per
    worker. Results have the same bits in either case.

    Parameters
    ----------
    *collections : dask arrays or dataframes
        Rows, labels and weights, with equal numbers of partitions.

    client : distributed.Client, default=None
        Connection to the cluster; None is the current one.

    Returns
    -------
    tuple
        The collections, whose partitions are being computed on the workers that will have them.
    """
    client = _connected(client)
    homes = runs(_n_partitions(collections[0]), client.nthreads())
    persisted = []
    for collection in collections:
        if _n_partitions(collection) != len(homes):
            raise ValueError(
                f"expected collections in {len(homes)} partitions, like the first, got {_n_partitions(collection)}."
            )
        parts, futures = _delayed_partitions(collection), []
        for home, group in itertools.groupby(zip(homes, parts, strict=True), key=operator.itemgetter(0)):
            futures += client.compute([part for _, part in group], workers=[home], allow_other_workers=True)
        persisted.append(_collection_of(futures, collection))
    return tuple(persisted)


def _collection_of(futures, like):
    """Return futures as a collection like another one."""
    if _is_array(like):
        import dask.array as da

        name = f"persisted-{uuid.uuid4().hex}"
        graph = {(name, i, *(0,) * (like.ndim - 1)): future for i, future in enumerate(futures)}
        return da.Array(graph, name, like.chunks, meta=like._meta)
    import dask.dataframe as dd

    return dd.from_delayed(futures, meta=like._meta, divisions=like.divisions, verify_meta=False)


# ---------------------------------------------------------------------- on a worker


def _delayed_piece(X, y, weights):
    import dask

    return dask.delayed(_piece, pure=False)(X, y, weights)


def _piece(X, y, weights):
    """Return a partition without pandas and without rows of weight zero; copied once where it must be."""
    X, y = _matrix(X), np.asarray(y)
    if weights is not None:
        weights = np.require(weights, np.float64, "A")
        if weights.shape == y.shape == X.shape[:1] and not weights.all():
            kept = np.flatnonzero(weights)
            X, y, weights = X[kept], y[kept], weights[kept]
    return Piece(X, y, weights)


def _matrix(X):
    """Return an array or CSR; the columns of a dataframe are copied one after the other, into their place.

    What came over the network may begin at any byte: there compiled code is slow, and sums may round otherwise.
    """
    if sp.issparse(X):
        X = checked_csr(X, "a partition")
        parts = tuple(np.require(part, requirements="A") for part in (X.data, X.indices, X.indptr))
        return type(X)(parts, shape=X.shape, copy=False)
    if not hasattr(X, "dtypes") or not hasattr(X, "columns"):
        return np.require(X, requirements="A")
    small = len(X.columns) and all(kind == np.float32 for kind in X.dtypes)
    out = np.empty(X.shape, dtype=np.float32 if small else np.float64)
    for j in range(X.shape[1]):
        out[:, j] = X.iloc[:, j].to_numpy(dtype=out.dtype, na_value=np.nan)
    return out


def _apply(function, rows, none=None):
    """Call a function that refuses to be called without rows."""
    if none is not None and rows.shape[0] == 0:
        return none
    return function(rows)


def _apply_to(rows, function, none):
    return _apply(function, rows, none)


# ---------------------------------------------------------------------- the client


def _connected(client):
    """Return the client given, or the current one, if it can be worked with."""
    from distributed import get_client

    if client is None:
        try:
            client = get_client()
        except ValueError:
            raise ValueError(
                "expected a Dask client for rows in a Dask collection, found none; make one by distributed.Client()."
            ) from None
    if client.asynchronous:
        raise ValueError("expected a synchronous Dask client, got an asynchronous one; use Client(asynchronous=False).")
    if client.status != "running":
        raise ValueError(f"expected an open Dask client, but it is {client.status}; connect a new one.")
    _check_versions(client)
    return client


def _check_versions(client):
    """Refuse workers that would not compute what the client expects."""
    result = client.get_versions(packages=["margindist"])
    here = result["client"]["packages"]
    for address, worker in result["workers"].items():
        there = worker["packages"]
        for name, precision in (("margindist", None), ("python", 2)):
            expected, got = (_version(packages.get(name), precision) for packages in (here, there))
            if expected != got:
                raise ValueError(
                    f"expected {name} {expected} on all Dask workers, as here, but {address} has "
                    f"{got or 'none'}; install the same version everywhere."
                )


def _version(text, precision):
    return text if text is None or precision is None else ".".join(text.split(".")[:precision])
