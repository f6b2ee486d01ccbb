"""Runs cells in parallel and keeps what comes out: nothing is lost, nothing is done twice.

Ctrl-C, and SIGTERM, which batch systems send, end a run in good order: what was finished by then is kept.
"""

import errno
import os
import signal
import sys
import threading
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Callable, Iterable
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from functools import cache
from importlib.metadata import version
from platform import python_version
from statistics import fmean
from typing import NamedTuple

from joblib import Parallel, delayed, effective_n_jobs
from threadpoolctl import threadpool_limits

from margindist.runs.store import Cell, Result, Store, StoreError
from margindist.runs.wording import duration

# Raised when something is first imported, compiled or collected, in whatever cell that happens to be.
_FOR_DEVELOPERS = (DeprecationWarning, PendingDeprecationWarning, ImportWarning, ResourceWarning)
_SECONDS_BETWEEN_LOOKS = 0.5  # at the parent process


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

    @property
    def time_left(self) -> str:
        """The time left as the end of a line, empty while it is unknown and when nothing is left."""
        if self.seconds_left is None or self.finished == self.total:
            return ""
        return f", about {duration(round(self.seconds_left))} left"


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
    with store.alone():
        waiting = dict.fromkeys(store.pending(cells, retry=retry))
        finished = []

        def report():
            if progress is not None:
                left = _seconds_left(waiting, finished, effective_n_jobs(n_jobs))
                progress(Progress(len(cells) - len(waiting), len(cells), left, finished[-1] if finished else None))

        report()
        stopped = None
        try:
            with warnings.catch_warnings(), _first_signal_interrupts() as signals:
                warnings.filterwarnings("ignore", r"\d+ tasks ", UserWarning)  # joblib's, about tasks not run
                for result in _evaluate_all(list(waiting), evaluate, n_jobs, time_limit, deadline):
                    if signals:  # the cell may have swallowed the interrupt, and its result be incomplete
                        raise KeyboardInterrupt
                    store.record(result)
                    finished.append(result)
                    del waiting[result.cell]
                    report()
            stopped = "the time budget is spent" if waiting else None
        except KeyboardInterrupt:
            stopped = "interrupted"
        except BrokenProcessPool:
            raise ChildProcessError(
                "a worker process was killed, perhaps because memory ran out; what was finished is kept, and --resume "
                "with fewer --jobs goes on."
            ) from None
    counts = Counter(result.status for result in finished)
    return Summary(counts["done"], counts["failed"], counts["skipped"], len(waiting), stopped)


def attempt(evaluate: Callable[[Cell], Result], cell: Cell) -> Result:
    """Evaluate one cell here and now, in the way `run` does; nothing is recorded."""
    return _attempt(evaluate, cell, None, None, os.getpid())


def versions() -> dict[str, str]:
    """Return the versions that a result depends on."""
    packages = ("margindist", "scikit-learn", "numpy", "scipy", "numba")
    return {"python": python_version(), **{name: version(name) for name in packages}}


def _seconds_left(waiting, finished, workers):
    """Foresee the end: a waiting cell takes as long as the most similar ones did."""
    times = {}
    for result in finished:
        if result.status != "skipped":
            for group in _similar(result.cell):
                times.setdefault(group, []).append(result.seconds)
    if not times:
        return None
    means = {group: fmean(seconds) for group, seconds in times.items()}
    return sum(next(means[group] for group in _similar(cell) if group in means) for cell in waiting) / workers


def _similar(cell):
    """Return the groups a cell belongs to, the most similar cells first."""
    return (cell.dataset, cell.method), ("", cell.method), (cell.dataset, ""), ("", "")


def _evaluate_all(waiting, evaluate, n_jobs, time_limit, deadline):
    """Results as they come, in any order."""

    def tasks():
        for cell in waiting:
            if deadline is not None and time.time() >= deadline:
                return
            yield delayed(_attempt)(evaluate, cell, time_limit, deadline, os.getpid())

    # One task at a time for each worker: a time budget leaves those that wait.
    with Parallel(n_jobs=n_jobs, return_as="generator_unordered", pre_dispatch="n_jobs", batch_size=1) as parallel:
        with _children_ignore_ctrl_c() if effective_n_jobs(n_jobs) > 1 else nullcontext():
            results = parallel(tasks())
        yield from (result for result in results if result is not None)


def _attempt(evaluate, cell, time_limit, deadline, main_process):
    """The cell's result, an error included; None if the run's time ended first."""
    if os.getpid() != main_process and threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # the main process answers Ctrl-C
        _end_with(main_process)
    left = None if deadline is None else max(deadline - time.time(), 0.01)
    limit = min((seconds for seconds in (time_limit, left) if seconds is not None), default=None)
    start = time.perf_counter()
    with warnings.catch_warnings(record=True) as caught, threadpool_limits(1):
        warnings.simplefilter("always")
        for category in _FOR_DEVELOPERS:
            warnings.simplefilter("ignore", category)
        rang = []  # compiled code may turn the alarm into another error
        try:
            with _alarm(limit, rang):
                result = evaluate(cell)
        except CannotRun as reason:
            result = Result(cell, "skipped", error=str(reason))
        except (Exception, _TimeLimit) as error:
            if _is_interrupt(error):
                raise KeyboardInterrupt from error
            if isinstance(error, StoreError) or getattr(error, "errno", None) in (errno.ENOSPC, errno.EDQUOT):
                raise  # no fault of the cell
            if rang and (time_limit is None or limit < time_limit):
                return None
            said = f"not finished within the limit of {time_limit:g} s" if rang else _described(error)
            result = Result(cell, "failed", error=said)
    messages = sorted({f"{warning.category.__name__}: {warning.message}" for warning in caught})
    detail = {**result.detail, "warnings": messages[:5]} if messages else result.detail
    return replace(result, detail=detail, seconds=time.perf_counter() - start, versions=versions())


def _described(error):
    where = traceback.extract_tb(error.__traceback__)[-1]
    return f"{type(error).__name__}: {error} ({where.name}, line {where.lineno})"


def _is_interrupt(error):
    """Tell whether an error was caused by Ctrl-C, which compiled code and libraries turn into other errors."""
    while error is not None and not isinstance(error, KeyboardInterrupt):
        error = error.__cause__ or error.__context__
    return error is not None


# ---------------------------------------------------------------------- signals and processes


@cache
def _end_with(parent):
    """End this worker, even in the middle of a cell, when the run is killed: nobody would take the result."""
    if os.getppid() != parent:  # workers of a cluster serve other runs too
        return

    def watch():
        while os.getppid() == parent:
            time.sleep(_SECONDS_BETWEEN_LOOKS)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


@contextmanager
def _alarm(seconds, rang):
    """Raise `_TimeLimit` after some seconds, where the system has alarms and this is the main thread."""
    if seconds is None or threading.current_thread() is not threading.main_thread() or not hasattr(signal, "setitimer"):
        yield
        return

    def ring(*_):
        rang.append(True)
        raise _TimeLimit

    before = signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


@contextmanager
def _first_signal_interrupts():
    """Answer Ctrl-C, and SIGTERM, by a KeyboardInterrupt, once, while the block lasts.

    A second Ctrl-C would break into the ending of the workers, with joblib's traceback. What is called within the block
    may swallow the exception, and so does Python where an object ends; the list tells which signal came.
    """
    signals = []
    if threading.current_thread() is not threading.main_thread():
        yield signals
        return
    answered = [signal.SIGTERM]
    if _is_pythons_or_ours(signal.getsignal(signal.SIGINT)):  # a handler of the user's own stays
        answered.append(signal.SIGINT)

    def interrupt(number, _):
        signals.append(number)
        if len(signals) == 1:
            raise KeyboardInterrupt

    def show_others(lost):
        if lost.exc_type is not KeyboardInterrupt:
            show(lost)

    before = {number: signal.signal(number, interrupt) for number in answered}
    show, sys.unraisablehook = sys.unraisablehook, show_others
    try:
        yield signals
    finally:
        sys.unraisablehook = show
        for number, handler in before.items():
            signal.signal(number, handler)


def _is_pythons_or_ours(handler):
    """Tell whether a signal handler is Python's own, or that of the command line while it starts."""
    return handler is signal.default_int_handler or getattr(handler, "__module__", None) == "margindist.cli"


@contextmanager
def _children_ignore_ctrl_c():
    """Protect processes that are started within the block from Ctrl-C, which a terminal sends to all."""
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    from multiprocessing import resource_tracker

    resource_tracker.ensure_running()  # started later, with the first process, it would unblock the signal
    before = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])  # new processes inherit the mask
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
