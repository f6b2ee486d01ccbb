"""The optimal margin distribution machine, for two classes and for more."""

import copy
from collections.abc import Callable, Sequence
from itertools import groupby
from typing import Any, Literal

import numpy as np

from margindist.estimators._objective import ObjectiveClassifier
from margindist.estimators._parameters import (
    COMMON_PARAMETERS,
    NON_NEGATIVE,
    POSITIVE,
    KernelName,
    Requirement,
    one_of,
    optional,
)
from margindist.estimators._search import GRID_TOL, GridSearchClassifier
from margindist.objectives import ODM
from margindist.solvers import multiclass, newton, quasi_newton
from margindist.solvers._kernel_certificate import solve_joint_in_space
from margindist.solvers._solution import Options, Problem, Status
from margindist.spaces.rows import n_columns

_USUAL = {
    "paper": {
        "lam": tuple(2.0**k for k in range(0, 21, 2)),
        "mu": (0.2, 0.4, 0.6, 0.8),
        "theta": (0.2, 0.4, 0.6, 0.8),
    },
    "wide": {
        "lam": tuple(10.0**k for k in range(-3, 4)),  # times the number of samples
        "mu": (0.2, 0.8),
        "theta": (0.0, 0.2, 0.5),
    },
}


_REQUIREMENTS = {
    "lam": POSITIVE,
    "mu": Requirement(lambda value: POSITIVE.test(value) and value <= 1, "in (0, 1]"),
    "theta": Requirement(lambda value: NON_NEGATIVE.test(value) and value < 1, "in [0, 1)"),
    "multi_class": one_of("direct", "ovr"),
    "outer": one_of("concave", "frozen", "paper"),
}


class ODMClassifier(ObjectiveClassifier, objective=ODM, requirements=_REQUIREMENTS):
    r"""Optimal margin distribution machine: all margins in a band around 1, neither short of it nor far beyond.

    For two classes it minimises, over margins :math:`z_i = y_i f(x_i)`,

    .. math::
        \tfrac12 \|w\|^2 + \frac{\lambda}{m (1-\theta)^2} \sum_i (\xi_i^2 + \mu \epsilon_i^2), \qquad
        \xi_i = \max(0, 1 - \theta - z_i), \; \epsilon_i = \max(0, z_i - 1 - \theta),

    which is convex and is solved to a certified optimum. For more classes (mcODM) it has one weight vector per class,
    :math:`\tfrac12 \sum_l \|w_l\|^2` in front, and the margin

    .. math:: z_i = w_{y_i} \cdot x_i - \max_{l \ne y_i} w_l \cdot x_i .

    There the penalty on large margins is not convex. Convex problems that lie above it, and touch it at the present
    weights, are solved with a certificate of their own; ``objective_history_`` has the true objective on the way, and
    the best point is kept.

    For two classes the joint problem has :math:`w_2 = -w_1 = w/2` at its minimum and is half the two-class problem with
    :math:`2\lambda` in place of :math:`\lambda`; this class always solves the two-class problem with ``lam`` itself.

    ``theta = 0, mu = 1`` is ridge regression of the margins on 1.

    Parameters
    ----------
    lam : float, default=256
        Penalty on margins outside the band. The loss is a mean over samples, so a support vector machine's ``C``
        corresponds to ``lam / n_samples``. The paper searches 1, 4, 16 .. 2**20.

    mu : float, default=0.4
        Penalty above the band relative to that below it, in (0, 1].

    theta : float, default=0.2
        Half-width of the band, in [0, 1). The wider it is, the fewer samples determine the solution.

    kernel : {"linear", "rbf", "poly", "sigmoid", "precomputed"} or callable, default="linear"
        Kernel, or a function ``k(X, Y)`` that returns the matrix of kernel values.

    gamma : {"scale", "auto"}, float or str such as "5/d", default="scale"
        Coefficient of "rbf", "poly" and "sigmoid", as in :class:`sklearn.svm.SVC`. "5/d" is 5 over the number of
        features, "2*mean-distance" a Gaussian twice as wide as the mean distance of two samples.

    degree : int, default=3
        Degree of "poly".

    coef0 : float, default=0.0
        Constant of "poly" and "sigmoid".

    n_components : int or "auto", default=None
        If given, kernels other than "linear" are approximated by that many Nystroem features. Otherwise a fit takes the
        memory of three Gram matrices of all samples. "auto" doubles their number until the solution is proved to be
        within 1e-2 (or ``tol``) of the minimum with the exact kernel, until more no longer help, or until
        ``cache_size`` is reached; ``kernel_gap_`` is the distance proved. Needs a kernel known to have no negative
        eigenvalues ("rbf", or "poly" with ``coef0 >= 0``).

    multi_class : {"direct", "ovr"}, default="direct"
        For more than two classes: the joint problem, or one two-class problem per class against the rest.

    outer : {"concave", "frozen", "paper"}, default="concave"
        How a round of the joint problem treats the score of the runner-up class where margins are above the band:
        "concave" keeps it linear, and never increases the objective; "frozen" keeps the last round's number, which may
        increase it, begins with a round that has no upper side, and ends at the first round that does not lower the
        objective, with the best one. "paper" is Algorithm 1 of the paper as printed: the number is kept too, it is 0
        in the first round, and the last round counts, which comes when the objective no longer changes, or after
        ``max_iter`` iterations.

    fit_intercept : bool, default=True
        Add a constant feature 1, whose weight (regularised like the others) is the intercept. The paper has none.

    solver : {"auto", "newton", "coordinate-descent"}, default="auto"
        - "newton": semismooth Newton steps, by factorisation or conjugate gradients, whichever costs less; quasi-Newton
          steps for more classes.
        - "coordinate-descent": passes over the samples; for two classes followed by Newton steps where they stall.

        "auto" chooses by shape and ``lam``, and switches to the other if one makes no progress; ``solver_`` is the one
        it began with.

    tol : float, default=1e-3
        Relative duality gap at which a convex problem counts as solved, and the relative decrease at which rounds end:
        relative to the objective, or to what is gained over weights of zero where that is less (for two classes by
        "coordinate-descent", which never stays at zero, always to the objective).

    max_iter : int, default=1000
        Largest number of Newton steps, quasi-Newton steps or passes, in all rounds together.

    cache_size : float, default=2000
        Memory in MB for Gram matrices. A fit that needs more raises an error before it starts.

    warm_start : bool, default=False
        Start from the solution of the last fit if it has the right shape; helps along a path of ``lam``.

    class_weight : dict or "balanced", default=None
        Weights of the classes, which multiply the sample weights.

    random_state : int, RandomState instance or None, default=None
        Determines the order of samples in coordinate descent, and the choice of Nystroem samples.

    verbose : int, default=0
        Print iteration or round, objective and gap.

    n_jobs : int, default=None
        Number of threads: for the two-class problems of ``multi_class="ovr"``, otherwise for "newton" with two classes,
        quasi-Newton steps and kernel values. Results are identical for any number of threads.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
        Labels.

    coef_ : ndarray of shape (1, n_features) or (n_classes, n_features)
        Weights, for the linear kernel.

    intercept_ : ndarray of shape (1,) or (n_classes,)
        Intercepts.

    dual_coef_ : ndarray of shape (1, n_support) or (n_classes, n_support)
        Coefficients of the training rows ``support_``, for other kernels.

    support_ : ndarray of shape (n_support,)
        Positions of those rows in the training data; in partitions, among the rows of positive weight.

    n_support_ : ndarray of shape (n_classes,)
        How many of them belong to each class.

    support_vectors_ : ndarray or sparse matrix of shape (n_support, n_features)
        Those rows (not for "precomputed").

    objective_ : float or ndarray of shape (n_classes,)
        Objective reached; an array for "ovr" with more than two classes.

    duality_gap_ : float or ndarray of shape (n_classes,)
        Upper bound on the relative distance of the objective from its minimum; for the joint problem of more classes,
        that of the convex problem of the best round.

    certified_problem_ : {"exact", "nystroem", "clipped kernel"}
        The problem that ``objective_`` and ``duality_gap_`` refer to: the exact one, the one on Nystroem features
        (``n_components``), or the one with the matrix of an indefinite kernel without its negative eigenvalues.

    n_components_ : int
        Number of Nystroem features taken, if ``n_components`` is given for a kernel other than "linear".

    kernel_gap_ : float or ndarray of shape (n_classes,)
        For ``n_components="auto"``: upper bound on the relative distance of the objective from its minimum with the
        exact kernel; for the joint problem of more classes, in the sense of ``duality_gap_``.

    objective_history_ : ndarray of shape (n_rounds,)
        True objective after each round of the joint problem, or each time that quasi-Newton steps renew multipliers.

    stop_reason_ : str
        Why the rounds of the joint problem ended.

    n_iter_ : int
        Newton steps or passes, of the longest problem.

    solver_ : str
        Solver used.

    n_features_in_ : int
        Number of features seen in ``fit``.

    feature_names_in_ : ndarray of shape (n_features_in_,)
        Names of the features, if the training data had them.

    See Also
    --------
    LDMClassifier : Margin mean and variance instead of a band.

    References
    ----------
    T. Zhang and Z.-H. Zhou. Optimal Margin Distribution Machine. IEEE Transactions on Knowledge and Data Engineering,
    2020.

    T. Zhang and Z.-H. Zhou. Multi-Class Optimal Margin Distribution Machine. ICML 2017. Algorithm 2 as printed lacks a
    division, see :mod:`margindist.solvers.multiclass`.

    Examples
    --------
    >>> from sklearn.datasets import load_wine
    >>> from sklearn.pipeline import make_pipeline
    >>> from sklearn.preprocessing import MinMaxScaler
    >>> from margindist import ODMClassifier
    >>> X, y = load_wine(return_X_y=True)
    >>> model = make_pipeline(MinMaxScaler(), ODMClassifier()).fit(X, y)
    >>> model.score(X, y) > 0.97
    True
    >>> history = model[-1].objective_history_
    >>> bool((history[1:] <= history[:-1]).all())
    True
    """

    def __init__(
        self,
        lam: float = 256,
        mu: float = 0.4,
        theta: float = 0.2,
        *,
        kernel: KernelName | Callable = "linear",
        gamma: str | float = "scale",
        degree: int = 3,
        coef0: float = 0.0,
        n_components: int | Literal["auto"] | None = None,
        multi_class: Literal["direct", "ovr"] = "direct",
        outer: Literal["concave", "frozen", "paper"] = "concave",
        fit_intercept: bool = True,
        solver: Literal["auto", "newton", "coordinate-descent"] = "auto",
        tol: float = 1e-3,
        max_iter: int = 1000,
        cache_size: float = 2000,
        warm_start: bool = False,
        class_weight: dict | Literal["balanced"] | None = None,
        random_state: int | np.random.RandomState | None = None,
        verbose: int = 0,
        n_jobs: int | None = None,
    ):
        self.lam = lam
        self.mu = mu
        self.theta = theta
        self.kernel = kernel
        self.gamma = gamma
        self.degree = degree
        self.coef0 = coef0
        self.n_components = n_components
        self.multi_class = multi_class
        self.outer = outer
        self.fit_intercept = fit_intercept
        self.solver = solver
        self.tol = tol
        self.max_iter = max_iter
        self.cache_size = cache_size
        self.warm_start = warm_start
        self.class_weight = class_weight
        self.random_state = random_state
        self.verbose = verbose
        self.n_jobs = n_jobs

    def _is_joint(self):
        return self.multi_class == "direct" and len(self.classes_) > 2

    def _solve(self, problem, options, start):
        if not self._is_joint():
            return super()._solve(problem, options, start)
        choices = {"outer": self.outer, "method": self.solver}
        options = self._options_on_rows(problem.space, options)._replace(choices=choices)

        def solve_on(rows, start):
            on_rows = problem._replace(space=rows)
            result = multiclass.solve(on_rows, options, start)
            self.solver_ = result.extra["began"]
            return result

        return solve_joint_in_space(problem.space, problem, self.tol, solve_on, start)

    def _solve_in_place(self, place, survey, positives, options):
        if not self._is_joint() or self.solver == "coordinate-descent":
            return super()._solve_in_place(place, survey, positives, options)
        if self.outer != "concave":
            raise self._needs_memory(f"outer={self.outer!r} (unlike 'concave')")
        self.solver_ = "newton"
        objective = ODM(float(self.lam), float(self.mu), float(self.theta))
        options = options[0]._replace(report=self._progress(0, 1, None, None))  # one problem, of no class alone
        return [quasi_newton.solve_in_place(place, objective, len(self.classes_), options)]

    def _store_convergence(self, solutions):
        super()._store_convergence(solutions)
        if self._is_joint():
            self.objective_history_ = solutions[0].extra["history"]
            self.stop_reason_ = str(solutions[0].status)


class ODMClassifierCV(GridSearchClassifier):
    r"""Optimal margin distribution machine whose parameters are chosen by cross-validation.

    The same choice as ``GridSearchCV(ODMClassifier(...), grid)`` makes, up to solver tolerance. Kernels are factorised
    once per fold. For two classes (and one against the rest) Newton's method starts from the solution for the ``lam``
    before, with the same ``mu`` and ``theta``; from there one to three steps are left.

    The joint problem of more classes is not convex, and from another start its rounds may end elsewhere: there every
    point starts afresh, as in a search.

    The default grid, of 42 points, is wide and follows the number of samples; ``grid="paper"`` is that of the paper, of
    176.

    Parameters
    ----------
    lams : sequence of float, default=None
        Values of ``lam``; None is 0.001, 0.01, ..., 1000 times the number of samples (the sum of their weights), or 1,
        4, 16, ..., :math:`2^{20}` with ``grid="paper"``.

    mus, thetas : sequence of float, default=None
        Values of ``mu`` and of ``theta``; None is 0.2, 0.8 and 0, 0.2, 0.5, or 0.2, 0.4, 0.6, 0.8 for both with
        ``grid="paper"``.

    grid : {"wide", "paper"}, default="wide"
        Where the values come from that are not given.

    gammas : sequence of {"scale", "auto"} or float, default=("scale",)
        Values of ``gamma`` for "rbf", "poly" and "sigmoid"; other kernels have none, and then this is not looked at.

    kernel, degree, coef0, multi_class, outer
        As in :class:`ODMClassifier`.

    fit_intercept : bool, default=None
        As in :class:`ODMClassifier`; None is True, or False with ``grid="paper"``: the paper has no bias.

    cv : int, splitter or iterable of (train, test), default=None
        None is 5 stratified folds, an integer that many; see :func:`sklearn.model_selection.check_cv`.

    scoring : str or callable, default=None
        Any scorer of scikit-learn that asks for predictions or decision values; None is the accuracy.

    tol, max_iter, class_weight, random_state
        As in :class:`ODMClassifier`; two-class problems of the grid are solved to at most 1e-7.

    verbose : int, default=0
        Print progress.

    n_jobs : int, default=None
        Threads for the folds.

    Attributes
    ----------
    cv_results_ : dict
        Scores as in :class:`~sklearn.model_selection.GridSearchCV`, without times: no point of the grid has its own.

    best_estimator_ : ODMClassifier
        Fitted to all samples with the best parameters. Its fitted attributes (``coef_``, ``dual_coef_`` ...) are also
        those of this estimator.

    best_params_, best_score_, best_index_ : dict, float and int
        The best point, its mean score and its position in ``cv_results_``; of several, the first.

    lam_, mu_, theta_, gamma_ : float
        The best parameters.

    scorer_, n_splits_ : callable and int
        The scorer used, and the number of folds.

    classes_, n_features_in_, feature_names_in_ : ndarray, int and ndarray
        As in :class:`ODMClassifier`.

    See Also
    --------
    ODMClassifier : The classifier itself.

    Examples
    --------
    >>> from sklearn.datasets import load_breast_cancer
    >>> from sklearn.preprocessing import minmax_scale
    >>> from margindist import ODMClassifierCV
    >>> X, y = load_breast_cancer(return_X_y=True)
    >>> search = ODMClassifierCV(mus=[0.4], thetas=[0.2]).fit(minmax_scale(X), y)
    >>> len(search.cv_results_["params"]), search.best_score_ > 0.95
    (7, True)
    """

    best_estimator_: ODMClassifier
    _classifier = ODMClassifier
    _searched = ("lam", "mu", "theta", "gamma")
    _usual = ("lam", "mu", "theta")
    _further_requirements = {"fit_intercept": optional(COMMON_PARAMETERS["fit_intercept"])}

    def __init__(
        self,
        lams: Sequence[float] | None = None,
        mus: Sequence[float] | None = None,
        thetas: Sequence[float] | None = None,
        *,
        grid: Literal["wide", "paper"] = "wide",
        gammas: Sequence[str | float] = ("scale",),
        kernel: KernelName | Callable = "linear",
        degree: int = 3,
        coef0: float = 0.0,
        multi_class: Literal["direct", "ovr"] = "direct",
        outer: Literal["concave", "frozen", "paper"] = "concave",
        fit_intercept: bool | None = None,
        cv: Any = None,
        scoring: str | Callable | None = None,
        tol: float = 1e-3,
        max_iter: int = 1000,
        class_weight: dict | Literal["balanced"] | None = None,
        random_state: int | np.random.RandomState | None = None,
        verbose: int = 0,
        n_jobs: int | None = None,
    ):
        self.lams = lams
        self.mus = mus
        self.thetas = thetas
        self.grid = grid
        self.gammas = gammas
        self.kernel = kernel
        self.degree = degree
        self.coef0 = coef0
        self.multi_class = multi_class
        self.outer = outer
        self.fit_intercept = fit_intercept
        self.cv = cv
        self.scoring = scoring
        self.tol = tol
        self.max_iter = max_iter
        self.class_weight = class_weight
        self.random_state = random_state
        self.verbose = verbose
        self.n_jobs = n_jobs

    def _template(self):
        bias = self.grid != "paper" if self.fit_intercept is None else self.fit_intercept
        return super()._template().set_params(fit_intercept=bias)

    def _usual_values(self, name, total_weight):
        values = _USUAL[self.grid][name]
        return [float(value * total_weight) for value in values] if (name, self.grid) == ("lam", "wide") else values

    def _decision_values(self, fold, points):
        data = fold.data
        estimator = fold.estimator
        space = fold.space()
        if estimator._is_joint():
            result, behind = self._solve_joint(estimator, space.rows, data, points)
        elif estimator.solver == "newton" or (estimator.solver == "auto" and newton.is_affordable(space.rows)):
            result, behind = self._solve_two_class(estimator, space.rows, data, points)
        else:
            return self._fit_each(fold, points)
        return fold.scores(space, space.from_weights(result)), behind

    def _solve_two_class(self, estimator, rows, data, points):
        """Follow ``lam`` for each ``theta`` and problem; return coefficients and how many missed ``tol``.

        Each step of that way leads through all values of ``mu``, between which solutions differ least: not at all while
        no row is above its band.
        """
        problems = estimator._sign_vectors(data.codes)
        result, behind = np.empty((len(points), len(problems), n_columns(rows))), 0
        order = sorted(range(len(points)), key=lambda k: (points[k]["theta"], points[k]["lam"], points[k]["mu"]))
        paths = [
            [list(step) for _, step in groupby(path, lambda k: points[k]["lam"])]
            for _, path in groupby(order, lambda k: points[k]["theta"])
        ]
        options = Options(min(self.tol, GRID_TOL), self.max_iter, choices={"shared": {}})
        for t, signs in enumerate(problems):
            start = None
            for path in paths:
                for step in path:
                    for k in step:
                        objective = ODM(*(float(points[k][name]) for name in ("lam", "mu", "theta")))
                        problem = Problem(objective, rows, signs, data.weights)
                        start = newton.solve(problem, options, start)
                        result[k, t] = start.coef
                        behind += not start.gap <= self.tol
                    start = start._replace(coef=result[step[0], t])
                start = start._replace(coef=result[path[0][0], t])
        return result, behind

    def _solve_joint(self, estimator, rows, data, points):
        """Solve point after point, each from the start: another start may lead elsewhere."""
        result, behind = [], 0
        rng = estimator._rng().spawn(1)[0]
        for point in points:
            objective = ODM(*(float(point[name]) for name in ("lam", "mu", "theta")))
            problem = Problem(objective, rows, data.codes, data.weights)
            choices = {"outer": self.outer}
            rounds = multiclass.solve(problem, Options(self.tol, self.max_iter, copy.deepcopy(rng), choices=choices))
            result.append(rounds.coef)
            behind += rounds.status is Status.ITERATION_LIMIT and not rounds.gap <= self.tol
        return np.array(result), behind
