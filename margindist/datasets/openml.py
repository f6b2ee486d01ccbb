"""Data sets of OpenML: fetched once, checked, and continued where a download broke off.

OpenML describes a data set in JSON (name, target, columns that are no features, address and MD5 of its file) and has
its rows as ARFF. Both are kept in the folder ``margindist`` of scikit-learn's data folder, which ``SCIKIT_LEARN_DATA``
names; what is there and has the right MD5 needs no network. A download goes to a file with the ending ``.part`` and
begins where that ends, if the server allows it; it gets its own name when it is whole and its MD5 is right.
"""

import hashlib
import json
import shutil
import sqlite3
import time
from contextlib import closing, contextmanager
from functools import partial
from http.client import HTTPException
from pathlib import Path
from typing import NamedTuple
from urllib.error import HTTPError, URLError
from urllib.parse import quote, urlsplit
from urllib.request import Request, urlopen

import numpy as np
from sklearn.datasets import get_data_home

from margindist.datasets.arff import read_arff
from margindist.datasets.dataset import DataError, Table, labels_of, table_to_dataset
from margindist.files import write_whole

SERVER = "https://www.openml.org"
_TIMEOUT = 30.0  # seconds without an answer
_ATTEMPTS = 3  # to download a file
_UNKNOWN = 412  # status of a data set that the server does not have
_BEYOND = 416  # status of a range that begins where the file ends
_BROKEN = (URLError, TimeoutError, ConnectionError, HTTPException)


class _Remote(NamedTuple):
    """What OpenML says of a data set."""

    target: str
    left_out: tuple[str, ...]
    url: str
    md5: str


def read_openml(name, recipe):
    """Return features, labels and names of the features of a data set on OpenML.

    Parameters
    ----------
    name : str
        What errors call it.
    recipe : mapping
        ``name`` on OpenML, with ``id`` (without one, its first version); ``drop`` names columns to leave out.

    Returns
    -------
    X : ndarray, csr_matrix or DataFrame
    y : ndarray of str
    names : tuple of str

    Raises
    ------
    DataError
        In one sentence: no network, no room, not what was expected.
    """
    with _one_sentence(name):
        remote, path = _kept_or_fetched(name, recipe)
    table = read_arff(partial(open, path, "rb"), path.name)
    if remote.target not in table.names:
        raise DataError(f"{name}: OpenML's file has no column {remote.target!r}, which is said to be the target.")
    table = table.where_known(remote.target)
    data = table_to_dataset(
        _without(table, {*remote.left_out, *recipe.get("drop", ()), remote.target}),
        target=False, name=name, file=path.name, source=path.name,
    )  # fmt: skip
    if not data.feature_names:
        raise DataError(f"{name}: OpenML's file has no column besides those that are no features.")
    return data.X, labels_of(table.column(remote.target)).astype(str), data.feature_names


def _without(table, left_out):
    kept = [k for k, column in enumerate(table.names) if column not in left_out]
    return Table(tuple(table.names[k] for k in kept), [table.columns[k] for k in kept])


def _kept_or_fetched(name, recipe):
    folder = Path(get_data_home(), "margindist")
    stem = f"{recipe['name']}-{recipe.get('id', 'v1')}"
    described, path = folder / f"{stem}.json", folder / f"{stem}.arff"
    if not _is_whole(described, path):
        folder.mkdir(parents=True, exist_ok=True)
        with _alone(folder):  # another process may have fetched it while this one waited
            if not _is_whole(described, path):
                write_whole(described, json.dumps(_ask(name, recipe)))
                _fetch(name, _remote(described, name, recipe), path)
    return _remote(described, name, recipe), path


def _is_whole(described, path):
    if not (described.is_file() and path.is_file()):
        return False
    try:
        description = json.loads(described.read_text(encoding="utf-8"))
        md5 = description["md5_checksum"] if {"name", "url", "default_target_attribute"} <= description.keys() else ""
    except (ValueError, KeyError, AttributeError):
        return False
    return _md5(path) == md5


def _md5(path):
    with open(path, "rb") as file:
        return hashlib.file_digest(file, lambda: hashlib.md5(usedforsecurity=False)).hexdigest()


@contextmanager
def _alone(folder):
    """Wait until no other process fetches into this folder.

    The lock is a transaction of SQLite, which on every system ends with the process, however that ends.
    """
    with closing(sqlite3.connect(folder / "lock.sqlite", timeout=0.2, isolation_level=None)) as lock:
        while True:
            try:
                lock.execute("begin exclusive")
                break
            except sqlite3.OperationalError as error:
                if "locked" not in str(error):
                    raise OSError(None, str(error), str(folder)) from None
                time.sleep(0.2)
        yield


def _ask(name, recipe):
    """Return OpenML's description of a data set."""
    number = recipe.get("id")
    if number is None:
        listed = _json(name, f"data/list/data_name/{quote(recipe['name'])}/limit/2/data_version/1")
        number = listed["data"]["dataset"][0]["did"]
    return _json(name, f"data/{number}")["data_set_description"]


def _json(name, what):
    try:
        with _open(f"{SERVER}/api/v1/json/{what}") as answer:
            return json.load(answer)
    except HTTPError as error:
        if error.code == _UNKNOWN:
            raise DataError(f"{name}: OpenML no longer has it; get it elsewhere.") from None
        raise


def _remote(described, name, recipe):
    description = json.loads(described.read_text(encoding="utf-8"))
    if description["name"] != recipe["name"]:
        described.unlink()
        raise DataError(f"OpenML's data set {recipe['id']} is {description['name']}, expected {recipe['name']}.")
    if urlsplit(description["url"]).scheme not in ("http", "https"):
        raise DataError(f"{name}: expected an address on the web for OpenML's file, got {description['url'][:60]!r}.")
    left_out = tuple(
        column.strip()
        for key in ("ignore_attribute", "row_id_attribute")
        for entry in np.atleast_1d(description.get(key) or [])
        for column in str(entry).split(",")
    )
    return _Remote(description["default_target_attribute"], left_out, description["url"], description["md5_checksum"])


def _fetch(name, remote, path):
    """Download the file to ``path``, continuing from what is already there."""
    part = path.with_name(f"{path.name}.part")
    for attempt in range(1, _ATTEMPTS + 1):
        try:
            if _go_on(remote.url, part):
                break
        except HTTPError:
            raise
        except _BROKEN:
            if attempt == _ATTEMPTS and not part.exists():
                raise
    else:
        raise DataError(
            f"{name}: the download from OpenML broke off after {part.stat().st_size:,} bytes; try again, and it goes "
            "on from there."
        )
    if _md5(part) != remote.md5:
        part.unlink()
        raise DataError(f"{name}: what OpenML sent is damaged (its MD5 is another one) and was deleted; try again.")
    part.replace(path)


def _go_on(url, part):
    """Append what is missing to ``part``, or start again; return whether the file is complete."""
    have = part.stat().st_size if part.exists() else 0
    try:
        with _open(url, {"Range": f"bytes={have}-"} if have else {}) as answer:
            if answer.status != 206:
                have = 0
            elif not answer.headers.get("Content-Range", "").startswith(f"bytes {have}-"):
                part.unlink()
                return False
            with open(part, "ab" if have else "wb") as file:
                shutil.copyfileobj(answer, file)
            length = answer.headers.get("Content-Length")
            return length is None or part.stat().st_size == have + int(length)
    except HTTPError as error:
        if error.code == _BEYOND and have:
            return True  # nothing is missing; the MD5 will tell whether it is right
        raise


def _open(url, headers=()):
    return urlopen(Request(url, headers={"User-Agent": "margindist", **dict(headers)}), timeout=_TIMEOUT)


@contextmanager
def _one_sentence(name):
    try:
        yield
    except DataError:
        raise
    except _BROKEN as error:
        answer = f" ({error.code} {error.reason})" if isinstance(error, HTTPError) else ""
        raise DataError(
            f"{name} is not here and OpenML did not answer{answer}; check the network, or put {name}.npz into the "
            "folder that MARGINDIST_DATA names."
        ) from None
    except OSError as error:
        raise DataError(
            f"{name}: files of OpenML cannot be kept in {error.filename or 'the data folder'} "
            f"({error.strerror or error}); set SCIKIT_LEARN_DATA to a folder that can be written."
        ) from None
    except (ValueError, KeyError, IndexError, TypeError):
        raise DataError(f"{name}: what OpenML says of it cannot be understood; try again later.") from None
