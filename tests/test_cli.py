"""The command line as a user meets it: files in, files out, exit codes, one line for an error, kills and Ctrl-C."""

import csv
import json
import os
import random
import re
import signal
import sqlite3
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sklearn.datasets import make_classification

from margindist.cli.app import Duration, ProgressLine, run
from margindist.runs.runner import Progress
from margindist.runs.store import Cell, Result, Store
from margindist.runs.wording import duration

ROOT = Path(__file__).parent.parent
FAST = ["--methods", "mamc,lssvm", "--splits", "3", "--quick"]


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder with a table of numbers, categories and missing values."""
    monkeypatch.chdir(tmp_path)
    X, y = make_classification(80, 4, n_informative=3, n_redundant=0, flip_y=0.1, random_state=0)
    frame = pd.DataFrame(X.copy(), columns=["height", "width", "depth", "age"])
    frame["colour"] = np.where(X[:, 0] > 0.3, "red", "blue")
    frame.loc[::9, "age"] = np.nan
    frame.loc[4::17, "colour"] = None
    frame["species"] = np.array(["lily", "rose"])[y]
    frame.to_csv("flowers.csv", index=False)
    return tmp_path


def scores(path):
    """What the table is made of, without the times."""
    with closing(sqlite3.connect(path)) as connection:
        rows = connection.execute("SELECT method, split, status, score, parameters, detail FROM results").fetchall()
    return sorted(rows)


def test_compare_prints_a_table_and_writes_the_report(folder, capsys):
    arguments = ["compare", "flowers.csv", *FAST, "--jobs", "1", "--json", "all.json", "--csv", "table.csv"]
    assert run(arguments) == 0
    captured = capsys.readouterr()
    assert "'species', was taken as the target" in captured.err
    assert "has the highest accuracy" in captured.out
    assert captured.out.splitlines()[-1] == f"Report: {folder / 'flowers.html'}"
    said = captured.err.splitlines()
    assert "0 of 21 done" in said and said[-1] == "21 of 21 done"
    assert "\r" not in captured.err and "\x1b" not in captured.err
    rows = list(csv.DictReader(Path("table.csv").read_text(encoding="utf-8").splitlines()))
    everything = json.loads(Path("all.json").read_text(encoding="utf-8"))
    assert [row["label"] for row in rows] == [row["label"] for row in everything["table"]]
    assert float(rows[0]["accuracy"]) == everything["table"][0]["accuracy"]
    assert len(everything["cells"]) == 15 and everything["about"]["numbers"]["missing"] == 14
    page = Path("flowers.html").read_text(encoding="utf-8")
    assert "margindist compare flowers.csv --methods mamc,lssvm" in page and "missing" in page
    assert run([*arguments, "--resume", "-o", "flowers.html", "--csv", "-"]) == 0
    captured = capsys.readouterr()
    assert captured.out == Path("table.csv").read_text(encoding="utf-8")  # the same to the last digit, times included
    assert "Resuming: 15 of 15" in captured.err


def test_fit_predict_and_export(folder, capsys):
    assert run(["fit", "flowers.csv", "--method", "lssvm-rbf", "--quick", "-o", "flowers.model"]) == 0
    said = capsys.readouterr().out
    assert "LS-SVM (RBF) with C = " in said and said.splitlines()[-1].startswith(f"Model: {folder / 'flowers.model'}")
    assert run(["predict", "flowers.model", "flowers.csv", "-o", "predictions.csv"]) == 0
    assert "Accuracy on the 80 rows that have a value in 'species': 0.8" in capsys.readouterr().out
    predictions = pd.read_csv("predictions.csv")
    assert list(predictions) == ["prediction", "decision"] and len(predictions) == 80
    assert ((predictions["decision"] > 0) == (predictions["prediction"] == "rose")).all()
    frame = pd.read_csv("flowers.csv")[["colour", "age", "depth", "width", "height"]]  # another order, no target
    frame.to_parquet("new.parquet")
    assert run(["predict", "flowers.model", "new.parquet", "-o", "predictions.parquet"]) == 0
    pd.testing.assert_frame_equal(pd.read_parquet("predictions.parquet"), predictions)
    frame.drop(columns="depth").to_csv("less.csv", index=False)
    assert run(["predict", "flowers.model", "less.csv"]) == 1
    assert capsys.readouterr().err.strip() == "margindist: less.csv: lacks the column 'depth', which the model needs."
    frame.assign(depth="deep").to_csv("words.csv", index=False)
    assert run(["predict", "flowers.model", "words.csv"]) == 1
    said = "words.csv, line 2: the column 'depth' is to be read as numbers, as it was for the model, but has 'deep'."
    assert said in capsys.readouterr().err
    frame.assign(depth="deep").to_parquet("words.parquet")
    assert run(["predict", "flowers.model", "words.parquet"]) == 1
    assert "the column 'depth' must hold numbers" in capsys.readouterr().err


def test_export_is_the_same_model(folder, capsys):
    runtime = pytest.importorskip("onnxruntime")
    pytest.importorskip("onnx")
    assert run(["fit", "wdbc", "--method", "lssvm", "--quick", "-o", "wdbc.model"]) == 0
    assert run(["export", "wdbc.model", "-o", "wdbc.onnx"]) == 0
    from margindist.datasets import load
    from margindist.models import load_model

    X = load("wdbc").X
    (values,) = runtime.InferenceSession("wdbc.onnx").run(["scores"], {"X": X.astype(np.float32)})
    np.testing.assert_allclose(values.ravel(), load_model("wdbc.model").decision_function(X), atol=1e-4)


def test_fit_with_parameters_and_three_classes_to_the_standard_output(folder, capsys, monkeypatch):
    monkeypatch.delenv("MARGINDIST_DATA", raising=False)  # a folder's iris may have other column names
    assert run(["fit", "iris", "--method", "ldm", "--set", "C=3", "--set", "lambda1=0", "--set", "lambda2=0",
                "-o", "iris.model"]) == 0  # fmt: skip
    assert "LDM with C = 3, lambda1 = 0, lambda2 = 0." in capsys.readouterr().out
    from sklearn.datasets import load_iris

    load_iris(as_frame=True).data.to_csv("new.csv", index=False)
    assert run(["predict", "iris.model", "new.csv"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "prediction,decision_0,decision_1,decision_2" and len(lines) == 151


def test_sparse_rows_are_predicted_with_fewer_columns_but_not_with_more(folder, capsys):
    rows = [f"{k % 2} {1 + k % 2}:1 {3 + k % 3}:{k % 5 + 1}" for k in range(40)]
    Path("train.libsvm").write_text("\n".join(rows) + "\n")
    assert run(["fit", "train.libsvm", "--method", "mamc", "-o", "sparse.model"]) == 0
    Path("new.libsvm").write_text("0 1:1\n1 2:1\n")
    capsys.readouterr()
    assert run(["predict", "sparse.model", "new.libsvm"]) == 0
    assert [line.split(",")[0] for line in capsys.readouterr().out.splitlines()[1:]] == ["0", "1"]
    Path("wide.libsvm").write_text("0 1:1 9:1\n")
    assert run(["predict", "sparse.model", "wide.libsvm"]) == 1
    assert "has 9 columns, but the model takes 5" in capsys.readouterr().err


WRONG = [
    (["compare", "nothing.csv"], 1, "there is no such file"),
    (["compare", "nothing"], 1, "There is no data set 'nothing'"),
    (["compare", "flowers.csv", "--target", "nothing"], 1, "'nothing'"),
    (["compare", "flowers.csv", "--target", "height"], 1, "height"),
    (["compare", "flowers.csv", "--methods", "svmm"], 2, "there is no method 'svmm'"),
    (["compare", "flowers.csv", "--methods", "odmm"], 2, "did you mean odm"),
    (["compare", "flowers.csv", "--methods", ","], 2, "names no method"),
    (["comapre", "flowers.csv"], 2, "There is no command 'comapre'; did you mean compare?"),
    (["compare", "flowers.csv", "-o", "no/such/folder/report.html"], 1, "its folder does not exist"),
    (["compare", "flowers.csv", "--store", "flowers.csv"], 2, "flowers.csv is already read or written by this command"),
    (["compare", "flowers.csv", "--splits", "1"], 2, "1 is not in the range"),
    (["compare", "flowers.csv", "--time-budget", "soon"], 2, "'soon' is no time"),
    (["compare", "flowers.csv", "--time-budget", "0"], 2, "'0' is no time"),
    (["compare", "flowers.csv", "--nonsense"], 2, "--nonsense"),
    (["compare"], 2, "Missing argument"),
    (["flowers.csv"], 2, "did you mean: margindist compare flowers.csv"),
    (["fit", "flowers.csv"], 2, "Missing option"),
    (["fit", "flowers.csv", "-o", "m", "--set", "C"], 2, "'C' is not NAME=VALUE"),
    (["fit", "flowers.csv", "-o", "m", "--method", "mamc", "--set", "nothing=1"], 1, "'nothing'"),
    (["fit", "flowers.csv", "-o", "m", "--set", "C=abc"], 1, "C must be"),
    (["fit", "flowers.csv", "-o", "no/such/folder/m"], 1, "its folder does not exist"),
    (["predict", "flowers.csv", "flowers.csv"], 1, "flowers.csv"),
    (["predict", "nothing.model", "flowers.csv"], 1, "nothing.model: there is no such file."),
    (["export", "flowers.csv", "-o", "m.onnx"], 1, "flowers.csv"),
    (["compare", "flowers.csv", "-o", "flowers.csv"], 2, "flowers.csv is already read or written by this command"),
    (["compare", "flowers.csv", "--csv", "flowers.csv"], 2, "choose another output file"),
    (["compare", "flowers.csv", "--csv", "-", "--json", "-"], 2, "- is already read or written by this command"),
    (["fit", "flowers.csv", "-o", "flowers.csv"], 2, "flowers.csv is already read or written by this command"),
    (["fit", "wdbc", "--target", "colour", "-o", "m"], 1, "a target of its own"),
    (["predict", "m", "flowers.csv", "-o", "p.xlsx"], 2, "p.xlsx: predictions are written as .csv"),
    (["predict", "flowers.csv", "n.csv", "-o", "flowers.csv"], 2, "flowers.csv is already read or written"),
    (["reproduce", "--list"], 2, "from a clone of the sources: python -m reproduction."),
]


def test_without_a_command_there_is_help(capsys):
    assert run([]) == 2
    assert capsys.readouterr().err.count("\n") > 10


def test_predictions_are_held_against_numbers_and_gaps_alike(folder, capsys):
    rows = "".join(f"{k % 2},{k % 7},{'ab'[k % 2]}\n" for k in range(60))
    Path("zero.csv").write_text("y,a,b\n" + rows)
    assert run(["fit", "zero.csv", "--target", "y", "--method", "mamc", "-o", "zero.model"]) == 0
    assert "of numbers is scaled to [0, 1]" in capsys.readouterr().out
    Path("new.csv").write_text("y,a,b\n" + rows[: rows.index("\n") + 1] * 3 + "1,,b\n,3,a\n")
    assert run(["predict", "zero.model", "new.csv", "-o", "p.csv"]) == 0
    assert "Accuracy on the 4 rows that have a value in 'y': 1.000" in capsys.readouterr().out
    assert run(["predict", "zero.model", "new.csv"]) == 0
    captured = capsys.readouterr()
    assert "Accuracy on the 4 rows" in captured.err and captured.out.startswith("prediction,decision\n")


def test_categories_are_spelled_as_they_were(folder, capsys):
    codes = ["007", "1000001", "x"]
    Path("codes.csv").write_text("code,y\n" + "".join(f"{codes[k % 3]},{'pqr'[k % 3]}\n" for k in range(60)))
    assert run(["fit", "codes.csv", "--target", "y", "--method", "lssvm", "--quick", "-o", "codes.model"]) == 0
    Path("new.csv").write_text("code,y\n" + "007,p\n1000001,q\n" * 5)
    assert run(["predict", "codes.model", "new.csv", "-o", "p.csv"]) == 0
    assert "1.000" in capsys.readouterr().out


def test_infinity_may_be_set(folder, capsys):
    assert run(["fit", "flowers.csv", "--method", "ldm", "--set", "C=inf", "--set", "lambda1=1", "-o", "m"]) in (0, 1)
    assert "got 'inf'" not in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "expected", "words"), WRONG, ids=lambda value: " ".join(value)[:60] if isinstance(value, list) else ""
)
def test_every_error_is_one_line_and_an_exit_code(folder, capsys, arguments, expected, words):
    assert run(arguments) == expected
    captured = capsys.readouterr()
    assert captured.out == "" and captured.err.count("\n") == 1
    assert captured.err.startswith("margindist: ") and words in captured.err
    before = {"flowers.csv"}
    assert set(os.listdir()) <= before  # nothing half-written is left


def test_debug_shows_the_traceback(folder, capsys):
    assert run(["compare", "flowers.csv", "--methods", "svmm", "--debug"]) == 2
    assert "Traceback" in capsys.readouterr().err


text = st.text(alphabet=st.characters(codec="utf-8", exclude_characters="\x00"), max_size=12)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    arguments=st.lists(
        st.one_of(
            text,
            st.sampled_from([
                "compare", "fit", "predict", "export", "datasets", "completion", "--target", "--methods", "--set",
                "--seed", "--splits", "--time-budget", "-o", "--json", "flowers.csv", "-1", "--method", "--debug=x",
            ]),
        ),
        max_size=5,
    )
)  # fmt: skip
def test_nonsense_never_shows_a_traceback(folder, capsys, arguments):
    if "flowers.csv" in arguments:  # whole runs are not the point here
        arguments = [*arguments, "--target", "nothing"]
    code = run(arguments)
    captured = capsys.readouterr()
    assert code in (0, 1, 2)
    assert "Traceback" not in captured.err and "an error of ours" not in captured.err
    assert captured.err.count("\n") <= 1 or not arguments  # without any there is help


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(content=st.one_of(st.binary(max_size=200), st.lists(st.lists(text, min_size=1, max_size=4), max_size=6)))
def test_a_file_of_anything_is_an_error_of_one_line(folder, capsys, content):
    if isinstance(content, list):
        content = "\n".join(",".join(fields) for fields in content).encode()
    Path("anything.csv").write_bytes(content)
    assert run(["compare", "anything.csv", "--jobs", "1"]) == 1
    captured = capsys.readouterr()
    assert captured.err.count("\n") == 1 and "an error of ours" not in captured.err


def test_help_teaches_and_is_quick():
    code = (
        "import sys; sys.argv = ['margindist', '--help']\n"
        "from margindist.cli import main\n"
        "try: main()\n"
        "except SystemExit as leave: assert leave.code == 0\n"
        "assert not {'sklearn', 'numba', 'scipy'} & set(sys.modules), 'help must not wait for them'\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, check=False)
    assert done.returncode == 0, done.stderr
    assert "Examples:" in done.stdout and "margindist compare flowers.csv" in done.stdout
    for command in ("compare", "fit", "predict", "export", "datasets", "completion"):
        assert command in done.stdout


def test_compilation_is_announced_and_done_ahead(folder, capsys, monkeypatch):
    from margindist.cli import app, warm
    from margindist.compilation import Compiled
    from margindist.methods import BY_KEY

    class Kept:
        class _cache:
            class _cache_file:
                _index_path = str(folder / "nothing.nbi")

    function = Compiled(len, {})
    function.dispatcher = Kept()

    solver = sys.modules.setdefault("margindist.solvers.made_up", type(sys)("made_up"))
    solver.function, solver.other, solver.number = function, object(), 5
    try:
        assert app.missing_on_disk(["mamc", "nobody"]) >= 1
        app.announce_compilation(["mamc"])
        assert capsys.readouterr().err == ""  # no terminal
        monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
        app.announce_compilation(["mamc"])
        said = "Compiling, once, about 10 s per method; margindist warm-up does this in advance.\n"
        assert capsys.readouterr().err == said
        before = app.missing_on_disk(["mamc"])
        (folder / "nothing.nbi").touch()
        assert app.missing_on_disk(["mamc"]) == before - 1
    finally:
        del sys.modules["margindist.solvers.made_up"]
    monkeypatch.setattr("margindist.methods.METHODS", [BY_KEY["mamc"], BY_KEY["lssvm"]])
    fitted = []
    monkeypatch.setattr(warm, "_examples", lambda whole=warm._examples: (fitted.append(row) or row for row in whole()))
    assert run(["warm-up"]) == 0
    captured = capsys.readouterr()
    assert captured.out == "Everything is compiled.\n" and "2 of 2: LS-SVM" in captured.err
    assert len(fitted) == 8  # dense and sparse, two classes and three, of both


def test_scorings_of_the_command_line_are_those_there_are():
    from margindist.cli.app import SCORINGS
    from margindist.compare.scoring import LABELS

    assert tuple(LABELS) == SCORINGS


@pytest.mark.parametrize("command", ["compare", "fit", "predict", "export", "datasets", "completion", "warm-up"])
def test_help_of_commands(command, capsys):
    assert run([command, "--help"]) == 0
    assert f"margindist {command}" in capsys.readouterr().out


def test_version_datasets_and_completion(capsys):
    from margindist import __version__

    assert run(["--version"]) == 0 and capsys.readouterr().out == f"margindist {__version__}\n"
    assert run(["datasets", "--here"]) == 0
    assert "wdbc" in capsys.readouterr().out
    assert run(["completion", "bash"]) == 0
    assert "_MARGINDIST_COMPLETE=bash_complete" in capsys.readouterr().out


def test_completion_knows_methods_and_data_sets():
    from click.shell_completion import ShellComplete

    from margindist.cli.app import commands

    complete = ShellComplete(commands, {}, "margindist", "_MARGINDIST_COMPLETE")
    assert "compare" in [item.value for item in complete.get_completions([], "com")]
    assert "wdbc" in [item.value for item in complete.get_completions(["compare"], "wd")]
    found = [item.value for item in complete.get_completions(["compare", "wdbc", "--methods"], "ldm,od")]
    assert sorted(found) == ["ldm,odm", "ldm,odm-nystroem", "ldm,odm-rbf"]


def test_without_the_extra_it_says_what_to_install():
    code = "import sys; sys.modules['click'] = None\nfrom margindist.cli import main\nmain()"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, check=False)
    assert done.returncode == 1
    assert done.stderr == "margindist: the command line needs click; pip install 'margindist[cli]'.\n"


def test_durations():
    assert [Duration().convert(text, None, None) for text in ("90", "90s", "1.5m", "2H")] == [90, 90, 90, 7200]
    times = [duration(seconds) for seconds in (0, 3e-5, 0.9996, 7, 750, 5400, 5e6)]
    assert times == ["0 s", "30 µs", "1000 ms", "7 s", "12.5 min", "1.5 h", "1390 h"]


@pytest.mark.parametrize("columns", [80, 50])
def test_the_bar_of_a_terminal_is_one_line(monkeypatch, capsys, columns):
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    monkeypatch.setenv("COLUMNS", str(columns))
    line = ProgressLine({"logistic": "LogisticRegression"})
    line(Progress(0, 4, None, None))
    line(Progress(2, 4, 75.0, Result(Cell("e", "d", "logistic", 0))))
    line.close()
    shown = capsys.readouterr().err
    assert "[........................] 0/4" in shown
    assert "[############............] 2/4, about 75 s left, LogisticRegression"[: columns - 2] in shown
    assert shown.count("\n") == 1 and shown.endswith("\n")
    assert max(map(len, re.sub("\x1b[^a-z]*[a-z]", "", shown).split("\r"))) <= columns


# ---------------------------------------------------------------------- killed and interrupted


def answer_ctrl_c():  # which tests that run in the background have been told to ignore
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def started(*arguments):
    return subprocess.Popen(
        [sys.executable, "-m", "margindist", "compare", "flowers.csv", *arguments], stdout=subprocess.PIPE,
        stderr=subprocess.PIPE, text=True, env={**os.environ, "PYTHONPATH": str(ROOT)}, start_new_session=True,
        preexec_fn=answer_ctrl_c,
    )  # fmt: skip


def finished(store):
    """The results in the store, with the time each took: what was computed again would show."""
    try:
        with closing(sqlite3.connect(f"file:{store}?mode=ro", uri=True)) as connection:
            rows = connection.execute("SELECT experiment, method, split, seconds FROM results").fetchall()
            return {tuple(cell): seconds for *cell, seconds in rows}
    except sqlite3.OperationalError:
        return {}


def wait_for(store, count, process):
    deadline = time.monotonic() + 600  # a busy machine
    while len(finished(store)) < count and process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.03)


@pytest.mark.skipif(os.name != "posix", reason="SIGKILL")
def test_killed_at_any_moment_resume_gives_the_undisturbed_table(folder):
    plan = ["--methods", "mamc,lssvm", "--splits", "3", "--quick"]  # 15 cells
    assert run(["compare", "flowers.csv", *plan, "--jobs", "1", "-o", "whole.html"]) == 0
    draw = random.Random(0)
    seen = {}
    for count in (0, 6):
        process = started(*plan, "--jobs", "1", "--resume", "-o", "killed.html")
        wait_for("killed.results.sqlite", count, process)
        time.sleep(draw.uniform(0.0, 0.2))
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
        Store("killed.results.sqlite").close()  # takes back what a kill left half written, which a reader may not
        now = finished("killed.results.sqlite")
        assert seen.items() <= now.items()  # nothing lost, nothing computed twice
        seen = now
    assert seen
    assert run(["compare", "flowers.csv", *plan, "--jobs", "1", "--resume", "-o", "killed.html"]) == 0
    assert seen.items() <= finished("killed.results.sqlite").items()
    assert scores("killed.results.sqlite") == scores("whole.results.sqlite")


@pytest.mark.skipif(os.name != "posix", reason="SIGINT")
def test_ctrl_c_reports_what_is_done(folder):
    process = started("--methods", "mamc,lssvm", "--splits", "3", "--repeats", "30", "--quick", "--jobs", "2")
    wait_for("flowers.results.sqlite", 6, process)
    os.killpg(process.pid, signal.SIGINT)  # the terminal sends it to all processes
    time.sleep(0.01)
    os.killpg(process.pid, signal.SIGINT)  # of someone in a hurry
    out, err = process.communicate(timeout=60)
    assert process.returncode == 130, err
    assert "Stopped (interrupted) with" in out and "--resume continues" in out
    assert out.splitlines()[-1] == f"Report: {folder / 'flowers.html'}"
    assert "Traceback" not in err
    assert "This run is not finished" in Path("flowers.html").read_text(encoding="utf-8")


@pytest.mark.skipif(os.name != "posix", reason="SIGINT")
@pytest.mark.parametrize("moment", ["margindist.cli.app", "margindist.compare"])
def test_ctrl_c_before_there_is_a_result_is_one_sentence(folder, moment):
    """An exception in the middle of an import may be lost in it, or be shown with its traceback."""
    code = f"""
import importlib.abc, os, signal, sys
from margindist.cli import main

class Interrupt(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name == {moment!r}:
            os.kill(os.getpid(), signal.SIGINT)

sys.meta_path.insert(0, Interrupt())
main(["compare", "flowers.csv"])
"""
    ran = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env={**os.environ, "PYTHONPATH": str(ROOT)},
        preexec_fn=answer_ctrl_c, timeout=120,
    )  # fmt: skip
    assert (ran.returncode, ran.stdout, ran.stderr) == (130, "", "margindist: interrupted.\n")


def test_a_comparison_that_another_run_is_using_is_not_begun_anew(folder, capsys):
    arguments = ["compare", "flowers.csv", *FAST, "--jobs", "1"]
    assert run(arguments) == 0
    before = scores("flowers.results.sqlite")
    with Store("flowers.results.sqlite") as store, store.alone():
        capsys.readouterr()
        assert run(arguments) == 1
        said = capsys.readouterr().err
        assert "another run is using these results; wait for its end, or name another file" in said
    assert run([*arguments, "--resume"]) == 0
    assert scores("flowers.results.sqlite") == before


@pytest.mark.parametrize("how", ["replaced", "overwritten"])
def test_a_store_that_turns_into_garbage_ends_the_run_in_a_sentence(folder, capsys, monkeypatch, how):
    store = Path("flowers.results.sqlite")

    def spoil(line, progress):
        if progress.finished == 3:
            if how == "replaced":
                store.unlink()
            store.write_bytes(b"garbage" * 5000)

    monkeypatch.setattr(ProgressLine, "__call__", spoil)
    assert run(["compare", "flowers.csv", *FAST, "--jobs", "1"]) == 1
    assert "margindist: flowers.results.sqlite: results cannot be kept or read any more" in capsys.readouterr().err
    assert run(["compare", "flowers.csv", *FAST, "--jobs", "1", "--resume"]) == 1
    assert "not a file of results" in capsys.readouterr().err
    assert store.read_bytes().startswith(b"garbage")
    assert sorted(os.listdir()) == ["flowers.csv", store.name]


# ---------------------------------------------------------------------- files in parts


@pytest.fixture
def table(folder):
    """The flowers as Parquet: a file of small row groups, and a folder of files."""
    frame = pd.read_csv("flowers.csv")
    frame.to_parquet("flowers.parquet", row_group_size=20)
    Path("flowers").mkdir()
    for number in range(3):
        frame[number::3].to_parquet(Path("flowers", f"{number}.parquet"), row_group_size=9)
    return frame


def test_predictions_of_a_file_in_parts_are_those_of_the_file(table, capsys):
    assert run(["fit", "flowers.csv", "--method", "mamc", "--quick", "-o", "flowers.model"]) == 0
    for ending in ("csv", "parquet"):
        read = pd.read_csv if ending == "csv" else pd.read_parquet
        assert run(["predict", "flowers.model", "flowers.parquet", "-o", f"whole.{ending}"]) == 0
        whole = capsys.readouterr().out.splitlines()[-2]
        assert run(["predict", "flowers.model", "flowers.parquet", "--memory", "1GB", "-o", f"parts.{ending}"]) == 0
        assert capsys.readouterr().out.splitlines()[-2] == whole
        pd.testing.assert_frame_equal(read(f"parts.{ending}"), read(f"whole.{ending}"))
        assert run(["predict", "flowers.model", "flowers", "-o", f"folder.{ending}"]) == 0
        assert capsys.readouterr().out.splitlines()[-2] == whole
        assert len(read(f"folder.{ending}")) == 80
    assert run(["predict", "flowers.model", "flowers"]) == 0
    assert capsys.readouterr().out == Path("folder.csv").read_text()


def test_a_part_that_cannot_be_predicted_leaves_no_file(table, capsys):
    assert run(["fit", "flowers.csv", "--method", "mamc", "--quick", "-o", "flowers.model"]) == 0
    table[2::3].drop(columns="age").to_parquet(Path("flowers", "2.parquet"))
    capsys.readouterr()
    assert run(["predict", "flowers.model", "flowers", "-o", "new.csv"]) == 1
    assert "2.parquet: lacks the column 'age'" in capsys.readouterr().err
    content = Path("flowers", "1.parquet").read_bytes()
    Path("flowers", "2.parquet").write_bytes(content[:4] + bytes(200) + content[204:])
    assert run(["predict", "flowers.model", "flowers", "-o", "new.csv"]) == 1
    assert len(capsys.readouterr().err.splitlines()) == 1
    assert not list(Path().glob("*new*"))


@pytest.mark.parametrize(
    "arguments, words",
    [
        (["fit", "flowers.csv.gz", "--memory", "1GB"], "flowers.csv.gz: files that end with .gz are read whole"),
        (["fit", "flowers.parquet", "--memory", "lots"], "memory must be a size such as 500MB or 2GB, got 'lots'"),
        (["fit", "flowers.parquet", "--memory", "1MB"], "do not fit into the 0.001 GB of memory given; give at least"),
        (["fit", "flowers", "--labels", "y.npy"], "only NPY files have their labels in another file"),
        (["fit", "flowers", "--target", "colou"], "there is no column 'colou' for the target"),
        (["fit", "X.npy"], "name the file that has them by --labels"),
        (["fit", "X.npy", "--target", "y"], "the columns of such files have no names"),
        (["fit", "empty"], "expected a folder of Parquet, Feather, CSV or NPY files"),
    ],
)
def test_what_cannot_be_read_in_parts_is_one_sentence(table, capsys, arguments, words):
    np.save("X.npy", np.ones((4, 2)))
    Path("empty").mkdir()
    Path("flowers.csv.gz").write_bytes(b"")
    assert run([*arguments, "-o", "m.model"]) == 1
    err = capsys.readouterr().err
    assert words in err and len(err.splitlines()) == 1
    assert not Path("m.model").exists()


# ---------------------------------------------------------------------- columns as the model read them


@pytest.fixture
def spelled(folder, capsys):
    """A model of columns that are written as people write them."""
    rows = []
    for k in range(60):
        label = "yes" if k % 3 else "no"
        day, share = f"{k % 28 + 1:02}/{k % 12 + 1:02}/2024", f"{3 * k % 40 + 20 * (k % 3)} %"
        rows.append(f'{day};{share};1.{k:03},5;{k % 7},25;00{k % 2};{label};"{"=" * (k % 2)}n{k}"')
    Path("new.csv").write_text("\n".join(["sold;share;price;size;code;kind;name", *rows]) + "\n")
    arguments = ["fit", "new.csv", "--target", "kind", "--method", "ldm", "--quick", "-o", "m.model"]
    assert run([*arguments, "--set", "C=1", "--set", "lambda1=0", "--set", "lambda2=0"]) == 0
    capsys.readouterr()
    assert run(["predict", "m.model", "new.csv", "-o", "all.csv"]) == 0
    capsys.readouterr()
    return pd.read_csv("all.csv")


HEAD = "sold;share;price;size;code;kind;name\n"


@pytest.mark.parametrize("memory", [[], ["--memory", "2GB"]])
def test_new_rows_are_read_as_those_of_the_model(spelled, folder, capsys, memory):
    rows = Path("new.csv").read_text().splitlines()[1:]
    Path("one.csv").write_text(HEAD + rows[3] + "\n")  # 04/04/2024: day and month cannot be told apart
    assert run(["predict", "m.model", "one.csv", "-o", "found.csv", *memory]) == 0
    found = pd.read_csv("found.csv")
    np.testing.assert_allclose(found["decision"], spelled["decision"][3:4], rtol=1e-12)
    capsys.readouterr()
    Path("one.csv").write_text(HEAD + ";12;;;001;;x\n;13 %;;;001;;x\n")  # no dates, and per cent with a sign or without
    assert run(["predict", "m.model", "one.csv", *memory]) == 0
    assert len(capsys.readouterr().out.splitlines()) == 3


@pytest.mark.parametrize("memory", [[], ["--memory", "2GB"]])
@pytest.mark.parametrize(
    ("row", "words"),
    [
        ("12/31/2024;5 %;1.000,5;1,5;001;;x", "'sold' is to be read as dates with the day first, {}'12/31/2024'."),
        ("1/2/2024;$5;1.000,5;1,5;001;;x", "'share' is to be read as numbers (% left out), {}'$5'."),
        ("1/2/2024;5 %;1,000.5;1,5;001;;x",
         "'price' is to be read as numbers ('.' between thousands, decimal commas), {}'1,000.5'."),
        ("1/2/2024;5 %;1.000,5;1.5;001;;x", "'size' is to be read as numbers (decimal commas), {}'1.5'."),
    ],
    ids=["month first", "currency", "thousands", "points"],
)  # fmt: skip
def test_a_value_that_the_model_would_not_have_read_so_is_named(spelled, folder, capsys, memory, row, words):
    Path("bad.csv").write_text(f"{HEAD}1/2/2024;5 %;1.000,5;1,5;001;;x\n{row}\n")
    assert run(["predict", "m.model", "bad.csv", *memory]) == 1
    words = words.format("as it was for the model, but has ")
    assert f"bad.csv, line 3: the column {words}" in capsys.readouterr().err


def test_a_kept_column_is_never_lost(spelled, folder, capsys):
    frame = pd.read_csv("new.csv", sep=";", dtype=str)
    frame.assign(prediction="mine", kept_prediction="too").to_csv("again.csv", sep=";", index=False)
    assert run(["predict", "m.model", "again.csv", "--keep", "prediction", "--keep", "kept_prediction"]) == 0
    header, first, *_ = capsys.readouterr().out.splitlines()
    assert header == "kept_kept_prediction,kept_prediction,prediction,decision"
    assert first.startswith("mine,too,")


def test_formulas_are_escaped_where_asked_for(spelled, folder, capsys):
    assert run(["predict", "m.model", "new.csv", "--keep", "name"]) == 0
    assert capsys.readouterr().out.splitlines()[2].startswith("=n1,")
    assert run(["predict", "m.model", "new.csv", "--keep", "name", "--escape-formulas"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[1].startswith("n0,") and lines[2].startswith("'=n1,")
