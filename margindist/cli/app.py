"""The commands by name, loaded when they are called, and one line for every error."""

import os
import shlex
import shutil
import sys
import traceback
import warnings
from contextlib import contextmanager
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

import click

from margindist import __version__
from margindist.cli import INTERRUPTED
from margindist.files import write_whole
from margindist.suggestions import did_you_mean

# Where each command is defined, and what it does. --help needs no more than this, so it is quick.
_COMMANDS = {
    "compare": ("margindist.cli.compare:compare", "Compare methods on your data and write a report."),
    "fit": ("margindist.cli.model:fit", "Choose parameters, fit one method, and write a model file."),
    "predict": ("margindist.cli.model:predict", "Predict the rows of a file with a model file."),
    "export": ("margindist.cli.model:export", "Write a model file as ONNX."),
    "datasets": ("margindist.cli.datasets:datasets", "List the data sets known by name."),
    "warm-up": ("margindist.cli.warm:warm_up", "Compile everything that a first fit needs."),
    "completion": ("margindist.cli.app:completion", "Print the script that completes commands in your shell."),
}
_REPRODUCE = "The papers' tables are run again from a clone of the sources: python -m reproduction."
_BAR_WIDTH = 24
_EXAMPLES = """
\b
Examples:
  margindist compare flowers.csv            which method suits these data? writes flowers.html
  margindist compare flowers.csv --quick    the same with fewer parameters and splits
  margindist compare wdbc --methods ldm,odm,rbf --time-budget 5m
  margindist fit flowers.csv --method ldm-rbf -o flowers.model
  margindist predict flowers.model new.csv -o predictions.csv
  margindist datasets                       data sets known by name, such as wdbc
"""


class _Commands(click.Group):
    def list_commands(self, ctx):
        return [name for name, (home, _) in _COMMANDS.items() if find_spec(home.partition(":")[0])]

    def get_command(self, ctx, name):
        if name not in self.list_commands(ctx):
            return None
        module, _, attribute = _COMMANDS[name][0].partition(":")
        return getattr(import_module(module), attribute)

    def resolve_command(self, ctx, args):
        try:
            return super().resolve_command(ctx, args)
        except click.UsageError:
            if args[0] == "reproduce":
                raise click.UsageError(_REPRODUCE, ctx) from None
            if os.path.isfile(args[0]):
                raise click.UsageError(
                    f"{args[0]!r} is a file; did you mean: margindist compare {args[0]}", ctx
                ) from None
            known = self.list_commands(ctx)
            meant = did_you_mean(args[0], known, f"there are {', '.join(known)}.")
            raise click.UsageError(f"There is no command {args[0]!r}; {meant}", ctx) from None

    def format_commands(self, ctx, formatter):
        with formatter.section("Commands"):
            formatter.write_dl([(name, _COMMANDS[name][1]) for name in self.list_commands(ctx)])


def _set_debug(ctx, parameter, value):
    if value:
        ctx.ensure_object(dict)["debug"] = True


debug_option = click.option(
    "--debug", is_flag=True, expose_value=False, callback=_set_debug, is_eager=True,
    help="Show the traceback of an error.",
)  # fmt: skip


# What margindist.compare.scoring.LABELS declares; --help does not wait for that to be imported, and a test compares.
SCORINGS = ("accuracy", "balanced_accuracy", "f1_macro", "roc_auc", "average_precision", "log_loss")

encoding_option = click.option(
    "--encoding", metavar="NAME", help="Encoding of a text file, such as cp1252.  [default: detected]"
)


@click.group(cls=_Commands, epilog=_EXAMPLES, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, message="%(prog)s %(version)s", help="Show the version and exit.")
@debug_option
def commands():
    """Classifiers that learn from the whole margin distribution: compare them on your data, fit them, use them."""


@click.command(
    epilog="""
\b
Add one of these lines to your shell's start-up file:
  bash   eval "$(margindist completion bash)"
  zsh    eval "$(margindist completion zsh)"
  fish   margindist completion fish | source
"""
)
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion(shell):
    """Print the script that completes commands, options, methods and data sets in your SHELL."""
    from click.shell_completion import get_completion_class

    made = get_completion_class(shell)(commands, {}, "margindist", "_MARGINDIST_COMPLETE")
    click.echo(made.source())


def run(arguments=None, command=commands, program="margindist"):
    """Run a command line; return the exit code."""
    arguments = sys.argv[1:] if arguments is None else list(arguments)
    state = {"debug": False, "command": f"{program} {shlex.join(arguments)}".rstrip()}
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")  # a terminal without ± gets a question mark, not a traceback
    warnings.showwarning = _show_warning
    try:
        code = command.main(arguments, prog_name=program, standalone_mode=False, obj=state)
        sys.stdout.flush()
        return code if isinstance(code, int) else 0
    except (KeyboardInterrupt, click.Abort):
        _complain("interrupted.", state)
        return INTERRUPTED
    except click.exceptions.NoArgsIsHelpError as error:
        click.echo(error.ctx.get_help(), err=True)
        return 2
    except click.UsageError as error:
        path = error.ctx.command_path if error.ctx is not None else program
        _complain(f"{_sentence(error.format_message())} Try {path} --help.", state)
        return 2
    except click.ClickException as error:
        _complain(error.format_message(), state)
        return error.exit_code
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # whoever read our output has closed the pipe
        return 0
    except FileNotFoundError as error:
        _complain(f"{error.filename}: there is no such file." if error.filename else str(error), state)
        return 1
    except OSError as error:
        named = error.filename is not None and error.strerror is not None
        _complain(f"{error.filename}: {error.strerror.lower()}." if named else str(error), state)
        return 1
    except (ValueError, ImportError, MemoryError) as error:
        _complain(str(error) or type(error).__name__, state)
        return getattr(error, "exit_code", 1)
    except Exception as error:
        _complain(f"an error of ours, {type(error).__name__}: {error}; --debug shows where.", state)
        return 1


def _show_warning(message, category, filename, lineno, file=None, line=None):
    """Print a warning as one line, without the place in the library where it was raised."""
    click.echo(f"margindist: warning: {' '.join(str(message).split())}", err=True)


def _sentence(text):
    return text if text.endswith((".", "?", "!")) else f"{text}."


def _complain(message, state):
    if state["debug"] and sys.exc_info()[0] is not None:
        traceback.print_exc()
    click.echo(f"margindist: {' '.join(message.split())}", err=True)


# ---------------------------------------------------------------------- what commands share


class ProgressLine:
    """A bar on a terminal; elsewhere a plain line now and then.

    The bar is click's, which the command line needs anyway. How long it will take is our own estimate: click's takes
    all steps to be alike, but methods are not.
    """

    def __init__(self, labels):
        self._labels = labels
        self._shown = -1.0
        self._total = None
        self._bar = None

    def _begin(self, total):
        if sys.stderr.isatty():
            self._bar = click.progressbar(
                length=total, width=_BAR_WIDTH, update_min_steps=0, fill_char="#", empty_char=".", info_sep="",
                bar_template="[%(bar)s] %(info)s", show_pos=True, show_eta=False, item_show_func=self._describe,
                file=sys.stderr,
            )  # fmt: skip

    def __call__(self, progress):
        """Show the progress of a run, which may turn out to be longer than it seemed."""
        if self._total is None:
            self._begin(progress.total)
        self._total = progress.total
        if self._bar is not None:
            self._bar.length = progress.total
            self._bar.update(progress.finished - self._bar.pos, progress)
            return
        share = progress.finished / max(1, progress.total)
        if share - self._shown >= 0.1 or progress.finished == progress.total:
            self._shown = share
            click.echo(f"{progress.finished} of {progress.total} done{progress.time_left}", err=True)

    def _describe(self, progress):
        if progress is None or progress.last is None:
            return None
        text = f"{progress.time_left}, {self._labels.get(progress.last.cell.method, '')}"
        before = len(f"[{'.' * _BAR_WIDTH}] {progress.finished}/{progress.total}")
        room = shutil.get_terminal_size().columns - 1 - before  # click does not shorten lines that are too long
        return text[: max(room, 0)]

    def close(self):
        """End the line of the bar."""
        if self._bar is not None:
            self._bar.render_finish()
            self._bar = None


def announce_compilation(keys):
    """Say on a terminal that fits of these methods will wait for compilation, if what they need is not on disk yet.

    Worker processes compile in silence, so it is said here, before they start.
    """
    if sys.stderr.isatty() and missing_on_disk(keys):
        click.echo("Compiling, once, about 10 s per method; margindist warm-up does this in advance.", err=True)


def missing_on_disk(keys):
    """Return how many compiled functions of the solvers behind these methods have no file yet; 0 if it is unknown."""
    from margindist.compilation import Compiled, lacks_file
    from margindist.methods import BY_KEY

    for key in keys:
        if key in BY_KEY:
            BY_KEY[key].classifier.load()
    solvers = [module for name, module in sys.modules.items() if name.startswith("margindist.solvers.")]
    functions = {id(value): value for module in solvers for value in vars(module).values()}
    return sum(isinstance(value, Compiled) and lacks_file(value.dispatcher) for value in functions.values())


def check_outputs(outputs, inputs=()):
    """Raise an error, before hours of work, if an output has no folder, is an input, or is named twice."""
    taken = {Path(path).resolve() for path in inputs if os.path.isfile(path)}
    for path in outputs:
        if path is None:
            continue
        place = path if str(path) == "-" else Path(path).resolve()
        if place in taken:
            raise click.UsageError(f"{path} is already read or written by this command; choose another output file.")
        taken.add(place)
        if place != "-" and not place.parent.is_dir():
            raise OSError(f"{path}: its folder does not exist; create it first, or choose another place.")


def write(path, content):
    """Write text or bytes to a file at once; "-" is the standard output."""
    if str(path) == "-":
        click.echo(content, nl=False)
        return
    with naming_another_place(path):
        write_whole(path, content)


@contextmanager
def naming_another_place(path):
    """Say of a file that cannot be written, be the disk full or the folder closed, what to do."""
    try:
        yield
    except OSError as error:
        if error.strerror is None:
            raise
        raise OSError(f"{path}: cannot be written ({error.strerror}); choose another place.") from None


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
    """Complete the names of data sets and of files."""
    from click.shell_completion import CompletionItem

    from margindist.datasets import catalogue

    names = [entry.name for entry in catalogue() if entry.name.startswith(incomplete)]
    return [*map(CompletionItem, names), CompletionItem(incomplete, type="file")]


def complete_methods(ctx, parameter, incomplete):
    """Complete the last method of a comma-separated list."""
    from margindist.methods import BY_KEY

    before, comma, last = incomplete.rpartition(",")
    return [f"{before}{comma}{key}" for key in (*BY_KEY, "linear", "rbf", "all") if key.startswith(last)]
