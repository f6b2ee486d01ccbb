r"""Rows in partitions: where they live, and how a solver visits them in rounds.

A solver that needs only sums over rows does not have to see them. It keeps the weights and small sums, and asks for
*rounds*: every partition runs one method on its own rows and its own state, and answers with a small record; the
records of all partitions, reduced, are what the solver goes on with. The same solver serves rows in memory in one
piece, in several with threads, in files that are read one after the other, and on the workers of a cluster. Four words:

**Part.** A solver's state for one partition of one problem: ``part_type(rows, targets, weights, *arguments)``, with
rows as in :mod:`margindist.spaces.rows`, labels as codes (or signs), and positive weights. Its methods are the rounds,
``part.method(rows, *args) -> record``. Rows are handed in anew each time, since a place may have read them anew; a part
keeps what it needs beside them (margins, multipliers), never the rows given. Rounds named in its attribute ``rowless``
(a set, empty if there is none) are called with ``None`` for rows, which spares a file place the reading. A part is
never made for a partition without rows. Its type and arguments must be picklable by reference, since they travel.

**Record.** A dict of sums: numbers, arrays of equal shapes, lists (which are joined). Names that end in ``_min`` and
``_max`` are minima and maxima. Records are reduced by :class:`Tree`, pairwise over partition numbers: the result has
the same bits for any number of threads or workers.

**Generator of rounds.** A solver yields :class:`Round` and receives the reduced record; it returns its solution.
:func:`drive` runs several of them (one per class) in lockstep, so that all problems share one sweep over the rows.

**Place.** Knows where the partitions are; it has

==========================  ================================================================================
``n_partitions``            how many there are, empty ones included
``open(type, arguments)``   forget all parts; a part of that type per partition and problem, with ``arguments[k]``
``run(requests)``           run pairs ``(problem, Round)`` on every partition, all of them while its rows are there;
                            return the reduced records. Raises :class:`PartsLost` if parts are gone: open again
``close()``                 let go of parts, threads and files
==========================  ================================================================================

:class:`LocalPlace` is the one for this process; its ``nodes`` serve a worker, which has some partitions of many and
sends complete subtrees of the reduction. What it reads is a *loader*: ``load(i)`` returns :class:`Loaded` rows. Data as
users have them become such a loader by :class:`Encoder`, which validates, encodes labels and drops rows of weight zero.

**Data in partitions**, which the estimators' ``fit`` and ``decision_function`` take for X, is a
:class:`PartitionedData`:

==========================================  ================================================================
``n_partitions``                            number of partitions
``place(y, sample_weight, n_jobs=1)``       a place over raw partitions; ``y`` and ``sample_weight`` as ``fit``
                                            was given them, None where they are part of the data. The place has
                                            one method more, ``encode(encoding)``, see :class:`Encoding`
``map_rows(function)``                      apply ``function(X) -> array`` to the rows of every partition; return
                                            what users shall get: one array, or a lazy collection
``feature_names``                           names of the columns, or None
==========================================  ================================================================

Stable: the four words above, :class:`Round`, :class:`Tree`, :func:`drive`, :class:`PartsLost`, :class:`LocalPlace`
(``open``, ``run``, ``nodes``, ``encode``, ``close``), :class:`Piece`, :class:`Encoding`, :class:`Encoder`, and
:class:`PartitionedData`.
"""

import threading
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, wait
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from margindist.kernels import spread_of_entries, sum_of_entries
from margindist.spaces.rows import as_matrix, as_rows, n_rows, n_stored, row_range, stored_bytes
from margindist.spaces.sparse import canonical, checked_csr

__all__ = [
    "Encoder",
    "Encoding",
    "Loaded",
    "LocalPlace",
    "PartitionedData",
    "PartsLost",
    "Piece",
    "Round",
    "Survey",
    "Tree",
    "drive",
    "in_memory",
]

_FEWEST_ROWS = 4096  # of a partition in memory
_FEWEST_VALUES = 1 << 21  # of a partition in memory: below, starting a round costs more than a second thread brings
_MOST_PARTITIONS = 64  # of rows in memory


class Round(NamedTuple):
    """One method of all parts of a problem, and its arguments."""

    name: str
    args: tuple = ()
    coef: np.ndarray | None = None  # where the solver is: from there it starts anew if parts are lost


class PartsLost(Exception):
    """Parts, and the state in them, are gone (a worker died, say); the place can open new ones."""


class Tree:
    """The reduction of records: pairwise over partition numbers, whatever order they come in.

    A node ``(level, index)`` stands for the partitions from ``index << level`` on, ``1 << level`` of them. Two siblings
    become their parent as soon as both are there, so no more records are held than the tree has levels where they come
    in order. ``None`` is the record of an empty partition.

    Parameters
    ----------
    n_partitions : int
        Number of partitions of the whole reduction.
    """

    def __init__(self, n_partitions):
        self.nodes = {}
        self._n_partitions = n_partitions
        self._top = max(n_partitions - 1, 0).bit_length()

    def add(self, index, record, level=0):
        """Take in the record of a partition, or of a complete subtree that another tree has reduced."""
        while level < self._top:
            sibling = index ^ 1
            alone = sibling << level >= self._n_partitions
            if not alone and (level, sibling) not in self.nodes:
                break
            if not alone:
                other = self.nodes.pop((level, sibling))
                record = _combine(record, other) if index < sibling else _combine(other, record)
            index >>= 1
            level += 1
        self.nodes[level, index] = record

    def include(self, nodes):
        """Take in what another tree of the same partitions has reduced."""
        for level, index in sorted(nodes):
            self.add(index, nodes[level, index], level)

    def result(self):
        """Return the record of all partitions."""
        if list(self.nodes) != [(self._top, 0)]:
            raise ValueError(f"expected records of {self._n_partitions} partitions, got the nodes {sorted(self.nodes)}")
        return self.nodes[self._top, 0]


def _combine(first, second):
    """Return the record of two partitions together, of which one may be empty."""
    if first is None or second is None:
        return second if first is None else first
    return {name: _combined(name, value, second[name]) for name, value in first.items()}


def _combined(name, first, second):
    if name.endswith("_min"):
        return np.minimum(first, second)
    if name.endswith("_max"):
        return np.maximum(first, second)
    return first + second


# ---------------------------------------------------------------------- solvers in rounds


def drive(place, part_type, arguments, begin, starts=None):
    """Run one generator of rounds per problem, in lockstep, and return what they return.

    Parameters
    ----------
    place : place
        Where the partitions are.
    part_type : type
        The solver's state for a partition.
    arguments : sequence of tuple
        Of the parts of each problem.
    begin : callable
        From a problem's number and a start (coefficients, or None) to a generator of rounds.
    starts : sequence, optional
        Coefficients to start from.

    Returns
    -------
    list
        What the generators returned, one per problem.
    """
    latest = [None] * len(arguments) if starts is None else list(starts)
    results = {}
    while True:
        place.open(part_type, arguments)
        try:
            _lockstep(
                place, {k: begin(k, latest[k]) for k in range(len(arguments)) if k not in results}, latest, results
            )
            return [results[k] for k in range(len(arguments))]
        except PartsLost:  # what is solved stays solved, the others start from their last iterate
            continue


def _lockstep(place, generators, latest, results):
    """Advance the generators together until all have returned; keep their coefficients and results."""
    records = dict.fromkeys(generators)
    while generators:
        requests = []
        for k, generator in list(generators.items()):
            try:
                request = generator.send(records[k])
            except StopIteration as finished:
                results[k] = finished.value
                del generators[k]
                continue
            if request.coef is not None:
                latest[k] = request.coef
            requests.append((k, request))
        if requests:
            records = {k: record for (k, _), record in zip(requests, place.run(requests), strict=True)}


# ---------------------------------------------------------------------- partitions in this process


class Loaded(NamedTuple):
    """A partition as parts take it."""

    rows: Any  # of :mod:`margindist.spaces.rows`
    targets: np.ndarray  # codes or signs, or labels before they are encoded
    weights: np.ndarray  # positive


class LocalPlace:
    """Partitions that this process loads: slices of rows in memory, files, or a worker's share of a cluster's.

    Parameters
    ----------
    load : callable
        From a partition's number to :class:`Loaded`. It is called for every sweep that needs rows.
    n_partitions : int
        Number of all partitions there are.
    mine : sequence of int, optional
        The partitions that are here; all, if not given.
    n_jobs : int
        Threads, each with one partition at a time.
    read_ahead : int
        Partitions that are loaded while others are worked on, by one more thread; for files.

    Attributes
    ----------
    spare_bytes : int
        Memory, per partition, for copies of rows that spare the reading; for files.
    """

    def __init__(self, load, n_partitions, mine=None, n_jobs=1, read_ahead=0):
        self.n_partitions = n_partitions
        self._load = load
        self._mine = list(range(n_partitions)) if mine is None else sorted(mine)
        self._pool = ThreadPoolExecutor(n_jobs) if n_jobs > 1 and len(self._mine) > 1 else None
        self._reader = ThreadPoolExecutor(1) if read_ahead and len(self._mine) > 1 else None
        self._n_jobs = n_jobs
        self._window = max(1, n_jobs) + read_ahead
        self.spare_bytes = 0
        self._parts = {}
        self._type, self._arguments = None, ()

    def open(self, part_type, arguments):
        """Forget all parts; new ones of that type are made when first needed, with ``arguments[k]`` for problem k."""
        self._parts = {}
        self._type, self._arguments = part_type, arguments

    def encode(self, encoding):
        """Turn labels into codes, and rows into features, from now on, if the loader can."""
        self._parts = {}
        if encoding.feature_map is not None:
            self.spare_bytes //= 2  # the other half may be taken by features
        self._load.encode(encoding)

    def run(self, requests):
        """Run pairs of a problem's number and a round; return the reduced records."""
        trees = [Tree(self.n_partitions) for _ in requests]
        for tree, nodes in zip(trees, self.nodes(requests), strict=True):
            tree.include(nodes)
        return [tree.result() for tree in trees]

    def nodes(self, requests):
        """Return, for each request, the complete subtrees of the reduction that the partitions here make."""
        trees = [Tree(self.n_partitions) for _ in requests]
        if self._pool is not None and self._reader is None:
            self._share_out(requests, trees)
        else:
            for index, records in self._sweep(requests):
                for tree, record in zip(trees, records, strict=True):
                    tree.add(index, record)
        return [tree.nodes for tree in trees]

    def close(self):
        """Let go of parts, threads and what the loader holds."""
        self._parts = {}
        for pool in (self._pool, self._reader):
            if pool is not None:
                pool.shutdown()

    def _share_out(self, requests, trees):
        """Let every thread take the next partition, and add up its records, until there are no more.

        Rounds take milliseconds: a thread that had to wait until this one hands it the next partition would be idle
        for a good part of them.
        """
        left = deque(self._mine)
        lock = threading.Lock()

        def work():
            while True:
                with lock:
                    if not left:
                        return
                    index = left.popleft()
                records = self._work(index, self._rows_for(index, requests), requests)
                with lock:
                    for tree, record in zip(trees, records, strict=True):
                        tree.add(index, record)

        jobs = [self._pool.submit(work) for _ in range(self._n_jobs - 1)]
        try:
            work()
        finally:
            left.clear()  # after an error, or Ctrl-C, nobody goes on
            wait(jobs)
        for job in jobs:
            job.result()

    def _sweep(self, requests):
        """Yield partition and records, in order, with a bounded number of partitions in memory."""
        if self._reader is None:
            for index in self._mine:
                yield index, self._work(index, self._rows_for(index, requests), requests)
            return
        waiting = deque()
        for index in self._mine:
            waiting.append((index, self._submit(index, requests)))
            if len(waiting) >= self._window:
                index, job = waiting.popleft()
                yield index, job()
        while waiting:
            index, job = waiting.popleft()
            yield index, job()

    def _submit(self, index, requests):
        """Start loading a partition, and working on it where there are threads; return what waits for its records."""
        loading = self._reader.submit(self._rows_for, index, requests)
        if self._pool is None:
            return lambda: self._work(index, loading.result(), requests)
        return self._pool.submit(lambda: self._work(index, loading.result(), requests)).result

    def _rows_for(self, index, requests):
        """Return the partition, loaded if a round needs its rows or a part is to be made."""
        for k, request in requests:
            part = self._parts.get((index, k), self)
            if part is self or (part is not None and request.name not in getattr(part, "rowless", ())):
                return self._load(index)
        return None

    def _work(self, index, loaded, requests):
        """Run the requests on one partition; None is the answer of one without rows."""
        rows = None if loaded is None else loaded.rows
        records = []
        for k, request in requests:
            if (index, k) not in self._parts:
                made = self._type(*loaded, *self._arguments[k]) if n_rows(rows) else None
                self._parts[index, k] = made
            part = self._parts[index, k]
            records.append(None if part is None else getattr(part, request.name)(rows, *request.args))
        return records


def in_memory(rows, targets, weights, n_jobs=1):
    """Return a place of rows in memory: one piece, or several if there are many values.

    How many depends on the shape alone, never on the number of threads: results have the same bits for any.
    """
    m = n_rows(rows)
    n_partitions = int(np.clip(min(m // _FEWEST_ROWS, n_stored(rows) // _FEWEST_VALUES), 1, _MOST_PARTITIONS))
    edges = np.linspace(0, m, n_partitions + 1).astype(int)

    def load(i):
        piece = slice(edges[i], edges[i + 1])
        return Loaded(row_range(rows, *edges[i : i + 2]), targets[piece], weights[piece])

    return LocalPlace(load, n_partitions, n_jobs=n_jobs)


# ---------------------------------------------------------------------- from users' partitions to rows


class PartitionedData(ABC):
    """Data in partitions: estimators tell them from rows in memory by this type, not by the names of their methods."""

    n_partitions: int
    feature_names: Any

    @abstractmethod
    def place(self, y: Any, sample_weight: Any = None, n_jobs: int = 1) -> Any:
        """Return a place over the raw partitions, which can ``encode``."""

    @abstractmethod
    def map_rows(self, function: Callable[[Any], np.ndarray]) -> Any:
        """Apply a function to the rows of every partition."""


class Piece(NamedTuple):
    """A partition as users have it."""

    X: Any  # array-like or CSR
    y: Any = None  # labels; None where they are not needed
    weights: Any = None  # one per row, or None for ones


class Encoding(NamedTuple):
    """What turns labels into codes, and weights of samples into those of the problem."""

    classes: np.ndarray  # sorted
    class_weights: np.ndarray
    fit_intercept: bool
    feature_map: Any = None  # from the rows to the features that solvers see in their place; None: the rows themselves
    cache_bytes: float = 0  # memory for features that need not be made in every sweep, in each process


class Encoder:
    """A loader of validated rows: labels become codes, rows of weight zero are left out, errors name the partition.

    Before :meth:`encode` is called, targets are the labels themselves.

    Parameters
    ----------
    pieces : callable
        From a partition's number to its :class:`Piece`.
    name : callable
        From a partition's number to what errors call it, "partition 3" by default.
    """

    def __init__(self, pieces: Callable[[int], Piece], name: Callable[[int], str] = "partition {}".format):
        self._pieces = pieces
        self._name = name
        self._encoding = None
        self._known = {}  # by partition: targets, weights and which rows have one, after the first visit
        self._mapped = {}  # by partition: what is kept of features
        self._lock = threading.Lock()

    def encode(self, encoding):
        """Set how labels become codes, and rows features."""
        self._encoding = encoding
        self._known = {}
        self._mapped = {}
        self._room = encoding.cache_bytes

    def __call__(self, index):
        """Return the partition as parts take it."""
        if index in self._mapped:
            return self._mapped[index]
        piece = self._pieces(index)
        X = _as_matrix(piece.X, self._name(index))
        if index not in self._known:
            self._known[index] = self._targets(piece, X, self._name(index))
        targets, weights, kept = self._known[index]
        if kept is not None:
            X = X[kept]
        if self._encoding is None:
            return Loaded(as_rows(X), targets, weights)
        if self._encoding.feature_map is None:
            return Loaded(as_rows(X, self._encoding.fit_intercept), targets, weights)
        return self._kept(index, Loaded(as_rows(self._encoding.feature_map(X)), targets, weights))

    def _kept(self, index, loaded):
        """Return a partition's features, and keep them while there is room."""
        with self._lock:
            if stored_bytes(loaded.rows) <= self._room:
                self._room -= stored_bytes(loaded.rows)
                self._mapped[index] = loaded
        return loaded

    def _targets(self, piece, X, name):
        """Check what is not finite or does not match; return targets, weights, and the rows to keep (None: all)."""
        _check_finite(X, name)
        y = np.asarray(piece.y)
        weights = np.ones(len(y)) if piece.weights is None else np.asarray(piece.weights, dtype=np.float64)
        for what, values in (("labels", y), ("sample weights", weights)):
            if values.shape != (X.shape[0],):
                raise ValueError(
                    f"{name}: expected one of the {what} per row, got shape {values.shape} for {X.shape[0]} rows."
                )
        if y.dtype.kind == "f" and np.isnan(y).any():
            raise ValueError(f"{name}: expected a label for every row, got nan in row {int(np.isnan(y).argmax())}.")
        if not np.isfinite(weights).all() or (weights < 0.0).any():
            raise ValueError(
                f"{name}: expected finite sample weights, none negative: they count how often a row is there."
            )
        if self._encoding is not None:
            y = _codes(y, self._encoding.classes, name)
            weights = weights * self._encoding.class_weights[y]
        if weights.all():
            return y, weights, None
        kept = np.flatnonzero(weights)
        return y[kept], weights[kept], kept


def _codes(y, classes, name):
    """Return the places of labels among the classes."""
    codes = np.minimum(np.searchsorted(classes, y), len(classes) - 1).astype(np.int32)
    unknown = classes[codes] != y
    if unknown.any():
        label = y[unknown.argmax()].item()
        raise ValueError(f"{name}: the label {label!r} is not among the classes {classes.tolist()}.")
    return codes


def _as_matrix(X, name):
    """Return a C-contiguous array or canonical CSR of float32 or float64, copied only where it is not that yet."""
    if sp.issparse(X):
        X = canonical(checked_csr(X, name))
        return X if X.dtype in (np.float32, np.float64) else X.astype(np.float64)
    X = np.asarray(X)
    if X.ndim != 2:
        raise ValueError(f"{name}: expected rows and columns, got an array of {X.ndim} dimensions.")
    try:
        return np.ascontiguousarray(X, dtype=X.dtype if X.dtype in (np.float32, np.float64) else np.float64)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{name}: expected numbers, got {X.dtype} ({error}); encode text before the fit.") from error


def _check_finite(X, name):
    values = X.data if sp.issparse(X) else X.reshape(-1)
    with np.errstate(over="ignore", invalid="ignore"):
        total = float(values @ values)  # finite for ordinary data, and cheaper than looking at each value
    if np.isfinite(total) or np.isfinite(values).all():
        return
    place = int(np.flatnonzero(~np.isfinite(values))[0])
    row, column = (
        (int(np.searchsorted(X.indptr, place, "right")) - 1, int(X.indices[place]))
        if sp.issparse(X)
        else divmod(place, X.shape[1])
    )
    raise ValueError(
        f"{name}: expected finite numbers, got {values[place]} in row {row}, column {column}; impute or drop such rows."
    )


class Survey:
    """What a fit must know of all partitions before it starts: a part whose targets are labels."""

    def __init__(self, rows, targets, weights):
        self.targets = targets
        self.weights = weights

    def look(self, rows):
        """Return the numbers of rows and columns, and the labels with the weight of their rows."""
        m = n_rows(rows)
        labels, codes = np.unique(self.targets, return_inverse=True)
        features = rows.X.shape[1] if hasattr(rows, "X") else rows.n_features
        totals = np.bincount(codes, weights=self.weights, minlength=len(labels))
        return {
            "rows": m,
            "rows_max": m,
            "columns_min": features,
            "columns_max": features,
            "labels": [(labels, totals)],
            "sparse_max": not hasattr(rows, "X"),
        }

    def entries(self, rows):
        """Return the sum of all entries, weighted, and the weight."""
        return {"sum": sum_of_entries(as_matrix(rows), self.weights), "weight": self.weights.sum()}

    def spread(self, rows, centre):
        """Return the weighted sum of the squared distances of all entries from a number."""
        return {"square": spread_of_entries(as_matrix(rows), self.weights, centre)}

    def sample(self, rows, share, seed):
        """Return some rows with their labels, and where they stand; ``share`` of all, in their order."""
        m = n_rows(rows)
        rng = np.random.default_rng([seed, m])
        which = np.sort(rng.choice(m, int(np.ceil(share * m)), replace=False))
        return {"rows": [as_matrix(rows)[which]], "labels": [self.targets[which]], "places": [(m, which)]}
