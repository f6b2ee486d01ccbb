"""The command line: ``margindist``, or ``python -m margindist``."""

import os
import signal
import sys
from collections.abc import Callable

INTERRUPTED = 130


def _commands():
    from margindist.cli.app import commands

    return commands


def main(arguments: list[str] | None = None, *, load: Callable = _commands, program: str = "margindist") -> None:
    """Run a command line and leave with its exit code: 0, 1 for an error, 2 for wrong usage, 130 for Ctrl-C.

    `load` imports the command, which needs packages that may not be there, and `program` is how it was called.
    """
    # Where Ctrl-C is ignored, as in background jobs, it stays ignored.
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _leave_at_once)
    try:
        import click  # noqa: F401
        import jinja2  # noqa: F401
        import pandas  # noqa: F401
        import pyarrow  # noqa: F401
    except ImportError as error:
        sys.exit(f"margindist: the command line needs {error.name}; pip install 'margindist[cli]'.")
    from margindist.cli.app import run

    code = run(arguments, load(), program)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a late Ctrl-C would print a traceback of Python's shutdown
    sys.exit(code)


def _leave_at_once(*_):
    """Answer Ctrl-C where there is nothing to finish: one sentence, and the process ends.

    An exception raised in the middle of an import may be swallowed there, or be shown with its traceback. A run of many
    fits answers Ctrl-C itself while it lasts.
    """
    os.write(2, b"margindist: interrupted.\n")
    os._exit(INTERRUPTED)
