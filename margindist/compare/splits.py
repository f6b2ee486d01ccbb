"""How rows are divided into training and test parts: at random, by groups, or by time."""

from itertools import pairwise
from typing import NamedTuple

import numpy as np
from sklearn.model_selection import RepeatedStratifiedKFold, StratifiedGroupKFold, StratifiedKFold

Splits = list[tuple[np.ndarray, np.ndarray]]


class Blocks(NamedTuple):
    """What divides the rows.

    Parameters
    ----------
    kind : {"groups", "time"} or None
        None divides them at random, with the classes' proportions.
    values : ndarray of shape (n_samples,) or None
        Group or time of every row.
    """

    kind: str | None = None
    values: np.ndarray | None = None

    def of(self, rows: np.ndarray) -> "Blocks":
        """Return those of some rows."""
        return self if self.values is None else self._replace(values=self.values[rows])


AT_RANDOM = Blocks()


def outer_splits(y: np.ndarray, blocks: Blocks, splits: int, repeats: int, seed: int) -> Splits:
    """Return the training and the test rows of every split.

    Parameters
    ----------
    y : ndarray of shape (n_samples,)
        Labels.
    blocks : Blocks
    splits, repeats, seed : int
        By time there is one way to divide, whatever the repeats.
    """
    if blocks.kind == "time":
        return _forward(blocks.values, splits)
    none = np.zeros(len(y))
    if blocks.kind is None:
        folds = RepeatedStratifiedKFold(n_splits=splits, n_repeats=repeats, random_state=seed)
        return list(folds.split(none, y))
    return [
        split
        for k in range(repeats)
        for split in StratifiedGroupKFold(splits, shuffle=True, random_state=seed + k).split(none, y, blocks.values)
    ]


def inner_splits(y: np.ndarray, blocks: Blocks, folds: int, seed: int) -> Splits:
    """Return the same within a training part, where parameters are chosen; every training part has every class.

    Parameters
    ----------
    y : ndarray of shape (n_samples,)
    blocks : Blocks
        Of these rows.
    folds, seed : int
    """
    if blocks.kind is None:
        return list(StratifiedKFold(folds, shuffle=True, random_state=seed).split(np.zeros(len(y)), y))
    n_classes = len(np.unique(y))
    result = [part for part in outer_splits(y, blocks, folds, 1, seed) if len(np.unique(y[part[0]])) == n_classes]
    if not result:
        raise ValueError(f"no way to divide a training part by {blocks.kind} leaves rows of every class to learn from.")
    return result


def calibration_splits(y: np.ndarray, blocks: Blocks, folds: int) -> Splits:
    """Return splits that test every row of a training part once, for the curves of probabilities.

    Parameters
    ----------
    y : ndarray of shape (n_samples,)
    blocks : Blocks
        Of these rows. Groups stay together; by time, rows are divided at random.
    folds : int
    """
    none = np.zeros(len(y))
    if blocks.kind == "groups":
        return list(StratifiedGroupKFold(folds).split(none, y, blocks.values))
    least = int(np.unique(y, return_counts=True)[1].min())
    return list(StratifiedKFold(max(2, min(folds, least))).split(none, y))


def check_splits(parts: Splits, y: np.ndarray, kind: str) -> None:
    """Raise an error if a training part lacks a class, or a test part has only one.

    Parameters
    ----------
    parts : list of (train, test)
    y : ndarray of shape (n_samples,)
    kind : str
        What divides the rows.
    """
    labels = np.unique(y)
    for k, (train, test) in enumerate(parts, 1):
        missing = np.setdiff1d(labels, y[train])
        if missing.size:
            raise ValueError(
                f"compare: divided by {kind}, the training part of split {k} has no row of the class "
                f"{str(missing[0])!r}; take fewer splits, or leave this class out."
            )
        if len(np.unique(y[test])) < 2:
            raise ValueError(
                f"compare: divided by {kind}, the test part of split {k} has rows of one class only; take fewer splits."
            )


def _forward(values, splits):
    """Test parts of about equal size, each after all its training rows; equal times stay together."""
    order = np.argsort(values, kind="stable")
    ordered = values[order]
    places = np.arange(1, splits + 1) * len(order) // (splits + 1)
    edges = np.unique([*np.searchsorted(ordered, ordered[places], "left"), len(order)])
    edges = edges[edges > 0]
    return [(np.sort(order[:begin]), np.sort(order[begin:end])) for begin, end in pairwise(edges)]
