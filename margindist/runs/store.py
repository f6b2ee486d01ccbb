"""One SQLite file of results, a row per cell, written whole or not at all.

A *cell* is the smallest piece of work that is kept: one method on one split of one data set in one experiment. One run
at a time works on a file, while others may read it; a killed run leaves nothing behind but the results it had finished.
"""

import json
import os
import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

from margindist.files import locked

_FORMAT = 1
_TABLES = """
CREATE TABLE IF NOT EXISTS results (
    experiment TEXT, dataset TEXT, method TEXT, split INTEGER,
    status TEXT NOT NULL CHECK (status IN ('done', 'failed', 'skipped')),
    score REAL, parameters TEXT, fit_seconds REAL, predict_seconds REAL, seconds REAL,
    seed INTEGER, checksum TEXT, detail TEXT, error TEXT, versions TEXT, finished TEXT,
    PRIMARY KEY (experiment, dataset, method, split)
) WITHOUT ROWID;
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
    detail: Any = field(default_factory=dict)
    error: str | None = None
    versions: dict[str, str] = field(default_factory=dict)
    finished: str = ""


_COLUMNS = tuple(name for name in Result.__dataclass_fields__ if name != "cell")
_AS_JSON = frozenset({"parameters", "detail", "versions"})
_CELL = ", ".join(Cell._fields)
_EVERYTHING = ", ".join((_CELL, *_COLUMNS))
_OF_CELL = " AND ".join(f"{name} = ?" for name in Cell._fields)
_RECORD = f"INSERT OR REPLACE INTO results ({_EVERYTHING}) VALUES ({', '.join('?' * (4 + len(_COLUMNS)))})"


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
        self._is_alone = str(path) == ":memory:"
        try:
            if not self._is_alone:
                Path(path).parent.mkdir(parents=True, exist_ok=True)
            self._connection = sqlite3.connect(path, timeout=60.0, isolation_level=None)
        except (OSError, sqlite3.Error) as error:
            raise StoreError(f"{path}: no results can be kept here ({error}); name another file.") from None
        try:
            self._open()
        except BaseException:
            self.close()
            raise

    def _open(self):
        try:
            (outcome,) = self._connection.execute("PRAGMA user_version").fetchone()
            if outcome > _FORMAT:
                raise StoreError(
                    f"{self.path}: written by a newer margindist (format {outcome}, this reads {_FORMAT}); upgrade it."
                )
            if outcome < _FORMAT:
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
    def alone(self) -> Iterator[None]:
        """Keep other runs from the file while the block lasts; within another such block it does nothing."""
        if self._is_alone:
            yield
            return
        with locked(f"{self.path}.lock") as free:
            if not free:
                raise StoreError(
                    f"{self.path}: another run is using these results; wait for its end, or name another file."
                )
            self._is_alone = True
            try:
                yield
            finally:
                self._is_alone = False

    @contextmanager
    def _transaction(self):
        """Yield the connection; all that happens is kept or nothing, and errors of the file become one sentence."""
        connection = self._connection
        try:
            connection.execute("BEGIN IMMEDIATE")
            yield connection
            connection.execute("COMMIT")
        except sqlite3.DatabaseError as error:
            raise StoreError(
                f"{self.path}: results cannot be kept or read any more ({error}); see that the file is there and "
                "whole and the disk has room, then go on with --resume."
            ) from None
        finally:
            if connection.in_transaction:  # an interrupt may come just before BEGIN or after COMMIT
                with suppress(sqlite3.DatabaseError):  # SQLite rolls back when the file is next opened
                    connection.execute("ROLLBACK")

    def _rows(self, query, values=()):
        try:
            return self._connection.execute(query, values).fetchall()
        except sqlite3.DatabaseError as error:
            raise StoreError(f"{self.path}: results cannot be kept or read any more ({error}).") from None

    def record(self, result: Result) -> None:
        """Keep a result."""
        kept = {name: getattr(result, name) for name in _COLUMNS}
        kept["finished"] = result.finished or datetime.now(UTC).isoformat(timespec="seconds")
        for name in _AS_JSON:
            kept[name] = json.dumps(kept[name], default=_plain)
        with self._transaction() as connection:
            connection.execute(_RECORD, [*result.cell, *kept.values()])

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

    def forget(self, cells: Iterable[Cell]) -> None:
        """Remove the results of these cells, unless another run is counting on them."""
        with self.alone(), self._transaction() as connection:
            connection.executemany(f"DELETE FROM results WHERE {_OF_CELL}", cells)

    def note(self, name: str, value: Any = None) -> Any:
        """Keep a value (as JSON) under a name, or without a value return what is kept, or None."""
        if value is None:
            rows = self._rows("SELECT value FROM notes WHERE name = ?", (name,))
            return json.loads(rows[0][0]) if rows else None
        with self._transaction() as connection:
            connection.execute("INSERT OR REPLACE INTO notes VALUES (?, ?)", (name, json.dumps(value, default=_plain)))
        return value


def _result(row):
    values = dict(zip(_COLUMNS, row[4:]))
    for name in _AS_JSON:
        values[name] = json.loads(values[name])
    return Result(Cell(*row[:4]), **values)


def _plain(value):
    """Numpy's scalars and arrays as JSON's numbers and lists."""
    return value.tolist() if hasattr(value, "tolist") else str(value)
