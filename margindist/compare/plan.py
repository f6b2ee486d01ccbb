"""The plan of a comparison: which methods, which values they try, which splits, and what was known before."""

import hashlib
import json
import time
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike

from margindist import __version__
from margindist.compare.data import Data, suspicions
from margindist.compare.records import About
from margindist.compare.splits import AT_RANDOM, Blocks, Splits, check_splits, outer_splits
from margindist.datasets import encoder, encoding_notes
from margindist.datasets.dataset import take_rows
from margindist.methods import Shape, choose, search
from margindist.runs.store import Cell

_PROBE_ROWS = 2000
_PILOT_ROWS = 200
_PILOT_SECONDS = 0.5
_UNEQUAL = 3.0  # a class with so many times the rows of another makes accuracy misleading


class Protocol(NamedTuple):
    """How methods are compared; parameters as in :func:`compare`."""

    scoring: str = "accuracy"
    methods: Sequence[str] | None = None
    splits: int = 5
    repeats: int = 2
    seed: int = 0
    quick: bool = False


@dataclass(frozen=True)
class Plan:
    """All that decides the results of a comparison.

    Parameters
    ----------
    dataset : str
        Name of the data.
    checksum : str
        Of their content.
    grids : dict
        From the key of each method to the values it tries of each parameter, quick methods first.
    splits : int
        Folds of the outer cross-validation.
    repeats : int
        How often it is repeated with other folds.
    folds : int
        Folds of the inner cross-validation, which chooses parameters.
    seed : int
        Of folds and methods.
    reserve : list of str
        Keys of methods that run only if the best of the others is of their kind.
    scoring : str
        What methods are ranked by and choose their parameters by.
    positive : str or None
        The rarer class of two, as text: the one that average precision and the report's curves are about.
    divided : {"groups", "time"} or None
        What divides the rows.
    version : str
        Of this library.
    """

    dataset: str
    checksum: str
    grids: Mapping[str, Mapping[str, Sequence[Any]]]
    splits: int
    repeats: int
    folds: int
    seed: int
    reserve: Sequence[str] = ()
    scoring: str = "accuracy"
    positive: str | None = None
    divided: str | None = None
    version: str = __version__

    @property
    def experiment(self) -> str:
        """Name of the experiment in a store: a hash of the plan, so that other plans and other data never mix."""
        text = json.dumps(asdict(self), sort_keys=False)
        return f"compare-{hashlib.sha256(text.encode()).hexdigest()[:16]}"

    @property
    def n_splits(self) -> int:
        """The number of splits, all repeats together."""
        return self.splits * self.repeats

    @property
    def test_share(self) -> float:
        """The mean share of the test part in the rows of a split."""
        if self.divided == "time":  # the k-th of equal blocks is tested after the k before it
            return float(np.mean([1.0 / (k + 1.0) for k in range(1, self.splits + 1)]))
        return 1.0 / self.splits

    def cells(self, keys: Iterable[str] | None = None) -> list[Cell]:
        """Return the cells split by split, quick methods first, so that an unfinished run can be compared.

        Parameters
        ----------
        keys : iterable of str, optional
            Methods; all but the reserve if not given.
        """
        keys = [key for key in self.grids if key not in self.reserve] if keys is None else list(keys)
        return [Cell(self.experiment, self.dataset, key, split) for split in range(self.n_splits) for key in keys]

    def look_cells(self, keys: Iterable[str]) -> list[Cell]:
        """Return the cells of the closer look at methods: every row is tested once, so one repeat is enough.

        Parameters
        ----------
        keys : iterable of str
            Methods.
        """
        keys = list(keys)
        return [Cell(f"{self.experiment}-look", self.dataset, key, k) for k in range(self.splits) for key in keys]

    def parts(self, y: ArrayLike, blocks: Blocks = AT_RANDOM) -> Splits:
        """Return the rows of training and test part of every split.

        Parameters
        ----------
        y : array-like of shape (n_samples,)
            Labels.
        blocks : Blocks
            What divides them.
        """
        return outer_splits(np.asarray(y), blocks, self.splits, self.repeats, self.seed)


def make_plan(
    data: Data, protocol: Protocol, costs: Mapping[str, float] | None = None, say: Callable[[str], None] | None = None
) -> tuple[Plan, About]:
    """Return the plan, and what the report says about the data and the methods left out.

    Parameters
    ----------
    data : Data
    protocol : Protocol
    costs : dict of str to float, optional
        Seconds per split of methods that a pilot has measured before.
    say : callable, optional
        Told when something takes a while.
    """
    for name, least in (("splits", 2), ("repeats", 1), ("seed", 0)):
        if getattr(protocol, name) < least:
            raise ValueError(f"compare: {name} must be at least {least}, got {getattr(protocol, name)}.")
    dataset = data.dataset
    counts = class_counts(dataset)
    notes = [*dataset.notes, *suspicions(data)]
    protocol, folds = _fitting(protocol, counts, data, notes)
    shape = shape_of(dataset.X, len(counts))
    if protocol.scoring == "accuracy":
        notes += _unequal_note(counts)
    pilot = Pilot(dataset, shape, protocol.quick, folds, protocol.seed, costs or {}, say)
    choice = choose(protocol.methods, shape, pilot)
    chosen = [*choice.methods, *choice.reserve]
    grids = {m.key: {k: list(v) for k, v in m.grid(shape, protocol.quick).items()} for m in chosen}
    if len(counts) > 2 and "svc" in grids:
        notes.append("SVC's scores of more than two classes are votes: its margins come in steps, unlike the others'.")
    plan = Plan(
        dataset.name, dataset.checksum, grids, protocol.splits, protocol.repeats, folds, protocol.seed,
        [method.key for method in choice.reserve], protocol.scoring,
        min(counts, key=counts.get) if len(counts) == 2 else None, data.blocks.kind,
    )  # fmt: skip
    about = About(
        classes=counts,
        left_out=choice.left_out,
        source=data.source,
        origin=dataset.source,
        notes=notes,
        encoding=list(encoding_notes(dataset.X)),
        target=dataset.target_name,
        costs=pilot.costs,
        features=list(map(str, dataset.feature_names)),
        methods=None if protocol.methods is None else list(protocol.methods),
        quick=protocol.quick,
        numbers=_numbers(dataset, shape),
    )
    return plan, about


def _fitting(protocol, counts, data, notes):
    """Return the protocol with splits that the data allow, and the number of inner folds."""
    label = min(counts, key=counts.get)
    rarest = counts[label]
    splits = protocol.splits
    if data.blocks.kind is not None:
        parts = outer_splits(np.asarray(data.dataset.y), data.blocks, splits, protocol.repeats, protocol.seed)
        check_splits(parts, np.asarray(data.dataset.y), data.blocks.kind)
        if data.blocks.kind == "time":
            protocol = protocol._replace(splits=len(parts), repeats=1)
        return protocol, 3 if protocol.quick else 5
    if rarest < splits:
        notes.append(f"The class {label!r} has only {rarest} rows, so there are {rarest} splits instead of {splits}.")
        splits = rarest
    return protocol._replace(splits=splits), min(3 if protocol.quick else 5, rarest - -(-rarest // splits))


def _unequal_note(counts):
    """A sentence, in a list, that points out classes of clearly unequal size."""
    largest, smallest = max(counts, key=counts.get), min(counts, key=counts.get)
    ratio = counts[largest] / counts[smallest]
    if ratio < _UNEQUAL:
        return []
    return [
        f"The class {largest!r} has {ratio:.3g} times as many rows as {smallest!r}, so accuracy says little about "
        "small classes; --scoring balanced_accuracy (or f1_macro, roc_auc, average_precision, log_loss) counts them."
    ]


def left_out_notes(left_out):
    """Return sentences on methods that do not run, or not from the start, with those of one reason in one."""
    groups: dict[str, list[str]] = {}
    for label, reason in left_out.items():
        groups.setdefault(reason, []).append(label)
    return [f"{', '.join(labels)}: {reason}" for reason, labels in groups.items()]


class Pilot:
    """Tells how long a method would take for one split, from fits to a part of the rows.

    The search of the method runs on twice as many rows each time, until it takes a second; the growth between the last
    two tells the rest.

    Parameters
    ----------
    dataset : Dataset
    shape : Shape
    quick : bool
    folds : int
    seed : int
    known : dict
        Seconds measured before.
    say : callable, optional
        Told, once, that something is measured.

    Attributes
    ----------
    costs : dict of str to float
        Seconds by method, of those that were asked for.
    """

    def __init__(self, dataset, shape, quick, folds, seed, known=(), say=None):
        self.costs = {}
        self._dataset, self._shape, self._quick, self._folds, self._seed = dataset, shape, quick, folds, seed
        self._known = dict(known)
        self._say = say

    def __call__(self, method):
        """Return the seconds."""
        if method.key not in self.costs:
            self.costs[method.key] = self._known.get(method.key) or self._measure(method)
        return self.costs[method.key]

    def _measure(self, method):
        if self._say is not None:
            self._say("Some methods may be slow on data of this size; pilot fits to some of the rows show how slow.")
            self._say = None
        n_rows = len(self._dataset.y)
        size = min(2 * (method.landmarks or _PILOT_ROWS // 2), n_rows)  # with fewer rows there are fewer landmarks
        times = []
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            self._seconds(method, _PILOT_ROWS // 2)  # compiles
            while not times or (times[-1][1] < _PILOT_SECONDS and size < n_rows):
                size = min(2 * size, n_rows) if times else size
                times.append((size, self._seconds(method, size)))
        (m, seconds), (fewer, before) = times[-1], times[-2:][0]
        if method.landmarks is not None:
            growth = 1.0
        elif m in (n_rows, fewer):
            growth = 2.0
        else:
            growth = np.clip(np.log(seconds / before) / np.log(m / fewer), 1.0, 3.0)
        return round(float(seconds * (n_rows / m) ** growth), 3)

    def _seconds(self, method, size):
        """Processor time of the search on so many rows, a few of every class among them; none if it fails."""
        y = np.asarray(self._dataset.y)
        rows = _some_rows(y, size, least=2 * self._folds)
        part = take_rows(self._dataset.X, rows)
        X = encoder(part).fit_transform(part)
        grid = method.grid(self._shape, self._quick)
        base = method.estimator(self._seed)
        start = time.process_time()
        try:
            (search(base, grid, folds=self._folds, seed=self._seed) if grid else base).fit(X, y[rows])
        except Exception:  # the comparison itself will say why
            return 1e-6
        return max(time.process_time() - start, 1e-6)


def _some_rows(y, size, least):
    """Return about so many rows, in the proportions of the classes but for at least a few of each."""
    rng = np.random.default_rng(0)
    result = []
    for label in np.unique(y):
        rows = rng.permutation(np.flatnonzero(y == label))
        result.append(rows[: max(least, round(size * len(rows) / len(y)))])
    return np.sort(np.concatenate(result))


def class_counts(dataset):
    """Return the number of rows of each class; raise an error if nested cross-validation has too few."""
    labels, counts = np.unique(np.asarray(dataset.y), return_counts=True)
    rarest, label = int(counts.min()), str(labels[counts.argmin()])
    if len(labels) < 2:
        raise ValueError(f"{dataset.name}: all rows have the label {label!r}; there is nothing to tell apart.")
    if rarest < 4:
        raise ValueError(
            f"{dataset.name}: the class {label!r} of {dataset.target_name!r} has {rarest} "
            f"row{'s' if rarest > 1 else ''} of {counts.sum()}, and nested cross-validation needs 4; merge or drop "
            "rare classes, or choose the target column, if this is not it."
        )
    return {str(name): int(count) for name, count in zip(labels, counts)}


def shape_of(X, classes):
    """Return the shape of the data, estimated from a sample of the encoded rows; labels are not used."""
    rows = X.shape[0]
    probe = np.sort(np.random.default_rng(0).permutation(rows)[:_PROBE_ROWS])
    probed = take_rows(X, probe)
    encoded = encoder(probed).fit_transform(probed)
    means = np.asarray(encoded.mean(axis=0)).ravel()
    squares = np.asarray((encoded.multiply(encoded) if sp.issparse(encoded) else encoded**2).mean(axis=0)).ravel()
    distance = 2.0 * float(np.maximum(squares - means**2, 0.0).sum())
    return Shape(rows, encoded.shape[1], classes, sp.issparse(encoded), distance)


def _numbers(dataset, shape):
    X = dataset.X
    numbers = {"rows": shape.rows, "columns": int(X.shape[1]), "encoded": shape.columns, "sparse": sp.issparse(X)}
    if sp.issparse(X):
        return {**numbers, "categorical": 0, "filled": X.nnz / max(1, X.shape[0] * X.shape[1])}
    if hasattr(X, "select_dtypes"):
        numeric = X.select_dtypes("number").shape[1]
        return {**numbers, "categorical": int(X.shape[1] - numeric), "missing": int(X.isna().to_numpy().sum())}
    return {**numbers, "categorical": 0, "missing": int(np.isnan(X).sum()) if X.dtype.kind == "f" else 0}
