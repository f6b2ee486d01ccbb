"""Two-class problems: one per class where there are more than two, solved with progress, callbacks and warnings."""

import functools
import warnings

import numpy as np
from joblib import Parallel, delayed, effective_n_jobs
from joblib.parallel import get_active_backend
from sklearn.exceptions import ConvergenceWarning
from threadpoolctl import ThreadpoolController

from margindist.estimators._parameters import PRICES, is_real
from margindist.solvers._solution import Status

_DEAR = 1e15  # a price beyond it leaves no digits to what it is added to


@functools.cache
def threadpools():
    return ThreadpoolController()


def quietly(solve, *args):
    """Call a solver: what overflows in it shows in its solution, or is an error there."""
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        return solve(*args)


class ProblemsMixin:
    """The problems that a fit consists of."""

    n_iter_: int
    objective_: float | np.ndarray
    duality_gap_: float | np.ndarray

    def _sign_vectors(self, codes):
        """Return the label vectors of the two-class problems: one for two classes, else one per class."""
        positives = [1] if len(self.classes_) == 2 else range(len(self.classes_))
        return [np.where(codes == positive, 1.0, -1.0) for positive in positives]

    def _threads_per_problem(self, n_problems=None):
        """Return the threads that the solver of one of so many problems may use, all of them together ``n_jobs``.

        Within a worker of somebody else's parallel work there is one: its cores are taken.
        """
        backend, _ = get_active_backend()
        if backend.nesting_level:
            return 1
        if n_problems is None:
            n_problems = 1 if len(self.classes_) == 2 else len(self.classes_)
        return max(1, effective_n_jobs(getattr(self, "n_jobs", None)) // n_problems)

    def _solve_each(self, solve, codes, X=None, y=None, *, space=None, joint=False):
        """Call ``solve(k, signs, report)`` for every two-class problem, in parallel if asked; return the solutions.

        With ``joint`` there is one problem of all classes, which is given the codes. Callbacks get what predicts with
        the coefficients so far if the ``space`` they live in is given.

        Linear algebra runs in one thread meanwhile: our matrices are small or medium-sized, where waiting for a second
        thread costs more than it brings (measured on two cores), and very much more on a busy machine.
        """
        problems = [codes] if joint else self._sign_vectors(codes)
        context = None
        if getattr(self, "_skl_callbacks", None):
            context = self._init_callback_context(max_subtasks=None)
            context.call_on_fit_task_begin(estimator=self, X=X, y=y)
        try:
            with threadpools().limit(limits=1, user_api="blas"):
                solutions = Parallel(n_jobs=self.n_jobs, prefer="threads")(
                    delayed(quietly)(solve, k, signs, self._progress(k, len(problems), context, space))
                    for k, signs in enumerate(problems)
                )
        except (np.linalg.LinAlgError, ArithmeticError) as error:  # only rounding and overflow lead there
            raise self._digits_lost(error) from error
        if context is not None:
            context.call_on_fit_task_end(estimator=self, X=X, y=y)
        self._warn_unless_converged(solutions)
        return solutions

    def _digits_lost(self, error):
        """Return the error that says what to make smaller."""
        expensive = [name for name in PRICES if is_real(price := getattr(self, name, None)) and _DEAR < price < np.inf]
        prices = " and prices" if expensive else ""
        lower = f", or lower {' and '.join(expensive)}" if expensive else ""
        return ValueError(
            f"{type(self).__name__}: expected features (or kernel values){prices} of moderate size, got some with "
            f"which the solver loses all digits ({error}); scale the features, for instance by StandardScaler{lower}."
        )

    def _progress(self, k, n_problems, context, space):
        """Return what a solver calls once per iteration: it prints, informs callbacks, and says whether to stop."""
        if context is None and not self.verbose:
            return None
        which = f" class {self.classes_.tolist()[k]!r}" if n_problems > 1 else ""

        def report(iteration, coef, objective, gap):
            if self.verbose:
                certified = "" if np.isnan(gap) else f", gap {gap:.1e}"
                print(f"[{type(self).__name__}]{which} iteration {iteration}: objective {objective:.6g}{certified}")
            if context is None:
                return False
            task = context.subcontext(task_name="iteration")
            task.call_on_fit_task_begin(estimator=self)
            metadata = {"iteration": iteration, "objective": objective, "gap": gap, "class": self.classes_[k]}
            attributes = None
            if n_problems == 1 and space is not None:
                attributes = functools.partial(self._attributes_so_far, space, coef)
            return bool(
                task.call_on_fit_task_end(estimator=self, metadata=metadata, reconstruction_attributes=attributes)
            )

        return report

    def _attributes_so_far(self, space, coef):
        """Return what makes a copy of this estimator predict with the coefficients of an unfinished fit."""
        result = space.attributes_so_far(np.atleast_2d(coef))
        return None if result is None else {**result, "classes_": self.classes_}

    def _warn_unless_converged(self, solutions):
        for solution in solutions:
            if solution.status not in (Status.STOPPED, Status.INFEASIBLE) and not solution.gap <= self.tol:  # nan too
                warnings.warn(
                    f"{type(self).__name__} stopped ({solution.status}) after {solution.n_iter} iterations with a "
                    f"relative duality gap of {solution.gap:.1e}, above tol={self.tol:g}: the objective is at most "
                    f"that far above its minimum. Raise max_iter or tol, or scale the features.",
                    ConvergenceWarning,
                    stacklevel=4,
                )
                return

    def _store_convergence(self, solutions):
        """Keep iterations, objective and gap: numbers for two classes, arrays for more."""
        self.n_iter_ = max(1, *(solution.n_iter for solution in solutions))  # a start may be the solution already
        values = np.array([solution.objective for solution in solutions])
        gaps = np.array([solution.gap for solution in solutions])
        several = len(solutions) > 1
        self.objective_ = values if several else float(values[0])
        self.duality_gap_ = gaps if several else float(gaps[0])

    def _store_multipliers(self, data, solutions):
        """Set ``multipliers_``, with zeros for rows of weight zero."""
        self.multipliers_ = np.vstack([solution.dual for solution in solutions])
        if data.kept is not None:
            result, self.multipliers_ = self.multipliers_, np.zeros((len(solutions), data.n_given))
            self.multipliers_[:, data.kept] = result
