"""The command line: ``margindist``, or ``python -m margindist``."""

import sys


def main(arguments: list[str] | None = None) -> None:
    """Run the command line and leave with its exit code: 0, 1 for an error, 2 for wrong usage, 130 for Ctrl-C."""
    try:
        import click  # noqa: F401
        import jinja2  # noqa: F401
        import pandas  # noqa: F401
    except ImportError as error:
        sys.exit(f"margindist: the command line needs {error.name}; pip install 'margindist[cli]'.")
    from margindist.cli.app import run

    sys.exit(run(arguments))
