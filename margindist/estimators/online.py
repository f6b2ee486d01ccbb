"""Online maximum-margin learners: PUMMA and its rivals ROMMA, ALMA and MICRA."""

import warnings
from collections.abc import Callable
from functools import cache
from operator import attrgetter
from typing import Any, NamedTuple, Self

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike
from sklearn.exceptions import ConvergenceWarning

from margindist.estimators._base import MarginClassifier, all_or_nothing, fitting
from margindist.estimators._parameters import (
    COMMON_PARAMETERS,
    FLAG,
    KERNEL_PARAMETERS,
    NON_NEGATIVE,
    POSITIVE,
    KernelName,
    Requirement,
    is_real,
    optional,
)
from margindist.estimators._training_data import MatrixLike
from margindist.kernels import Kernel, looks_at_rows, resolve_gamma
from margindist.solvers import online, online_kernel
from margindist.solvers.online import entry
from margindist.spaces.rows import as_rows
from margindist.spaces.sparse import is_canonical

_SMALL = 100_000  # values that are checked faster by hand than through scikit-learn
_MODERATE = 1e30  # size below which they need no further check; no NaN is

_FRACTION = Requirement(lambda value: is_real(value) and 0 < value <= 1, "in (0, 1]")
_NORM = Requirement(
    lambda value: (isinstance(value, str) and value == "auto") or (is_real(value) and 2 <= value < np.inf),
    "'auto' or a number that is at least 2",
)
_PART = Requirement(lambda value: is_real(value) and 0 <= value <= 1, "in [0, 1]")
_CONJUGATE_NORM = Requirement(
    lambda value: (isinstance(value, str) and value == "auto") or (is_real(value) and 1 < value < np.inf),
    "'auto' or a number above 1",
)
_CONSTANT = Requirement(
    lambda value: (isinstance(value, str) and value == "auto") or (is_real(value) and 0 < value < np.inf),
    "'auto' or a positive number",
)


@cache
def _parameter_names(estimator_class):
    return estimator_class._get_param_names()


@cache
def _parameter_getter(estimator_class):
    return attrgetter(*_parameter_names(estimator_class))


class _Memory(NamedTuple):
    """What an online classifier knows between two calls."""

    parameters: tuple  # as they were when checked
    method: Any
    kernel: Kernel | None  # None for linear models
    learners: Any  # a list of linear states, or one kernel state for all problems
    codes: np.ndarray = np.empty(0, dtype=np.intp)  # classes of the rows that a kernel state stores


class _OnlineClassifier(MarginClassifier):
    """Shared ``fit`` and ``partial_fit``; a subclass names its parameters and builds its method."""

    converged_: bool
    margin_: float | np.ndarray
    margin_share_: float | np.ndarray
    history_: np.ndarray | list[np.ndarray]

    _requirements = {
        **KERNEL_PARAMETERS,
        "soft_margin": NON_NEGATIVE,
        "max_iter": optional(COMMON_PARAMETERS["max_iter"]),
        "shuffle": FLAG,
        "random_state": COMMON_PARAMETERS["random_state"],
        "fit_intercept": FLAG,
        "intercept_scaling": _CONSTANT,
        "p": _NORM,
        "delta": _FRACTION,
    }

    # ------------------------------------------------------------------ learning

    @fitting
    def fit(self, X: MatrixLike, y: ArrayLike) -> Self:
        """Learn from the rows, pass after pass, until no margin is too small.

        With ``shuffle`` every pass meets the rows in a new order; all two-class problems share it.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
            Training rows; for ``kernel="precomputed"`` the kernel values between them.
        y : array-like of shape (n_samples,)
            Labels, of any kind.

        Returns
        -------
        self : object
            The fitted classifier.
        """
        self._check_parameters()
        data = self._validate_training_data(X, y)
        method, signs = self._method(data.X.shape[1]), self._sign_vectors(data.codes)
        kernel = self._kernel_of(method, data.X)
        orders = online.Orders(len(data.codes), int(self._rng().integers(2**63)) if self.shuffle else None)
        if kernel is None:
            rows = as_rows(data.X)
            states = [self._new_state(method, len(data.codes)) for _ in signs]
            ends = [
                online_kernel.run_linear(method, rows, s, state, self.max_iter, orders)
                for s, state in zip(signs, states)
            ]
            runs, learners = [run for run, _ in ends], [state for _, state in ends]
        else:
            fresh = online_kernel.kernel_state(len(signs), self._constant())
            runs, learners = online_kernel.run(method, kernel, data.X, np.vstack(signs), fresh, self.max_iter, orders)
        codes = data.codes[:0] if kernel is None else data.codes[learners.numbers]
        self._store(_Memory(self._parameters(), method, kernel, learners, codes))
        return self._store_runs(runs)

    @all_or_nothing
    def partial_fit(self, X: MatrixLike, y: ArrayLike, classes: ArrayLike | None = None) -> Self:
        """Learn from the rows once, in the order given, going on from what was learnt before.

        Rows may come one or a million at a time: the result is the same as that of :meth:`fit` with ``max_iter=1`` and
        ``shuffle=False`` on all of them.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
            Training rows.
        y : array-like of shape (n_samples,)
            Labels.
        classes : array-like of shape (n_classes,), default=None
            All labels that can occur; needed in the first call.

        Returns
        -------
        self : object
            The classifier.
        """
        if hasattr(self, "classes_") and not hasattr(self, "_memory"):
            raise ValueError(
                f"{type(self).__name__}: partial_fit goes on from what was learnt before, which a model file does not "
                f"keep; fit a clone, or keep the learner itself by pickle."
            )
        batch = self._quick_batch(X, y, classes)
        if batch is None:
            self._refuse_kernel_values()
            data = self._validate_training_data(X, y, classes=classes, piece=True)
            batch, self._classes_given = (data.X, data.codes), classes
        X, codes = batch
        memory = self._recall(X)
        signs = self._sign_vectors(codes)
        if memory.kernel is None:
            rows = as_rows(X)
            norms, one_pass = online.norms_of(memory.method, rows), np.arange(len(codes))[None]
            for state, sign in zip(memory.learners, signs):
                online.learn_passes(memory.method, rows, one_pass, sign, norms, state)
            return self._store(memory)
        before = memory.learners
        learners = online_kernel.learn(memory.method, memory.kernel, X, np.vstack(signs), before)
        met = np.append(before.numbers, before.n_seen + np.arange(len(codes)))
        codes = np.append(memory.codes, codes)[np.searchsorted(met, learners.numbers)]
        return self._store(memory._replace(learners=learners, codes=codes))

    # ------------------------------------------------------------------ what comes in

    def _refuse_kernel_values(self):
        if self._named_kernel.is_precomputed:
            raise ValueError(
                f"{type(self).__name__}: partial_fit needs the rows themselves, so kernel='precomputed' works with fit "
                f"only."
            )

    def _parameters(self):
        return _parameter_getter(type(self))(self)

    def _quick_batch(self, X, y, classes):
        """Check a small batch without scikit-learn's overhead; return None for one that needs the full validation."""
        memory = getattr(self, "_memory", None)
        sparse = type(X) in (sp.csr_matrix, sp.csr_array)
        if memory is None or (classes is not None and classes is not getattr(self, "_classes_given", None)):
            return None
        if memory.kernel is not None and memory.kernel.is_precomputed:
            return None
        if "feature_names_in_" in self.__dict__ or not (sparse or type(X) is np.ndarray) or type(y) is not np.ndarray:
            return None
        values = X.data if sparse else X
        numbers = y.dtype.kind in "iuf" and self.classes_.dtype.kind in "iuf"
        alike = numbers or (y.dtype == self.classes_.dtype and y.dtype.kind != "O")
        plain = values.dtype in (np.float64, np.float32) and alike
        shaped = X.ndim == 2 and y.shape == X.shape[:1] and len(y) > 0 and X.shape[1] == self.n_features_in_
        if not (plain and shaped and values.size <= _SMALL):
            return None
        if not (is_canonical(X) if sparse else X.flags.c_contiguous):
            return None
        if not online.all_below(values.reshape(-1), _MODERATE):
            return None
        codes = self.classes_[:-1].searchsorted(y)
        return (X, codes) if (self.classes_[codes] == y).all() else None

    def _recall(self, X):
        """Return the memory, made or checked afresh if a parameter changed."""
        memory, parameters = getattr(self, "_memory", None), self._parameters()
        if memory is not None and memory.parameters == parameters:
            return memory
        self._check_parameters()
        if looks_at_rows(self.gamma) and self._named_kernel.has_gamma:
            raise ValueError(
                f"{type(self).__name__}: gamma={self.gamma!r} looks at all rows, which partial_fit does not have; give "
                f"gamma a number or 'auto'."
            )
        method = self._method(X.shape[1])
        kernel = self._kernel_of(method, X)
        n_problems = 1 if len(self.classes_) == 2 else len(self.classes_)
        if memory is not None:
            if (method.p, method.soft, kernel) != (memory.method.p, memory.method.soft, memory.kernel):
                raise ValueError(
                    f"{type(self).__name__}: p, soft_margin and the kernel cannot change between calls of partial_fit; "
                    f"call fit or use a clone."
                )
            return memory._replace(parameters=parameters, method=method)
        if kernel is None:
            return _Memory(parameters, method, None, [self._new_state(method, 0) for _ in range(n_problems)])
        return _Memory(parameters, method, kernel, online_kernel.kernel_state(n_problems, self._constant()))

    def _new_state(self, method, n_samples):
        return online.linear_state(method, self.n_features_in_, self._constant(), n_samples)

    def _constant(self):
        """Return the value of the constant column; None lets it follow the longest row."""
        if not getattr(self, "fit_intercept", False):
            return 0.0
        return None if self.intercept_scaling == "auto" else float(self.intercept_scaling)

    def _kernel_of(self, method, X):
        if self._named_kernel.is_linear:
            if method.p != 2.0 and self.soft_margin > 0:
                raise ValueError(
                    f"{type(self).__name__}: soft_margin needs p=2, got p={self.p!r}; set one of them back."
                )
            return None
        if method.p != 2.0:
            raise ValueError(f"{type(self).__name__}: kernels need p=2, got p={self.p!r} and kernel={self.kernel!r}.")
        gamma = resolve_gamma(self.gamma, X, np.ones(X.shape[0])) if self._named_kernel.has_gamma else 1.0
        return Kernel(self.kernel, gamma, self.degree, self.coef0)

    def _exponent(self, n_features):
        return max(2.0, 2.0 * np.log(n_features)) if self.p == "auto" else float(self.p)

    # ------------------------------------------------------------------ what is kept

    def _store(self, memory):
        self._memory = memory
        if memory.kernel is not None:
            self.kernel_, self.support_ = memory.kernel, memory.learners.numbers
            self.dual_coef_, self.support_vectors_ = memory.learners.coef, memory.learners.X
            self.n_support_ = np.bincount(memory.codes, minlength=len(self.classes_)).astype(np.int32)
        return self

    def _store_runs(self, runs):
        self.converged_ = all(run.converged for run in runs)
        histories = [run.history for run in runs]
        ends = np.array([history[-1] for history in histories])
        self.n_iter_ = int(ends["n_iter"].max())
        if len(runs) == 1:
            self.history_, self.margin_, self.margin_share_ = (
                histories[0],
                float(ends["margin"][0]),
                float(ends["share"][0]),
            )
        else:
            self.history_, self.margin_, self.margin_share_ = histories, ends["margin"], ends["share"]
        if not self.converged_:
            norm = " (with p=2)" if "p" in _parameter_names(type(self)) else ""
            least = min((run.history[-1] for run in runs if not run.converged), key=lambda end: end["share"])
            limit = "more promised nothing" if self.max_iter is None else f"max_iter={self.max_iter}"
            advice = f"If the classes overlap, set soft_margin{norm} or a kernel; "
            advice += "otherwise scale the features or set a larger max_iter."
            if any(run.overlap for run in runs):
                limit, advice = "no weights separate the classes", f"Set soft_margin{norm} or a kernel."
            warnings.warn(
                f"{type(self).__name__} stopped after {least['n_iter']} passes ({limit}) and "
                f"{least['n_updates']} steps with margins still too small: margin_ is {least['margin']:.3g}, "
                f"margin_share_ {least['share']:.3g}. {advice}",
                ConvergenceWarning,
                stacklevel=3,
            )
        return self

    def _tracks(self, name):
        """Return the learners' records, from which attributes are made only when they are asked for."""
        if "_memory" not in self.__dict__:
            raise AttributeError(f"{type(self).__name__} has {name} only after a fit, not from a model file.")
        learners = self._memory.learners
        return [state.track for state in learners] if self._memory.kernel is None else learners.tracks

    @property
    def coef_(self) -> np.ndarray:
        """Weights of the features, one row per two-class problem; linear models only."""
        memory = self.__dict__.get("_memory")
        if "coef_" in self.__dict__:  # from a model file
            return self.__dict__["coef_"]
        if memory is None or memory.kernel is not None:
            raise AttributeError(f"{type(self).__name__} has coef_ only after a fit with kernel='linear'.")
        return np.vstack([online.weights(state) for state in memory.learners])

    @property
    def intercept_(self) -> np.ndarray:
        """Intercepts, one per two-class problem."""
        if "intercept_" in self.__dict__:  # from a model file
            return self.__dict__["intercept_"]
        return np.array([entry(track).bias for track in self._tracks("intercept_")])

    @property
    def n_updates_(self) -> int | np.ndarray:
        """Steps made so far, by each two-class problem if there are several."""
        counts = [int(entry(track).n_updates) for track in self._tracks("n_updates_")]
        return counts[0] if len(counts) == 1 else np.array(counts)

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        # With a hard margin and overlapping classes there is nothing to converge to.
        tags.classifier_tags.poor_score = self._named_kernel.is_linear and self.soft_margin == 0
        return tags


class PUMMAClassifier(_OnlineClassifier):
    r"""P-norm utilizing maximum margin algorithm: online, any p-norm, with an exact bias.

    Keeps one positive and one negative example. Whenever a row's margin :math:`y(w \cdot x + b)` is below
    :math:`1 - \delta` it takes the place of the example of its class, and

    .. math:: w \leftarrow \arg\min_w \tfrac12 \|w\|_q^2 \quad \text{with} \quad w \cdot (x^+ - x^-) \ge 2, \;
        w \cdot \theta \ge \|w_{old}\|_q^2, \qquad \theta = \nabla \tfrac12 \|w_{old}\|_q^2, \quad 1/p + 1/q = 1 ,

    and the bias puts the hyperplane halfway between the two. If some classifier separates the rows with p-norm margin
    :math:`\gamma`, there are for :math:`p \ge 2` at most :math:`4(p-1)R^2/(\delta\gamma)^2` steps, R the largest p-norm
    of a row, and the result has a margin of at least :math:`(1-\delta)\gamma`. More than two classes are learnt one
    against the rest.

    Parameters
    ----------
    p : float or "auto", default=2.0
        Norm in which distances are measured, above 1; "auto" is 2 ln(n_features), good when few features matter. The
        bound on the steps is proved for p of at least 2; below it the learner is the same, and the bound not known.
    delta : float, default=0.1
        Fraction of the best margin that may be lost, in [0, 1]. With 0 the margin comes as near to the best one as the
        passes allow, and as a rule none is the last.
    kernel : {"linear", "rbf", "poly", "sigmoid", "precomputed"} or callable, default="linear"
        Kernel; all but "linear" store the rows that caused an update. "precomputed" works with ``fit`` only.
    gamma : {"auto", "scale"}, float or str such as "5/d", default="auto"
        Coefficient of "rbf", "poly" and "sigmoid": "auto" is 1 / n_features, "5/d" 5 times that; "scale" and
        "2*mean-distance", a Gaussian twice as wide as the mean distance of two rows, work with ``fit`` only.
    degree : int, default=3
        Degree of "poly".
    coef0 : float, default=0.0
        Constant of "poly" and "sigmoid".
    soft_margin : float, default=0.0
        λ ≥ 0 of the 2-norm soft margin: λ is added to the inner product of every sample with itself, which makes any
        rows separable. Needs p = 2.
    max_iter : int, default=None
        Largest number of passes in ``fit``. None means 10,000, or fewer if more would evidently be in vain; see the
        user guide.
    shuffle : bool, default=True
        Whether ``fit`` draws a new order of the rows for every pass; rows sorted by class are learnt badly in the given
        order. ``partial_fit`` always keeps the given order.
    random_state : int, RandomState instance or None, default=None
        Seed of the orders that ``fit`` draws.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
        Labels.
    coef_ : ndarray of shape (1, n_features) or (n_classes, n_features)
        Weights, linear models only.
    intercept_ : ndarray of shape (1,) or (n_classes,)
        Intercepts.
    dual_coef_, support_, support_vectors_ : ndarray
        Coefficients, positions among the rows seen, and the stored rows themselves; kernel models only.
    n_support_ : ndarray of shape (n_classes,)
        How many of the stored rows belong to each class; kernel models only.
    n_updates_ : int or ndarray of shape (n_classes,)
        Steps made so far.
    n_iter_ : int
        Passes made by ``fit``.
    converged_ : bool
        Whether no margin was too small in the last pass of ``fit``.
    margin_ : float or ndarray of shape (n_classes,)
        Smallest margin of the training rows after ``fit``: p-norm distance from the hyperplane, soft-margin column
        included.
    margin_share_ : float or ndarray of shape (n_classes,)
        Certified part of the best possible margin that ``margin_`` reaches after ``fit``: no classifier
        has a margin above ``‖θ‖ / Σ c_i``.
    history_ : ndarray of shape (n_records,) or list of n_classes such arrays
        How ``fit`` went: fields ``n_iter``, ``n_updates``, ``seconds`` (processor time of the passes so far),
        ``margin`` and ``share`` after the passes 1, 2, 3, ..., from the twentieth on at numbers that grow by a tenth
        (kernel models: doubling numbers), and after the last.
    n_features_in_ : int
        Number of features.

    Notes
    -----
    A row costs what its non-zeros cost; a step with p > 2 takes a handful of Newton iterations, each one power a
    non-zero. The paper's update bound has the constant 2 in place of 4, which takes
    :math:`\|x^+ - x^-\| \le \sqrt2 R` for granted. Of the rows before the first of the other class only the first is
    kept.

    References
    ----------
    K. Ishibashi, K. Hatano and M. Takeda, "Online learning of approximate maximum p-norm margin classifiers with bias",
    COLT 2008, figure 1 and equations 12-16.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from margindist import PUMMAClassifier
    >>> X, y = load_iris(return_X_y=True)
    >>> model = PUMMAClassifier(delta=0.1).fit(X[:100], y[:100])
    >>> model.converged_, model.margin_share_ >= 0.9
    (True, True)
    >>> stream = PUMMAClassifier()
    >>> for row, label in zip(X[::5], y[::5]):
    ...     stream = stream.partial_fit([row], [label], classes=[0, 1, 2])
    >>> stream.coef_.shape
    (3, 4)
    """

    _requirements = {**_OnlineClassifier._requirements, "p": _CONJUGATE_NORM, "delta": _PART}

    def __init__(
        self,
        p: float | str = 2.0,
        delta: float = 0.1,
        *,
        kernel: KernelName | Callable = "linear",
        gamma: str | float = "auto",
        degree: int = 3,
        coef0: float = 0.0,
        soft_margin: float = 0.0,
        max_iter: int | None = None,
        shuffle: bool = True,
        random_state: int | np.random.RandomState | None = None,
    ):
        self.p = p
        self.delta = delta
        self.kernel = kernel
        self.gamma = gamma
        self.degree = degree
        self.coef0 = coef0
        self.soft_margin = soft_margin
        self.max_iter = max_iter
        self.shuffle = shuffle
        self.random_state = random_state

    def _method(self, n_features):
        return online.PUMMA(self._exponent(n_features), float(self.delta), float(self.soft_margin))


class ROMMAClassifier(_OnlineClassifier):
    r"""Relaxed online maximum margin algorithm.

    With :math:`\tilde x = (x, R)`, whenever :math:`y\, w \cdot \tilde x` is below :math:`1 - \delta` (aggressive) or
    not positive (plain)

    .. math:: w \leftarrow \arg\min_w \tfrac12 \|w\|^2 \quad \text{with} \quad y\, w \cdot \tilde x \ge 1, \;
        w \cdot w_{old} \ge \|w_{old}\|^2 .

    The aggressive variant ends with at least :math:`1 - \delta` times the best margin of the augmented rows
    :math:`\tilde x`, after at most :math:`(\tilde R / \delta\tilde\gamma)^2` steps. More than two classes are learnt
    one against the rest.

    Parameters
    ----------
    delta : float, default=0.1
        Part of the best margin that may be lost, in (0, 1]; for the aggressive variant.
    aggressive : bool, default=True
        Whether to step at small margins too, or at mistakes only.
    kernel : {"linear", "rbf", "poly", "sigmoid", "precomputed"} or callable, default="linear"
        Kernel; all but "linear" store the rows that caused an update. "precomputed" works with ``fit`` only.
    gamma : {"auto", "scale"}, float or str such as "5/d", default="auto"
        Coefficient of "rbf", "poly" and "sigmoid": "auto" is 1 / n_features, "5/d" 5 times that; "scale" and
        "2*mean-distance", a Gaussian twice as wide as the mean distance of two rows, work with ``fit`` only.
    degree : int, default=3
        Degree of "poly".
    coef0 : float, default=0.0
        Constant of "poly" and "sigmoid".
    soft_margin : float, default=0.0
        λ ≥ 0 of the 2-norm soft margin: λ is added to the inner product of every sample with itself, which makes any
        rows separable.
    fit_intercept : bool, default=True
        Whether every row carries a constant column, whose weight makes the intercept.
    intercept_scaling : {"auto"} or float, default="auto"
        Value R of the constant column; "auto" is the length of the longest row so far, as in the papers, and θ is
        written anew whenever it grows.
    max_iter : int, default=None
        Largest number of passes in ``fit``. None means 10,000, or fewer if more would evidently be in vain; see the
        user guide.
    shuffle : bool, default=True
        Whether ``fit`` draws a new order of the rows for every pass; rows sorted by class are learnt badly in the given
        order. ``partial_fit`` always keeps the given order.
    random_state : int, RandomState instance or None, default=None
        Seed of the orders that ``fit`` draws.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
        Labels.
    coef_ : ndarray of shape (1, n_features) or (n_classes, n_features)
        Weights, linear models only.
    intercept_ : ndarray of shape (1,) or (n_classes,)
        Intercepts.
    dual_coef_, support_, support_vectors_ : ndarray
        Coefficients, positions among the rows seen, and the stored rows themselves; kernel models only.
    n_support_ : ndarray of shape (n_classes,)
        How many of the stored rows belong to each class; kernel models only.
    n_updates_ : int or ndarray of shape (n_classes,)
        Steps made so far.
    n_iter_ : int
        Passes made by ``fit``.
    converged_ : bool
        Whether no margin was too small in the last pass of ``fit``.
    margin_ : float or ndarray of shape (n_classes,)
        Smallest margin of the training rows after ``fit``: distance from the hyperplane, soft-margin column included.
    margin_share_ : float or ndarray of shape (n_classes,)
        Certified part of the best possible margin, that of the augmented rows, that ``margin_`` reaches after
        ``fit``: no classifier has a margin above ``‖θ‖ / Σ c_i``.
    history_ : ndarray of shape (n_records,) or list of n_classes such arrays
        How ``fit`` went: fields ``n_iter``, ``n_updates``, ``seconds`` (processor time of the passes so far),
        ``margin`` and ``share`` after the passes 1, 2, 3, ..., from the twentieth on at numbers that grow by a tenth
        (kernel models: doubling numbers), and after the last.
    n_features_in_ : int
        Number of features.

    References
    ----------
    Y. Li and P. M. Long, "The relaxed online maximum margin algorithm", Machine Learning 46, 2002.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from margindist import ROMMAClassifier
    >>> X, y = load_iris(return_X_y=True)
    >>> model = ROMMAClassifier(delta=0.1, max_iter=1000).fit(X[:100], y[:100])
    >>> model.converged_, model.margin_share_ >= 0.9
    (True, True)
    """

    _requirements = {**_OnlineClassifier._requirements, "aggressive": FLAG}

    def __init__(
        self,
        delta: float = 0.1,
        aggressive: bool = True,
        *,
        kernel: KernelName | Callable = "linear",
        gamma: str | float = "auto",
        degree: int = 3,
        coef0: float = 0.0,
        soft_margin: float = 0.0,
        fit_intercept: bool = True,
        intercept_scaling: float | str | None = "auto",
        max_iter: int | None = None,
        shuffle: bool = True,
        random_state: int | np.random.RandomState | None = None,
    ):
        self.delta = delta
        self.aggressive = aggressive
        self.kernel = kernel
        self.gamma = gamma
        self.degree = degree
        self.coef0 = coef0
        self.soft_margin = soft_margin
        self.fit_intercept = fit_intercept
        self.intercept_scaling = intercept_scaling
        self.max_iter = max_iter
        self.shuffle = shuffle
        self.random_state = random_state

    def _method(self, n_features):
        short = 1.0 - float(self.delta) if self.aggressive else 0.0
        return online.ROMMA(short, float(self.soft_margin), bool(self.fit_intercept))


class ALMAClassifier(_OnlineClassifier):
    r"""Approximate large margin algorithm for any p-norm.

    Rows :math:`\hat x = \tilde x / \|\tilde x\|_p`, :math:`\tilde x = (x, R)`. When the k-th step is due, that is when
    :math:`y\, w \cdot \hat x \le (1 - \alpha) B \sqrt{(p-1)/k}`, ALMA adds :math:`C / \sqrt{(p-1)k}\; y \hat x` to
    :math:`\theta = \nabla \tfrac12 \|w\|_q^2` and scales ``w`` back to :math:`\|w\|_q \le 1`. With
    :math:`B = \sqrt8/\alpha` and :math:`C = \sqrt2` there are at most
    :math:`2(p-1)(2/\alpha - 1)^2 / \gamma^2 + 8/\alpha - 4` steps, and the p-norm margin of the rows :math:`\hat x`
    ends at no less than :math:`(1 - \alpha)` times the best, :math:`\gamma`. More than two classes are learnt one
    against the rest.

    Why: let u, :math:`\|u\|_q = 1`, have the margin :math:`\gamma`. The k-th step raises :math:`\|w\|_q^2 \le 1` to
    at most :math:`1 + A/k` with :math:`A = 2(1-\alpha)BC + C^2 = 8/\alpha - 6`, so that
    :math:`s_k = u \cdot \theta_k` obeys
    :math:`s_{k+1} \ge (s_k + C\gamma/\sqrt{(p-1)k}) / \sqrt{1 + A/k}` and, never above 1, ends the steps; the
    threshold is then still at least :math:`(1-\alpha)\gamma`. Public implementations for p = 2 (LIBOL's SOL, river)
    have the same schedules and C, but :math:`B = 1/\alpha`, for which this does not follow.

    Parameters
    ----------
    p : float or "auto", default=2.0
        Norm, at least 2; "auto" is 2 ln(n_features).
    alpha : float, default=0.5
        Part of the best margin that may be lost, in (0, 1]; with 1 only mistakes make a step. Below 0.5 ALMA is slow:
        see Notes.
    B : float or None, default=None
        Scale of the threshold; None is √8/α.
    C : float or None, default=None
        Scale of the step; None is √2.
    kernel : {"linear", "rbf", "poly", "sigmoid", "precomputed"} or callable, default="linear"
        Kernel; all but "linear" store the rows that caused an update. "precomputed" works with ``fit`` only.
    gamma : {"auto", "scale"}, float or str such as "5/d", default="auto"
        Coefficient of "rbf", "poly" and "sigmoid": "auto" is 1 / n_features, "5/d" 5 times that; "scale" and
        "2*mean-distance", a Gaussian twice as wide as the mean distance of two rows, work with ``fit`` only.
    degree : int, default=3
        Degree of "poly".
    coef0 : float, default=0.0
        Constant of "poly" and "sigmoid".
    soft_margin : float, default=0.0
        λ ≥ 0 of the 2-norm soft margin: λ is added to the inner product of every sample with itself, which makes any
        rows separable. Needs p = 2.
    fit_intercept : bool, default=True
        Whether every row carries a constant column, whose weight makes the intercept.
    intercept_scaling : {"auto"} or float, default="auto"
        Value R of the constant column; "auto" is the length of the longest row so far, as in the papers, and θ is
        written anew whenever it grows.
    max_iter : int, default=None
        Largest number of passes in ``fit``. None means 10,000, or fewer if more would evidently be in vain; see the
        user guide.
    shuffle : bool, default=True
        Whether ``fit`` draws a new order of the rows for every pass; rows sorted by class are learnt badly in the given
        order. ``partial_fit`` always keeps the given order.
    random_state : int, RandomState instance or None, default=None
        Seed of the orders that ``fit`` draws.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
        Labels.
    coef_ : ndarray of shape (1, n_features) or (n_classes, n_features)
        Weights, linear models only.
    intercept_ : ndarray of shape (1,) or (n_classes,)
        Intercepts.
    dual_coef_, support_, support_vectors_ : ndarray
        Coefficients, positions among the rows seen, and the stored rows themselves; kernel models only.
    n_support_ : ndarray of shape (n_classes,)
        How many of the stored rows belong to each class; kernel models only.
    n_updates_ : int or ndarray of shape (n_classes,)
        Steps made so far.
    n_iter_ : int
        Passes made by ``fit``.
    converged_ : bool
        Whether no margin was too small in the last pass of ``fit``.
    margin_ : float or ndarray of shape (n_classes,)
        Smallest margin of the training rows after ``fit``: p-norm distance from the hyperplane, soft-margin column
        included.
    margin_share_ : float or ndarray of shape (n_classes,)
        Certified part of the best possible margin, that of the augmented rows as they are, that ``margin_`` reaches
        after ``fit``: no classifier has a margin above ``‖θ‖ / Σ c_i``.
    history_ : ndarray of shape (n_records,) or list of n_classes such arrays
        How ``fit`` went: fields ``n_iter``, ``n_updates``, ``seconds`` (processor time of the passes so far),
        ``margin`` and ``share`` after the passes 1, 2, 3, ..., from the twentieth on at numbers that grow by a tenth
        (kernel models: doubling numbers), and after the last.
    n_features_in_ : int
        Number of features.

    Notes
    -----
    As long as the threshold is above all margins every row makes a step, and w is no more than a sum of all rows, with
    the most frequent class ahead. Margins of size g come into reach after :math:`k = 8(p-1)(1-\alpha)^2/(\alpha g)^2`
    steps: for p = 2 and g = 0.05, 260,000 with :math:`\alpha = 0.1` and 3,200 with :math:`\alpha = 0.5`.

    References
    ----------
    C. Gentile, "A new approximate maximal margin classification algorithm", Journal of Machine Learning Research 2,
    2001, figure 1 and theorem 3.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from margindist import ALMAClassifier
    >>> X, y = load_iris(return_X_y=True)
    >>> ALMAClassifier(p="auto", alpha=0.5).fit(X[:100], y[:100]).score(X[:100], y[:100])
    1.0
    """

    _requirements = {
        **_OnlineClassifier._requirements,
        "alpha": _FRACTION,
        "B": Requirement(lambda value: value is None or POSITIVE.test(value), "None or a positive number"),
        "C": Requirement(lambda value: value is None or POSITIVE.test(value), "None or a positive number"),
    }

    def __init__(
        self,
        p: float | str = 2.0,
        alpha: float = 0.5,
        *,
        B: float | None = None,
        C: float | None = None,
        kernel: KernelName | Callable = "linear",
        gamma: str | float = "auto",
        degree: int = 3,
        coef0: float = 0.0,
        soft_margin: float = 0.0,
        fit_intercept: bool = True,
        intercept_scaling: float | str | None = "auto",
        max_iter: int | None = None,
        shuffle: bool = True,
        random_state: int | np.random.RandomState | None = None,
    ):
        self.p = p
        self.alpha = alpha
        self.B = B
        self.C = C
        self.kernel = kernel
        self.gamma = gamma
        self.degree = degree
        self.coef0 = coef0
        self.soft_margin = soft_margin
        self.fit_intercept = fit_intercept
        self.intercept_scaling = intercept_scaling
        self.max_iter = max_iter
        self.shuffle = shuffle
        self.random_state = random_state

    def _method(self, n_features):
        threshold = np.sqrt(8.0) / self.alpha if self.B is None else self.B
        rate = np.sqrt(2.0) if self.C is None else self.C
        p, lifted = self._exponent(n_features), bool(self.fit_intercept)
        return online.ALMA(p, float(self.alpha), float(threshold), float(rate), float(self.soft_margin), lifted)


class MICRAClassifier(_OnlineClassifier):
    r"""Mistake-controlled rule algorithm: rate and threshold depend on the number of steps alone.

    Starts from the first row, scaled to unit length. With R the longest of the rows :math:`\tilde x = (x, R_x)`, the
    t-th step is due when :math:`y\, u \cdot \tilde x \le \beta R / t^\epsilon`, and

    .. math::

        u \leftarrow \frac{u + \eta_t y \tilde x}{\|u + \eta_t y \tilde x\|}, \qquad \eta_t = \frac{\eta}{R\, t^\zeta} .

    The inner product of u with the best unit vector, of margin :math:`\gamma`, grows in step t by at least
    :math:`\eta_t\gamma - (1 + \eta_t\gamma)(\eta_t\beta R t^{-\epsilon} + \eta_t^2 R^2/2)` and never exceeds 1. The
    sum of these bounds diverges for :math:`\zeta \le 1`, which limits the number of steps T; all margins are then
    above :math:`\beta R / T^\epsilon`. More than two classes are learnt one against the rest.

    The rules :math:`\eta/t^\zeta` and :math:`\beta/t^\epsilon` are the paper's, here in units of 1/R and R so that
    they do not depend on the scale of the rows; the bound on T is derived as said above, not taken from the paper.

    Parameters
    ----------
    eta : float, default=1.0
        Scale of the rate, in units of 1/R.
    beta : float, default=1.0
        Scale of the threshold, in units of R.
    epsilon : float, default=0.5
        Exponent of the threshold, positive.
    zeta : float, default=0.5
        Exponent of the rate, in (0, 1].
    kernel : {"linear", "rbf", "poly", "sigmoid", "precomputed"} or callable, default="linear"
        Kernel; all but "linear" store the rows that caused an update. "precomputed" works with ``fit`` only.
    gamma : {"auto", "scale"}, float or str such as "5/d", default="auto"
        Coefficient of "rbf", "poly" and "sigmoid": "auto" is 1 / n_features, "5/d" 5 times that; "scale" and
        "2*mean-distance", a Gaussian twice as wide as the mean distance of two rows, work with ``fit`` only.
    degree : int, default=3
        Degree of "poly".
    coef0 : float, default=0.0
        Constant of "poly" and "sigmoid".
    soft_margin : float, default=0.0
        λ ≥ 0 of the 2-norm soft margin: λ is added to the inner product of every sample with itself, which makes any
        rows separable.
    fit_intercept : bool, default=True
        Whether every row carries a constant column, whose weight makes the intercept.
    intercept_scaling : {"auto"} or float, default="auto"
        Value R of the constant column; "auto" is the length of the longest row so far, as in the papers, and θ is
        written anew whenever it grows.
    max_iter : int, default=None
        Largest number of passes in ``fit``. None means 10,000, or fewer if more would evidently be in vain; see the
        user guide.
    shuffle : bool, default=True
        Whether ``fit`` draws a new order of the rows for every pass; rows sorted by class are learnt badly in the given
        order. ``partial_fit`` always keeps the given order.
    random_state : int, RandomState instance or None, default=None
        Seed of the orders that ``fit`` draws.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
        Labels.
    coef_ : ndarray of shape (1, n_features) or (n_classes, n_features)
        Weights, linear models only.
    intercept_ : ndarray of shape (1,) or (n_classes,)
        Intercepts.
    dual_coef_, support_, support_vectors_ : ndarray
        Coefficients, positions among the rows seen, and the stored rows themselves; kernel models only.
    n_support_ : ndarray of shape (n_classes,)
        How many of the stored rows belong to each class; kernel models only.
    n_updates_ : int or ndarray of shape (n_classes,)
        Steps made so far.
    n_iter_ : int
        Passes made by ``fit``.
    converged_ : bool
        Whether no margin was too small in the last pass of ``fit``.
    margin_ : float or ndarray of shape (n_classes,)
        Smallest margin of the training rows after ``fit``: distance from the hyperplane, soft-margin column included.
    margin_share_ : float or ndarray of shape (n_classes,)
        Certified part of the best possible margin, that of the augmented rows, that ``margin_`` reaches after
        ``fit``: no classifier has a margin above ``‖θ‖ / Σ c_i``.
    history_ : ndarray of shape (n_records,) or list of n_classes such arrays
        How ``fit`` went: fields ``n_iter``, ``n_updates``, ``seconds`` (processor time of the passes so far),
        ``margin`` and ``share`` after the passes 1, 2, 3, ..., from the twentieth on at numbers that grow by a tenth
        (kernel models: doubling numbers), and after the last.
    n_features_in_ : int
        Number of features.

    References
    ----------
    P. Tsampouka and J. Shawe-Taylor, "Approximate maximum margin algorithms with rules controlled by the number of
    mistakes", ICML 2007, figure 1.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from margindist import MICRAClassifier
    >>> X, y = load_iris(return_X_y=True)
    >>> MICRAClassifier().fit(X[:100], y[:100]).score(X[:100], y[:100])
    1.0
    """

    _requirements = {
        **_OnlineClassifier._requirements,
        "eta": POSITIVE,
        "beta": POSITIVE,
        "epsilon": POSITIVE,
        "zeta": _FRACTION,
    }

    def __init__(
        self,
        eta: float = 1.0,
        beta: float = 1.0,
        epsilon: float = 0.5,
        zeta: float = 0.5,
        *,
        kernel: KernelName | Callable = "linear",
        gamma: str | float = "auto",
        degree: int = 3,
        coef0: float = 0.0,
        soft_margin: float = 0.0,
        fit_intercept: bool = True,
        intercept_scaling: float | str | None = "auto",
        max_iter: int | None = None,
        shuffle: bool = True,
        random_state: int | np.random.RandomState | None = None,
    ):
        self.eta = eta
        self.beta = beta
        self.epsilon = epsilon
        self.zeta = zeta
        self.kernel = kernel
        self.gamma = gamma
        self.degree = degree
        self.coef0 = coef0
        self.soft_margin = soft_margin
        self.fit_intercept = fit_intercept
        self.intercept_scaling = intercept_scaling
        self.max_iter = max_iter
        self.shuffle = shuffle
        self.random_state = random_state

    def _method(self, n_features):
        rules = [float(value) for value in (self.eta, self.beta, self.epsilon, self.zeta)]
        return online.MICRA(*rules, float(self.soft_margin), bool(self.fit_intercept))
