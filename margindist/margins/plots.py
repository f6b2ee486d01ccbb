"""Pictures of margin distributions."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from margindist.estimators._training_data import MatrixLike
from margindist.margins.decision import _last_step, margins, margins_from_decision
from margindist.margins.palette import method_styles
from margindist.margins.statistics import _checked_weights

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_KINDS = ("cumulative", "histogram")
_NEUTRAL = "#808080"  # readable on white and on black
_WIDTHS = {"training": 1.0, "test": 2.2, None: 1.8}


class MarginSample(NamedTuple):
    """The margins of one method on one part of the data.

    Parameters
    ----------
    name : str
        The method.
    part : {"training", "test"} or None
        The part of the data; None where there is one only.
    margins : ndarray of shape (n_samples,)
        Margins.
    weights : ndarray of shape (n_samples,)
        How often each sample counts; positive.
    """

    name: str
    part: str | None
    margins: np.ndarray
    weights: np.ndarray


class MarginDistributionDisplay:
    """Margin distributions of one classifier or of several, on training data, test data or both.

    Made by :meth:`from_estimator`, :meth:`from_estimators` or :meth:`from_predictions`. Colour and line style
    belong to the method (see :func:`method_styles`); thin lines are training data and bold ones test data.

    Parameters
    ----------
    samples : sequence of MarginSample
        What is drawn: (name, part, margins, weights) for each method and part of the data.
    geometric : bool, default=False
        Whether the margins are geometric; decides the label of the axis.

    Attributes
    ----------
    ax_ : matplotlib Axes
        Where :meth:`plot` drew.
    figure_ : matplotlib Figure
        The figure of these axes.
    artists_ : dict
        From (name, part) to what was drawn: a line for "cumulative", a step patch for "histogram".

    See Also
    --------
    margin_statistics : The same distributions in a few numbers.

    Examples
    --------
    >>> from margindist import LDMClassifier
    >>> from margindist.margins import MarginDistributionDisplay
    >>> from sklearn.datasets import load_iris
    >>> X, y = load_iris(return_X_y=True)
    >>> classifier = LDMClassifier().fit(X[::2], y[::2])
    >>> display = MarginDistributionDisplay.from_estimator(classifier, X[::2], y[::2], X_test=X[1::2], y_test=y[1::2])
    >>> sorted(display.artists_)
    [('LDM', 'test'), ('LDM', 'training')]
    """

    def __init__(self, samples: Sequence[MarginSample], *, geometric: bool = False):
        self.samples = samples
        self.geometric = geometric

    @classmethod
    def from_estimator(
        cls,
        estimator: Any,
        X: MatrixLike,
        y: ArrayLike,
        *,
        X_test: ArrayLike | None = None,
        y_test: ArrayLike | None = None,
        sample_weight: ArrayLike | None = None,
        sample_weight_test: ArrayLike | None = None,
        name: str | None = None,
        geometric: bool = False,
        kind: str = "cumulative",
        bins: int | str | ArrayLike = 40,
        ax: "Axes | None" = None,
    ) -> "MarginDistributionDisplay":
        """Draw the margins of one fitted classifier.

        Parameters
        ----------
        estimator : fitted classifier
            Anything that :func:`margins` takes.
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
            Samples; training samples if test samples are given too.
        y : array-like of shape (n_samples,)
            True labels.
        X_test : {array-like, sparse matrix} of shape (n_test_samples, n_features), default=None
            Test samples, drawn in bold beside the others.
        y_test : array-like of shape (n_test_samples,), default=None
            Their labels.
        sample_weight : array-like of shape (n_samples,), default=None
            How often each sample counts.
        sample_weight_test : array-like of shape (n_test_samples,), default=None
            How often each test sample counts.
        name : str, default=None
            Name in the legend; None takes the class name without "Classifier".
        geometric : bool, default=False
            Draw geometric margins, see :func:`margins`.
        kind : {"cumulative", "histogram"}, default="cumulative"
            The share of samples up to each margin, or in each bin.
        bins : int, str or array-like, default=40
            Bins of the histogram as in :func:`numpy.histogram_bin_edges`, the same for all that is drawn.
        ax : matplotlib Axes, default=None
            Where to draw; None makes a new figure.

        Returns
        -------
        MarginDistributionDisplay
        """
        name = _display_name(estimator) if name is None else name
        return cls.from_estimators(
            {name: estimator}, X, y, X_test=X_test, y_test=y_test, sample_weight=sample_weight,
            sample_weight_test=sample_weight_test, geometric=geometric, kind=kind, bins=bins, ax=ax,
        )  # fmt: skip

    @classmethod
    def from_estimators(
        cls,
        estimators: Mapping[str, Any] | Sequence[Any],
        X: MatrixLike,
        y: ArrayLike,
        *,
        X_test: ArrayLike | None = None,
        y_test: ArrayLike | None = None,
        sample_weight: ArrayLike | None = None,
        sample_weight_test: ArrayLike | None = None,
        geometric: bool = False,
        kind: str = "cumulative",
        bins: int | str | ArrayLike = 40,
        ax: "Axes | None" = None,
    ) -> "MarginDistributionDisplay":
        """Draw the margins of several fitted classifiers on one axes.

        Parameters
        ----------
        estimators : mapping from name to fitted classifier, or sequence of fitted classifiers
            Without names, those of the classes are taken and, where they repeat, numbered.
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
            Samples; training samples if test samples are given too.
        y : array-like of shape (n_samples,)
            True labels.
        X_test : {array-like, sparse matrix} of shape (n_test_samples, n_features), default=None
            Test samples, drawn in bold beside the others.
        y_test : array-like of shape (n_test_samples,), default=None
            Their labels.
        sample_weight : array-like of shape (n_samples,), default=None
            How often each sample counts.
        sample_weight_test : array-like of shape (n_test_samples,), default=None
            How often each test sample counts.
        geometric : bool, default=False
            Draw geometric margins, without which the scales of different methods cannot be compared.
        kind : {"cumulative", "histogram"}, default="cumulative"
            The share of samples up to each margin, or in each bin.
        bins : int, str or array-like, default=40
            Bins of the histogram as in :func:`numpy.histogram_bin_edges`, the same for all that is drawn.
        ax : matplotlib Axes, default=None
            Where to draw; None makes a new figure.

        Returns
        -------
        MarginDistributionDisplay
        """
        if (X_test is None) != (y_test is None):
            raise ValueError("MarginDistributionDisplay: X_test and y_test belong together, got only one of them.")
        named = estimators if isinstance(estimators, Mapping) else _numbered(estimators)
        parts = [("training", X, y, sample_weight), ("test", X_test, y_test, sample_weight_test)]
        samples = []
        for name, estimator in named.items():
            for part, X_part, y_part, weights in parts[: 1 if X_test is None else 2]:
                z = margins(estimator, X_part, y_part, geometric=geometric)
                samples.append(_sample(name, None if X_test is None else part, z, weights))
        return cls(samples, geometric=geometric).plot(ax, kind=kind, bins=bins)

    @classmethod
    def from_predictions(
        cls,
        y: ArrayLike,
        decision: ArrayLike,
        *,
        classes: ArrayLike | None = None,
        sample_weight: ArrayLike | None = None,
        name: str = "classifier",
        kind: str = "cumulative",
        bins: int | str | ArrayLike = 40,
        ax: "Axes | None" = None,
    ) -> "MarginDistributionDisplay":
        """Draw the margins that labels and decision values make.

        Parameters
        ----------
        y : array-like of shape (n_samples,)
            True labels.
        decision : array-like of shape (n_samples,) or (n_samples, n_classes)
            Decision values, see :func:`margins_from_decision`.
        classes : array-like of shape (n_classes,), default=None
            The labels in the order of the scores; None means the sorted labels of ``y``.
        sample_weight : array-like of shape (n_samples,), default=None
            How often each sample counts.
        name : str, default="classifier"
            Name in the legend.
        kind : {"cumulative", "histogram"}, default="cumulative"
            The share of samples up to each margin, or in each bin.
        bins : int, str or array-like, default=40
            Bins of the histogram as in :func:`numpy.histogram_bin_edges`.
        ax : matplotlib Axes, default=None
            Where to draw; None makes a new figure.

        Returns
        -------
        MarginDistributionDisplay
        """
        z = margins_from_decision(decision, y, classes)
        return cls([_sample(name, None, z, sample_weight)]).plot(ax, kind=kind, bins=bins)

    def plot(
        self, ax: "Axes | None" = None, *, kind: str = "cumulative", bins: int | str | ArrayLike = 40
    ) -> "MarginDistributionDisplay":
        """Draw.

        Parameters
        ----------
        ax : matplotlib Axes, default=None
            Where to draw; None makes a new figure.
        kind : {"cumulative", "histogram"}, default="cumulative"
            The share of samples up to each margin, or in each bin.
        bins : int, str or array-like, default=40
            Bins of the histogram as in :func:`numpy.histogram_bin_edges`, the same for all that is drawn.

        Returns
        -------
        MarginDistributionDisplay
            This object, with ``ax_``, ``figure_`` and ``artists_`` set.
        """
        if kind not in _KINDS:
            raise ValueError(f"MarginDistributionDisplay: kind must be 'cumulative' or 'histogram', got {kind!r}.")
        if ax is None:
            _, ax = _pyplot().subplots(layout="constrained")
        names = list(dict.fromkeys(sample.name for sample in self.samples))
        styles = dict(zip(names, method_styles(names), strict=True))
        edges = np.histogram_bin_edges(np.concatenate([sample.margins for sample in self.samples]), bins)
        ax.axvline(0.0, color=_NEUTRAL, linewidth=0.8, zorder=1)
        self.artists_ = {}
        for sample in self.samples:
            draw = _draw_cumulative if kind == "cumulative" else _draw_histogram
            self.artists_[sample.name, sample.part] = draw(ax, sample, styles[sample.name], edges)
        self._label(ax, kind, styles)
        self.ax_, self.figure_ = ax, ax.figure
        return self

    def _label(self, ax, kind, styles):
        """Label the axes and explain colours, line styles and widths."""
        from matplotlib.lines import Line2D
        from matplotlib.ticker import PercentFormatter

        ax.set_xlabel("geometric margin" if self.geometric else "margin")
        ax.set_ylabel("share of samples up to this margin" if kind == "cumulative" else "share of samples")
        ax.set_ylim(0.0, 1.01 if kind == "cumulative" else None)
        ax.yaxis.set_major_formatter(PercentFormatter(1.0))
        ax.margins(x=0.02)
        _add_grid(ax)
        handles = [Line2D([], [], label=name, linewidth=1.8, **style._asdict()) for name, style in styles.items()]
        parts = dict.fromkeys(sample.part for sample in self.samples if sample.part is not None)
        handles += [Line2D([], [], label=part, color=_NEUTRAL, linewidth=_WIDTHS[part]) for part in parts]
        corner = "lower right" if kind == "cumulative" else "upper right"
        ax.legend(handles=handles, frameon=False, handlelength=3.2, loc=corner)


def _sample(name, part, z, sample_weight):
    weights = _checked_weights(sample_weight, z)
    return MarginSample(name, part, z[weights > 0], weights[weights > 0])


def _draw_cumulative(ax, sample, style, edges):
    order = np.argsort(sample.margins, kind="stable")
    heights = np.cumsum(sample.weights[order]) / sample.weights.sum()
    z = sample.margins[order]
    (line,) = ax.step(
        np.r_[z[0], z], np.r_[0.0, heights], where="post", linewidth=_WIDTHS[sample.part], **style._asdict()
    )
    return line


def _draw_histogram(ax, sample, style, edges):
    counts, _ = np.histogram(sample.margins, edges, weights=sample.weights / sample.weights.sum())
    if sample.part != "training":
        ax.stairs(counts, edges, fill=True, color=style.color, alpha=0.15)
    return ax.stairs(counts, edges, linewidth=_WIDTHS[sample.part], **style._asdict())


def _add_grid(ax):
    ax.grid(color=_NEUTRAL, alpha=0.25, linewidth=0.6)
    ax.set_axisbelow(True)
    ax.spines[["top", "right"]].set_visible(False)


def _display_name(estimator):
    return type(_last_step(estimator)).__name__.removesuffix("Classifier")


def _numbered(estimators):
    """Return the estimators by name, the second of a name with "(2)" and so on."""
    named = {}
    for estimator in estimators:
        name = first = _display_name(estimator)
        number = 1
        while name in named:
            number += 1
            name = f"{first} ({number})"
        named[name] = estimator
    return named


def _pyplot():
    try:
        import matplotlib.pyplot as plt
    except ImportError as error:
        raise ImportError(
            "MarginDistributionDisplay needs matplotlib: pip install 'margindist[plots]'; margin_statistics works "
            "without it."
        ) from error
    return plt
