"""Batch rivals of the margin distribution papers: MDO, KM-OMD and FMM."""

import warnings
from collections.abc import Callable
from typing import Literal, Self

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike
from sklearn.exceptions import ConvergenceWarning

from margindist.estimators._base import MarginClassifier, fitting
from margindist.estimators._parameters import (
    COMMON_PARAMETERS,
    KERNEL_PARAMETERS,
    NON_NEGATIVE,
    POSITIVE,
    POSITIVE_INTEGER,
    KernelName,
    Requirement,
)
from margindist.estimators._training_data import MatrixLike
from margindist.kernels import Kernel
from margindist.objectives import HullDistance, NormalisedCost
from margindist.solvers import margin_maximisation, normalised_cost, simplex_qp
from margindist.solvers._solution import Options, Problem, Status, starting_at
from margindist.spaces.features import cholesky_factor
from margindist.spaces.gram import FullGram
from margindist.spaces.rows import n_columns
from margindist.spaces.space import LinearSpace

_FINE = 1e-12  # pivots of a kernel's features, relative to the largest
_EXPONENT = Requirement(lambda value: POSITIVE.test(value) and value <= 500, "a positive number, at most 500")
_STEP = Requirement(lambda value: POSITIVE.test(value) and value <= 1, "a number in (0, 1]")


class MDOClassifier(MarginClassifier):
    r"""Margin distribution optimisation: a cost of all normalised margins, linear and not convex.

    .. math:: \min_w \sum_i c(\nu_i), \qquad \nu_i = \frac{y_i \, w \cdot x_i}{\|w\| \|x_i\|}, \qquad
        c(\nu) = \begin{cases} e^{-\alpha \nu^2} & \nu \ge 0 \\ e^{-\beta \nu} & \nu < 0 \end{cases}

    **This form of the cost is a reading, not a transcription.** The text of [1]_ beyond its abstract was not at hand:
    that samples on the right side pay a bell curve, after the projection profile of the paper's margin bound, and
    samples on the wrong side an exponential, after the training error, was written from memory and not checked
    against it.

    Ours as well: every sample is divided by its length, the constant feature included (which is the length of the
    longest sample, so that multiplying all features by a number changes nothing); the starts are the direction of
    largest mean margin and ``n_init - 1`` random ones; every accepted step lowers the cost, and the lowest end is kept.
    The defaults of ``alpha`` and ``beta`` were picked by cross-validation on six small data sets.

    Parameters
    ----------
    alpha : float, default=300.0
        How fast the cost of right samples falls with their margin, positive.
    beta : float, default=10.0
        How fast the cost of wrong samples rises with their distance, positive and at most 500: its exponential must
        not overflow.
    n_init : int, default=5
        Number of starts.
    fit_intercept : bool, default=True
        Whether to append a constant feature to every sample.
    tol : float, default=1e-6
        A descent ends when a step lowers the cost by less than this share of it.
    max_iter : int, default=1000
        Most steps of one descent.
    class_weight : dict, "balanced" or None, default=None
        Weights of the classes, multiplied with ``sample_weight``.
    random_state : int, RandomState or None, default=None
        Draws the random starts.
    verbose : int, default=0
        Whether to print the cost after every step.
    n_jobs : int or None, default=None
        Number of classes fitted at the same time when there are more than two.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
        Labels.
    coef_ : ndarray of shape (n_problems, n_features)
        Weights; together with that of the constant feature they have length one.
    intercept_ : ndarray of shape (n_problems,)
        Constants in the decision function.
    n_iter_ : int
        Steps of the descent that was kept, of the class that took most.
    objective_ : float or ndarray of shape (n_classes,)
        Cost of the descent that was kept.
    objective_history_ : ndarray or list of ndarray
        Cost of its start and after every step; one array per class for more than two.
    n_features_in_ : int
        Number of features seen in ``fit``.

    References
    ----------
    .. [1] A. Garg, D. Roth. Margin distribution and learning algorithms. ICML 2003.

    Examples
    --------
    >>> from sklearn.datasets import load_breast_cancer
    >>> from sklearn.pipeline import make_pipeline
    >>> from sklearn.preprocessing import MinMaxScaler
    >>> from margindist import MDOClassifier
    >>> X, y = load_breast_cancer(return_X_y=True)
    >>> model = make_pipeline(MinMaxScaler(), MDOClassifier(random_state=0)).fit(X, y)
    >>> bool(model.score(X, y) > 0.9)
    True
    """

    _requirements = {**COMMON_PARAMETERS, "alpha": POSITIVE, "beta": _EXPONENT, "n_init": POSITIVE_INTEGER}

    def __init__(
        self,
        alpha: float = 300.0,
        beta: float = 10.0,
        *,
        n_init: int = 5,
        fit_intercept: bool = True,
        tol: float = 1e-6,
        max_iter: int = 1000,
        class_weight: dict | Literal["balanced"] | None = None,
        random_state: int | np.random.RandomState | None = None,
        verbose: int = 0,
        n_jobs: int | None = None,
    ):
        self.alpha = alpha
        self.beta = beta
        self.n_init = n_init
        self.fit_intercept = fit_intercept
        self.tol = tol
        self.max_iter = max_iter
        self.class_weight = class_weight
        self.random_state = random_state
        self.verbose = verbose
        self.n_jobs = n_jobs

    @fitting
    def fit(self, X: MatrixLike, y: ArrayLike, sample_weight: ArrayLike | None = None) -> Self:
        """Descend from every start and keep the lowest end.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
            Training samples.
        y : array-like of shape (n_samples,)
            Labels.
        sample_weight : array-like of shape (n_samples,), default=None
            Weights; two is the sample given twice, zero its absence.

        Returns
        -------
        MDOClassifier
            The fitted classifier.
        """
        self._check_parameters()
        data = self._validate_training_data(X, y, sample_weight)
        space = LinearSpace(data, Kernel("linear", bias=float(self.fit_intercept)))
        rows = normalised_cost.balance_constant(space.rows)
        random = self._rng().normal(size=(self.n_init - 1, n_columns(rows)))
        starts = [None, *map(starting_at, random)]

        def solve(k, signs, report):
            problem = Problem(NormalisedCost(self.alpha, self.beta), rows, signs, data.weights)
            options = Options(self.tol, self.max_iter, report=report)
            ends = [normalised_cost.solve(problem, options, start) for start in starts]
            return min(ends, key=lambda end: end.objective)

        descents = self._solve_each(solve, data.codes, X, y, space=space)
        self._store(space, [descent.coef for descent in descents])
        self.intercept_ *= rows.bias
        self.n_iter_ = max(1, max(descent.n_iter for descent in descents))
        self.objective_ = _one_or_array([descent.objective for descent in descents])
        self.objective_history_ = _one_or_list([descent.extra["history"] for descent in descents])
        return self

    def _warn_unless_converged(self, solutions):
        for descent in solutions:
            if descent.status is Status.ITERATION_LIMIT:
                warnings.warn(
                    f"{type(self).__name__} stopped after {descent.n_iter} steps while the cost still fell by more "
                    f"than tol={self.tol:g} of it per step. Raise max_iter or tol.",
                    ConvergenceWarning,
                    stacklevel=4,
                )
                return


class KOMDClassifier(MarginClassifier):
    r"""Kernel method for the direct optimisation of the margin distribution (KM-OMD).

    .. math:: \min_\gamma \; \gamma^T Y K Y \gamma + \lambda \|\gamma\|^2, \qquad
        \sum_{y_i = 1} \gamma_i = \sum_{y_i = -1} \gamma_i = 1, \quad \gamma \ge 0

    A game: one side picks a hyperplane, the other a distribution :math:`\gamma` on the samples of each class and pays
    :math:`\lambda\|\gamma\|^2` for picking only the worst. With :math:`\lambda = 0` this is the hard margin SVM; the
    larger :math:`\lambda`, the more all samples count, up to the difference of the class means. The decision function
    is :math:`f(x) = \sum_i y_i \gamma_i K(x_i, x) + b`, zero halfway between the two hull points. In some public code
    the parameter enters as :math:`(1 - \lambda') K + \lambda' I`, that is :math:`\lambda = \lambda' / (1 -
    \lambda')`. There is no ``class_weight``: each class has total one whatever its samples weigh.

    Parameters
    ----------
    lam : float, default=0.1
        Price of an uneven distribution, not negative.
    kernel : {"linear", "rbf", "poly", "sigmoid", "precomputed"} or callable, default="linear"
        Kernel.
    gamma : {"scale", "auto"}, float or str such as "5/d", default="scale"
        Coefficient of the "rbf", "poly" and "sigmoid" kernels. "5/d" is 5 over the number of features,
        "2*mean-distance" a Gaussian twice as wide as the mean distance of two samples.
    degree : int, default=3
        Degree of the "poly" kernel.
    coef0 : float, default=0.0
        Constant of the "poly" and "sigmoid" kernels.
    fit_intercept : bool, default=True
        Whether to put the threshold halfway between the hull points; else it is zero.
    tol : float, default=1e-6
        Relative duality gap to reach.
    max_iter : int, default=100
        Most iterations of the interior point method.
    verbose : int, default=0
        Whether to print objective and gap after every iteration.
    n_jobs : int or None, default=None
        Number of classes fitted at the same time when there are more than two.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
        Labels.
    coef_ : ndarray of shape (n_problems, n_features)
        Weights (``kernel="linear"`` only).
    intercept_ : ndarray of shape (n_problems,)
        Constants in the decision function.
    dual_coef_, support_ : ndarray
        The :math:`y_i \gamma_i` that are not zero and the indices of their samples (kernels).
    n_support_ : ndarray of shape (n_classes,)
        How many of them belong to each class.
    n_iter_ : int
        Iterations, of the class that took most.
    objective_, duality_gap_ : float or ndarray of shape (n_classes,)
        Objective, and how far it can be above the minimum, relative to it.
    n_features_in_ : int
        Number of features seen in ``fit``.

    References
    ----------
    .. [1] F. Aiolli, G. Da San Martino, A. Sperduti. A kernel method for the optimization of the margin distribution.
       ICANN 2008.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from margindist import KOMDClassifier
    >>> X, y = load_iris(return_X_y=True)
    >>> model = KOMDClassifier(lam=0.1, kernel="rbf").fit(X, y)
    >>> bool(model.score(X, y) > 0.9), bool(model.duality_gap_.max() <= 1e-6)
    (True, True)
    """

    _requirements = {**KERNEL_PARAMETERS, **COMMON_PARAMETERS, "lam": NON_NEGATIVE}

    def __init__(
        self,
        lam: float = 0.1,
        *,
        kernel: KernelName | Callable = "linear",
        gamma: str | float = "scale",
        degree: int = 3,
        coef0: float = 0.0,
        fit_intercept: bool = True,
        tol: float = 1e-6,
        max_iter: int = 100,
        verbose: int = 0,
        n_jobs: int | None = None,
    ):
        self.lam = lam
        self.kernel = kernel
        self.gamma = gamma
        self.degree = degree
        self.coef0 = coef0
        self.fit_intercept = fit_intercept
        self.tol = tol
        self.max_iter = max_iter
        self.verbose = verbose
        self.n_jobs = n_jobs

    @fitting
    def fit(self, X: MatrixLike, y: ArrayLike, sample_weight: ArrayLike | None = None) -> Self:
        """Find the two hull points.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
            Training samples, or their kernel values with each other for ``kernel="precomputed"``.
        y : array-like of shape (n_samples,)
            Labels.
        sample_weight : array-like of shape (n_samples,), default=None
            Weights; two is the sample given twice, zero its absence.

        Returns
        -------
        KOMDClassifier
            The fitted classifier.
        """
        self._check_parameters()
        data = self._validate_training_data(X, y, sample_weight)
        space = self._space(data, constant=False)
        where = space.rows if space.is_narrow else space.gram.whole().values

        def solve(k, signs, report):
            problem = Problem(HullDistance(self.lam), where, signs, data.weights)
            return simplex_qp.solve(problem, Options(self.tol, self.max_iter, report=report))

        points = self._solve_each(solve, data.codes, X, y)
        self._store(space, [space.from_rows(point.coef) for point in points])
        self.intercept_ = np.array([point.extra["intercept"] if self.fit_intercept else 0.0 for point in points])
        self._store_convergence(points)
        return self

    def _warn_unless_converged(self, solutions):
        if any(point.status is Status.OVERLAPPING for point in solutions):
            warnings.warn(
                f"{type(self).__name__}: with lam={self.lam:g} the two classes cannot be told apart, because their "
                f"convex hulls overlap. Raise lam.",
                ConvergenceWarning,
                stacklevel=4,
            )
        else:
            super()._warn_unless_converged(solutions)


class FMMClassifier(MarginClassifier):
    r"""Fast margin maximisation: the maximum margin hyperplane by accelerated dual descent.

    .. math:: \max_{\|w\| = 1} \min_i \; y_i \, w \cdot x_i

    by Algorithm 1 of [1]_, a normalised gradient method with momentum on the exponential loss: :math:`q_t =
    \mathrm{softmax}(-y_i w_t \cdot x_i)`, :math:`u_t = \sum_i q_{t,i} y_i x_i`, :math:`g_t = \frac{t}{t+1}(g_{t-1} +
    u_t)`, :math:`w_{t+1} = w_t + \theta (g_t + u_t)`, with samples divided by the length of the longest. On separable
    data the margin tends to the largest one at a rate of :math:`\tilde O(1/t^2)`, and the momentum carries an upper
    bound of the largest margin with it: the fit stops at ``margin_ >= (1 - tol) * margin_bound_``.

    On data that are not separable there is no margin to maximise; ``max_iter`` and ``step`` then act as
    regularisation, the last iterate is kept, and a warning says so. Sample weights count in the exponential loss; the
    maximum margin does not depend on them, so there is no ``class_weight``.

    The update rule is the paper's; the constant of its rate, which a test uses, was written from
    memory and not checked against the paper.

    Parameters
    ----------
    step : float, default=1.0
        :math:`\theta`, in (0, 1]; the rate is proved for 1.
    kernel : {"linear", "rbf", "poly", "sigmoid", "precomputed"} or callable, default="linear"
        Kernel.
    gamma : {"scale", "auto"}, float or str such as "5/d", default="scale"
        Coefficient of the "rbf", "poly" and "sigmoid" kernels. "5/d" is 5 over the number of features,
        "2*mean-distance" a Gaussian twice as wide as the mean distance of two samples.
    degree : int, default=3
        Degree of the "poly" kernel.
    coef0 : float, default=0.0
        Constant of the "poly" and "sigmoid" kernels.
    fit_intercept : bool, default=True
        Whether to append a constant feature 1 to every sample; margins are those of the longer samples.
    tol : float, default=1e-3
        Relative distance to the largest margin at which to stop.
    max_iter : int, default=2000
        Most iterations.
    verbose : int, default=0
        Whether to print the margin (with a minus) and its gap every 50 iterations.
    n_jobs : int or None, default=None
        Number of classes fitted at the same time when there are more than two.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
        Labels.
    coef_ : ndarray of shape (n_problems, n_features)
        Weights (``kernel="linear"`` only); together with the intercept they have length one.
    intercept_ : ndarray of shape (n_problems,)
        Constants in the decision function.
    dual_coef_, support_ : ndarray
        Coefficients of the training samples and their indices (kernels).
    n_support_ : ndarray of shape (n_classes,)
        How many of them belong to each class.
    margin_ : float or ndarray of shape (n_classes,)
        Least margin reached on the training samples; not positive if they were not separated.
    margin_bound_ : float or ndarray of shape (n_classes,)
        No hyperplane has a larger margin.
    n_iter_ : int
        Iterations, of the class that took most.
    n_features_in_ : int
        Number of features seen in ``fit``.

    References
    ----------
    .. [1] Z. Ji, N. Srebro, M. Telgarsky. Fast margin maximization via dual acceleration. ICML 2021.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from margindist import FMMClassifier
    >>> X, y = load_iris(return_X_y=True)
    >>> model = FMMClassifier(max_iter=20000).fit(X[:100], y[:100])
    >>> model.score(X[:100], y[:100]), bool(model.margin_ >= 0.999 * model.margin_bound_)
    (1.0, True)
    """

    _requirements = {**KERNEL_PARAMETERS, **COMMON_PARAMETERS, "step": _STEP}

    def __init__(
        self,
        step: float = 1.0,
        *,
        kernel: KernelName | Callable = "linear",
        gamma: str | float = "scale",
        degree: int = 3,
        coef0: float = 0.0,
        fit_intercept: bool = True,
        tol: float = 1e-3,
        max_iter: int = 2000,
        verbose: int = 0,
        n_jobs: int | None = None,
    ):
        self.step = step
        self.kernel = kernel
        self.gamma = gamma
        self.degree = degree
        self.coef0 = coef0
        self.fit_intercept = fit_intercept
        self.tol = tol
        self.max_iter = max_iter
        self.verbose = verbose
        self.n_jobs = n_jobs

    @fitting
    def fit(self, X: MatrixLike, y: ArrayLike, sample_weight: ArrayLike | None = None) -> Self:
        """Maximise the least margin.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
            Training samples, or their kernel values with each other for ``kernel="precomputed"``.
        y : array-like of shape (n_samples,)
            Labels.
        sample_weight : array-like of shape (n_samples,), default=None
            Weights in the exponential loss; two is the sample given twice, zero its absence.

        Returns
        -------
        FMMClassifier
            The fitted classifier.
        """
        self._check_parameters()
        data = self._validate_training_data(X, y, sample_weight)
        space = self._space(data)
        factor = space.factor(_FINE)
        rows = space.rows if factor is None else factor.rows
        gram = None if factor is None else space.gram

        def solve(k, signs, report):
            problem = Problem(None, rows, signs, data.weights)
            choices = {"step": self.step, "gram": gram}
            return margin_maximisation.solve(problem, Options(self.tol, self.max_iter, report=report, choices=choices))

        result = self._solve_each(solve, data.codes, X, y, space=space)
        self._store(space, [f.coef for f in result])
        self.n_iter_ = max(f.n_iter for f in result)
        self.margin_, self.margin_bound_ = (_one_or_array([f.extra[a] for f in result]) for a in ("margin", "bound"))
        return self

    def _warn_unless_converged(self, solutions):
        for result in solutions:
            if result.status not in (Status.INSEPARABLE, Status.ITERATION_LIMIT, Status.STALLED):
                continue
            what = (
                f"the margin {result.extra['margin']:.3g} is within {result.gap:.1e} of the largest one by proof, "
                f"which is above tol={self.tol:g}. "
            )
            if result.status is Status.INSEPARABLE:
                what = (
                    "the training samples are not separated, and there is no margin to maximise; the last iterate is "
                    "kept. Use a kernel, or a method with a soft margin"
                )
            elif result.status is Status.ITERATION_LIMIT:
                what += "Raise max_iter or tol"
            else:
                what += "Rounding hides the rest: scale the features, or raise tol"
            warnings.warn(
                f"{type(self).__name__}: after {result.n_iter} iterations {what}.", ConvergenceWarning, stacklevel=4
            )
            return

    def _grid_accuracies(self, points, X, gram, signs, folds):
        """Return the accuracy of every point on every fold, or None where nothing is shared; ``gram`` has no bias.

        All steps and folds go at once, one column each; numbers of iterations are stations on the way to the largest.
        """
        if not points[0].keys() <= {"step", "max_iter"} or (gram is None and not self._named_kernel.is_linear):
            return None
        rows = self._grid_features(X, gram)
        chosen = [(point.get("step", self.step), point.get("max_iter", self.max_iter)) for point in points]
        steps = sorted({step for step, _ in chosen})
        stations = sorted({station for _, station in chosen})
        columns = [(f, step) for f in range(len(folds)) for step in steps]
        inside = np.zeros((len(signs), len(columns)), dtype=bool)
        for c, (f, _) in enumerate(columns):
            inside[folds[f][0], c] = True
        column_steps = np.array([step for _, step in columns])
        problem = Problem(None, rows, signs, inside)
        options = Options(self.tol, choices={"steps": column_steps, "stations": stations})
        weights = margin_maximisation.solve_grid(problem, options)
        accuracy = {}
        for station, w in zip(stations, weights):
            right = ((rows @ w) > 0) == (signs > 0)[:, None]
            for c, (f, step) in enumerate(columns):
                accuracy[f, step, station] = right[folds[f][1], c].mean()
        return np.array([[accuracy[f, *point] for f in range(len(folds))] for point in chosen])

    def _grid_features(self, X, gram):
        """Return rows whose inner products are the kernel values, bias included."""
        if gram is not None:
            gram = gram + 1.0 if self.fit_intercept else gram
            return np.ascontiguousarray(cholesky_factor(FullGram(gram), tol=_FINE).features)
        if not self.fit_intercept:
            return X
        ones = np.ones((X.shape[0], 1))
        return sp.hstack([X, ones], format="csr") if sp.issparse(X) else np.hstack([X, ones])


def _one_or_array(values):
    return float(values[0]) if len(values) == 1 else np.array(values)


def _one_or_list(values):
    return values[0] if len(values) == 1 else values
