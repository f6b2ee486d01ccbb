"""Pictures of what each parameter does to the score."""

import math
import numbers
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from sklearn.model_selection import GridSearchCV

from margindist.estimators._training_data import MatrixLike
from margindist.margins.palette import method_styles
from margindist.margins.plots import _add_grid, _display_name, _numbered, _pyplot

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_OTHERS = ("fixed", "best")


class InfluenceCurve(NamedTuple):
    """What one parameter does to the score of one method.

    Parameters
    ----------
    name : str
        The method.
    parameter : str
        The parameter, without the names of pipeline steps before it.
    values : tuple
        Its values, numbers in ascending order.
    means : ndarray of shape (n_values,)
        Mean score over the splits at each value.
    stds : ndarray of shape (n_values,)
        Standard deviation over the splits at each value.
    chosen : object
        The value of the best parameters.
    """

    name: str
    parameter: str
    values: tuple
    means: np.ndarray
    stds: np.ndarray
    chosen: Any


class ParameterInfluenceDisplay:
    """Score of one method or of several against each parameter, the other parameters at their best.

    Made by :meth:`from_cv_results` from a search already done, or by :meth:`from_estimator`. Every parameter has
    its own axes, shared by the methods that have it. Bands are one standard deviation over the splits to either side,
    rings mark the values chosen. Colour and line style belong to the method (see :func:`method_styles`). A grid in
    equal ratios is drawn on a logarithmic axis.

    Parameters
    ----------
    curves : sequence of InfluenceCurve
        What is drawn.
    score_name : str, default="score"
        Label of the scores' axis.

    Attributes
    ----------
    axes_ : ndarray of matplotlib Axes
        Where :meth:`plot` drew, one per parameter.
    ax_ : matplotlib Axes
        The first of them.
    figure_ : matplotlib Figure
        Their figure.
    artists_ : dict
        From (name, parameter) to the line drawn.

    See Also
    --------
    MarginDistributionDisplay : Margin distributions.

    References
    ----------
    T. Zhang and Z.-H. Zhou. Large Margin Distribution Machine. KDD 2014, Figure 3.

    Examples
    --------
    >>> from margindist import LDMClassifier
    >>> from margindist.margins import ParameterInfluenceDisplay
    >>> from sklearn.datasets import load_iris
    >>> from sklearn.model_selection import GridSearchCV
    >>> X, y = load_iris(return_X_y=True)
    >>> search = GridSearchCV(LDMClassifier(), {"C": [0.1, 1, 10], "lambda1": [2**-8, 2**-5, 2**-2]}).fit(X, y)
    >>> display = ParameterInfluenceDisplay.from_cv_results(search)
    >>> [(curve.parameter, curve.values) for curve in display.curves]
    [('C', (0.1, 1, 10)), ('lambda1', (0.00390625, 0.03125, 0.25))]
    """

    def __init__(self, curves: Sequence[InfluenceCurve], *, score_name: str = "score"):
        self.curves = curves
        self.score_name = score_name

    @classmethod
    def from_cv_results(
        cls,
        cv_results: Any,
        *,
        params: Sequence[str] | None = None,
        others: str = "fixed",
        name: str | None = None,
        score_name: str | None = None,
        ax: "Axes | Sequence[Axes] | None" = None,
    ) -> "ParameterInfluenceDisplay":
        """Draw what a search over parameters has found.

        Parameters
        ----------
        cv_results : fitted search, its ``cv_results_``, or mapping from name to either
            Anything with ``params``, ``mean_test_score`` and ``std_test_score``. A mapping draws several methods.
        params : sequence of str, default=None
            The parameters to draw; None takes all of which the search has tried more than one value.
        others : {"fixed", "best"}, default="fixed"
            What the other parameters are meanwhile: "fixed" at the best parameters of the search, as in the paper;
            "best" for each value anew.
        name : str, default=None
            Name of the method if there is one only; None takes the class name without "Classifier".
        score_name : str, default=None
            Label of the scores' axis; None says "accuracy" if a search says so, else "score".
        ax : matplotlib Axes or sequence of them, default=None
            Where to draw, one per parameter; None makes a new figure.

        Returns
        -------
        ParameterInfluenceDisplay
        """
        if others not in _OTHERS:
            raise ValueError(f"ParameterInfluenceDisplay: others must be 'fixed' or 'best', got {others!r}.")
        several = isinstance(cv_results, Mapping) and "params" not in cv_results
        named = cv_results if several else {_search_name(cv_results) if name is None else name: cv_results}
        curves = []
        for method, result in named.items():
            curves += _curves(method, result, params, others)
        if not curves:
            raise ValueError(
                "ParameterInfluenceDisplay: the search has tried no parameter with more than one value; give params."
            )
        if score_name is None:
            score_name = "accuracy" if all(_is_accuracy(result) for result in named.values()) else "score"
        return cls(curves, score_name=score_name).plot(ax)

    @classmethod
    def from_estimator(
        cls,
        estimator: Any,
        X: MatrixLike,
        y: ArrayLike,
        param_grid: Mapping[str, Sequence],
        *,
        cv: Any = None,
        scoring: Any = None,
        name: str | None = None,
        n_jobs: int | None = None,
        ax: "Axes | Sequence[Axes] | None" = None,
    ) -> "ParameterInfluenceDisplay":
        """Vary one parameter after the other, the others as the estimator has them, and draw the scores.

        That takes as many fits as there are values, not as there are combinations of values.

        Parameters
        ----------
        estimator : classifier or sequence of classifiers or mapping from name to classifier
            The methods; cloned, not fitted. A parameter that a method does not have is left out for it.
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
            Samples.
        y : array-like of shape (n_samples,)
            Labels.
        param_grid : mapping from str to sequence
            The values of each parameter.
        cv : int, splitter or iterable, default=None
            The splits, as in scikit-learn; None means five stratified parts.
        scoring : str or callable, default=None
            The score, as in scikit-learn; None means accuracy.
        name : str, default=None
            Name of the method if there is one only; None takes the class name without "Classifier".
        n_jobs : int or None, default=None
            Fits at the same time.
        ax : matplotlib Axes or sequence of them, default=None
            Where to draw, one per parameter; None makes a new figure.

        Returns
        -------
        ParameterInfluenceDisplay
        """
        if isinstance(estimator, Mapping):
            named = estimator
        elif isinstance(estimator, (list, tuple)):
            named = _numbered(estimator)
        else:
            named = {_display_name(estimator) if name is None else name: estimator}
        curves = []
        for method, one in named.items():
            known = one.get_params()
            grid = [{key: list(values)} for key, values in param_grid.items() if key in known]
            if not grid:
                raise ValueError(f"ParameterInfluenceDisplay: {method} has none of the parameters {list(param_grid)}.")
            search = GridSearchCV(one, grid, cv=cv, scoring=scoring, n_jobs=n_jobs, refit=False).fit(X, y)
            for (key,) in grid:
                rows = [i for i, chosen in enumerate(search.cv_results_["params"]) if key in chosen]
                curves.append(_curve(method, key, rows, search.cv_results_, known[key]))
        if scoring is None:
            scoring = "accuracy"
        return cls(curves, score_name=scoring if isinstance(scoring, str) else "score").plot(ax)

    def plot(self, ax: "Axes | Sequence[Axes] | None" = None) -> "ParameterInfluenceDisplay":
        """Draw.

        Parameters
        ----------
        ax : matplotlib Axes or sequence of them, default=None
            Where to draw, one per parameter; None makes a new figure.

        Returns
        -------
        ParameterInfluenceDisplay
            This object, with ``axes_``, ``ax_``, ``figure_`` and ``artists_`` set.
        """
        parameters = list(dict.fromkeys(curve.parameter for curve in self.curves))
        if ax is None:
            size = (1.2 + 3.6 * len(parameters), 3.6)
            _, ax = _pyplot().subplots(1, len(parameters), sharey=True, figsize=size, layout="constrained")
        axes = np.atleast_1d(np.asarray(ax, dtype=object))
        if len(axes) != len(parameters):
            raise ValueError(
                f"ParameterInfluenceDisplay: {len(parameters)} parameters need as many axes, got {len(axes)}; choose "
                f"some of {parameters} with params, or leave out ax."
            )
        names = list(dict.fromkeys(curve.name for curve in self.curves))
        styles = dict(zip(names, method_styles(names), strict=True))
        self.artists_ = {}
        for one, parameter in zip(axes, parameters, strict=True):
            curves = [curve for curve in self.curves if curve.parameter == parameter]
            place = _set_scale(one, curves)
            for curve in curves:
                self.artists_[curve.name, parameter] = _draw(one, curve, place, styles[curve.name])
            _label(one, parameter)
        axes[0].set_ylabel(self.score_name)
        if len(names) > 1:
            _explain(axes, styles)
        self.axes_ = axes
        self.ax_ = axes[0]
        self.figure_ = axes[0].figure
        return self


# ---------------------------------------------------------------------- from results to curves


def _search_name(result):
    estimator = getattr(result, "best_estimator_", getattr(result, "estimator", None))
    return "classifier" if estimator is None else _display_name(estimator).removesuffix("CV")


def _is_accuracy(result):
    return not isinstance(result, Mapping) and getattr(result, "scoring", None) in (None, "accuracy")


def _results(method, result):
    """Return the results of a search and the position of the best parameters."""
    results = result if isinstance(result, Mapping) else getattr(result, "cv_results_", None)
    needed = ("params", "mean_test_score", "std_test_score")
    if results is None or any(key not in results for key in needed):
        raise ValueError(
            f"ParameterInfluenceDisplay: expected a fitted search or its cv_results_ with {', '.join(needed)} for "
            f"{method}, got {type(result).__name__}."
        )
    means = np.asarray(results["mean_test_score"], dtype=np.float64)
    if not np.isfinite(means).any():
        raise ValueError(f"ParameterInfluenceDisplay: the search for {method} has no score that is a number.")
    best = getattr(result, "best_index_", None)
    return results, int(np.nanargmax(means)) if best is None else int(best)


def _curves(method, result, params, others):
    """Return the curves of one search."""
    results, best = _results(method, result)
    tried = [dict(chosen) for chosen in results["params"]]
    varied = [key for key in tried[best] if len({_token(chosen.get(key)) for chosen in tried}) > 1]
    if params is not None:
        unknown = [name for name in params if not any(name in (key, _short(key)) for key in tried[best])]
        if unknown:
            raise ValueError(
                f"ParameterInfluenceDisplay: the search for {method} did not vary {unknown[0]!r}; it varied "
                f"{', '.join(map(_short, varied))}."
            )
        varied = [key for name in params for key in tried[best] if name in (key, _short(key))]
    curves = []
    for key in varied:
        rest = {other: _token(value) for other, value in tried[best].items() if other != key}
        rows = [i for i, chosen in enumerate(tried) if key in chosen]
        if others == "fixed":
            rows = [i for i in rows if {o: _token(v) for o, v in tried[i].items() if o != key} == rest]
        curves.append(_curve(method, key, rows, results, tried[best][key]))
    return curves


def _curve(method, key, rows, results, chosen):
    """Return the best mean at each value of a parameter among some rows of the results."""
    means = np.asarray(results["mean_test_score"], dtype=np.float64)
    stds = np.asarray(results["std_test_score"], dtype=np.float64)
    best = {}
    for i in rows:
        token = _token(results["params"][i][key])
        if token not in best or not means[i] <= means[best[token]]:
            best[token] = i
    values = [results["params"][i][key] for i in best.values()]
    order = np.argsort(np.array(values, dtype=np.float64), kind="stable") if _numeric(values) else range(len(values))
    where = [list(best.values())[k] for k in order]
    return InfluenceCurve(method, _short(key), tuple(values[k] for k in order), means[where], stds[where], chosen)


def _token(value):
    """Return a hashable key that is the same for equal values."""
    return float(value) if _numeric([value]) else repr(value)


def _numeric(values):
    return all(isinstance(value, numbers.Real) and not isinstance(value, (bool, np.bool_)) for value in values)


def _short(key):
    return key.rpartition("__")[2]


# ---------------------------------------------------------------------- drawing


def _is_geometric(values):
    """Tell whether the steps between at least three positive values are more even as ratios than as differences."""
    if len(values) < 3 or values[0] <= 0.0:
        return False
    ratios, steps = np.diff(np.log(values)), np.diff(values)
    return bool(np.std(ratios) / np.mean(ratios) < np.std(steps) / np.mean(steps))


def _set_scale(ax, curves):
    """Choose the scale of the axis; return the function from a value to its place."""
    values = [value for curve in curves for value in curve.values]
    if not _numeric(values):
        labels = list(dict.fromkeys(map(str, values)))
        ax.set_xticks(range(len(labels)), labels)
        return lambda value: labels.index(str(value))
    points = np.unique(np.array(values, dtype=np.float64))
    positive = points[points > 0.0]
    if points[0] >= 0.0 and _is_geometric(positive):
        base = 2 if all(math.log2(value).is_integer() for value in positive) else 10
        if points[0] == 0.0:
            ax.set_xscale("symlog", base=base, linthresh=positive[0])
        else:
            ax.set_xscale("log", base=base)
    return float


def _draw(ax, curve, place, style):
    places = [place(value) for value in curve.values]
    ax.fill_between(
        places, curve.means - curve.stds, curve.means + curve.stds, color=style.color, alpha=0.2, linewidth=0.0
    )
    (line,) = ax.plot(places, curve.means, marker="o", markersize=3.5, linewidth=1.8, **style._asdict())
    tokens = [_token(value) for value in curve.values]
    if _token(curve.chosen) in tokens:
        k = tokens.index(_token(curve.chosen))
        ax.plot(
            places[k], curve.means[k], "o", markersize=9, markerfacecolor="none", markeredgecolor=style.color,
            markeredgewidth=1.4,
        )  # fmt: skip
    return line


def _label(ax, parameter):
    from matplotlib.ticker import NullLocator

    ax.set_xlabel(parameter)
    ax.xaxis.set_minor_locator(NullLocator())
    _add_grid(ax)


def _explain(axes, styles):
    """Explain colours and line styles in the last axes."""
    from matplotlib.lines import Line2D

    handles = [
        Line2D([], [], label=name, linewidth=1.8, marker="o", markersize=3.5, **style._asdict())
        for name, style in styles.items()
    ]
    axes[-1].legend(handles=handles, frameon=False, handlelength=3.6, loc="best")
