"""What is shown while something runs, and where results are written to."""

import os
import sys
import time
from pathlib import Path

import click

from margindist.files import write_whole

_WIDTH = 24


class ProgressLine:
    """A bar on a terminal; elsewhere a plain line now and then."""

    def __init__(self, labels):
        self._labels = labels
        self._terminal = sys.stderr.isatty()
        self._shown = -1.0
        self._last = 0.0
        self._length = 0

    def __call__(self, progress):
        """Show where a run stands."""
        share = progress.finished / max(1, progress.total)
        if self._terminal:
            self._draw(progress, share)
        elif share - self._shown >= 0.1 or progress.finished == progress.total:
            self._shown = share
            click.echo(f"{progress.finished} of {progress.total} done{_left(progress)}", err=True)

    def _draw(self, progress, share):
        now = time.monotonic()
        if now - self._last < 0.1 and progress.finished < progress.total:
            return
        self._last = now
        bar = ("#" * round(share * _WIDTH)).ljust(_WIDTH, ".")
        what = "" if progress.last is None else f", {self._labels.get(progress.last.cell.method, '')}"
        line = f"[{bar}] {progress.finished}/{progress.total}{_left(progress)}{what}"
        columns = os.get_terminal_size(sys.stderr.fileno()).columns or 80  # 0 where the terminal does not say
        line = line[: columns - 1]
        sys.stderr.write("\r" + line.ljust(self._length))
        sys.stderr.flush()
        self._length = len(line)

    def close(self):
        """Leave the line to what follows."""
        if self._terminal and self._length:
            sys.stderr.write("\r" + " " * self._length + "\r")
            sys.stderr.flush()


def _left(progress):
    if progress.finished == progress.total or progress.seconds_left is None:
        return ""
    return f", about {clock(progress.seconds_left)} left"


def clock(seconds):
    """Return a duration as 0:07, 12:30 or 1:05:00."""
    minutes, seconds = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{seconds:02d}" if hours else f"{minutes}:{seconds:02d}"


def check_outputs(outputs, inputs=()):
    """Refuse what hours of work must not end with: a folder that is not there, an input overwritten, a place twice."""
    taken = {Path(path).resolve() for path in inputs if os.path.isfile(path)}
    for path in outputs:
        if path is None:
            continue
        place = path if str(path) == "-" else Path(path).resolve()
        if place in taken:
            raise click.UsageError(f"{path} is read, or written to, already; name another place for what is written.")
        taken.add(place)
        if place != "-" and not place.parent.is_dir():
            raise OSError(f"{path}: its folder does not exist; make it first, or name another place.")


def write(path, content):
    """Write text or bytes to a file at once; "-" is the standard output."""
    if str(path) == "-":
        click.echo(content, nl=False)
        return
    try:
        write_whole(path, content)
    except OSError as error:
        raise OSError(f"{path}: cannot be written ({error.strerror}); name another place.") from None


class Duration(click.ParamType):
    """Seconds, or a number with s, m or h."""

    name = "time"
    _UNITS = {"s": 1.0, "m": 60.0, "h": 3600.0}

    def convert(self, value, parameter, ctx):
        """Return seconds."""
        if isinstance(value, float):
            return value
        text = value.strip().lower()
        unit = self._UNITS.get(text[-1:], None)
        try:
            seconds = float(text[:-1] if unit else text) * (unit or 1.0)
        except ValueError:
            seconds = -1.0
        if not 0.0 < seconds < 1e9:
            self.fail(f"{value!r} is no time; write seconds, or a number with s, m or h, such as 90s, 5m or 1.5h.")
        return seconds


def complete_data(ctx, parameter, incomplete):
    """Complete names of data sets, beside files."""
    from click.shell_completion import CompletionItem

    from margindist.datasets import catalogue

    names = [entry.name for entry in catalogue() if entry.name.startswith(incomplete)]
    return [*map(CompletionItem, names), CompletionItem(incomplete, type="file")]


def complete_methods(ctx, parameter, incomplete):
    """Complete the last of several methods with commas between."""
    from margindist.methods import BY_KEY

    before, comma, last = incomplete.rpartition(",")
    return [f"{before}{comma}{key}" for key in (*BY_KEY, "linear", "rbf", "all") if key.startswith(last)]
