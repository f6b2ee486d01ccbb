"""The command ``python -m reproduction``: options and messages, no computing."""

from contextlib import contextmanager
from pathlib import Path

import click

from margindist.cli import INTERRUPTED
from margindist.cli.app import Duration, debug_option

_PATIENCE = 10  # seconds for a cluster to answer
_EPILOG = """
\b
Examples:
  python -m reproduction --quick
      A few cells of every table and figure.
  python -m reproduction ldm-table-2 --splits 5 --time-budget 10m
  python -m reproduction ldm --only "vote/*"
      All experiments of a paper, on one data set.
  python -m reproduction --only "study/*"
      Our own study of where margin terms help.
  python -m reproduction --list
  python -m reproduction --cell ldm-table-2/vote/ldm/0
      One result again: does it come out the same?
\b
Exit codes: 0 fine, 1 an error or (--cell) another result than before, 2 wrong usage, 130 interrupted (the
reports have what was done by then).
"""


@click.command(epilog=_EPILOG)
@click.argument("experiment", nargs=-1)
@click.option("--only", multiple=True, metavar="PATTERN", help="Data set, method, data set/method, or study/condition.")
@click.option("--splits", type=click.IntRange(1), help="At most this many splits of a data set.")
@click.option("--max-rows", type=click.IntRange(1), help="Leave out data sets with more rows.")
@click.option("--search-rows", type=click.IntRange(10), help="Choose parameters on at most this many rows.")
@click.option("--time-limit", type=Duration(), help="Give a cell up after this time: 90s, 5m, 1h.")
@click.option("--time-budget", type=Duration(), help="Start no further cell after this time.")
@click.option("--jobs", type=int, default=-1, show_default=True, help="Cells at a time; -1 is one per processor.")
@click.option("--dask", metavar="ADDRESS", help="Run the cells on this Dask cluster, such as tcp://host:8786.")
@click.option("--data-dir", type=click.Path(file_okay=False), help="Folder with data sets [MARGINDIST_DATA].")
@click.option("--store", type=click.Path(dir_okay=False, path_type=Path), help="File of results.")
@click.option(
    "-o",
    "--output",
    type=click.Path(file_okay=False, path_type=Path),
    default=Path("reproduced"),
    show_default=True,
    help="Folder for the reports, and results.sqlite unless --store is given.",
)
@click.option("--quick", is_flag=True, help="A small subset of every experiment, in under ten minutes.")
@click.option(
    "--list", "listing", is_flag=True, help="List the experiments, what is done, and how long the rest takes."
)
@click.option("--report-only", is_flag=True, help="Write the reports from existing results; run nothing.")
@click.option("--no-report", is_flag=True, help="Run without writing reports.")
@click.option("--retry", is_flag=True, help="Run failed cells again.")
@click.option(
    "--cell",
    "cells",
    multiple=True,
    metavar="EXPERIMENT/DATASET/METHOD/SPLIT",
    help="Run this cell again and compare it with the stored result.",
)
@click.option("--resume/--no-resume", default=True, show_default=True, help="Keep results of earlier runs.")
@debug_option
def reproduce(experiment, cells, listing, report_only, no_report, output, store, dask, **options):
    """Run the papers' tables and figures again and compare them with the printed ones.

    EXPERIMENT is a table or figure such as ldm-table-2, or the beginning of several, such as ldm; all of them if none
    is named.
    """
    from reproduction.run import overview, plan, repeat, reproduce, select, told_apart

    store = store or output / "results.sqlite"
    conditions, options["only"] = told_apart(options["only"])
    try:
        chosen = select((*experiment, *conditions))
        if cells:
            same = [repeat(cell, store, data_dir=options["data_dir"], say=click.echo) for cell in cells]
            raise click.exceptions.Exit(0 if all(same) else 1)
    except ValueError as error:
        raise click.UsageError(str(error)) from None
    if not plan(chosen, only=options["only"]):
        raise click.UsageError(f"no data set or method matches --only {' '.join(options['only'])}.")
    if listing:
        click.echo(overview(chosen, store, only=options["only"], splits=options["splits"]))
        return
    stopped = None
    if not report_only:
        with _cluster(dask):
            stopped = reproduce(chosen, output=output, store=store, say=click.echo, **options).stopped
    if not no_report:
        from reproduction.report import write_reports

        for path in write_reports(store, chosen, output):
            click.echo(f"wrote {path}")
    if stopped == "interrupted":
        raise click.exceptions.Exit(INTERRUPTED)


@contextmanager
def _cluster(address):
    """Let joblib run on the Dask cluster with this address; without one, on this machine."""
    if address is None:
        yield
        return
    try:
        from distributed import Client
        from joblib import parallel_config
    except ImportError:
        raise click.UsageError("--dask needs the package distributed: pip install 'margindist[dask]'.") from None
    try:
        client = Client(address, timeout=_PATIENCE)
    except (OSError, ValueError):
        raise click.UsageError(f"no Dask scheduler answers at {address}; is it running?") from None
    with client, parallel_config(backend="dask"):
        yield
