"""One way to choose parameters: a search that shares work along the grid where there is one."""

from collections.abc import Mapping, Sequence
from inspect import signature
from typing import Any

from sklearn.base import BaseEstimator
from sklearn.model_selection import GridSearchCV, StratifiedKFold

import margindist
from margindist.estimators._search import SharedSearch


def search(
    estimator: BaseEstimator,
    grid: Mapping[str, Sequence[Any]],
    *,
    folds: int = 5,
    seed: int | None = None,
    scoring: str | None = None,
    shared: bool = False,
) -> BaseEstimator:
    """Return the estimator that chooses from the grid by cross-validation, not yet fitted.

    It has ``best_params_``, ``best_estimator_`` and ``cv_results_`` as `GridSearchCV` has them: one of this library's
    own, such as `LDMClassifierCV`, where it takes every parameter of the grid, else `SharedSearch` or `GridSearchCV`.

    Parameters
    ----------
    estimator : classifier
        Its own parameters hold where the grid says nothing.
    grid : dict of sequences
    folds : int
    seed : int, optional
        Of the folds, which are stratified and shuffled.
    scoring : str, optional
        As scikit-learn takes it; accuracy if None.
    shared : bool
        Whether `SharedSearch` stands for `GridSearchCV` where accuracy is the score: quicker with kernels, but an error
        in one fit ends it.
    """
    folded = StratifiedKFold(folds, shuffle=True, random_state=seed)
    own = getattr(margindist, f"{type(estimator).__name__}CV", None)
    if own is not None:
        known = signature(own).parameters
        grids = {f"{name}s": values for name, values in grid.items()}
        fixed = {name: value for name, value in estimator.get_params(deep=False).items() if name not in grid}
        # A parameter that the search does not know may stand at its default only: there it changes nothing.
        defaults = {name: parameter.default for name, parameter in signature(type(estimator)).parameters.items()}
        foreign = [name for name in fixed if name not in known and fixed[name] != defaults[name]]
        if not foreign and all(name in known for name in grids):
            for name in [name for name in fixed if f"{name}s" in known]:
                grids[f"{name}s"] = [fixed[name]]
            fixed = {name: value for name, value in fixed.items() if name in known}
            return own(**fixed, **grids, cv=folded, scoring=scoring)
    if shared and scoring in (None, "accuracy"):
        return SharedSearch(estimator, grid, folded)
    return GridSearchCV(estimator, dict(grid), cv=folded, scoring=scoring)
