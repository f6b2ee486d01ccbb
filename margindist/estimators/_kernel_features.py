"""Features of a kernel for solvers that work on rows, and the proof that what they find holds for the kernel."""

import threading

import numpy as np

from margindist.solvers._kernel_certificate import certify_features, certify_rounds, inseparable_rows
from margindist.solvers._solution import Status, better, conclude
from margindist.spaces.features import cholesky_factor
from margindist.spaces.rows import as_rows


class KernelFeatures:
    """Features of a Gram matrix: those that usually suffice and, where a proof fails for want of others, more of them.

    Parameters
    ----------
    factor : Factor
        The features to begin with.
    gram : FullGram or CachedGram, optional
        The matrix they are features of. Without it the problem on the features is the one that is asked for.
    """

    def __init__(self, factor, gram=None):
        self.factor, self.gram = factor, gram
        self._finer = None
        self._lock = threading.Lock()

    @property
    def rows(self):
        """The features as rows for a solver."""
        return as_rows(_columns(self.factor))

    def solve(self, problem, goal, solve, start=None):
        """Solve a two-class problem and prove it for the kernel, with finer features if these do not allow a proof.

        Parameters
        ----------
        problem : Problem
            Two-class, on the features.
        goal : callable
            From the objective's value to the relative gap to reach.
        solve : callable
            From rows and a start (a solution in weights of the features, or None) to a solution.
        start : Solution
            Of a similar problem, in coefficients of the rows.

        Returns
        -------
        Solution
            In coefficients of the rows, for the matrix G.
        """
        objective, _, signs, weights = problem

        def attempt(factor, start):
            if start is not None:
                start = start._replace(coef=_columns(factor).T @ start.coef)
            found = solve(as_rows(_columns(factor)), start)
            found = found._replace(coef=found.coef[: factor.features.shape[1]])
            if found.status is Status.INFEASIBLE:  # of the features, which lack short directions
                proved = self.gram is None or inseparable_rows(self.gram, signs, found.dual)
                status = Status.INFEASIBLE if proved else Status.STALLED
                return found._replace(coef=factor.coefficients(found.coef), status=status)
            enough = goal(found.objective)
            proved = certify_features(objective, factor, self.gram, signs, weights, found.coef, found.dual, enough)
            return conclude(proved._replace(n_iter=found.n_iter), enough, found.status)

        first = attempt(self.factor, start)
        if first.status is not Status.STALLED or self.gram is None:
            return first
        second = attempt(self._finer_factor(), first)
        best = better(first, second)
        return conclude(best._replace(n_iter=first.n_iter + second.n_iter), goal(best.objective), second.status)

    def solve_joint(self, problem, tol, solve, start=None):
        """Solve the joint problem of several classes as :meth:`solve` does; the solutions are rounds."""
        objective, _, codes, weights = problem

        def attempt(factor, start):
            if start is not None:
                start = start._replace(coef=start.coef @ _columns(factor))
            found = solve(as_rows(_columns(factor)), start)
            found = found._replace(coef=found.coef[:, : factor.features.shape[1]])
            return found, certify_rounds(objective, factor, self.gram, codes, weights, found)

        found, first = attempt(self.factor, start)
        if first.gap <= tol or found.gap > tol or self.gram is None:
            return first
        _, second = attempt(self._finer_factor(), first)
        best = second if second.objective <= first.objective or second.gap <= tol else first
        return best._replace(n_iter=found.n_iter + second.n_iter)

    def _finer_factor(self):
        with self._lock:
            if self._finer is None:
                self._finer = cholesky_factor(self.gram, tol=self.gram.n * np.finfo(float).eps)
            return self._finer


def _columns(factor):
    """Return the features; a matrix of zeros has none, for which one of zeros stands."""
    return factor.features if factor.features.shape[1] else np.zeros((len(factor.features), 1))
