"""One SQLite file of results, a row per cell, written whole or not at all.

A *cell* is the smallest piece of work that is kept: one method on one split of one data set in one experiment. Several
runners may work on one store. Before a runner begins a cell it *claims* it; the claim of a runner that has died (its
process is gone, or its heart has not beaten for a minute) counts for nothing, so a killed run leaves no trace but the
results it had finished. Two runners may compute the same cell after all, if one was thought dead: that costs time, and
both results are the same.
"""

import json
import os
import platform
import sqlite3
import threading
import time
import uuid
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

from margindist.files import write_whole

_FORMAT = 1
_HEARTBEAT = 5.0
_DEAD_AFTER = 60.0
_TABLES = """
CREATE TABLE IF NOT EXISTS results (
    experiment TEXT, dataset TEXT, method TEXT, split INTEGER,
    status TEXT NOT NULL CHECK (status IN ('done', 'failed', 'skipped')),
    score REAL, parameters TEXT, fit_seconds REAL, predict_seconds REAL, seconds REAL,
    seed INTEGER, checksum TEXT, detail TEXT, error TEXT, versions TEXT, finished TEXT,
    PRIMARY KEY (experiment, dataset, method, split)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS claims (
    experiment TEXT, dataset TEXT, method TEXT, split INTEGER, runner TEXT NOT NULL,
    PRIMARY KEY (experiment, dataset, method, split)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS runners (runner TEXT PRIMARY KEY, host TEXT, pid INTEGER, beat REAL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS notes (name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
"""


class StoreError(ValueError):
    """The file cannot serve as a store; the message says why in one sentence."""


class Cell(NamedTuple):
    """The smallest piece of work whose result is kept."""

    experiment: str
    dataset: str
    method: str
    split: int

    def __str__(self) -> str:
        return f"{self.experiment}/{self.dataset}/{self.method}/{self.split}"


@dataclass(frozen=True)
class Result:
    """What became of a cell.

    Parameters
    ----------
    cell : Cell
    status : {"done", "failed", "skipped"}
        Skipped means that the cell could not run here (no data, too large) and `error` says why; it is tried again
        in the next run. Failed means that it ran and did not end well; it is kept until somebody asks for a retry.
    score : float, optional
        The experiment's main figure, mostly the accuracy on the test part.
    parameters : dict
        The parameters chosen.
    fit_seconds, predict_seconds, seconds : float, optional
        Time of the final fit, of the prediction, and of the whole cell.
    seed : int, optional
    checksum : str, optional
        Of the data.
    detail : dict
        Whatever else the experiment measures, as JSON.
    error : str, optional
    versions : dict
    finished : str
        When, in UTC.
    """

    cell: Cell
    status: str = "done"
    score: float | None = None
    parameters: dict[str, Any] = field(default_factory=dict)
    fit_seconds: float | None = None
    predict_seconds: float | None = None
    seconds: float | None = None
    seed: int | None = None
    checksum: str | None = None
    detail: dict[str, Any] = field(default_factory=dict)
    error: str | None = None
    versions: dict[str, str] = field(default_factory=dict)
    finished: str = ""


_COLUMNS = tuple(name for name in Result.__dataclass_fields__ if name != "cell")
_AS_JSON = frozenset({"parameters", "detail", "versions"})
_CELL = ", ".join(Cell._fields)
_EVERYTHING = ", ".join((_CELL, *_COLUMNS))
_OF_CELL = " AND ".join(f"{name} = ?" for name in Cell._fields)


class Store:
    """A file of results.

    Parameters
    ----------
    path : str or path
        Created if it does not exist. ``":memory:"`` keeps everything in memory.

    Examples
    --------
    >>> from margindist.runs.store import Cell, Result, Store
    >>> cell = Cell("demo", "iris", "ldm", 0)
    >>> with Store(":memory:") as store:
    ...     store.record(Result(cell, score=0.97))
    ...     [result.score for result in store.results("demo")]
    [0.97]
    """

    def __init__(self, path: str | os.PathLike):
        self.path = path
        self._lock = threading.Lock()  # joblib asks for tasks from a thread of its own
        try:
            if str(path) != ":memory:":
                Path(path).parent.mkdir(parents=True, exist_ok=True)
            self._connection = sqlite3.connect(path, timeout=60.0, isolation_level=None, check_same_thread=False)
        except (OSError, sqlite3.Error) as error:
            raise StoreError(f"{path}: no results can be kept here ({error}); name another file.") from None
        try:
            self._open()
        except BaseException:
            self._connection.close()
            raise

    def _open(self):
        try:
            (found,) = self._connection.execute("PRAGMA user_version").fetchone()
            if found > _FORMAT:
                raise StoreError(
                    f"{self.path}: written by a newer margindist (format {found}, this reads {_FORMAT}); upgrade it."
                )
            if found < _FORMAT:
                self._connection.executescript(f"BEGIN IMMEDIATE; {_TABLES} PRAGMA user_version = {_FORMAT}; COMMIT;")
        except sqlite3.OperationalError as error:
            raise StoreError(f"{self.path}: no results can be kept here ({error}); name another file.") from None
        except sqlite3.DatabaseError as error:
            raise StoreError(f"{self.path}: not a file of results ({error}); name another file.") from None

    def __enter__(self) -> "Store":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the file."""
        self._connection.close()

    @contextmanager
    def _alone(self):
        """Yield the connection, for one thread at a time; errors of the file become one sentence."""
        with self._lock:
            try:
                yield self._connection
            except sqlite3.DatabaseError as error:
                raise StoreError(
                    f"{self.path}: results cannot be kept or read any more ({error}); see that the file is there and "
                    "whole and the disk has room, then go on with --resume."
                ) from None

    @contextmanager
    def _transaction(self):
        with self._alone() as connection:
            try:
                connection.execute("BEGIN IMMEDIATE")
                yield connection
                connection.execute("COMMIT")
            except BaseException:
                if connection.in_transaction:  # an interrupt may come just before BEGIN or after COMMIT
                    with suppress(sqlite3.DatabaseError):  # SQLite rolls back when the file is next opened
                        connection.execute("ROLLBACK")
                raise

    def _rows(self, query, values=()):
        with self._alone() as connection:
            return connection.execute(query, values).fetchall()

    def record(self, result: Result) -> None:
        """Keep a result and give its claim back, both or neither."""
        kept = {name: getattr(result, name) for name in _COLUMNS}
        kept["finished"] = result.finished or datetime.now(UTC).isoformat(timespec="seconds")
        for name in _AS_JSON:
            kept[name] = json.dumps(kept[name], default=_plain)
        values = [*result.cell, *kept.values()]
        with self._transaction() as connection:
            marks = ", ".join("?" * len(values))
            connection.execute(f"INSERT OR REPLACE INTO results ({_EVERYTHING}) VALUES ({marks})", values)
            connection.execute(f"DELETE FROM claims WHERE {_OF_CELL}", result.cell)

    def results(self, experiment: str | None = None) -> list[Result]:
        """Return every result, or those of one experiment, in the order of their cells."""
        chosen = "" if experiment is None else "WHERE experiment = ?"
        values = () if experiment is None else (experiment,)
        return list(map(_result, self._rows(f"SELECT {_EVERYTHING} FROM results {chosen} ORDER BY {_CELL}", values)))

    def result(self, cell: Cell) -> Result | None:
        """Return the result of one cell, or None."""
        rows = self._rows(f"SELECT {_EVERYTHING} FROM results WHERE {_OF_CELL}", cell)
        return _result(rows[0]) if rows else None

    def pending(self, cells: Iterable[Cell], *, retry: bool = False) -> list[Cell]:
        """Return the cells that have no result; skipped ones count as such, failed ones only with `retry`."""
        kept = "('done')" if retry else "('done', 'failed')"
        finished = set(self._rows(f"SELECT {_CELL} FROM results WHERE status IN {kept}"))
        return [cell for cell in cells if cell not in finished]

    def copy_aside(self) -> Path | None:
        """Copy the file to one with the ending ``.old``; return that, or None for a store in memory."""
        if str(self.path) == ":memory:":
            return None
        old = Path(f"{self.path}.old")
        with self._alone() as connection:
            write_whole(old, connection.serialize())
        return old

    def forget(self, cells: Iterable[Cell]) -> None:
        """Remove the results of these cells, unless another run is counting on them."""
        with self._transaction() as connection:
            runners = connection.execute("SELECT host, pid, beat FROM runners").fetchall()
            if any(_is_alive(*runner) for runner in runners):
                raise StoreError(
                    f"{self.path}: another run is using these results; wait for its end, share the work with --resume, "
                    "or name another file."
                )
            connection.executemany(f"DELETE FROM results WHERE {_OF_CELL}", cells)

    def note(self, name: str, value: Any = None) -> Any:
        """Keep a value (as JSON) under a name, or without a value return what is kept, or None."""
        if value is None:
            rows = self._rows("SELECT value FROM notes WHERE name = ?", (name,))
            return json.loads(rows[0][0]) if rows else None
        with self._transaction() as connection:
            connection.execute("INSERT OR REPLACE INTO notes VALUES (?, ?)", (name, json.dumps(value, default=_plain)))
        return value

    @contextmanager
    def runner(self) -> Iterator[str]:
        """Register a runner while the block lasts; its claims end with it."""
        name = uuid.uuid4().hex
        stop = threading.Event()
        self._beat(name)
        heart = threading.Thread(target=self._beat_until, args=(name, stop), daemon=True)
        heart.start()
        try:
            yield name
        finally:
            stop.set()
            heart.join()
            with suppress(StoreError), self._transaction() as connection:  # claims of dead runners are ignored anyway
                connection.execute("DELETE FROM claims WHERE runner = ?", (name,))
                connection.execute("DELETE FROM runners WHERE runner = ?", (name,))

    def claim(self, cell: Cell, runner: str, *, retry: bool = False) -> bool:
        """Claim a cell for a runner; False if it is finished or another living runner has it."""
        kept = ("done",) if retry else ("done", "failed")
        with self._transaction() as connection:
            row = connection.execute(f"SELECT status FROM results WHERE {_OF_CELL}", cell).fetchone()
            if row is not None and row[0] in kept:
                return False
            holder = connection.execute(
                f"SELECT runner, host, pid, beat FROM claims LEFT JOIN runners USING (runner) WHERE {_OF_CELL}", cell
            ).fetchone()
            if holder is not None and holder[0] != runner and _is_alive(*holder[1:]):
                return False
            connection.execute("INSERT OR REPLACE INTO claims VALUES (?, ?, ?, ?, ?)", (*cell, runner))
            return True

    def _beat(self, runner):
        with self._transaction() as connection:
            connection.execute(
                "INSERT OR REPLACE INTO runners VALUES (?, ?, ?, ?)",
                (runner, platform.node(), os.getpid(), time.time()),
            )

    def _beat_until(self, runner, stop):
        while not stop.wait(_HEARTBEAT):
            with suppress(StoreError):  # the file may be busy; the next beat is soon enough
                self._beat(runner)


def _is_alive(host, pid, beat):
    if host is None or time.time() - beat > _DEAD_AFTER:
        return False
    if host != platform.node() or os.name != "posix":
        return True
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return True


def _result(row):
    cell = Cell(*row[: len(Cell._fields)])
    values = dict(zip(_COLUMNS, row[len(cell) :]))
    for name in _AS_JSON:
        values[name] = json.loads(values[name])
    return Result(cell, **values)


def _plain(value):
    """Numpy's scalars and arrays as JSON's numbers and lists."""
    return value.tolist() if hasattr(value, "tolist") else str(value)
