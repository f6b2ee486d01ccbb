"""The store and the runner: nothing lost, nothing twice, whatever happens."""

import errno
import os
import random
import signal
import sqlite3
import subprocess
import sys
import time
import warnings
from contextlib import closing, suppress
from pathlib import Path

import pytest

from margindist.runs.runner import CannotRun, Progress, run
from margindist.runs.store import Cell, Result, Store, StoreError

CELLS = [Cell("test", dataset, method, split) for dataset in "ab" for method in "xyz" for split in range(4)]


def evaluate(cell):
    """A deterministic score; leaves a trace of every evaluation beside the store."""
    return Result(cell, score=cell.split + 0.25 * "xyz".index(cell.method), parameters={"C": 1.0})


class Traced:
    """Appends a line a finished evaluation, in one write, so that what was computed twice shows."""

    def __init__(self, path, seconds=0.0):
        self.path, self.seconds = str(path), seconds

    def __call__(self, cell):
        time.sleep(self.seconds)
        with open(self.path, "a") as trace:
            trace.write(f"{cell}\n")
        return evaluate(cell)


def table(store):
    return [(result.cell, result.score, result.parameters) for result in store.results()]


def expected():
    return sorted((cell, evaluate(cell).score, {"C": 1.0}) for cell in CELLS)


def test_every_cell_is_recorded_with_its_circumstances(tmp_path):
    seen: list[Progress] = []
    with Store(tmp_path / "results.sqlite") as store:
        summary = run(store, CELLS, evaluate, progress=seen.append)
        assert summary == (len(CELLS), 0, 0, 0, None)
        assert table(store) == expected()
        result = store.results("test")[0]
    assert result.versions["numpy"] and result.finished.endswith("+00:00") and result.seconds >= 0
    assert [progress.finished for progress in seen] == list(range(len(CELLS) + 1))
    assert seen[0].seconds_left is None and seen[-1].seconds_left == 0.0


def test_a_second_run_does_nothing(tmp_path):
    trace = tmp_path / "trace"
    with Store(tmp_path / "results.sqlite") as store:
        run(store, CELLS, Traced(trace))
        run(store, CELLS, Traced(trace))
    assert len(trace.read_text().splitlines()) == len(CELLS)


def refuse(cell):
    raise CannotRun("no data")


def fail(cell):
    warnings.warn("odd", stacklevel=1)
    raise ValueError("no good")


def test_reasons_are_kept_and_only_some_cells_are_tried_again():
    with Store(":memory:") as store:
        assert run(store, CELLS[:1], refuse).skipped == 1
        assert store.results()[0].error == "no data"
        assert run(store, CELLS[:1], fail).failed == 1  # skipped ones are tried again
        (result,) = store.results()
        assert result.error.startswith("ValueError: no good") and result.detail["warnings"] == ["UserWarning: odd"]
        assert run(store, CELLS[:1], evaluate) == (0, 0, 0, 0, None)  # failed ones are not
        assert run(store, CELLS[:1], evaluate, retry=True).done == 1


def slow(cell):
    if cell.split == 1:
        time.sleep(30)
    return evaluate(cell)


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="no alarm signals")
@pytest.mark.parametrize("n_jobs", [1, 2])
def test_a_cell_beyond_its_time_limit_is_a_failure_with_a_reason(n_jobs):
    cells = CELLS[:3]
    with Store(":memory:") as store:
        summary = run(store, cells, slow, n_jobs=n_jobs, time_limit=0.3)
        assert summary[:2] == (2, 1)
        assert "limit of 0.3 s" in store.results()[1].error


def slow_in_disguise(cell):
    try:
        time.sleep(30)
    except BaseException:
        raise SystemError("returned a result with an exception set") from None  # as compiled code does


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="no alarm signals")
def test_a_time_limit_is_known_whatever_error_it_becomes():
    with Store(":memory:") as store:
        run(store, CELLS[:1], slow_in_disguise, time_limit=0.2)
        assert "limit of 0.2 s" in store.results()[0].error
        assert run(store, CELLS[1:2], slow_in_disguise, time_budget=0.2).left == 1


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="no alarm signals")
def test_the_time_budget_leaves_cells_without_a_result():
    with Store(":memory:") as store:
        summary = run(store, CELLS, slow, time_budget=0.3)
        assert summary.done == 1 and summary.left == len(CELLS) - 1
        assert summary.stopped == "the time budget is spent"
        assert len(store.results()) == 1


def interrupt_in_disguise(cell):
    try:
        return interrupt_at(cell)
    except KeyboardInterrupt as error:  # as compiled code does
        raise SystemError("returned a result with an exception set") from error


def interrupt_at(cell):
    if cell.split == 2:
        raise KeyboardInterrupt
    return evaluate(cell)


@pytest.mark.parametrize("interrupt_at", [interrupt_at, interrupt_in_disguise])
def test_ctrl_c_gives_what_is_done_so_far(interrupt_at):
    with Store(":memory:") as store:
        summary = run(store, CELLS, interrupt_at)
        assert summary.done == 2 and summary.stopped == "interrupted"
        assert run(store, CELLS, evaluate).done == len(CELLS) - 2
        assert table(store) == expected()


def terminate_at(cell):
    if cell.split == 2:
        os.kill(os.getpid(), signal.SIGTERM)
    return evaluate(cell)


@pytest.mark.skipif(os.name != "posix", reason="SIGTERM")
def test_a_signal_to_terminate_is_answered_like_ctrl_c():
    before = signal.getsignal(signal.SIGTERM)
    with Store(":memory:") as store:
        summary = run(store, CELLS, terminate_at)
        assert summary.done == 2 and summary.stopped == "interrupted"
    assert signal.getsignal(signal.SIGTERM) is before


def in_a_process(path, trace):
    with Store(path) as store:
        run(store, CELLS, Traced(trace, 0.02), n_jobs=1)


def test_one_run_at_a_time_works_on_a_store_and_others_may_read_it(tmp_path):
    path = tmp_path / "results.sqlite"
    with Store(path) as store, Store(path) as other:

        def intrude(progress):
            if progress.finished == 3:
                assert len(other.results()) == 3
                with pytest.raises(StoreError, match="another run is using these results; wait for its end"):
                    run(other, CELLS, evaluate)
                with pytest.raises(StoreError, match="another run is using these results"):
                    other.forget(CELLS)

        run(store, CELLS, evaluate, progress=intrude)
        assert table(other) == expected()
        other.forget(CELLS)
        assert store.results() == []
    assert os.listdir(tmp_path) == ["results.sqlite"]


def test_stores_of_earlier_versions_with_their_claims_are_read(tmp_path):
    path = tmp_path / "results.sqlite"
    with Store(path) as store:
        store.record(evaluate(CELLS[0]))
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE runners (runner TEXT PRIMARY KEY, host TEXT, pid INTEGER, beat REAL)")
        connection.execute("CREATE TABLE claims (experiment TEXT, dataset TEXT, method TEXT, split INTEGER)")
        connection.execute("INSERT INTO claims VALUES ('test', 'a', 'x', 1)")
        connection.commit()
    with Store(path) as store:
        run(store, CELLS, evaluate)
        assert table(store) == expected()


@pytest.mark.skipif(os.name != "posix", reason="SIGKILL")
def test_killed_at_any_moment_and_resumed_gives_the_same_table(tmp_path):
    """What is recorded is never computed again; what a kill destroyed was never recorded."""
    path, trace = tmp_path / "results.sqlite", tmp_path / "trace"
    script = f"from tests.test_runner import in_a_process; in_a_process({str(path)!r}, {str(trace)!r})"
    root = str(Path(__file__).parent.parent)
    draw = random.Random(0)
    kills = 0
    for _ in range(8):
        runner = subprocess.Popen([sys.executable, "-c", script], cwd=root)
        while not path.exists() and runner.poll() is None:
            time.sleep(0.01)
        time.sleep(draw.uniform(0.0, 0.4))
        runner.kill()
        kills += runner.wait() == -signal.SIGKILL
        with Store(path) as store:
            recorded = {str(result.cell) for result in store.results()}
        # A cell that left its trace twice was killed between the evaluation and the record: at most one a kill.
        lines = trace.read_text().splitlines() if trace.exists() else []
        assert recorded <= set(lines)
        assert len(lines) - len(set(lines)) <= kills
    with Store(path) as store:
        run(store, CELLS, evaluate)
        assert table(store) == expected()


def test_a_file_that_is_no_store_is_refused_in_a_sentence(tmp_path):
    (tmp_path / "text").write_text("not a database, but long enough to be read as one\n" * 30)
    with pytest.raises(StoreError, match="not a file of results"):
        Store(tmp_path / "text")
    with pytest.raises(StoreError, match="no results can be kept here"):
        Store(tmp_path)
    newer = tmp_path / "newer"
    with closing(sqlite3.connect(newer)) as connection:
        connection.execute("PRAGMA user_version = 99")
    with pytest.raises(StoreError, match="newer margindist"):
        Store(newer)


def test_notes_survive(tmp_path):
    with Store(tmp_path / "results.sqlite") as store:
        assert store.note("plan") is None
        store.note("plan", {"folds": 5})
    with Store(tmp_path / "results.sqlite") as store:
        assert store.note("plan") == {"folds": 5}


def test_forgetting_some_cells_leaves_the_others():
    with Store(":memory:") as store:
        store.record(Result(Cell("one", "a", "x", 0), score=1.0))
        store.record(Result(Cell("two", "a", "x", 0), score=2.0))
        store.forget([Cell("one", "a", "x", 0)])
        assert [result.cell.experiment for result in store.results()] == ["two"]


def test_a_commit_that_fails_leaves_a_store_that_works(tmp_path):
    path = tmp_path / "results.sqlite"
    with Store(path) as store:
        store.record(Result(CELLS[0], score=1.0))
        store._connection.execute("PRAGMA busy_timeout = 50")
        reader = sqlite3.connect(path, isolation_level=None)
        reader.execute("BEGIN")
        reader.execute("SELECT * FROM results").fetchall()
        with pytest.raises(StoreError, match="database is locked"):
            store.record(Result(CELLS[1], score=1.0))
        reader.execute("COMMIT")
        reader.close()
        store.record(Result(CELLS[1], score=1.0))
        assert len(store.results()) == 2


class Interrupted:
    """A connection that Ctrl-C reaches right after a statement."""

    def __init__(self, connection, statement):
        self.connection, self.statement = connection, statement

    def __getattr__(self, name):
        return getattr(self.connection, name)

    def execute(self, statement, *values):
        found = self.connection.execute(statement, *values)
        if statement == self.statement:
            self.statement = None
            raise KeyboardInterrupt
        return found


@pytest.mark.parametrize("statement", ["BEGIN IMMEDIATE", "COMMIT"])
def test_ctrl_c_within_a_transaction_stays_ctrl_c(tmp_path, statement):
    with Store(tmp_path / "results.sqlite") as store:
        store._connection = Interrupted(store._connection, statement)
        with pytest.raises(KeyboardInterrupt):
            store.record(Result(CELLS[0], score=1.0))
        store.record(Result(CELLS[1], score=1.0))
        assert CELLS[1] in {result.cell for result in store.results()}


@pytest.mark.parametrize("category", [ResourceWarning, DeprecationWarning])
def test_what_a_cell_does_not_warn_of_is_not_its_warning(category):
    """Python warns of an open file when it is collected, in whatever cell that happens to be."""

    def collect(cell):
        warnings.warn("unclosed database", category, stacklevel=1)
        return evaluate(cell)

    with Store(":memory:") as store:
        run(store, CELLS[:1], collect)
        assert store.results()[0].detail == {}


def swallow_interrupt(cell):
    try:
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(5)
    except KeyboardInterrupt:
        pass
    return Result(cell, score=-1.0)


@pytest.mark.skipif(os.name != "posix", reason="SIGTERM")
def test_an_interrupt_that_a_cell_swallows_ends_the_run_all_the_same():
    with Store(":memory:") as store:
        assert run(store, CELLS, swallow_interrupt).stopped == "interrupted"
        assert store.results() == []


class Interrupts:
    """An object in whose end, where Python can raise nothing, a signal arrives."""

    def __del__(self):
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(0.01)


def lose_interrupt(cell):
    Interrupts()
    return Result(cell, score=-1.0)


@pytest.mark.skipif(os.name != "posix", reason="SIGTERM")
def test_an_interrupt_that_python_can_only_show_is_not_shown_and_ends_the_run(monkeypatch):
    shown = []
    monkeypatch.setattr(sys, "unraisablehook", shown.append)
    before = sys.unraisablehook
    with Store(":memory:") as store:
        assert run(store, CELLS, lose_interrupt).stopped == "interrupted"
        assert store.results() == []
    assert shown == [] and sys.unraisablehook is before


class Spoils:
    """Deletes or spoils the store in the middle of a run, from a cell."""

    def __init__(self, path, how):
        self.path, self.how = path, how

    def __call__(self, cell):
        if cell == CELLS[3]:
            if self.how != "overwritten":
                self.path.unlink()
            if self.how != "deleted":
                self.path.write_bytes(b"garbage" * 20000)
        return evaluate(cell)


@pytest.mark.parametrize(
    ("how", "n_jobs"), [("deleted", 1), ("deleted", 2), ("replaced", 1), ("replaced", 2), ("overwritten", 1)]
)
def test_a_store_that_is_lost_in_the_middle_of_a_run_is_said_in_a_sentence(tmp_path, how, n_jobs):
    path = tmp_path / "results.sqlite"
    with Store(path) as store, pytest.raises(StoreError, match="results cannot be kept or read any more"):
        run(store, CELLS, Spoils(path, how), n_jobs=n_jobs)
    path.unlink(missing_ok=True)
    with Store(path) as store:
        run(store, CELLS, evaluate)
        assert table(store) == expected()
    assert os.listdir(tmp_path) == ["results.sqlite"]


def meet_a_full_disk(cell):
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "cache")


def lose_the_results(cell):
    raise StoreError("results.sqlite: gone.")


@pytest.mark.parametrize(("evaluate", "error"), [(meet_a_full_disk, OSError), (lose_the_results, StoreError)])
def test_a_full_disk_or_a_lost_store_is_no_failure_of_the_cell(evaluate, error):
    with Store(":memory:") as store:
        with pytest.raises(error):
            run(store, CELLS, evaluate)
        assert store.results() == []


def kill_itself(cell):
    if cell == CELLS[5]:
        os.kill(os.getpid(), signal.SIGKILL)
    return evaluate(cell)


@pytest.mark.skipif(os.name != "posix", reason="SIGKILL")
def test_a_killed_worker_is_said_in_a_sentence(tmp_path):
    with Store(tmp_path / "results.sqlite") as store:
        with pytest.raises(ChildProcessError, match="a worker process was killed, perhaps because memory ran out"):
            run(store, CELLS, kill_itself, n_jobs=2)
        run(store, CELLS, evaluate)
        assert table(store) == expected()


def is_spared(cell):
    return Result(cell, score=float(signal.SIGINT in signal.pthread_sigmask(signal.SIG_BLOCK, [])))


@pytest.mark.skipif(not hasattr(signal, "pthread_sigmask"), reason="no signal masks")
def test_ctrl_c_never_reaches_a_worker_even_while_it_starts():
    """In a process of its own: what other tests have started would be used again."""
    script = (
        "from tests.test_runner import *\n"
        "with Store(':memory:') as store:\n"
        "    run(store, CELLS, is_spared, n_jobs=2)\n"
        "    assert {result.score for result in store.results()} == {1.0}\n"
        "assert is_spared(CELLS[0]).score == 0.0"
    )
    subprocess.run([sys.executable, "-c", script], cwd=Path(__file__).parent.parent, check=True, timeout=300)


def takes_an_hour(cell):
    Path(os.environ["BEGUN"], str(os.getpid())).touch()
    time.sleep(3600)


@pytest.mark.skipif(os.name != "posix", reason="SIGKILL")
def test_workers_end_when_their_run_is_killed(tmp_path):
    script = (
        "from tests.test_runner import *\n"
        "with Store(':memory:') as store: run(store, CELLS, takes_an_hour, n_jobs=2)"
    )  # fmt: skip
    runner = subprocess.Popen(
        [sys.executable, "-c", script], cwd=Path(__file__).parent.parent, env={**os.environ, "BEGUN": str(tmp_path)},
        start_new_session=True,
    )  # fmt: skip
    while len(os.listdir(tmp_path)) < 2 and runner.poll() is None:
        time.sleep(0.05)
    runner.kill()
    runner.wait()
    try:
        assert ended(runner.pid, within=60)
    finally:
        with suppress(ProcessLookupError):
            os.killpg(runner.pid, signal.SIGKILL)


def ended(group, within):
    """Tell whether all processes of a group are gone, in so many seconds."""
    deadline = time.monotonic() + within
    while time.monotonic() < deadline:
        try:
            os.killpg(group, 0)
        except ProcessLookupError:
            return True
        time.sleep(0.05)
    return False
