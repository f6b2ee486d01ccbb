"""One method, fitted to all the data with the parameters that cross-validation chooses."""

import os
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import clone
from sklearn.calibration import CalibratedClassifierCV
from sklearn.metrics import f1_score, make_scorer, precision_score, recall_score
from sklearn.model_selection import GridSearchCV, StratifiedKFold, TunedThresholdClassifierCV
from sklearn.pipeline import Pipeline, make_pipeline

from margindist.compare.data import find_data, named_table
from margindist.compare.nested import plain_parameters, positive_label, scorer_for
from margindist.compare.plan import class_counts, shape_of
from margindist.compare.scoring import LABELS
from margindist.datasets import Dataset, Partitions, encoder, encoding_notes
from margindist.methods import BY_KEY, UnknownMethod, search

_SAMPLE_ROWS = 20_000  # on which parameters are chosen where the rows are in parts


class Trained(NamedTuple):
    """A fitted pipeline of encoder and classifier, and how it came about.

    Parameters
    ----------
    model : Pipeline
    dataset : Dataset
    label : str
        Name of the method.
    parameters : dict
        Those chosen, and those given.
    inner_score : float or None
        Score of the choice in the search's own cross-validation; None if nothing was searched.
    notes : tuple of str
        What was done to the columns, and what was not as asked.
    """

    model: Pipeline
    dataset: Dataset
    label: str
    parameters: dict[str, Any]
    inner_score: float | None
    notes: tuple[str, ...] = ()


def train(
    data: Any,
    y: ArrayLike | None = None,
    *,
    target: str | None = None,
    method: str = "ldm",
    parameters: Mapping[str, Any] | None = None,
    folds: int = 5,
    seed: int = 0,
    quick: bool = False,
    scoring: str = "accuracy",
    calibrate: str | None = None,
    threshold: str | Callable | None = None,
    data_dir: str | os.PathLike | None = None,
    encoding: str | None = None,
) -> Trained:
    """Choose a method's parameters by cross-validation on all the data, and fit it to them.

    Parameters
    ----------
    data, y, target
        As for :func:`compare`; or :class:`~margindist.datasets.Partitions`, where parameters are chosen on a sample of
        20,000 rows, and the method is fitted to all of them.
    method : str, default="ldm"
        Key of the method.
    parameters : dict, default=None
        Parameters that are not searched.
    folds : int, default=5
        Folds of the search.
    seed, quick, scoring
        As for :func:`compare`.
    calibrate : {"sigmoid", "isotonic", "temperature"}, default=None
        The curve by which ``CalibratedClassifierCV`` of scikit-learn makes probabilities of decision values, fitted to
        scores of held-out rows; None makes none. "temperature" needs scikit-learn 1.8.
    threshold : str or callable, default=None
        Score of scikit-learn's by which the threshold between two classes is chosen, on held-out rows, such as "f1" (of
        the rarer class) or "balanced_accuracy"; None keeps it at 0. The classifier is a `TunedThresholdClassifierCV`.
    data_dir, encoding
        As for :func:`compare`.

    Returns
    -------
    Trained
    """
    if method not in BY_KEY:
        raise UnknownMethod(method, BY_KEY)
    if scoring not in LABELS:
        raise ValueError(f"train: scoring must be one of {', '.join(LABELS)}, got {scoring!r}.")
    if threshold is not None and calibrate is not None:
        raise ValueError("train: calibrate and threshold each decide by scores in a way of their own; choose one.")
    given = dict(parameters or {})
    if isinstance(data, Partitions):
        if threshold is not None:
            raise ValueError("train: a threshold is chosen on rows in memory; load the rows, or fit without it.")
        return _train_in_parts(data, method, given, folds, seed, quick, scoring, calibrate)
    dataset, _ = find_data(data, y, target, data_dir, encoding)
    counts = class_counts(dataset)
    shape = shape_of(dataset.X, len(counts))
    table = named_table(dataset)
    coder = encoder(table)
    X = coder.fit_transform(table)
    notes = encoding_notes(dataset.X)
    base = BY_KEY[method].estimator(seed).set_params(**given)
    grid = {name: values for name, values in BY_KEY[method].grid(shape, quick).items() if name not in given}
    inner_score = None
    if grid:
        chooser, notes = _chosen(base, grid, X, dataset.y, counts, folds, seed, scoring, notes)
        given |= plain_parameters(chooser.best_params_)
        inner_score = float(chooser.best_score_)
        model = chooser.best_estimator_
    else:
        model = base.fit(X, dataset.y)
    if calibrate is not None:
        base.set_params(**given)
        model = _calibrated(base, calibrate, _held_out(counts, folds, seed)).fit(X, dataset.y)
    if threshold is not None:
        model = _tuned(base.set_params(**given), threshold, _held_out(counts, folds, seed), X, dataset)
    fitted = Pipeline([("encode", coder), ("classify", model)])
    return Trained(fitted, dataset, BY_KEY[method].label, dict(sorted(given.items())), inner_score, notes)


def _tuned(base, threshold, cv, X, dataset):
    """Return the classifier, fitted, with the threshold that a score prefers on held-out rows."""
    labels, counts = np.unique(dataset.y, return_counts=True)
    if len(labels) > 2:
        raise ValueError(f"train: a threshold divides two classes, and {dataset.name} has {len(labels)}.")
    of_one_class = {"f1": f1_score, "precision": precision_score, "recall": recall_score}
    if threshold in of_one_class:
        threshold = make_scorer(of_one_class[threshold], pos_label=labels[counts.argmin()], zero_division=0.0)
    response = "decision_function" if hasattr(base, "decision_function") else "predict_proba"
    tuned = TunedThresholdClassifierCV(base, scoring=threshold, cv=cv, response_method=response)
    return tuned.fit(X, dataset.y)


def _calibrated(classifier, method, folds):
    return CalibratedClassifierCV(classifier, method=method, cv=folds, ensemble=False)


def _held_out(counts, folds, seed):
    return StratifiedKFold(min(folds, *counts.values()), shuffle=True, random_state=seed)


def _chosen(base, grid, X, y, counts, folds, seed, scoring, notes):
    """Return the search, done, and the notes with one more where there are fewer folds than asked for."""
    least = min(counts.values())
    if folds > least:
        notes = (*notes, f"The smallest class has only {least} rows, so there are {least} folds instead of {folds}.")
    rarer = min(counts, key=counts.get) if len(counts) == 2 else None
    scorer = scorer_for(scoring, positive_label(y, rarer))
    chooser = search(base, grid, folds=min(folds, least), seed=seed, scoring=scorer)
    if isinstance(chooser, GridSearchCV):
        chooser.set_params(error_score="raise")  # the classifier's own sentence, not one about 45 fits
    return chooser.fit(X, y), notes


def _train_in_parts(data, method, given, folds, seed, quick, scoring, calibrate):
    """Choose parameters on a sample of the rows, and fit to all of them, part by part."""
    rows = data.encoded()
    notes = (f"Columns are scaled to [0, 1] and encoded, to {rows.n_features} columns, as parts are read.",)
    sample = rows.sample(_SAMPLE_ROWS, seed)
    names = data.feature_names or ()
    dataset = Dataset(
        data.name, sample.X, sample.y, names, data.target_name, None, data.name, data.notes, data.spellings
    )
    base = BY_KEY[method].estimator(seed).set_params(**given)
    inner_score = None
    n_classes = len(np.unique(sample.y))
    grid = BY_KEY[method].grid(shape_of(sample.X, n_classes), quick)
    grid = {name: values for name, values in grid.items() if name not in given}
    if grid:
        counts = class_counts(dataset)
        chooser, notes = _chosen(base, grid, sample.X, sample.y, counts, folds, seed, scoring, notes)
        notes = (*notes, f"Parameters were chosen on {len(sample.y)} of {rows.n_rows} rows.")
        given |= plain_parameters(chooser.best_params_)
        inner_score = float(chooser.best_score_)
    model = clone(base).set_params(**given).fit(rows)
    if calibrate is not None:
        held_out = _held_out(class_counts(dataset), folds, seed)
        curves = _calibrated(clone(base).set_params(**given), calibrate, held_out).fit(sample.X, sample.y)
        curves.calibrated_classifiers_[0].estimator = model  # which has seen all rows
        model = curves
        notes = (*notes, f"Probabilities were calibrated on {len(sample.y)} of {rows.n_rows} rows.")
    coder = rows.transformers[0] if len(rows.transformers) == 1 else make_pipeline(*rows.transformers)
    fitted = Pipeline([("encode", coder), ("classify", model)])
    return Trained(fitted, dataset, BY_KEY[method].label, dict(sorted(given.items())), inner_score, notes)
