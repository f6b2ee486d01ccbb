"""Runs cells in parallel and keeps what comes out: nothing is lost, nothing is done twice."""

import errno
import os
import signal
import threading
import time
import traceback
import warnings
from collections.abc import Callable, Iterable
from concurrent.futures.process import BrokenProcessPool
from contextlib import nullcontext
from dataclasses import replace
from functools import cache
from importlib.metadata import version
from platform import python_version
from typing import NamedTuple

from joblib import Parallel, delayed, effective_n_jobs
from threadpoolctl import threadpool_limits

from margindist.runs.interrupts import children_ignore_ctrl_c, first_signal_interrupts
from margindist.runs.store import Cell, Result, Store, StoreError

# They come when something is first imported, compiled or collected, in whatever cell that happens to be.
_FOR_DEVELOPERS = (DeprecationWarning, PendingDeprecationWarning, ImportWarning, ResourceWarning)
_HEEDS_PARENT = 0.5  # seconds until a worker looks again whether its run still lives
_PATIENCE = 0.5  # seconds until a cell of another runner is looked at again


class CannotRun(Exception):
    """Raised by an experiment for a cell that cannot run here; the message is the reason, in one sentence."""


class _TimeLimit(BaseException):
    """Not an Exception: what a cell calls may catch those and go on."""


class Summary(NamedTuple):
    """What a run did: cells by outcome, cells left, and why it stopped before the end (None if it did not)."""

    done: int
    failed: int
    skipped: int
    left: int
    stopped: str | None


class Progress(NamedTuple):
    """Where a run stands: cells finished, all cells, seconds left (None while unknown), the last result."""

    finished: int
    total: int
    seconds_left: float | None
    last: Result | None


def run(
    store: Store,
    cells: Iterable[Cell],
    evaluate: Callable[[Cell], Result],
    *,
    n_jobs: int | None = None,
    time_limit: float | None = None,
    time_budget: float | None = None,
    retry: bool = False,
    progress: Callable[[Progress], None] | None = None,
) -> Summary:
    """Evaluate the cells that have no result yet, and record each as it comes.

    Parameters
    ----------
    store : Store
    cells : iterable of Cell
    evaluate : callable
        Takes a cell, returns its `Result`; raises `CannotRun` where it cannot run. Any other exception becomes the
        cell's error. It must be picklable when `n_jobs` is not 1.
    n_jobs : int, optional
        As joblib takes it; inside ``joblib.parallel_config`` the cells run on the backend named there.
    time_limit : float, optional
        Seconds after which a cell is given up (where the system has alarm signals, and the cell runs in its process's
        main thread).
    time_budget : float, optional
        Seconds after which no further cell is begun, and those that run are given up.
    retry : bool
        Run the cells again that failed.
    progress : callable, optional
        Called with a `Progress` at the start and after every cell.

    Returns
    -------
    Summary
        After Ctrl-C or a signal to terminate too: what was finished by then is in the store.
    """
    cells = list(cells)
    deadline = None if time_budget is None else time.time() + time_budget
    watch = _Watch(cells, store, retry, effective_n_jobs(n_jobs), progress)
    stopped = None
    try:
        with warnings.catch_warnings(), first_signal_interrupts() as signals, store.runner() as runner:
            warnings.filterwarnings("ignore", r"\d+ tasks ", UserWarning)  # joblib's, of an ending before the end
            while watch.waiting and not (stopped := _over(deadline)):
                before = len(watch.waiting)
                for result in _evaluate_all(
                    store, runner, watch.waiting, evaluate, n_jobs, time_limit, deadline, retry
                ):
                    if signals:  # what ran then may have swallowed the interrupt, and its result may not be whole
                        raise KeyboardInterrupt
                    store.record(result)
                    watch.saw(result)
                watch.leave_out_finished(store, retry)
                if len(watch.waiting) == before:
                    time.sleep(_PATIENCE)  # other runners have the rest; if they die, it falls to this one
    except KeyboardInterrupt:
        stopped = "interrupted"
    except BrokenProcessPool:
        raise ChildProcessError(
            "a worker process was killed, perhaps because memory ran out; what was finished is kept, and --resume with "
            "fewer --jobs goes on."
        ) from None
    watch.leave_out_finished(store, retry)
    return Summary(*watch.outcomes(), len(watch.waiting), stopped)


def attempt(evaluate: Callable[[Cell], Result], cell: Cell) -> Result:
    """Evaluate one cell here and now, in the way `run` does; nothing is recorded."""
    return _attempt(evaluate, cell, None, None, os.getpid())


def versions() -> dict[str, str]:
    """Return the versions that a result depends on."""
    packages = ("margindist", "scikit-learn", "numpy", "scipy", "numba")
    return {"python": python_version(), **{name: version(name) for name in packages}}


def _over(deadline):
    return "the time budget is spent" if deadline is not None and time.time() >= deadline else None


def _evaluate_all(store, runner, waiting, evaluate, n_jobs, time_limit, deadline, retry):
    """Results as they come, in any order, of the waiting cells that this runner could claim."""
    refused = []

    def tasks():
        for cell in list(waiting):
            if _over(deadline):
                return
            try:
                claimed = store.claim(cell, runner, retry=retry)
            except StoreError as error:  # joblib asks for tasks in a thread of its own, where an error would be lost
                refused.append(error)
                return
            if claimed:
                yield delayed(_attempt)(evaluate, cell, time_limit, deadline, os.getpid())

    # One task at a time for each worker: a claimed cell that only waits would be kept from other runners.
    with Parallel(n_jobs=n_jobs, return_as="generator_unordered", pre_dispatch="n_jobs", batch_size=1) as parallel:
        with children_ignore_ctrl_c() if effective_n_jobs(n_jobs) > 1 else nullcontext():
            results = parallel(tasks())
        for result in results:
            if result is not None:
                yield result
    if refused:
        raise refused[0]


def _attempt(evaluate, cell, time_limit, deadline, main_process):
    """The cell's result, an error included; None if the run's time ended first."""
    if os.getpid() != main_process and threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the main process's to answer
        _end_with(main_process)
    left = None if deadline is None else max(deadline - time.time(), 0.01)
    limit = min((seconds for seconds in (time_limit, left) if seconds is not None), default=None)
    start = time.perf_counter()
    with warnings.catch_warnings(record=True) as caught, threadpool_limits(1):
        warnings.simplefilter("always")
        for category in _FOR_DEVELOPERS:
            warnings.simplefilter("ignore", category)
        alarm = _Alarm(limit)
        try:
            with alarm:
                result = evaluate(cell)
        except CannotRun as reason:
            result = Result(cell, "skipped", error=str(reason))
        except (Exception, _TimeLimit) as error:
            if _is_interrupt(error):
                raise KeyboardInterrupt from error
            if _is_no_fault_of_the_cell(error):
                raise
            if not alarm.rang:
                result = Result(cell, "failed", error=_described(error))
            elif time_limit is None or limit < time_limit:
                return None
            else:
                result = Result(cell, "failed", error=f"not finished within the limit of {time_limit:g} s")
    messages = sorted({f"{warning.category.__name__}: {warning.message}" for warning in caught})
    detail = {**result.detail, "warnings": messages[:5]} if messages else result.detail
    return replace(result, detail=detail, seconds=time.perf_counter() - start, versions=versions())


@cache
def _end_with(parent):
    """Let this worker end, in the middle of a cell too, when the run is killed: nobody would take the result."""
    if os.getppid() != parent:  # a worker of a cluster serves others
        return

    def watch():
        while os.getppid() == parent:
            time.sleep(_HEEDS_PARENT)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def _is_interrupt(error):
    """Tell whether this is what compiled code, or a library's own answer to errors, made of Ctrl-C."""
    while error is not None and not isinstance(error, KeyboardInterrupt):
        error = error.__cause__ or error.__context__
    return error is not None


def _is_no_fault_of_the_cell(error):
    """Tell whether the results, or the disk, are at fault; the cell would be marked as failed for good."""
    return isinstance(error, StoreError) or getattr(error, "errno", None) in (errno.ENOSPC, errno.EDQUOT)


def _described(error):
    where = traceback.extract_tb(error.__traceback__)[-1]
    return f"{type(error).__name__}: {error} ({where.name}, line {where.lineno})"


class _Alarm:
    """Raises `_TimeLimit` after some seconds. Compiled code may turn it into another error, so ``rang`` tells."""

    def __init__(self, seconds):
        main_thread = threading.current_thread() is threading.main_thread()
        self.seconds = seconds if main_thread and hasattr(signal, "setitimer") else None
        self.rang = False

    def _ring(self, *_):
        self.rang = True
        raise _TimeLimit

    def __enter__(self):
        if self.seconds is not None:
            self._before = signal.signal(signal.SIGALRM, self._ring)
            signal.setitimer(signal.ITIMER_REAL, self.seconds)

    def __exit__(self, *_):
        if self.seconds is not None:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, self._before)


class _Watch:
    """Counts cells and foresees the end: a waiting cell will take what its likes took."""

    def __init__(self, cells, store, retry, workers, progress):
        self.waiting = dict.fromkeys(store.pending(cells, retry=retry))
        self._total, self._workers, self._progress = len(cells), workers, progress
        self._seen = {}
        self._seconds = {}
        self._report(None)

    def saw(self, result):
        self.waiting.pop(result.cell, None)
        self._seen[result.cell] = result.status
        if result.status != "skipped":
            for like in _likes(result.cell):
                count, total = self._seconds.get(like, (0, 0.0))
                self._seconds[like] = count + 1, total + result.seconds
        self._report(result)

    def leave_out_finished(self, store, retry):
        """Wait no longer for what other runners have finished."""
        before = len(self.waiting)
        self.waiting = dict.fromkeys(store.pending(self.waiting, retry=retry))
        if len(self.waiting) < before:
            self._report(None)

    def outcomes(self):
        statuses = list(self._seen.values())
        return tuple(statuses.count(status) for status in ("done", "failed", "skipped"))

    def _report(self, result):
        if self._progress is not None:
            self._progress(Progress(self._total - len(self.waiting), self._total, self._seconds_left(), result))

    def _seconds_left(self):
        if not self._seconds:
            return None
        return sum(map(self._expected, self.waiting)) / self._workers

    def _expected(self, cell):
        count, total = next(self._seconds[like] for like in _likes(cell) if like in self._seconds)
        return total / count


def _likes(cell):
    return (cell.dataset, cell.method), ("", cell.method), (cell.dataset, ""), ("", "")
