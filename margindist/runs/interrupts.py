"""Ctrl-C and signals to terminate: leave at once while nothing is to be kept, end in good order while results come."""

import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

INTERRUPTED = 130


def leave_at_once(*_: object) -> None:
    """Answer Ctrl-C where there is nothing to finish: one sentence, and the process ends.

    An exception raised in the middle of an import may be swallowed there, or be shown with its traceback.
    """
    os.write(2, b"margindist: interrupted.\n")
    os._exit(INTERRUPTED)


@contextmanager
def first_signal_interrupts() -> Iterator[list[int]]:
    """Answer Ctrl-C, and SIGTERM, which batch systems send, by a KeyboardInterrupt, once, while the block lasts.

    A second Ctrl-C would break into the ending of the workers, with joblib's traceback. What is called within the block
    may swallow the exception, and so does Python where an object ends; the list tells which signal came.
    """
    came: list[int] = []
    if threading.current_thread() is not threading.main_thread():
        yield came
        return
    answered = [signal.SIGTERM]
    if signal.getsignal(signal.SIGINT) in (signal.default_int_handler, leave_at_once):  # any other answer stays
        answered.append(signal.SIGINT)

    def interrupt(number, _):
        for each in answered:
            signal.signal(each, signal.SIG_IGN)
        came.append(number)
        raise KeyboardInterrupt

    before = {number: signal.signal(number, interrupt) for number in answered}
    show = sys.unraisablehook

    def show_others(lost):
        if lost.exc_type is not KeyboardInterrupt:
            show(lost)
            return
        for each in answered:  # the next Ctrl-C may reach further
            signal.signal(each, interrupt)

    sys.unraisablehook = show_others
    try:
        yield came
    finally:
        sys.unraisablehook = show
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def children_ignore_ctrl_c() -> Iterator[None]:
    """Keep Ctrl-C, which a terminal sends to every process, from those started within the block."""
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    from multiprocessing import resource_tracker

    resource_tracker.ensure_running()  # which would unblock the signal, if it were started later with the first process
    before = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])  # processes inherit what is blocked
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
