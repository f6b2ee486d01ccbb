"""``margindist datasets``."""

import click

from margindist.cli.app import debug_option


@click.command(
    epilog="""
\b
Examples:
  margindist datasets
  margindist datasets --here
  margindist compare wdbc --quick
  MARGINDIST_DATA=~/data margindist datasets
"""
)
@click.option("--here", is_flag=True, help="Only those that are available here.")
@click.option("--data-dir", type=click.Path(file_okay=False), help="Folder of data sets  [MARGINDIST_DATA].")
@debug_option
def datasets(here, data_dir):
    """List the data sets known by name, and whether they are available here."""
    from margindist.datasets import catalogue, status
    from margindist.runs.wording import aligned

    entries = {entry.name: entry for entry in catalogue()}
    lines = [("name", "rows", "columns", "classes", "", "")]
    for row in sorted(status(data_dir), key=lambda row: row.state != "here"):  # what can be had first
        if row.state == "here" or not here:
            entry = entries[row.name]
            shape = [entry.rows, entry.features, entry.classes]
            lines.append((row.name, *("?" if n is None else f"{n}" for n in shape), row.state, row.reason))
    click.echo(aligned(lines, left=(0, 4, 5)))
    if not here:
        click.echo(
            "Put files that you get yourself into the folder that MARGINDIST_DATA names, as NAME.npz (or .svm, .csv, "
            ".arff, .parquet).",
            err=True,
        )
