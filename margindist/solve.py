r"""The driver and its table: which engine has a try at a problem, on what, for how long, and when that is enough.

:data:`PLAN` has a row per engine and circumstance, in the order in which they are tried. An engine begins from the best
solution so far where that is better than a start of its own. The driver keeps the best weights and the best bound of
all, which need not come from the same engine, and stops when these meet, when rounding leaves nothing to prove, or when
the caller's limit of iterations is reached. To add an engine is to add its file and a row.

What a pass of coordinate descent and an iteration of the interior point method cost is counted by
:func:`cost_in_passes`. Passes grow with the price C times the squared length of a
row and, where margin terms tie the rows together, with their curvature times that.
"""

import functools
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from margindist.solvers import (
    augmented_lagrangian,
    block_descent,
    coordinate_descent,
    dual_coordinate_descent,
    interior_point,
    separation,
    stochastic,
)
from margindist.solvers._solution import Status, better, certify, conclude, with_bound
from margindist.spaces.gram import gram_bytes, gram_of_rows
from margindist.spaces.rows import (
    BLAS,
    SparseRows,
    add_rows,
    are_worth_passes,
    gram_operations,
    n_columns,
    n_rows,
    n_stored,
    squares,
    stored_bytes,
)

__all__ = [
    "ENGINES",
    "IN_PARTITIONS",
    "PLAN",
    "Case",
    "Row",
    "Settings",
    "begins_in_partitions",
    "begins_with",
    "plan",
    "solve",
]


class Settings(NamedTuple):
    """Where one engine is taken for the better one."""

    few_columns: int = 1000  # up to here a Gram matrix of the columns is cheap, however few rows there are,
    most_columns: int = 3000  # and up to here where there are more rows than columns
    few_operations: float = 3e7  # up to here an orthonormal basis of few rows costs next to nothing
    small_price: float = 20.0  # C times the mean squared length of a row up to which passes are tried at first,
    small_variance: float = 3000.0  # and the curvature of the margins' variance times that;
    smaller_variance: float = 100.0  # the same where interior points cost hardly more than these passes,
    few_passes: int = 22  # up to so many
    fewest_passes: float = 4.0  # that a price p takes: so many,
    passes_by_price: float = 6.0  # and so many times the root of p;
    coupled: float = 1.5  # times what a pass takes where margin terms tie the rows together: none of them rests
    most_in_partitions: int = 5000  # columns beyond which rows near the margin are less to send than a Gram product
    wide_passes: int = 600  # passes that any other engine costs where there are many columns, about


SETTINGS = Settings()


class Costs(NamedTuple):
    """What passes and interior points were measured to cost, in operations (of 4 ns) on a stored value."""

    dense_value: float = 0.12  # of a pass of coordinate descent
    dense_row: float = 10.0  # for it to jump to a row and step
    sparse_value: float = 0.65
    sparse_row: float = 5.0
    many_rows: int = 80_000  # from which on caches do not hold what is known of them,
    from_afar: float = 2.0  # which a jump then costs more
    cache_bytes: int = 1 << 25  # of rows that caches hold,
    from_memory: float = 28.0  # beside which a jump costs so much more
    sweep_value: float = 0.3  # of an interior point's sweep
    iteration_row: float = 10.0  # for an interior point's iteration
    sparse_product: float = 0.35  # of two values of a sparse Gram product
    iterations: int = 9  # of interior points, the first guess included


def cost_in_passes(rows):
    """Return roughly how many passes over the rows a solution costs: what coordinate descent has to beat.

    An iteration is a Gram product and three sweeps, of the rows that matter, and a factorisation. Where there are many
    rows, those that matter are the nearest ones, and a sample before. Fewer rows than columns have coordinates in their
    span, from one QR factorisation.
    """
    costs = Costs()
    m, d, stored = n_rows(rows), n_columns(rows), n_stored(rows)
    product = costs.sparse_product if isinstance(rows, SparseRows) else 1.0
    products, swept, once = product * gram_operations(rows), stored, 4.0 * (costs.sweep_value * stored + 5.0 * m)
    if m < d:
        products, swept, once = 0.5 * m**3 / BLAS, m * m, once + 2.0 * m * m * d / BLAS
    share, limits = 1.0, interior_point.SETTINGS
    if m > limits.sample_above:
        share = limits.nearest + interior_point.sample_size(m, d) / m
    iteration = share * (products + 3.0 * costs.sweep_value * swept + costs.iteration_row * m) + min(m, d) ** 3 / (
        6.0 * BLAS
    )
    value, jump = costs.dense_value, costs.dense_row
    if isinstance(rows, SparseRows):
        value, jump = costs.sparse_value, costs.sparse_row
    if m > costs.many_rows:
        jump += costs.from_afar
    if stored_bytes(rows) > costs.cache_bytes:
        jump += costs.from_memory
    return (once + costs.iterations * iteration) / (value * stored + jump * m)


class Case:
    """A problem on rows with what was asked, and what the table asks about it.

    Parameters
    ----------
    problem : Problem
        A hinge-type objective (:class:`~margindist.objectives.LDM`) on rows.
    options : Options
        ``max_iter`` is None unless somebody asked for a limit.
    asked : str
        An engine to begin with, or "auto". The papers' own algorithms ("dcd", "asgd") stay alone.
    max_bytes : float
        Most memory for Gram matrices.
    without : tuple of str
        Engines that have been tried.
    """

    def __init__(self, problem, options, asked="auto", max_bytes=np.inf, without=()):
        self.problem, self.options, self.asked, self.without = problem, options, asked, without
        self.max_bytes = max_bytes
        self.rows, self.objective = problem.space, problem.objective
        self.shape = n_rows(self.rows), n_columns(self.rows)

    # ------------------------------------------------------------------ what kind of problem

    @property
    def is_hard(self):
        """Whether margins below 1 are forbidden."""
        return self.objective.hard

    @property
    def is_separated_first(self):
        """Whether to find out at once if there is a hard margin, and if so, one."""
        return self.is_hard and self.options.max_iter is None and separation.affordable(self.rows)

    @property
    def may_lack_margin(self):
        """Whether a hard margin is sought without the margin terms, which do not matter to that."""
        has_terms = self.objective.coupled or self.objective.mean_weight > 0.0
        return self.is_hard and not self.is_separated_first and has_terms

    @property
    def has_few_columns(self):
        """Whether a Gram matrix of the columns is cheaper than many passes over the rows."""
        (m, d), limits = self.shape, SETTINGS
        return (d <= limits.few_columns or d <= min(m, limits.most_columns)) and self.fits(d)

    def fits(self, order):
        """Tell whether there is memory for matrices of this order."""
        return 3 * gram_bytes(order) <= self.max_bytes

    # ------------------------------------------------------------------ what costs less

    @functools.cached_property
    def begins_by_passes(self):
        """Whether passes of coordinate descent come first."""
        (m, d), limits = self.shape, SETTINGS
        if d <= limits.few_columns:
            return self._few_passes_may_do
        return m * m * d > limits.few_operations

    @functools.cached_property
    def _few_passes_may_do(self):
        """Whether a few passes may be enough, or the better start where the other engine's takes most of the rows."""
        if self.is_hard or not are_worth_passes(self.rows):
            return False
        if not interior_point.has_cheap_start(self.rows):
            return True
        limits = SETTINGS
        squares(self.rows, lengths := np.empty(self.shape[0]))
        price, variance = self.objective.upper_bound * lengths.mean(), self.objective.variance_weight * lengths.mean()
        if self._cost_in_passes > limits.few_passes:
            return bool(price <= limits.small_price and variance <= limits.small_variance)
        passes = limits.fewest_passes + limits.passes_by_price * np.sqrt(price)
        if self.objective.coupled:
            passes *= limits.coupled
        return bool(passes <= self._cost_in_passes and variance <= limits.smaller_variance)

    @functools.cached_property
    def _cost_in_passes(self):
        return cost_in_passes(self.rows)

    @property
    def rival(self):
        """How many passes the engine costs that comes after coordinate descent."""
        return self._cost_in_passes if self.has_few_columns else SETTINGS.wide_passes


# ---------------------------------------------------------------------- engines, and what they are shown


def _on_rows(engine):
    """Return what calls an engine that works on rows."""
    return lambda case, options, start: engine.solve(case.problem, options, start)


def _on_gram(engine):
    """Return what calls an engine that works on a Gram matrix, with that of the rows."""

    def call(case, options, start):
        gram = gram_of_rows(case.rows, case.max_bytes)
        result = engine.solve(case.problem._replace(space=gram), options, start)
        return _on_columns(case.problem, result, options.tol)

    return call


def _on_columns(problem, result, tol):
    """Return the solution in weights of the columns, certified once more: they round less than those of rows."""
    rows, signs = problem.space, problem.signs
    w = add_rows(rows, np.arange(len(signs)), result.coef, np.zeros(n_columns(rows)))
    now = certify(problem, w, result.dual)._replace(n_iter=result.n_iter)
    if result.status is Status.INFEASIBLE:  # for the rows to prove: they have twice the digits of their products
        return conclude(now, tol, Status.STALLED)
    return conclude(with_bound(now, result.least), tol, result.status)


def _separate(case, options, start):
    """Return some hard margin, or the proof that there is none: neither depends on the margin terms."""
    if start is not None and np.isfinite(start.objective):
        return None
    if separation.affordable(case.rows):
        return separation.solve(case.problem, options)
    plain = case.problem._replace(objective=case.objective._replace(lambda1=0.0, lambda2=0.0))
    result = augmented_lagrangian.solve(plain, options)
    if np.isinf(result.objective) and result.status is not Status.INFEASIBLE:
        result = solve(Case(plain, options, max_bytes=case.max_bytes))
    now = certify(case.problem, result.coef, result.dual)
    return conclude(now._replace(n_iter=result.n_iter), options.tol, Status.STALLED)


def _refute(case, options, start):
    """Return the proof that there is no hard margin, and no start: the papers' own algorithms take none."""
    result = separation.solve(case.problem, options)
    return result if result.status is Status.INFEASIBLE else None


ENGINES = {
    "interior-point": _on_rows(interior_point),
    "coordinate-descent": _on_rows(coordinate_descent),
    "augmented-lagrangian": _on_rows(augmented_lagrangian),
    "asgd": _on_rows(stochastic),
    "block": _on_gram(block_descent),
    "dcd": _on_gram(dual_coordinate_descent),
    "separation": _separate,
    "refutation": _refute,
}
IN_PARTITIONS = {"interior-point": interior_point, "augmented-lagrangian": augmented_lagrangian}
ALONE = ("dcd", "asgd")  # the papers' own algorithms


def _always(case):
    return True


class Row(NamedTuple):
    """One row of the table."""

    engine: str
    suits: Callable[[Case], bool] = _always
    trial: bool = False  # whether it gives up as soon as the next engine would be quicker
    again: str = ""  # the engine from whose solution it begins, whatever is better; not tried if that was not


PLAN = (
    Row("separation", lambda case: case.is_separated_first),
    Row("coordinate-descent", lambda case: case.begins_by_passes, trial=True),
    Row("interior-point", lambda case: case.has_few_columns or not case.begins_by_passes),
    Row("augmented-lagrangian", lambda case: not case.has_few_columns),
    Row("block", lambda case: not case.has_few_columns and case.fits(case.shape[0])),
    Row("coordinate-descent", lambda case: not case.begins_by_passes),
    Row("interior-point", lambda case: case.has_few_columns and not case.is_hard, again="coordinate-descent"),
    Row("separation", lambda case: case.may_lack_margin),
    Row("augmented-lagrangian", lambda case: case.is_hard),
    Row("interior-point", lambda case: not case.has_few_columns and case.fits(case.shape[1])),
)


# ---------------------------------------------------------------------- the driver


def plan(case):
    """Return the rows of the table that suit a case, the engine that was asked for first."""
    if case.asked in ALONE:
        first = (Row("refutation", lambda case: case.is_separated_first), Row(case.asked))
        return [row for row in first if row.suits(case)]
    rows = [row for row in PLAN if row.engine not in case.without and row.suits(case)]
    if case.asked == "auto":
        return rows
    before = [row for row in rows if row.engine == "separation" and case.is_separated_first]
    after = [row for row in rows if row not in before and (row.engine != case.asked or row.again)]
    return [*before, Row(case.asked), *after]


def begins_with(case):
    """Return the name of the engine that begins."""
    return next(row.engine for row in plan(case) if row.engine not in ("separation", "refutation"))


def begins_in_partitions(n_columns):
    """Return the name of the engine for rows in partitions, which is the only one."""
    return "interior-point" if n_columns <= SETTINGS.most_in_partitions else "augmented-lagrangian"


def solve(case, start=None):
    """Call the engines of the plan in turn until one proves its result; return the best solution.

    Parameters
    ----------
    case : Case
        The problem, and what was asked.
    start : Solution, optional
        Whose coefficients and multipliers to start from.

    Returns
    -------
    Solution
    """
    tol = case.options.tol
    unfinished = {Status.STALLED} if case.options.max_iter is not None else {Status.STALLED, Status.ITERATION_LIMIT}
    best, n_iter, failure, found_by = None, 0, None, {}
    for row in plan(case):
        begin = _start(row, case, start if best is None else best, best is not None, found_by)
        if best is not None and np.isfinite(best.objective) and best.rounding > tol:
            break  # nobody can prove more
        if row.again and begin is None:
            continue
        try:
            result = ENGINES[row.engine](case, _options(row, case), begin)
        except (np.linalg.LinAlgError, ArithmeticError) as error:
            failure = error
            continue
        if result is None:
            continue
        found_by[row.engine] = result
        n_iter += result.n_iter
        best = conclude(better(best, result)._replace(n_iter=n_iter), tol, result.status)
        if best.status not in unfinished:
            return best
    if best is None:
        raise failure
    return best


def _options(row, case):
    """Return what an engine is told."""
    return case.options._replace(choices={"rival": case.rival}) if row.trial else case.options


def _start(row, case, best, is_of_other, found_by):
    """Return the solution that an engine begins from: none where its own start is better."""
    if row.again:
        return found_by.get(row.again)
    if not is_of_other or row.engine in ("augmented-lagrangian", "separation"):
        return best
    good = row.engine == "interior-point" and interior_point.has_cheap_start(case.rows)
    return best if best.gap < (interior_point.SETTINGS.sample_tol if good else 1.0) else None
