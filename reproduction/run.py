"""The papers' tables and figures, run again and set beside the printed ones: which cells, in which order, how long."""

import sys
import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from fnmatch import fnmatchcase
from functools import partial
from pathlib import Path
from statistics import mean
from typing import NamedTuple

from margindist.runs import runner
from margindist.runs.store import Cell, Result, Store
from margindist.runs.wording import aligned, duration
from margindist.suggestions import did_you_mean
from reproduction import protocol
from reproduction import study as own_study
from reproduction.declarations import Experiment, experiments
from reproduction.protocol import here
from reproduction.study import bundled_part, study

__all__ = ["plan", "repeat", "reproduce", "select"]

_QUICK_SETS, _QUICK_SPLITS = 2, 2
_QUICK_LIMIT, _QUICK_BUDGET = 60.0, 540.0


class Estimate(NamedTuple):
    """Where an experiment stands: cells in all, done, failed, unable to run, and processor seconds still needed.

    ``seconds_left`` counts on a waiting cell taking what other splits of the same line and column took; cells of which
    nothing is known yet are counted in ``unknown``.
    """

    experiment: str
    cells: int
    done: int
    failed: int
    skipped: int
    unknown: int
    seconds_left: float


def select(patterns: Sequence[str], declared: Mapping[str, Experiment] | None = None) -> list[Experiment]:
    """Return the experiments whose id matches a pattern, or starts with it; the papers' without a pattern.

    Parameters
    ----------
    patterns : sequence of str
        Ids, beginnings of ids, or patterns with ``*``.
    declared : mapping, optional
        Experiments by id, if not the papers' and the study's.

    Returns
    -------
    list of Experiment

    Examples
    --------
    >>> [experiment.id for experiment in select(["ldm-table"])]
    ['ldm-table-2', 'ldm-table-3', 'ldm-table-4']
    """
    if declared is None:
        declared = everything() if patterns else experiments()
    chosen = []
    for pattern in patterns or ["*"]:
        found = [e for key, e in declared.items() if fnmatchcase(key, pattern) or key.startswith(pattern)]
        if not found:
            meant = did_you_mean(pattern, declared, f"there are {', '.join(declared)}.")
            raise ValueError(f"there is no experiment {pattern!r}; {meant}")
        chosen += [experiment for experiment in found if experiment not in chosen]
    return chosen


def everything() -> dict[str, Experiment]:
    """Return the experiments of the papers and the conditions of the study, by id."""
    return {**experiments(), **study()}


def told_apart(only: Sequence[str]) -> tuple[list[str], tuple[str, ...]]:
    """Return what such patterns name of the study, as ids, and the patterns of data sets and methods.

    Examples
    --------
    >>> told_apart(["study/noise-*", "wdbc/ldm*"])
    (['study-noise-*'], ('wdbc/ldm*',))
    """
    ids = [pattern.replace("/", "-", 1) for pattern in only if pattern.startswith("study/")]
    return ids, tuple(pattern for pattern in only if not pattern.startswith("study/"))


def evaluate(
    cell: Cell,
    *,
    data_dir: str | None = None,
    max_rows: int | None = None,
    search_rows: int | None = None,
    store: str | None = None,
) -> Result:
    """Measure a cell of a paper's experiment or of the study."""
    condition = study().get(cell.experiment)
    if condition is not None:
        return own_study.evaluate(cell, condition, data_dir=data_dir)
    return protocol.evaluate(cell, data_dir=data_dir, max_rows=max_rows, search_rows=search_rows, store=store)


def plan(chosen: Iterable[Experiment], *, only: Sequence[str] = (), splits: int | None = None) -> list[Cell]:
    """Return the cells of the experiments, split by split and small data sets first.

    A run that is cut short then has the same number of splits of every data set, as far as that is possible.

    Parameters
    ----------
    chosen : iterable of Experiment
    only : sequence of str
        Patterns such as ``vote``, ``ldm``, ``vote/ldm`` or ``*/svm*``: data set, method, or both.
    splits : int, optional
        At most so many splits of a data set.

    Returns
    -------
    list of Cell
    """
    ranked = []
    for order, experiment in enumerate(chosen):
        for line in experiment.data:
            n_rows = line.rows or (line.shape[0] if line.shape else 0)
            n_splits = min(experiment.n_splits(line.key), splits or sys.maxsize)
            for place, method in enumerate(experiment.methods):
                if _wanted(line.key, method.key, only):
                    cells = (Cell(experiment.id, line.key, method.key, split) for split in range(n_splits))
                    ranked += [((cell.split, n_rows, order, line.key, place), cell) for cell in cells]
    return [cell for _, cell in sorted(ranked)]


def quick_plan(chosen: Iterable[Experiment], *, only: Sequence[str] = (), data_dir: str | None = None) -> list[Cell]:
    """Return a few cells of every experiment: two splits of the two smallest data sets at hand, all methods.

    The first split of the smallest set of every experiment comes first.

    Where no data set of an experiment is at hand, its smallest ones stand in the plan, and the run says of each cell
    why it could not run.
    """
    ranked = []
    for order, experiment in enumerate(chosen):
        all_cells = plan([experiment], only=only, splits=_QUICK_SPLITS)
        by_size = list(dict.fromkeys(cell.dataset for cell in all_cells))
        found = [key for key in by_size if here(experiment.dataset(key), data_dir)] or by_size
        for cell in all_cells:
            if cell.dataset in found[:_QUICK_SETS]:
                ranked.append(((cell.split, found.index(cell.dataset), order, len(ranked)), cell))
    return [cell for _, cell in sorted(ranked)]


def _wanted(dataset, method, only):
    def matches(pattern):
        if "/" in pattern:
            return fnmatchcase(f"{dataset}/{method}", pattern)
        return fnmatchcase(dataset, pattern) or fnmatchcase(method, pattern)

    return not only or any(map(matches, only))


def estimates(store: Store, cells: Iterable[Cell]) -> list[Estimate]:
    """Return for every experiment what is done and how much work is left."""
    results = {result.cell: result for result in store.results()}
    seconds = defaultdict(list)  # by experiment, data set and method
    for result in results.values():
        if result.status != "skipped":
            seconds[result.cell[:3]].append(result.seconds or 0.0)
    by_experiment = defaultdict(list)
    for cell in cells:
        by_experiment[cell.experiment].append(cell)
    found = []
    for experiment, own in by_experiment.items():
        statuses = Counter(results[cell].status for cell in own if cell in results)
        waiting = [cell[:3] for cell in own if cell not in results]
        expected = [mean(seconds[key]) for key in waiting if key in seconds]
        counts = (statuses[status] for status in ("done", "failed", "skipped"))
        found.append(Estimate(experiment, len(own), *counts, len(waiting) - len(expected), sum(expected)))
    return found


# ---------------------------------------------------------------------- the command


def reproduce(
    chosen: list[Experiment],
    *,
    output: Path,
    store: Path | None = None,
    only: Sequence[str] = (),
    splits: int | None = None,
    max_rows: int | None = None,
    search_rows: int | None = None,
    time_limit: float | None = None,
    time_budget: float | None = None,
    jobs: int | None = None,
    data_dir: str | None = None,
    quick: bool = False,
    retry: bool = False,
    resume: bool = True,
    say=print,
) -> runner.Summary:
    """Run the cells that have no result yet, and say how it goes.

    Parameters
    ----------
    chosen : list of Experiment
    output : Path
        Folder of the results, unless `store` is given.
    store : Path, optional
        File of results.
    only, splits
        As in :func:`plan`.
    max_rows, search_rows : int, optional
        Leave out data sets with more rows; choose parameters on at most so many rows.
    time_limit, time_budget : float, optional
        Seconds for a cell and for all.
    jobs : int, optional
        Cells at a time, as joblib counts.
    data_dir : str, optional
        Folder with data sets.
    quick : bool
        Only a few cells of every experiment.
    retry : bool
        Run failed cells again.
    resume : bool
        Keep results of earlier runs.
    say : callable
        Called with every line of progress.

    Returns
    -------
    runner.Summary
    """
    if quick:
        time_limit, time_budget = time_limit or _QUICK_LIMIT, time_budget or _QUICK_BUDGET
        cells, all_cells = quick_plan(chosen, only=only, data_dir=data_dir), plan(chosen, only=only)
        say(
            f"quick: {len(cells)} of {len(all_cells)} cells, {_QUICK_SPLITS} splits of the {_QUICK_SETS} smallest data "
            f"sets here, at most {time_limit:g} s per cell; everything else is left out."
        )
    else:
        bundled = None if splits else bundled_part(chosen, data_dir)
        if bundled is None:
            cells = plan(chosen, only=only, splits=splits)
        else:
            names, splits = bundled
            sets = ", ".join(sorted(names))
            say(f"no data folder: {sets} from scikit-learn, {splits} splits; --splits asks for more.")
            cells = [cell for cell in plan(chosen, only=only, splits=splits) if cell.dataset in names]
    store = store or output / "results.sqlite"
    with Store(store) as opened:
        if not resume:
            opened.forget(cells)
        summary = runner.run(
            opened,
            cells,
            partial(evaluate, data_dir=data_dir, max_rows=max_rows, search_rows=search_rows, store=str(store)),
            n_jobs=jobs,
            time_limit=time_limit,
            time_budget=time_budget,
            retry=retry,
            progress=Progress(say),
        )
    say(
        f"{summary.done} cells done, {summary.failed} failed, {summary.skipped} could not run, {summary.left} left"
        + (f"; stopped: {summary.stopped}" if summary.stopped else "")
    )
    return summary


class Progress:
    """Reports from time to time how far a run is and how long it will take."""

    def __init__(self, say, every: float = 10.0):
        self._say = say
        self._every = every
        self._last = 0.0

    def __call__(self, progress: runner.Progress) -> None:
        """Report if it is time to."""
        now = time.monotonic()
        if now - self._last < self._every and progress.finished < progress.total:
            return
        self._last = now
        last = "" if progress.last is None else f"; last: {progress.last.cell} {_outcome(progress.last)}"
        self._say(f"{progress.finished}/{progress.total} cells{progress.time_left}{last}")


def _outcome(result):
    if result.status == "done":
        return f"{result.score:.4g} ({result.seconds:.1f} s)"
    return f"{result.status}: {result.error}"


def overview(chosen: list[Experiment], store: Path | None, *, only=(), splits=None) -> str:
    """Return a table of the experiments: what they hold, what is done, what is left."""
    cells = plan(chosen, only=only, splits=splits)
    with Store(store if store is not None and store.exists() else ":memory:") as opened:
        states = estimates(opened, cells)
    by_key = {experiment.id: experiment for experiment in chosen}
    rows = [("experiment", "cells", "done", "failed", "cannot", "left (1 core)", "title")]
    for state in states:
        left = []
        if state.seconds_left or not state.unknown:
            left.append(duration(round(state.seconds_left)))
        if state.unknown:
            left.append(f"{state.unknown} ?")
        counts = map(str, (state.cells, state.done, state.failed, state.skipped))
        rows.append((state.experiment, *counts, " + ".join(left), by_key[state.experiment].title))
    lines = [aligned(rows, left=(0, 6))]
    if any(state.unknown for state in states):
        lines += ["", "?: cells of which nothing is measured yet, so that their time is not known."]
    return "\n".join(lines)


def repeat(name: str, store: Path, *, data_dir: str | None = None, say=print) -> bool:
    """Measure one cell again and set it beside the result kept; say whether score and parameters are the same.

    Where the score is a time, accuracy or margin stand in its place.

    Parameters
    ----------
    name : str
        ``experiment/data set/method/split``.
    store : Path
        File of results.
    data_dir : str, optional
        Folder with data sets.
    say : callable
        Called with what was found.

    Returns
    -------
    bool
        False if they are not the same; True too where no result was kept.
    """
    *names, split = name.split("/")
    if len(names) != 3 or not split.isdigit():
        raise ValueError(f"{name!r}: a cell is experiment/data set/method/split, as in ldm-table-2/vote/ldm/0.")
    cell = Cell(*names, int(split))
    before = None
    if cell not in plan(select([cell.experiment])):
        raise ValueError(f"{name!r}: there is no such data set, method or split in {cell.experiment}.")
    if store.exists():
        with Store(store) as opened:
            before = opened.result(cell)
    search_rows = before.detail.get("search_rows") if before else None
    now = runner.attempt(partial(evaluate, data_dir=data_dir, search_rows=search_rows), cell)
    timed = everything()[cell.experiment].kind == "time"
    say(f"{cell}\n  now:    {one_line(now)}\n  before: {one_line(before)}")
    if before is None:
        return True
    same = _lasting(before, timed) == _lasting(now, timed)
    say("  the same" if same else "  not the same")
    return same


def _lasting(result, timed):
    """Return what must come out the same when a cell is repeated; times need not."""
    reached = [result.detail.get(name) for name in ("accuracy", "margin")] if timed else result.score
    return result.status, result.parameters, reached


def one_line(result: Result | None) -> str:
    """Return a result in one line."""
    if result is None:
        return "no result kept"
    if result.status != "done":
        return f"{result.status}: {result.error}"
    chosen = ", ".join(f"{name}={value!r}" for name, value in sorted(result.parameters.items()))
    return f"{result.score!r} with {chosen or 'no parameter to choose'}"
