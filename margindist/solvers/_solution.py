"""What every solver is asked and answers: ``solve(problem, options, start) -> Solution``, and the certificate.

A solver file is named after its algorithm. It says in its docstring which objectives it takes, trusts its arrays,
neither warns nor prints, and ends with :func:`conclude`. Where an algorithm has choices of its own, they are in
:attr:`Options.choices`. Where many problems share work, ``solve_grid(problem, options)`` takes a problem with a list of
objectives, and of label vectors, in place of one, and returns what :func:`solve` would for each of them.
"""

from collections.abc import Callable, Mapping
from enum import StrEnum
from typing import Any, NamedTuple

import numpy as np

from margindist.certificate import Ledger, relative

_ROUNDING = 1e-11  # relative error of an objective's value that is not in its gap, but matters beside other values
_LEAST_GAIN = 1e-12  # of an objective's value: below it, what the weights gain is not told from rounding
_LEAST_GAP = 4 * np.finfo(float).eps  # of an objective's value: a smaller gap is all rounding

# A solver calls ``report(iteration, coef, objective, gap)`` once per iteration; True asks it to stop.
Report = Callable[[int, np.ndarray, float, float], bool]


class Status(StrEnum):
    """How a solver ended; only :func:`conclude` says "optimal"."""

    OPTIMAL = "optimal"  # the certified gap is at most the tolerance
    ITERATION_LIMIT = "iteration limit"
    STOPPED = "stopped"  # the caller's report asked for it
    STALLED = "stalled"  # no further progress, or the solver's own test was met and the certificate was not
    INFEASIBLE = "infeasible"  # proved: no hard margin exists
    # Of methods that minimise what is not convex, or maximise a margin:
    SETTLED = "settled"  # nothing moves any more
    CYCLE = "cycle"  # what moves comes back
    NO_LONGER_IMPROVES = "no longer improves"
    NOTHING_CHANGED = "no upper side changed"
    INSEPARABLE = "inseparable"  # not separated so far; no proof
    OVERLAPPING = "overlapping hulls"


class Problem(NamedTuple):
    """What is minimised, and where the rows live."""

    objective: Any  # of :mod:`margindist.objectives`
    space: Any  # rows (:mod:`margindist.spaces.rows`) or a Gram matrix (:mod:`margindist.spaces.gram`)
    signs: np.ndarray  # labels -1 and +1; for joint problems of several classes their codes 0, 1, ...
    weights: np.ndarray  # positive


class Options(NamedTuple):
    """How a problem is solved."""

    tol: float = 1e-6  # certified relative gap to reach
    max_iter: int | None = None  # iterations at most; None is the solver's own limit
    rng: np.random.Generator | None = None  # for what a solver draws; None draws the same every time
    report: Report | None = None
    n_jobs: int = 1  # threads, for solvers that work in rounds over partitions
    choices: Mapping[str, Any] = {}  # what only one algorithm can be told, by name; its docstring says what

    def chosen(self, **defaults):
        """Return the algorithm's own choices, in the order of the defaults that stand where the caller made none."""
        unknown = self.choices.keys() - defaults.keys()
        if unknown:
            raise TypeError(f"expected choices among {', '.join(defaults)}, got {', '.join(sorted(unknown))}")
        return tuple({**defaults, **self.choices}.values())

    def limit(self, most=1000):
        """Return the limit of iterations, ``most`` if none was set."""
        return most if self.max_iter is None else self.max_iter

    def generator(self):
        """Return the generator to draw from."""
        return np.random.default_rng(0) if self.rng is None else self.rng


class Solution(NamedTuple):
    """Where a solver ended, and how far from the optimum that can be at most.

    ``gap`` is relative to the objective's absolute value and is an upper bound on the distance to the
    optimum: it comes from a feasible point of the dual problem, not from the last step's size. Methods without a
    certificate leave it nan.
    """

    coef: np.ndarray  # weights of the columns (linear) or of the training rows (kernel)
    dual: Any  # multipliers of the margin constraints, one per row; blocks of them for a joint problem
    objective: float
    gap: float
    n_iter: int = 0
    status: Status | None = None  # none until :func:`conclude` decides, unless infeasibility is proved
    extra: Mapping[str, Any] = {}  # what only one method has, by name; its docstring says what
    error: float = 0.0  # how far rounding can have taken the objective from its exact value; the gap includes it
    rounding: float = 0.0  # what rounding alone would leave of the gap

    @property
    def least(self):
        """What the minimum is at least, also beside other solutions: far above it, rounding hides all but that."""
        if not np.isfinite(self.gap):
            return -np.inf
        return self.most - (self.gap + _ROUNDING * (1.0 + self.gap)) * abs(self.objective)

    @property
    def most(self):
        """What the objective is at most, rounding included."""
        return self.objective + self.error


def starting_at(coef):
    """Return coefficients as a solution to start from."""
    return Solution(coef, None, np.nan, np.nan)


def require(objective, algorithm, *members):
    """Raise an error if an objective lacks what an algorithm asks it for."""
    missing = [name for name in members if not hasattr(objective, name)]
    if missing:
        raise TypeError(
            f"{algorithm} expects an objective with {', '.join(members)}, got {type(objective).__name__} without "
            f"{', '.join(missing)}; choose another solver, or give the objective what is missing."
        )


def conclude(result, tol, ended):
    """Return what a solver found with its status: optimal if and only if the certified gap is at most ``tol``.

    Every solver ends here. ``ended`` says why the iterations ended, and is the status if the certificate is not met. A
    proof of infeasibility stays. Weights that are not finite are an error.
    """
    if not np.isfinite(result.coef).all() or np.isnan(result.objective):
        raise FloatingPointError("the weights are not finite")
    if result.gap <= tol:
        return result._replace(status=Status.OPTIMAL)
    if result.status is Status.INFEASIBLE:
        return result
    contradicted = ended is Status.OPTIMAL or (ended is Status.INFEASIBLE and np.isfinite(result.objective))
    return result._replace(status=Status.STALLED if contradicted else ended)


def certify(problem, coef, beta):
    """Return what coefficients and multipliers prove, on rows in memory (see :mod:`margindist.certificate`)."""
    return proved(Ledger(problem).bounds(coef, beta), beta)


def proved(bounds, beta):
    """Return weights and multipliers with what the ledger proves of them; no status yet, unless infeasible."""
    status = Status.INFEASIBLE if bounds.refuted else None
    return Solution(
        bounds.coef, beta, bounds.value, bounds.gap, status=status, error=bounds.error, rounding=bounds.rounding
    )


def better(best, now):
    """Return the one of two solutions that has the lower objective, with the gap that both their bounds prove."""
    if best is None:
        return now
    winner = now if now.most <= best.most else best  # best if now is no number
    return with_bound(winner, max(best.least, now.least))


def with_bound(solution, least):
    """Return the solution with the smaller gap that follows if the minimum is at least so much.

    A bound above what the solution reaches proves nothing but that its rounding was underrated.
    """
    if not solution.least < least <= solution.most:
        return solution
    return solution._replace(gap=min(solution.gap, relative(solution.most - least, solution.objective)))


def hand_over(attempts, tol, unfinished=(Status.STALLED,)):
    """Call solvers in turn, each with the best solution so far, until one proves its result; return the best solution.

    A solver that does not end as ``unfinished`` is the last one. One that has nothing to add to the best solution
    returns None. One that loses all digits is skipped, unless all of them do.
    """
    best, n_iter, failure = None, 0, None
    for attempt in attempts:
        try:
            result = attempt(best)
        except (np.linalg.LinAlgError, ArithmeticError) as error:
            failure = error
            continue
        if result is None:
            continue
        n_iter += result.n_iter
        best = conclude(better(best, result)._replace(n_iter=n_iter), tol, result.status)
        if best.status not in unfinished:
            return best
    if best is None:
        raise failure
    return best


def gap_to_reach(tol, value, at_zero):
    """Return the gap, relative to the objective's value, that is small enough.

    It is ``tol`` times what the weights gain over weights of zero: where the losses cost next to nothing, so do weights
    of zero, within any tolerance relative to the value, and no weights at all would pass for a solution. What the
    rounding of the value alone makes is always small enough.
    """
    gained = min(1.0, max(_LEAST_GAIN, at_zero / value - 1.0))
    return max(tol * gained, _LEAST_GAP)
