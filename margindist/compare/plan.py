"""What a comparison is about: the data, the splits, the methods and the values each of them tries."""

import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike
from sklearn.model_selection import RepeatedStratifiedKFold

from margindist import __version__
from margindist.datasets import Dataset, catalogue, encoder, encoding_notes, load, read_file, tidy
from margindist.datasets.dataset import check_labels
from margindist.methods import Shape, choose
from margindist.runs.store import Cell

_PROBE_ROWS = 2000


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
    version: str = __version__

    @property
    def experiment(self) -> str:
        """Name of the experiment in a store: a hash of the plan, so that other plans and other data never mix."""
        text = json.dumps(asdict(self), sort_keys=False)
        return f"compare-{hashlib.sha256(text.encode()).hexdigest()[:16]}"

    def cells(self) -> list[Cell]:
        """Return the cells split by split, quick methods first: what is done at any time can be compared."""
        return [
            Cell(self.experiment, self.dataset, key, split)
            for split in range(self.splits * self.repeats)
            for key in self.grids
        ]

    def parts(self, y: ArrayLike) -> list[tuple[np.ndarray, np.ndarray]]:
        """Return the rows of training and test part of every split.

        Parameters
        ----------
        y : array-like of shape (n_samples,)
            Labels.
        """
        folds = RepeatedStratifiedKFold(n_splits=self.splits, n_repeats=self.repeats, random_state=self.seed)
        return list(folds.split(np.zeros(len(y)), y))


def named_table(dataset):
    """Return the features with the names of their columns, by which the fitted model finds them again."""
    names = dataset.feature_names
    if hasattr(dataset.X, "columns") or sp.issparse(dataset.X) or not names or len(set(names)) < len(names):
        return dataset.X
    try:
        import pandas as pd
    except ImportError:
        return dataset.X
    return pd.DataFrame(dataset.X, columns=list(names))


def find_data(data, y, target, data_dir):
    """Return the data, and where they came from in a form that the report can turn into code."""
    if isinstance(data, Dataset):
        return data, {"kind": "arrays"}
    if isinstance(data, (str, os.PathLike)):
        if os.path.isfile(data) or ((Path(data).suffix or os.sep in os.fspath(data)) and not _is_known(data)):
            return read_file(data, target=target), {"kind": "file", "path": os.fspath(data), "target": target}
        if target is not None:
            raise ValueError(
                f"{os.fspath(data)} is a data set with a target of its own, so target cannot be {target!r}."
            )
        where = None if data_dir is None else os.fspath(data_dir)
        return load(os.fspath(data), data_dir=data_dir), {"kind": "name", "name": os.fspath(data), "data_dir": where}
    if y is None:
        raise ValueError("compare: features without labels; pass y as well, or a Dataset, a file or a name.")
    X = tidy(data) if hasattr(data, "iloc") else data.tocsr() if sp.issparse(data) else np.asarray(data)
    if X.shape[0] != len(y):
        raise ValueError(f"compare: expected a label for each of the {X.shape[0]} rows of X, got {len(y)} labels.")
    y = check_labels(np.asarray(y), "compare", "y")
    return Dataset("your data", X, y, tuple(map(str, getattr(data, "columns", ())))), {"kind": "arrays"}


def _is_known(name):
    """Tell whether a data set of the catalogue, such as news20.binary, goes by this name."""
    return os.fspath(name) in {entry.name for entry in catalogue()}


def make_plan(dataset, source, methods, splits, repeats, seed, quick):
    """Return the plan, and what the report says about the data and the methods left out."""
    for name, value, least in (("splits", splits, 2), ("repeats", repeats, 1), ("seed", seed, 0)):
        if value < least:
            raise ValueError(f"compare: {name} must be at least {least}, got {value}.")
    counts = class_counts(dataset)
    notes = list(dataset.notes)
    label = min(counts, key=counts.get)
    rarest = counts[label]
    if rarest < splits:
        notes.append(f"The class {label!r} has {rarest} rows only, so there are {rarest} splits, not {splits}.")
        splits = rarest
    folds = min(3 if quick else 5, rarest - -(-rarest // splits))
    shape = shape_of(dataset.X, len(counts))
    choice = choose(methods, shape)
    grids = {m.key: {k: list(v) for k, v in m.grid(shape, quick).items()} for m in choice.methods}
    if len(counts) > 2 and "svc" in grids:
        notes.append("SVC's scores of more than two classes are votes: its margins come in steps, unlike the others'.")
    plan = Plan(dataset.name, dataset.checksum, grids, splits, repeats, folds, seed)
    about = {
        "source": source,
        "origin": dataset.source,
        "notes": notes,
        "encoding": list(encoding_notes(dataset.X)),
        "target": dataset.target_name,
        "classes": counts,
        "left_out": choice.left_out,
        "methods": None if methods is None else list(methods),
        "quick": quick,
        "numbers": _numbers(dataset, shape),
    }
    return plan, about


def class_counts(dataset):
    """Rows of each class; refused where cross-validation within cross-validation has too few."""
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
    """Look at a sample of the encoded rows; no label is used."""
    rows = X.shape[0]
    probe = np.sort(np.random.default_rng(0).permutation(rows)[:_PROBE_ROWS])
    probed = take_rows(X, probe)
    encoded = encoder(probed).fit_transform(probed)
    means = np.asarray(encoded.mean(axis=0)).ravel()
    squares = np.asarray((encoded.multiply(encoded) if sp.issparse(encoded) else encoded**2).mean(axis=0)).ravel()
    distance = 2.0 * float(np.maximum(squares - means**2, 0.0).sum())
    return Shape(rows, encoded.shape[1], classes, sp.issparse(X), distance)


def _numbers(dataset, shape):
    X = dataset.X
    numbers = {"rows": shape.rows, "columns": int(X.shape[1]), "encoded": shape.columns, "sparse": shape.sparse}
    if sp.issparse(X):
        return {**numbers, "categorical": 0, "filled": X.nnz / max(1, X.shape[0] * X.shape[1])}
    if hasattr(X, "select_dtypes"):
        numeric = X.select_dtypes("number").shape[1]
        return {**numbers, "categorical": int(X.shape[1] - numeric), "missing": int(X.isna().to_numpy().sum())}
    return {**numbers, "categorical": 0, "missing": int(np.isnan(X).sum()) if X.dtype.kind == "f" else 0}


def take_rows(X, rows):
    """Return some rows of a table or an array."""
    return X.iloc[rows] if hasattr(X, "iloc") else X[rows]
