"""Classifiers that minimise an objective with a piecewise linear slope, on rows or in the space of a kernel."""

from inspect import Parameter, Signature
from typing import Self

import numpy as np
from numpy.typing import ArrayLike

from margindist.dask import as_partitions
from margindist.estimators._base import MarginClassifier, fitting
from margindist.estimators._parameters import (
    COMMON_PARAMETERS,
    COMPONENTS,
    KERNEL_PARAMETERS,
    POSITIVE,
    one_of,
)
from margindist.estimators._training_data import RowsLike
from margindist.solvers import coordinate_descent, newton
from margindist.solvers._kernel_certificate import kernel_gap, kernel_gap_of_joint, solve_in_space
from margindist.solvers._solution import Options, Problem, Status, gap_to_reach
from margindist.spaces.rows import are_few, are_worth_passes, n_columns, squares

_FEW_COLUMNS = 100  # up to here a Newton step takes no longer than a pass of coordinate descent
_MANY_ROWS_A_COLUMN = 50  # and from here on
_COLUMNS_A_PASS = 250  # how many make a Newton step as much dearer as a unit of price makes passes more
_PARAMETERS = {
    "kernel": "linear",
    "gamma": "scale",
    "degree": 3,
    "coef0": 0.0,
    "n_components": None,
    "fit_intercept": True,
    "solver": "auto",
    "tol": 1e-4,
    "max_iter": 1000,
    "cache_size": 2000,
    "warm_start": False,
    "class_weight": None,
    "random_state": None,
    "verbose": 0,
    "n_jobs": None,
}  # of a declared classifier, beside those of its objective; as in ODMClassifier


class ObjectiveClassifier(MarginClassifier):
    r"""Base of classifiers that minimise :math:`\tfrac12 \|w\|^2 + \varphi(z)` for one objective.

    A subclass is a declaration: ``class MyClassifier(ObjectiveClassifier, objective=MyObjective, requirements={...})``.
    The fields of the objective, with their defaults, are its first parameters; the others are those of every such
    classifier. One with a constructor of its own keeps it.
    """

    _requirements = {
        **KERNEL_PARAMETERS,
        **COMMON_PARAMETERS,
        "n_components": COMPONENTS,
        "cache_size": POSITIVE,
        "solver": one_of("auto", "newton", "coordinate-descent"),
    }

    def __init_subclass__(cls, *, objective, requirements, **named):
        super().__init_subclass__(**named)
        cls._objective = objective
        cls._requirements = {**cls._requirements, **requirements}
        if "__init__" not in vars(cls):
            cls.__init__ = _constructor(objective)

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
        Self
            Itself.
        """
        self._check_parameters()
        if (rows := as_partitions(X)) is not None:
            return self._fit_partitions(rows, y, sample_weight)
        data = self._validate_training_data(X, y, sample_weight)
        objective = self._objective(*(float(getattr(self, name)) for name in self._objective._fields))
        rngs = self._rng().spawn(len(self.classes_))

        def solve_all(space, starts):
            self.solver_ = self.solver
            self._refuse_beyond_memory(*space.memory_of_rows)
            self.certified_problem_ = space.certified
            threads = self._threads_per_problem()
            self.solver_ = self._pick_solver(Problem(objective, space, None, data.weights))

            def solve(k, labels, report):
                problem = Problem(objective, space, labels, data.weights)
                options = Options(self.tol, self.max_iter, rngs[k], report, threads)
                return self._solve(problem, options, starts[k] if starts else self._last_solution(k, space))

            return self._solve_each(solve, data.codes, X, y, space=space, joint=self._is_joint())

        def gap(k, space, result):
            if self._is_joint():
                return kernel_gap_of_joint(Problem(objective, space, data.codes, data.weights), result)
            return kernel_gap(Problem(objective, space, self._sign_vectors(data.codes)[k], data.weights), result)

        space, solutions = self._solve_in_spaces(data, solve_all, gap)
        self._store(space, [solution.coef for solution in solutions])
        self._store_solutions(solutions)
        return self

    def _solve_in_place(self, place, survey, positives, options):
        if self.solver == "coordinate-descent":
            return super()._solve_in_place(place, survey, positives, options)
        self.solver_ = "newton"
        objective = self._objective(*(float(getattr(self, name)) for name in self._objective._fields))
        return newton.solve_in_place(place, objective, positives, options)

    def _is_joint(self):
        """Tell whether all classes make one problem; a subclass that does so solves it."""
        return False

    def _pick_solver(self, problem):
        """Return the solver to use: Newton steps become dearer with the columns, passes more with the price.

        The price is the curvature of a row's loss times its squared length, on average.
        """
        space, weights = problem.space, problem.weights
        if self.solver != "auto" or self._is_joint():
            return self.solver
        if not newton.is_affordable(space.rows):
            return "coordinate-descent"
        m, d = space.n_rows, n_columns(space.rows)
        if space.factor() is not None or d <= max(_FEW_COLUMNS, m / _MANY_ROWS_A_COLUMN):
            return "newton"
        if are_few(space.rows) and not are_worth_passes(space.rows):
            return "newton"
        squares(space.rows, lengths := np.empty(m))
        price = np.mean(problem.objective.curvature(np.zeros(m), weights) * lengths)
        return "coordinate-descent" if price <= d / _COLUMNS_A_PASS else "newton"

    def _solve(self, problem, options, start):
        """Solve one two-class problem; in a kernel's space, prove the solution for the kernel."""
        space = problem.space
        at_zero = problem.objective.value(0.0, np.zeros(space.n_rows), problem.weights)
        options = self._options_on_rows(space, options)

        def solve_on(rows, start):
            return self._solve_on_rows(problem._replace(space=rows), options, start)

        return solve_in_space(space, problem, lambda value: gap_to_reach(self.tol, value, at_zero), solve_on, start)

    def _options_on_rows(self, space, options):
        """Return the options, with a tighter tolerance where a proof for the kernel adds to the gap on its features."""
        return options if space.factor() is None else options._replace(tol=0.5 * self.tol)

    def _solve_on_rows(self, problem, options, start):
        """Call the solver; coordinate descent that stalls hands over to Newton's method."""
        if self.solver_ == "newton":
            return newton.solve(problem, options, start)
        first = coordinate_descent.solve(problem, options, start)
        if first.status is not Status.STALLED:
            return first
        at_zero = problem.objective.value(0.0, np.zeros(len(problem.signs)), problem.weights)
        second = newton.solve(problem, options, first if first.objective < at_zero else None)
        return second._replace(n_iter=first.n_iter + second.n_iter)

    def _last_solution(self, k, space):
        """Return the solution of the last fit if warm starts are on and it has the shape of this problem's."""
        last = getattr(self, "_warm", ()) if self.warm_start else ()
        shape = (space.n_coefficients,)
        if self._is_joint():
            shape = (len(self.classes_), *shape)
        if k >= len(last) or last[k].coef.shape != shape:
            return None
        known = last[k].dual.beta if self._is_joint() else last[k].dual
        return last[k] if len(known) == space.n_rows else None

    def _store_solutions(self, solutions):
        self._store_convergence(solutions)
        if self.warm_start:
            self._warm = solutions


def _constructor(objective):
    """Return a constructor that takes the objective's fields, and the common parameters by keyword."""
    defaults = {**dict.fromkeys(objective._fields, Parameter.empty), **objective._field_defaults}
    first = [Parameter(name, Parameter.POSITIONAL_OR_KEYWORD, default=value) for name, value in defaults.items()]
    others = [Parameter(name, Parameter.KEYWORD_ONLY, default=value) for name, value in _PARAMETERS.items()]
    own = Parameter("self", Parameter.POSITIONAL_OR_KEYWORD)
    expected = Signature([own, *first, *others])

    def __init__(self, *args, **named):
        given = expected.bind(self, *args, **named)
        given.apply_defaults()
        for name, value in list(given.arguments.items())[1:]:
            setattr(self, name, value)

    __init__.__signature__ = expected
    return __init__
