"""``margindist compare``."""

import json
import os
from pathlib import Path

import click

from margindist.cli import INTERRUPTED
from margindist.cli.app import (
    SCORINGS,
    Duration,
    ProgressLine,
    announce_compilation,
    check_outputs,
    complete_data,
    complete_methods,
    debug_option,
    encoding_option,
    write,
)

_EPILOG = """
\b
Examples:
  margindist compare flowers.csv
      The target column is guessed (and named); the report is flowers.html.
  margindist compare flowers.csv --target species -o report.html --csv table.csv
  margindist compare visits.csv --groups patient --drop ward,bed
      Rows of one patient stay together: scores are those of new patients.
  margindist compare orders.csv --time date
      Tests on later rows than it learns from.
  margindist compare fraud.csv --scoring average_precision
      Ranks methods and chooses parameters by a score other than accuracy.
  margindist compare train.libsvm.gz --methods linear --time-budget 10m
  margindist compare wdbc --quick --jobs 2
      A data set known by name; see: margindist datasets
  margindist compare flowers.csv --resume
      Continues a run that was interrupted, killed, or ran out of time.
\b
Methods:
  LDM, ODM, LS-SVM, MAMC, MSVMAv and KOMD, linear and with the RBF kernel; PUMMA, MDO and EMAMC; a random forest and
  gradient boosting as yardsticks. On large data, pilot fits show which would take too long; these are named.
  --methods takes keys (ldm, ldm-rbf, odm, lssvm ...), linear, rbf or all (with SVR, FMM and online learners).
  LinearSVC, SVC and LogisticRegression always take part.
\b
Exit codes: 0 success, 1 error, 2 wrong usage, 130 interrupted (the report has the results up to then).
"""


@click.command(epilog=_EPILOG)
@click.argument("data", shell_complete=complete_data)
@click.option("--target", metavar="COLUMN", help="Target column of a file.  [default: guessed]")
@click.option("--groups", metavar="COLUMN", help="Keep rows with equal values on one side of every split.")
@click.option("--time", metavar="COLUMN", help="Test on rows that come after the training rows.")
@click.option("--drop", multiple=True, metavar="COLUMNS", help="Leave out these columns, separated by commas.")
@click.option("--only-columns", "only", multiple=True, metavar="COLUMNS", help="Use these columns alone.")
@click.option(
    "--methods",
    multiple=True,
    metavar="KEYS",
    shell_complete=complete_methods,
    help="Methods, separated by commas.  [default: all that do not take too long]",
)
@click.option(
    "--scoring",
    type=click.Choice(SCORINGS),
    default="accuracy",
    show_default=True,
    help="Score by which parameters are chosen and methods are ranked.",
)
@click.option("--splits", type=click.IntRange(2, 1000), help="Number of folds of the cross-validation.  [default: 5]")
@click.option(
    "--repeats",
    type=click.IntRange(1, 1000),
    help="How often the cross-validation is repeated, with other folds.  [default: 2; 1 with --quick]",
)
@click.option("--seed", type=click.IntRange(0, 2**31), default=0, show_default=True, help="Random seed.")
@click.option(
    "--jobs", type=click.IntRange(1, 4096), help="Number of parallel processes.  [default: one per processor]"
)
@click.option("--time-budget", type=Duration(), help="Stop after this time and report what is done: 90s, 5m, 1h.")
@click.option("--resume", is_flag=True, help="Continue an earlier run of the same comparison.")
@click.option("--quick", is_flag=True, help="Fewer parameters to try, three inner folds, one repeat.")
@click.option(
    "-o", "--output", type=click.Path(dir_okay=False, path_type=Path), help="The report.  [default: NAME.html]"
)
@click.option("--json", "json_file", type=click.Path(dir_okay=False, allow_dash=True), help="All results as JSON.")
@click.option("--csv", "csv_file", type=click.Path(dir_okay=False, allow_dash=True), help="The table as CSV.")
@click.option(
    "--store",
    type=click.Path(dir_okay=False, path_type=Path),
    help="File in which results are saved as they come.  [default: NAME.results.sqlite, next to the report]",
)
@click.option("--data-dir", type=click.Path(file_okay=False), help="Folder of data sets known by name.")
@encoding_option
@debug_option
@click.pass_context
def compare(ctx, data, output, json_file, csv_file, jobs, methods, drop, only, **given):
    """Which method suits these data, and is the difference real?

    DATA is a file (CSV, Parquet, Feather, LIBSVM text, ARFF or NPZ; text may be compressed), - for the standard input,
    or the name of a data set. Every method chooses its parameters by cross-validation within each training part. You
    get a ranked table and a report, a single HTML file that you can send by mail.
    """
    from margindist.compare.nested import compare, default_store
    from margindist.methods import BY_KEY

    output = output or Path(f"{_stem(data)}.html")
    given["store"] = given["store"] or default_store(output)
    given["splits"] = given["splits"] or 5
    given["repeats"] = given["repeats"] or (1 if given["quick"] else 2)
    check_outputs([output, json_file, csv_file, given["store"]], [data])
    keys = _names(methods)
    if methods and not keys:
        raise click.BadParameter("names no method, such as ldm,odm-rbf.", param_hint="--methods")
    announce_compilation(keys or BY_KEY)
    line = ProgressLine({key: method.label for key, method in BY_KEY.items()})
    try:
        comparison = compare(
            data, methods=keys or None, drop=_names(drop), only=_names(only), n_jobs=jobs or -1, progress=line,
            say=lambda sentence: click.echo(sentence, err=True), **given,
        )  # fmt: skip
    finally:
        line.close()
    _show(comparison, to_stderr="-" in (json_file, csv_file))
    write(output, comparison.to_html(ctx.obj["command"]))
    if json_file:
        write(json_file, json.dumps(comparison.as_dict(), indent=1, ensure_ascii=False) + "\n")
    if csv_file:
        write(csv_file, comparison.to_frame().to_csv(lineterminator="\n"))
    click.echo(f"Report: {output.resolve()}", err="-" in (json_file, csv_file))
    if comparison.stopped == "interrupted":
        raise click.exceptions.Exit(INTERRUPTED)


def _stem(data):
    if data == "-":
        return "stdin"
    if not os.path.isfile(data):
        return "".join(letter if letter.isalnum() or letter in "-_." else "-" for letter in data) or "comparison"
    name = Path(data).name
    for _ in range(2):  # flowers.csv.gz
        name = name[: name.rindex(".")] if name.rfind(".") > 0 else name
    return name


def _names(values):
    return [name.strip() for part in values for name in part.split(",") if name.strip()]


def _show(comparison, to_stderr):
    def show(text=""):
        click.echo(text, err=to_stderr)

    if comparison.rows:
        show(str(comparison))
        show()
        if comparison.tested:
            show("Differences stand with 95 % intervals; - marks methods that are significantly worse than the best.")
            show()
    advice, *rest = comparison.answer()
    show(advice)
    if rest:
        show(" ".join(rest))
    for label, reason in comparison.failures.items():
        show(f"{label}: {reason}")
    if comparison.finished < comparison.total:
        done = f"{comparison.finished} of {comparison.total} results"
        show(f"Stopped ({comparison.stopped}) with {done}; --resume continues.")
