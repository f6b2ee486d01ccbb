"""The large margin distribution machine."""

import contextlib
import functools
import warnings
from collections.abc import Callable, Sequence
from typing import Any, Literal, NamedTuple, Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.exceptions import ConvergenceWarning

from margindist.dask import as_partitions
from margindist.estimators._base import MarginClassifier, available_if, fitting
from margindist.estimators._parameters import (
    COMMON_PARAMETERS,
    COMPONENTS,
    KERNEL_PARAMETERS,
    NON_NEGATIVE,
    POSITIVE,
    POSITIVE_INTEGER,
    POSITIVE_OR_INF,
    KernelName,
    one_of,
    optional,
)
from margindist.estimators._problems import quietly
from margindist.estimators._search import GRID_TOL, GridSearchClassifier
from margindist.estimators._training_data import MatrixLike, RowsLike
from margindist.objectives import LDM
from margindist.solve import IN_PARTITIONS, Case, begins_in_partitions, begins_with, solve
from margindist.solvers import (
    block_descent,
    dual_coordinate_descent,
    projected_newton,
    stochastic,
)
from margindist.solvers._kernel_certificate import hidden_by_rounding, kernel_gap, solve_in_space
from margindist.solvers._solution import (
    Options,
    Problem,
    Status,
    hand_over,
)
from margindist.spaces.gram import gram_bytes
from margindist.spaces.rows import (
    dense_matrix,
    n_columns,
    n_rows,
)

_ON_GRAM = {"block": block_descent, "dcd": dual_coordinate_descent}
_FEW_ROWS = 300  # up to here all features of a kernel are cheap, and interior point on them is exact to rounding
_FEW_ROWS_OF_SVM = 128  # the same without margin terms, where block descent needs but a few columns
_FEW_ROWS_OF_HARD_MARGIN = 450  # the same where it is to be found out whether there is one
_LARGEST_DUAL = 1200  # rows of a fold up to which a search forms the dual matrix
_PAPER_LAMBDAS = tuple(2.0**k for k in range(-8, -1))
_PAPER_WIDTHS = tuple(f"{2.0**k:g}*mean-distance" for k in range(-2, 3))
RELATIVE_LAMBDAS = {"lambda1": (0.0, 0.1, 1.0), "lambda2": (0.0, 0.3, 1.0)}  # in units of C times the samples
_USUAL = {
    "paper": {"C": (10.0, 50.0, 100.0)},
    "wide": {"C": tuple(10.0**k for k in range(-3, 4))},
    "absolute": {"lambda1": _PAPER_LAMBDAS, "lambda2": _PAPER_LAMBDAS},
    "relative": RELATIVE_LAMBDAS,
}


class LDMClassifier(MarginClassifier):
    r"""Large margin distribution machine: a support vector machine that also sees margin mean and variance.

    With margins :math:`z_i = y_i f(x_i)`, it minimises

    .. math::
        \tfrac12 \|w\|^2 + 2 \lambda_1 \mathrm{Var}(z) - \lambda_2 \bar z + C \sum_i \max(0, 1 - z_i) .

    With ``lambda1 = lambda2 = 0`` it is the support vector machine, and ``C=inf`` is its hard-margin form. Note the
    scales: ``C`` multiplies a sum over samples, but the margin terms are averages, so they only begin to matter at
    about :math:`\lambda \approx C \cdot m`, with m the number of samples.

    Parameters
    ----------
    C : float, default=1.0
        Penalty on margins below 1, per sample; ``inf`` allows none.

    lambda1 : float, default=0.25
        Weight of the margin variance, at least 0. (The paper's variance averages over pairs: twice the usual one.)

    lambda2 : float, default=0.25
        Weight of the margin mean, at least 0.

    lambda_scale : {"absolute", "relative"}, default="absolute"
        "absolute": the lambdas of the equation, as in the paper. "relative": they are given in units of ``C`` times the
        number of samples (the sum of their weights), so that hinge loss and margin terms are both means: a value then
        means the same for any ``C`` and any amount of data, and begins to matter at about 0.1. Needs a finite ``C``.

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
        If given, kernels other than "linear" are approximated by that many Nystroem features: memory grows with
        ``n_samples * n_components`` and not with the square of ``n_samples``. The certificate then is that of the
        approximated problem. "auto" doubles their number until the solution is proved to be within 1e-2 (or ``tol``) of
        the minimum with the exact kernel, until more no longer help, or until ``cache_size`` is reached;
        ``kernel_gap_`` is the distance proved. Needs a kernel known to have no negative eigenvalues ("rbf", or "poly"
        with ``coef0 >= 0``).

    fit_intercept : bool, default=True
        Add a constant feature 1, whose weight (regularised like the others) is the intercept. The paper has none.

    solver : {"auto", "interior-point", "coordinate-descent", "block", "dcd", "asgd"}, default="auto"
        - "interior-point": one Gram matrix of the columns per iteration; for few features and any ``C``.
        - "coordinate-descent": passes over the rows, then Newton steps where those stall; for many features, or a
          small ``C``.
        - "block": descent on blocks of the dual; for kernels.
        - "dcd": the paper's Algorithm 1, coordinate descent on an explicit dual matrix; for comparison.
        - "asgd": the paper's Algorithm 2, averaged stochastic gradients (linear kernel); rough, allows ``partial_fit``.

        "auto" chooses by kernel, shape and ``C``; ``solver_`` tells what it chose. If a solver stalls above ``tol``,
        others continue from its best point, except for "dcd" and "asgd", which are the paper's algorithms alone.

    tol : float, default=1e-4
        Relative duality gap at which a solver stops.

    max_iter : int, default=None
        Largest number of iterations or passes; None means 1000, or the paper's 5 passes for "asgd".

    cache_size : float, default=2000
        Memory in MB for Gram matrices or columns of them. A fit that needs more raises an error before it starts.

    warm_start : bool, default=False
        Start from the solution of the last fit if it has the right shape; helps along a path of ``C`` or the lambdas.

    class_weight : dict or "balanced", default=None
        Weights of the classes, which multiply the sample weights.

    random_state : int, RandomState instance or None, default=None
        Determines the order of rows in "coordinate-descent", the pairs of "asgd", and sampling elsewhere.

    verbose : int, default=0
        Print iteration, objective and gap.

    n_jobs : int, default=None
        Number of threads: for the two-class problems if there are more than two classes, otherwise within one fit, for
        "interior-point" and kernel values. Results are identical for any number of threads.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
        Labels.

    coef_ : ndarray of shape (1, n_features) or (n_classes, n_features)
        Weights, for the linear kernel; one-vs-rest for more than two classes.

    intercept_ : ndarray of shape (1,) or (n_classes,)
        Intercepts.

    dual_coef_ : ndarray of shape (1, n_support) or (n_classes, n_support)
        Coefficients of the training rows ``support_``, for other kernels. LDM uses all rows unless both lambdas are 0,
        or so small that the pull of the margin terms is proved to be that of a few.

    support_ : ndarray of shape (n_support,)
        Positions of those rows in the training data; in partitions, among the rows of positive weight.

    n_support_ : ndarray of shape (n_classes,)
        How many of them belong to each class.

    support_vectors_ : ndarray or sparse matrix of shape (n_support, n_features)
        Those rows (not for "precomputed").

    multipliers_ : ndarray of shape (1, n_samples) or (n_classes, n_samples)
        Multipliers of the margin constraints, between 0 and ``C`` times the sample weight.

    certified_problem_ : {"exact", "nystroem", "clipped kernel"}
        The problem that ``objective_`` and ``duality_gap_`` refer to: the exact one, the one on Nystroem features
        (``n_components``), or the one with the matrix of an indefinite kernel without its negative eigenvalues.

    n_components_ : int
        Number of Nystroem features taken, if ``n_components`` is given for a kernel other than "linear".

    kernel_gap_ : float or ndarray of shape (n_classes,)
        For ``n_components="auto"``: upper bound on the relative distance of the objective from its minimum with the
        exact kernel.

    objective_, duality_gap_ : float or ndarray of shape (n_classes,)
        Objective reached, and an upper bound on its relative distance from the minimum. With ``C=inf`` both are
        infinite, with a warning, if neither positive margins nor a proof that there are none were found.

    n_iter_ : int
        Iterations of the longest two-class problem.

    solver_ : str
        The solver that began; others take over if it stalls.

    n_features_in_ : int
        Number of features seen in ``fit``.

    feature_names_in_ : ndarray of shape (n_features,)
        Names of the features, if the training data had them.

    See Also
    --------
    sklearn.svm.LinearSVC : The squared hinge, or the hinge without a certificate.

    References
    ----------
    T. Zhang and Z.-H. Zhou. Large Margin Distribution Machine. KDD 2014.

    Examples
    --------
    >>> from sklearn.datasets import load_breast_cancer
    >>> from sklearn.pipeline import make_pipeline
    >>> from sklearn.preprocessing import MinMaxScaler
    >>> from margindist import LDMClassifier
    >>> X, y = load_breast_cancer(return_X_y=True)
    >>> model = make_pipeline(MinMaxScaler(), LDMClassifier(C=1, lambda1=100, lambda2=100)).fit(X, y)
    >>> bool(model[-1].duality_gap_ <= 1e-4)
    True
    """

    _requirements = {
        **KERNEL_PARAMETERS,
        **COMMON_PARAMETERS,
        "C": POSITIVE_OR_INF,
        "lambda1": NON_NEGATIVE,
        "lambda2": NON_NEGATIVE,
        "lambda_scale": one_of("absolute", "relative"),
        "n_components": COMPONENTS,
        "max_iter": optional(POSITIVE_INTEGER),
        "cache_size": POSITIVE,
        "solver": one_of("auto", "interior-point", "coordinate-descent", "block", "dcd", "asgd"),
    }

    def __init__(
        self,
        C: float = 1.0,
        lambda1: float = 0.25,
        lambda2: float = 0.25,
        *,
        lambda_scale: Literal["absolute", "relative"] = "absolute",
        kernel: KernelName | Callable = "linear",
        gamma: str | float = "scale",
        degree: int = 3,
        coef0: float = 0.0,
        n_components: int | Literal["auto"] | None = None,
        fit_intercept: bool = True,
        solver: Literal["auto", "interior-point", "coordinate-descent", "block", "dcd", "asgd"] = "auto",
        tol: float = 1e-4,
        max_iter: int | None = None,
        cache_size: float = 2000,
        warm_start: bool = False,
        class_weight: dict | Literal["balanced"] | None = None,
        random_state: int | np.random.RandomState | None = None,
        verbose: int = 0,
        n_jobs: int | None = None,
    ):
        self.C = C
        self.lambda1 = lambda1
        self.lambda2 = lambda2
        self.lambda_scale = lambda_scale
        self.kernel = kernel
        self.gamma = gamma
        self.degree = degree
        self.coef0 = coef0
        self.n_components = n_components
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

    @fitting
    def fit(self, X: RowsLike, y: ArrayLike | None = None, sample_weight: ArrayLike | None = None) -> Self:
        """Fit the model.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features), or data in partitions
            Training samples, or their Gram matrix for ``kernel="precomputed"``. float32 and float64 are not copied.

        y : array-like of shape (n_samples,)
            Labels of any kind; None where they are part of data in partitions.

        sample_weight : array-like of shape (n_samples,), default=None
            How often each row counts: 2 is the row twice, 0 its absence.

        Returns
        -------
        LDMClassifier
            Itself.
        """
        self._check_parameters()
        if (rows := as_partitions(X)) is not None:
            return self._fit_partitions(rows, y, sample_weight)
        data = self._validate_training_data(X, y, sample_weight)
        objective = self._objective(data.weights.sum())
        rngs = self._rng().spawn(len(self.classes_))

        def solve_all(space, starts):
            self.solver_ = self._pick_solver(objective, space, data.weights)
            self._check_memory(space)
            self.certified_problem_ = space.certified
            threads = self._threads_per_problem()

            def solve_one(k, signs, report):
                problem = Problem(objective, space, signs, data.weights)
                options = Options(self.tol, self.max_iter, rngs[k], report, threads)
                result = self._solve(problem, options, starts[k] if starts else self._last_solution(k, space))
                self._refuse_infeasible(result)
                return result

            return self._solve_each(solve_one, data.codes, X, y, space=space)

        def gap(k, space, result):
            return kernel_gap(Problem(objective, space, self._sign_vectors(data.codes)[k], data.weights), result)

        space, solutions = self._solve_in_spaces(data, solve_all, gap)
        self._store_solutions(data, space, solutions)
        return self

    def _solve_in_place(self, place, survey, positives, options):
        if self.solver not in ("auto", "interior-point"):
            return super()._solve_in_place(place, survey, positives, options)
        columns = survey["columns_max"] + bool(self.fit_intercept)
        if not self._named_kernel.is_linear:
            columns = self.n_components
        self.solver_ = begins_in_partitions(columns) if self.solver == "auto" else self.solver
        if self.solver_ == "interior-point":
            self._refuse_beyond_memory(3 * gram_bytes(columns), f"{columns} columns in partitions")
        objective = self._objective(survey["total_weight"])
        solutions = IN_PARTITIONS[self.solver_].solve_in_place(place, objective, positives, options)
        for solution in solutions:
            self._refuse_infeasible(solution)
        return solutions

    def _objective(self, total_weight):
        """Return what is minimised on samples of this total weight."""
        return _objective(self, total_weight, self.C, self.lambda1, self.lambda2)

    # ------------------------------------------------------------------ which way

    def _pick_solver(self, objective, space, weights):
        """Return the solver to use, or refuse one that cannot do what is asked."""
        if self.solver == "asgd" and np.isinf(self.C):
            raise ValueError(f"{type(self).__name__}: solver='asgd' needs a finite C, got inf.")
        if self.solver != "auto":
            return self.solver
        if space.n_columns is None:
            return "interior-point" if space.n_rows <= self._few_rows_of_kernel() else "block"
        problem = Problem(objective, space.rows, None, weights)
        return begins_with(self._case(problem, Options(self.tol, self.max_iter), "auto"))

    def _few_rows_of_kernel(self):
        """Return up to how many rows the features of a kernel are the better way."""
        if np.isinf(self.C):
            return _FEW_ROWS_OF_HARD_MARGIN
        return _FEW_ROWS_OF_SVM if self.lambda1 == self.lambda2 == 0.0 else _FEW_ROWS

    def _check_memory(self, space):
        """Refuse a fit that would take too much memory, before it starts."""
        if self.solver_ == "dcd":
            self._refuse_beyond_memory(5 * gram_bytes(space.n_rows), f"{space.n_rows} rows")
        if self._works_on_rows(space):
            self._refuse_beyond_memory(*space.memory_of_rows)
        if self.solver_ == "interior-point" and space.n_columns is not None:
            self._refuse_beyond_memory(3 * gram_bytes(space.n_columns), f"{space.n_columns} columns")

    def _works_on_rows(self, space):
        return self.solver_ not in _ON_GRAM or space.n_columns is not None

    def _last_solution(self, k, space):
        """Return the solution of the last fit if warm starts are on and it has the shape of this problem's."""
        last = getattr(self, "_warm", ()) if self.warm_start else ()
        if k >= len(last) or len(last[k].dual) != space.n_rows or len(last[k].coef) != space.n_coefficients:
            return None
        return last[k]

    def _solve(self, problem, options, start):
        """Solve one two-class problem by what the solver works on: the rows, a Gram matrix or features of it."""
        space = problem.space
        if not self._works_on_rows(space):
            result = _ON_GRAM[self.solver_].solve(problem._replace(space=space.gram), options, start)
            if self.solver_ == "dcd" or result.status is not Status.STALLED:
                return result
            if space.memory_of_rows[0] > self.cache_size * 1e6 or hidden_by_rounding(result):
                return result
            # All features have more digits than their inner products; and where a hard margin was not found, more ways
            # to find one, or to prove there is none.
            start = result if np.isfinite(result.objective) else None
            return self._solve_on_features(problem, options, start, tried=("block",))
        if space.factor() is None:
            return solve(self._case(problem._replace(space=space.rows), options, self.solver), start)
        return self._solve_on_features(problem, options, start)

    def _solve_on_features(self, problem, options, start, tried=()):
        """Solve one two-class problem on features of a kernel, and prove the solution for the kernel."""
        space = problem.space
        tighter = options._replace(tol=0.5 * self.tol)  # the proof for the kernel adds to the gap on the features
        asked = self.solver
        if asked in ("auto", *tried):  # features are known to be few only where somebody chose their number
            asked = "interior-point" if space.n_columns is None else "auto"

        def solve_on(rows, start):
            return solve(self._case(problem._replace(space=rows), tighter, asked, tried), start)

        attempts = [lambda best: solve_in_space(space, problem, lambda value: self.tol, solve_on, start)]
        if space.gram is not None and "block" not in tried:
            attempts.append(functools.partial(self._solve_on_gram, problem, options))
        return hand_over(attempts, options.tol)

    def _solve_on_gram(self, problem, options, best):
        if best is not None and hidden_by_rounding(best, problem.space.gram):
            return None
        return block_descent.solve(problem._replace(space=problem.space.gram), options, best)

    def _case(self, problem, options, asked, tried=()):
        """Return what the driver's table is asked about."""
        return Case(problem, options, asked, self.cache_size * 1e6, tried)

    def _refuse_infeasible(self, solution):
        if np.isinf(solution.objective) and np.isfinite(self.C):
            raise FloatingPointError("the objective overflows")
        if solution.status is Status.INFEASIBLE:
            raise ValueError(
                f"{type(self).__name__}: C=inf asks for every margin to be at least 1, but the training data are not "
                f"separable{' one class from the rest' if len(self.classes_) > 2 else ''}; give a finite C."
            )

    def _warn_unless_converged(self, solutions):
        for solution in solutions:
            if np.isinf(solution.objective) and solution.status is not Status.STOPPED:
                warnings.warn(
                    f"{type(self).__name__} stopped ({solution.status}) after {solution.n_iter} iterations before all "
                    f"margins were positive, which C=inf asks for: objective_ is infinite, and whether the training "
                    f"data are separable is not known. Raise max_iter, scale the features, or give a finite C.",
                    ConvergenceWarning,
                    stacklevel=4,
                )
                return
            if solution.gap > self.tol and "bytes" in solution.extra:
                warnings.warn(
                    f"{type(self).__name__}: with margin terms that matter, {len(solution.dual)} rows of a kernel take "
                    f"{solution.extra['bytes'] / 1e6:.0f} MB, more than cache_size={self.cache_size:g}; what fits "
                    f"proved a relative duality gap of {solution.gap:.1e}, above tol={self.tol:g}. Raise cache_size, "
                    f"or give n_components.",
                    ConvergenceWarning,
                    stacklevel=4,
                )
                return
        super()._warn_unless_converged(solutions)

    # ------------------------------------------------------------------ what is kept

    def _store_solutions(self, data, space, solutions):
        self._store_convergence(solutions)
        self._store_multipliers(data, solutions)
        self._store(space, [solution.coef for solution in solutions])
        self._largest_square = space.largest_square()
        self._weighted = np.ptp(data.weights) > 0.0
        if self.warm_start:
            self._warm = solutions

    # ------------------------------------------------------------------ data in pieces

    @available_if(lambda self: self.solver == "asgd" and self._named_kernel.is_linear)
    @fitting
    def partial_fit(
        self, X: MatrixLike, y: ArrayLike, classes: ArrayLike | None = None, sample_weight: ArrayLike | None = None
    ) -> Self:
        """Take one pass of averaged stochastic gradients over a piece of the data (``solver="asgd"`` only).

        The pieces together are taken for the training set: after each, ``C`` and the lambdas weigh as in a set of all
        samples seen so far. Averaging starts with the second piece. No certificate: it would need all the data. Pieces
        go on from pieces, not from a ``fit``, which keeps nothing to go on from.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
            A piece of the data.

        y : array-like of shape (n_samples,)
            Its labels.

        classes : array-like of shape (n_classes,), default=None
            All labels there are; needed at the first call.

        sample_weight : array-like of shape (n_samples,), default=None
            How often each row counts.

        Returns
        -------
        LDMClassifier
            Itself.
        """
        self._check_parameters()
        if hasattr(self, "classes_") and not hasattr(self, "_stream"):
            raise ValueError(
                "LDMClassifier.partial_fit goes on from partial_fit, but this estimator was fitted by fit or comes "
                "from a model file, which keep nothing to go on from; take a new one, and give it all pieces."
            )
        data = self._validate_training_data(X, y, sample_weight, classes=classes, piece=True)
        space = self._space(data)
        self.solver_ = "asgd"
        averages = self._go_on(space.rows, self._sign_vectors(data.codes), data.weights)
        if not np.isfinite(averages).all():
            raise self._digits_lost("the weights overflow")
        self._store(space, averages)
        return self

    def _go_on(self, rows, problems, weights):
        """Take one pass over a piece, in each two-class problem; return the averaged weights."""
        if not hasattr(self, "_stream"):
            objective = self._objective(weights.sum())
            self._stream, self.n_iter_ = self._begin_stream(objective, rows, problems, weights), 0
        if (len(problems), n_columns(rows)) != (len(self._stream.states), len(self._stream.states[0].v)):
            raise ValueError("LDMClassifier: fit_intercept must be the same for all pieces; take a new estimator.")
        stream = self._stream = self._stream._replace(seen=self._stream.seen + weights.sum())
        objective = self._objective(stream.seen)
        for signs, eta, state in zip(problems, stream.etas, stream.states, strict=True):
            about = objective, rows, signs, weights, stream.seen, eta
            quietly(stochastic.run_pass, *about, stream.first_piece, stream.rng, state)
        self.n_iter_ += 1
        return [state.average() for state in stream.states]

    def _begin_stream(self, objective, rows, problems, weights):
        rng = self._rng()
        etas = [quietly(stochastic.calibrate, objective, rows, signs, weights, rng) for signs in problems]
        states = [stochastic.new_state(n_columns(rows)) for _ in problems]
        return _Stream(rng, etas, states, n_rows(rows), 0.0)


def _objective(estimator, total_weight, C, lambda1, lambda2):
    """Return LDM's objective for parameters in the units that the estimator names."""
    C, lambda1, lambda2 = float(C), float(lambda1), float(lambda2)
    if estimator.lambda_scale == "absolute" or lambda1 == lambda2 == 0.0:
        return LDM(C, lambda1, lambda2)
    if np.isinf(C):
        raise ValueError(
            f"{type(estimator).__name__}: lambda_scale='relative' counts the lambdas in units of C, which must then be "
            "finite, got inf; give a finite C, or the lambdas themselves with lambda_scale='absolute'."
        )
    unit = C * float(total_weight)
    return LDM(C, lambda1 * unit, lambda2 * unit)


class _Stream(NamedTuple):
    """What stochastic gradients keep from one piece of the data to the next."""

    rng: np.random.Generator
    etas: list
    states: list
    first_piece: int  # rows of the first piece: averaging starts behind them
    seen: float  # total weight so far


class LDMClassifierCV(GridSearchClassifier):
    r"""Large margin distribution machine whose parameters are chosen by cross-validation.

    The same choice as ``GridSearchCV(LDMClassifier(...), grid)`` makes, up to solver tolerance. The dual of a fold,

    .. math:: \min_{0 \le \beta \le C} \tfrac12 v^T A v - \sum_i \beta_i, \qquad
        v = \tfrac{\lambda_2}{m} \mathbf 1 + \beta, \quad A = Y G (I + P G)^{-1} Y, \quad
        P = \tfrac{4 \lambda_1}{m} (I - \tfrac1m y y^T),

    has a matrix that one eigendecomposition of the Gram matrix gives for every ``lambda1``, and the solution for one
    point of the grid is one or two Newton steps from that of the next (:mod:`margindist.solvers.projected_newton`).
    Folds of more than 1200 rows, and ``C=inf``, are solved point by point, each from the last, to ``tol``; with a
    kernel on one Gram matrix, in the metric of a curvature for all prices.

    The default grid is wide and follows the number of samples; it has the support vector machine (both lambdas 0)
    among its 63 points. ``grid="paper"`` is that of the paper, of 147 points, or 735 with the "rbf" kernel.

    Parameters
    ----------
    Cs : sequence of float, default=None
        Values of ``C``; None is 0.001, 0.01, ..., 1000, or 10, 50, 100 with ``grid="paper"``.

    lambda1s, lambda2s : sequence of float, default=None
        Values of ``lambda1`` and of ``lambda2``. None is 0, 0.1, 1 and 0, 0.3, 1 where lambdas are relative, and else
        the paper's :math:`2^{-8}, 2^{-7}, \dots, 2^{-2}`.

    lambda_scale : {"absolute", "relative"}, default=None
        Whether these are the equation's lambdas, or in units of ``C`` times the number of samples, as in
        :class:`LDMClassifier`. None is "absolute" where values of a lambda are given or ``grid="paper"``, else
        "relative".

    grid : {"wide", "paper"}, default="wide"
        Where the values come from that are not given.

    gammas : sequence of {"scale", "auto"}, float or str, default=None
        Values of ``gamma`` for "rbf", "poly" and "sigmoid"; other kernels have none, and then this is not looked at.
        None is "scale", or widths of 1/4, 1/2, 1, 2 and 4 times the mean distance with ``grid="paper"`` and "rbf".

    kernel, degree, coef0
        As in :class:`LDMClassifier`.

    fit_intercept : bool, default=None
        As in :class:`LDMClassifier`; None is True, or False with ``grid="paper"``: the paper has no bias.

    cv : int, splitter or iterable of (train, test), default=None
        None is 5 stratified folds, an integer that many; see :func:`sklearn.model_selection.check_cv`.

    scoring : str or callable, default=None
        Any scorer of scikit-learn that asks for predictions or decision values; None is the accuracy.

    tol, max_iter, class_weight, random_state
        As in :class:`LDMClassifier`; the points of the grid are solved to at most 1e-7 where they share a dual matrix.

    verbose : int, default=0
        Print progress.

    n_jobs : int, default=None
        Threads for the folds.

    Attributes
    ----------
    cv_results_ : dict
        Scores as in :class:`~sklearn.model_selection.GridSearchCV`, without times: no point of the grid has its own.

    best_estimator_ : LDMClassifier
        Fitted to all samples with the best parameters. Its fitted attributes (``coef_``, ``dual_coef_`` ...) are also
        those of this estimator.

    best_params_, best_score_, best_index_ : dict, float and int
        The best point, its mean score and its position in ``cv_results_``; of several, the first.

    C_, lambda1_, lambda2_, gamma_ : float
        The best parameters; the lambdas in the units that ``best_estimator_.lambda_scale`` names.

    scorer_, n_splits_ : callable and int
        The scorer used, and the number of folds.

    classes_, n_features_in_, feature_names_in_ : ndarray, int and ndarray
        As in :class:`LDMClassifier`.

    See Also
    --------
    LDMClassifier : The classifier itself.

    Examples
    --------
    >>> from sklearn.datasets import load_breast_cancer
    >>> from sklearn.preprocessing import minmax_scale
    >>> from margindist import LDMClassifierCV
    >>> X, y = load_breast_cancer(return_X_y=True)
    >>> search = LDMClassifierCV(Cs=[1, 10], lambda2s=[0.25]).fit(minmax_scale(X), y)
    >>> len(search.cv_results_["params"]), search.best_score_ > 0.95
    (14, True)
    """

    best_estimator_: LDMClassifier
    _classifier = LDMClassifier
    _searched = ("C", "lambda1", "lambda2", "gamma")
    _usual = ("C", "lambda1", "lambda2", "gamma")
    _further_requirements = {
        "lambda_scale": optional(one_of("absolute", "relative")),
        "fit_intercept": optional(COMMON_PARAMETERS["fit_intercept"]),
    }

    def __init__(
        self,
        Cs: Sequence[float] | None = None,
        lambda1s: Sequence[float] | None = None,
        lambda2s: Sequence[float] | None = None,
        *,
        lambda_scale: Literal["absolute", "relative"] | None = None,
        grid: Literal["wide", "paper"] = "wide",
        gammas: Sequence[str | float] | None = None,
        kernel: KernelName | Callable = "linear",
        degree: int = 3,
        coef0: float = 0.0,
        fit_intercept: bool | None = None,
        cv: Any = None,
        scoring: str | Callable | None = None,
        tol: float = 1e-4,
        max_iter: int | None = None,
        class_weight: dict | Literal["balanced"] | None = None,
        random_state: int | np.random.RandomState | None = None,
        verbose: int = 0,
        n_jobs: int | None = None,
    ):
        self.Cs = Cs
        self.lambda1s = lambda1s
        self.lambda2s = lambda2s
        self.lambda_scale = lambda_scale
        self.grid = grid
        self.gammas = gammas
        self.kernel = kernel
        self.degree = degree
        self.coef0 = coef0
        self.fit_intercept = fit_intercept
        self.cv = cv
        self.scoring = scoring
        self.tol = tol
        self.max_iter = max_iter
        self.class_weight = class_weight
        self.random_state = random_state
        self.verbose = verbose
        self.n_jobs = n_jobs

    def _usual_values(self, name, total_weight):
        if name == "gamma":
            return _PAPER_WIDTHS if self.grid == "paper" and self.kernel == "rbf" else ("scale",)
        return _USUAL[self.grid if name == "C" else self._scale()][name]

    def _scale(self):
        """Return the units of the lambdas."""
        if self.lambda_scale is not None:
            return self.lambda_scale
        given = self.lambda1s is not None or self.lambda2s is not None
        return "absolute" if given or self.grid == "paper" else "relative"

    def _template(self):
        bias = self.grid != "paper" if self.fit_intercept is None else self.fit_intercept
        return super()._template().set_params(lambda_scale=self._scale(), fit_intercept=bias)

    def _decision_values(self, fold, points):
        data = fold.data
        total = data.weights.sum()
        objectives = [_objective(fold.estimator, total, p["C"], p["lambda1"], p["lambda2"]) for p in points]
        space = fold.space()
        if data.X.shape[0] > _LARGEST_DUAL or any(objective.hard for objective in objectives):
            return self._solve_each_point(fold, space, points, objectives)
        if space.is_narrow:
            spectrum = projected_newton.spectrum_of_rows(dense_matrix(space.rows), data.weights)
        else:
            spectrum = projected_newton.spectrum_of_gram(space.gram.whole().values, data.weights)
        problem = Problem(objectives, spectrum, fold.estimator._sign_vectors(data.codes), data.weights)
        solutions = projected_newton.solve_grid(problem, Options(min(self.tol, GRID_TOL), self.max_iter))
        alphas = np.array([[solution.coef for solution in point] for point in solutions])
        values = fold.scores(space, space.from_rows(alphas))
        behind = [k for k, point in enumerate(solutions) if not all(result.gap <= self.tol for result in point)]
        if behind and self.max_iter is None:  # one point after the other has more ways to get there
            with contextlib.suppress(ValueError):  # digits lost there, too: what was found stands
                few = [points[k] for k in behind], [objectives[k] for k in behind]
                values[behind], _ = self._solve_each_point(fold, space, *few)
                behind = []
        return values, len(behind)

    def _solve_each_point(self, fold, space, points, objectives):
        """Solve point after point in one space, each from the last; those of one curvature share a kernel's metric."""
        estimator, data = fold.estimator, fold.data
        sign_vectors = estimator._sign_vectors(data.codes)
        coefs = np.empty((len(points), len(sign_vectors), space.n_coefficients))
        last, behind = [None] * len(sign_vectors), 0
        order = [(each.variance_weight, each.upper_bound, each.mean_weight) for each in objectives]
        for k in sorted(range(len(points)), key=order.__getitem__):
            estimator.set_params(**points[k])
            estimator.solver_ = estimator._pick_solver(objectives[k], space, data.weights)
            estimator._check_memory(space)
            for t, signs in enumerate(sign_vectors):
                asked = Problem(objectives[k], space, signs, data.weights)
                last[t] = estimator._solve(asked, Options(self.tol, self.max_iter), last[t])
                estimator._refuse_infeasible(last[t])
                coefs[k, t] = last[t].coef
            behind += any(not result.gap <= self.tol for result in last)
        return fold.scores(space, coefs), behind
