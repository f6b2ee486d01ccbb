"""Data sets from files: CSV, Parquet, Feather, LIBSVM text, ARFF and NPZ."""

import bz2
import gzip
import io
import lzma
import os
import re
import sys
from collections.abc import Iterable, Mapping
from functools import partial
from pathlib import Path

from margindist.datasets import text_encoding
from margindist.datasets.arff import read_arff
from margindist.datasets.dataset import (
    DataError,
    Dataset,
    Table,
    check_labels,
    one_sentence,
    refuse_beyond,
    table_to_dataset,
    unpacked_bound,
)
from margindist.datasets.delimited import BOM, NotUTF8, read_delimited
from margindist.datasets.npz import read_npz
from margindist.datasets.svmlight import read_svmlight
from margindist.datasets.tables import read_table

_FORMATS = {
    ".csv": "csv",
    ".tsv": "csv",
    ".tab": "csv",
    ".parquet": "parquet",
    ".pq": "parquet",
    ".feather": "feather",
    ".arrow": "feather",
    ".ipc": "feather",
    ".svm": "svmlight",
    ".libsvm": "svmlight",
    ".svmlight": "svmlight",
    ".arff": "arff",
    ".npz": "npz",
}
_OPENERS = {".gz": gzip.open, ".bz2": bz2.open, ".xz": lzma.open}
FILE_ENDINGS = (
    *_FORMATS,
    *(f"{inner}{outer}" for inner in ("", ".csv", ".svm", ".libsvm", ".arff") for outer in _OPENERS),
    "",
)
_HEAD, _CHUNK, _LONGEST_LINE = 1 << 16, 1 << 20, 1 << 26
_ENOUGH_LINES = 20
_MAGIC = {b"\x1f\x8b": gzip.open, b"BZh": bz2.open, b"\xfd7zXZ\x00": lzma.open}
# Formats that are not read: whether they may be ZIP files, endings, first bytes, what they are, how pandas reads them.
_OTHER_FORMATS = (
    (True, (".xlsx", ".xlsm", ".xls", ".ods"), (b"\xd0\xcf\x11\xe0",), "spreadsheets are", "read_excel"),
    (False, (".json", ".jsonl", ".ndjson"), (b'{"', b'[{"', b"[{", b"{\n"), "JSON is", "read_json"),
    (False, (), (b"FEA1",), "Feather files of version 1 are", "read_feather"),
    (False, (".pkl", ".pickle"), (b"\x80\x04", b"\x80\x05"), "pickles, which can run any code, are", "read_pickle"),
    (False, (".dta",), (), "Stata files are", "read_stata"),
    (False, (".sav",), (b"$FL2",), "SPSS files are", "read_spss"),
    (False, (".sas7bdat", ".xpt"), (), "SAS files are", "read_sas"),
    (False, (".h5", ".hdf5", ".hdf"), (b"\x89HDF",), "HDF files are", "read_hdf"),
)
_WEB_PAGE = (b"<!doctype html", b"<html")
_SVMLIGHT_LINE = re.compile(rb"\s*[+-]?[\d.]+(e[+-]?\d+)?(\s+\d+:\S+)+\s*(#.*)?$", re.IGNORECASE)


def read_file(
    path: str | os.PathLike[str],
    *,
    target: str | int | bool | None = None,
    text: Iterable[str] = (),
    encoding: str | None = None,
    spellings: Mapping[str, Mapping[str, str]] | None = None,
    max_unpacked: str | int | None = None,
) -> Dataset:
    r"""Read a data set from a CSV, Parquet, Feather, LIBSVM/svmlight, ARFF or NPZ file.

    The format is chosen by the file's ending, and by its content where the ending says nothing. Text formats may be
    compressed (``.gz``, ``.bz2``, ``.xz``). What is guessed or left out is a sentence in the result's ``notes``.

    Parameters
    ----------
    path : str or path-like
        The file, or ``"-"`` for the standard input.
    target : str, int, False or None, default=None
        Target column of a table by its name or its number (from 0, or from the end: -1 is the last); the key of an NPZ
        file. None guesses: a column called target, class, label, y or the like, else the last one if it looks like
        classes, else the only one that does; where several do, an error lists them. False reads a table without a
        target, as for prediction: ``y`` is None and no row or column is left out.
    text : iterable of str, default=()
        Columns of a delimited file to read as text, whatever they hold: 007 stays 007.
    encoding : str, default=None
        Of a text file, as Python names it. None recognises UTF-8, UTF-16 and cp1252.
    spellings : mapping, default=None
        How columns of a delimited file are to be read, as :attr:`Dataset.spellings` of another file has it. A value
        that does not fit is an error. Columns that are not mentioned are guessed.
    max_unpacked : str or int, default=None
        The most memory that a compressed, Parquet, Feather or NPZ file may become, such as "16GB"; a small file can be
        made to become very much. None is what MARGINDIST_MAX_UNPACKED says, or 4 GB.

    Returns
    -------
    Dataset
        Columns of text are categorical, in a DataFrame; numbers alone are a float64 array; LIBSVM text is CSR.

    Raises
    ------
    DataError
        In one sentence, with the line where there is one, why the file cannot be used.

    Notes
    -----
    A table's first line is taken as names where it has no number above a column of numbers, or holds the name of a
    target, or differs from everything below it. Lines at the top that begin with # are comments.

    A column whose values are all numbers as people write them (1,234.50, 12 %, $5, 1.234,5) or dates (2024-12-31,
    31.12.2024 23:59) is read as numbers: a date as its days since 1970, year, month, day, weekday (Monday is 1) and
    hour. ``n/a`` and the like are missing, and so is a dash among numbers. LIBSVM text is read in blocks: the peak in
    memory is the arrays and a few MB. Text is read by Arrow (``pip install 'margindist[files]'``).

    Examples
    --------
    >>> import pathlib, tempfile
    >>> folder = tempfile.TemporaryDirectory()
    >>> file = pathlib.Path(folder.name) / "flowers.csv"
    >>> _ = file.write_text("length,width,species\n1.5,2,rose\n1.0,3,lily\n2.5,1,rose\n")
    >>> data = read_file(file)
    >>> data.X.shape, data.y.tolist()
    ((3, 2), ['rose', 'lily', 'rose'])
    >>> data.notes
    ("The last column, 'species', was taken as the target.",)
    """
    if os.fspath(path) == "-":
        content = sys.stdin.buffer.read()
        opened, path, name, label = partial(io.BytesIO, content), None, "standard input", "stdin"
    else:
        path = Path(path)
        name, label = path.name, _stem(path)
        if path.is_dir():
            raise DataError(f"{path}: expected a file, got a folder.")
        if not path.exists():
            raise DataError(f"{path}: there is no such file.")
        opened = partial(open, path, "rb")
    head = _head(opened, name)
    ending = "" if path is None else path.suffix.lower()
    unpack = _OPENERS.get(ending) or next((opener for magic, opener in _MAGIC.items() if head.startswith(magic)), None)
    most = unpacked_bound(max_unpacked)
    if unpack is not None:
        packed = opened
        opened = lambda: io.BufferedReader(_Unpacked(unpack(packed(), "rb"), most, name), _CHUNK)  # noqa: E731
        head = _head(opened, name)
    inner = Path(path.stem if ending in _OPENERS else path.name) if path is not None else Path()
    _refuse_other_formats(inner.suffix.lower(), head, name)
    _refuse_wrappings(inner.suffix.lower(), head, name)
    kind = _FORMATS.get(inner.suffix.lower()) or _sniff(head)
    if kind in ("parquet", "feather", "npz"):
        if unpack is not None:
            raise DataError(f"{name}: {kind} files are compressed inside; unpack it first.")
        if path is None:
            raise DataError(f"{name}: {kind} files are not read from the standard input; name the file instead.")
    if kind == "npz":
        return read_npz(path, label, target, most)
    source = name if path is None else str(path)
    if kind in ("parquet", "feather"):
        with one_sentence(name):
            table = read_table(path, name, kind, most)
    else:
        result = _read_text(kind, opened, head, name, encoding, target=target, text=text, spellings=spellings)
        if kind == "svmlight":
            X, y, notes = result
            return Dataset(label, X, y, (), "label", None, source, notes)
        table = result
    return table_to_dataset(table, target=target, name=label, file=name, source=source)


def _read_text(kind, opened, head, name, encoding, **options):
    """Read a text format, from whatever encoding."""
    notes = ()
    told = encoding
    if encoding is not None or head.startswith((b"\xff\xfe", b"\xfe\xff")) or b"\0" in head:
        told = text_encoding.recognised(head) if encoding is None else text_encoding.checked(encoding, name)
    if told not in (None, "utf-8"):
        opened = text_encoding.recoded(opened, told, name)
        head = _head(opened, name)
        if encoding is None:
            notes = (f"The text was read as {told.upper()}.",)
    try:
        return _with_notes(_parse(kind, opened, head, name, **options), notes)
    except NotUTF8 as error:
        if encoding is not None or kind == "svmlight" or not text_encoding.is_cp1252(opened):
            raise
        line = error.line
    opened = text_encoding.recoded(opened, "cp1252", name)
    result = _parse(kind, opened, _head(opened, name), name, **options)
    letters = _letters_of(opened, line)
    notes = (
        f"The text is not UTF-8 and was read as cp1252 (Western European Windows): line {line} has {letters!r}. "
        "--encoding names another.",
    )
    return _with_notes(result, notes)


def _parse(kind, opened, head, name, target, text, spellings):
    with one_sentence(name):
        if kind == "svmlight":
            return _read_svmlight(opened, name, target)
        if kind == "arff":
            return read_arff(opened, name)
        return read_delimited(opened, name, head, text, spellings)


def _with_notes(result, notes):
    if isinstance(result, Table):
        return result._replace(notes=(*notes, *result.notes))
    return (*result[:2], (*notes, *result[2]))


def _letters_of(opened, line):
    """Return the word with the first letter beyond ASCII in a line of a file."""
    with opened() as file:
        for _ in range(line - 1):
            file.readline()
        content = file.readline().decode()
    words = (word for word in re.findall(r"\w+|[^\w\s]+", content) if not word.isascii())
    return next(words, content.strip()[:20])


def _refuse_other_formats(ending, head, name):
    """Raise an error for files that are no format of ours, with what to do."""
    content = head[:4] == b"PK\x03\x04" and b"[Content_Types].xml" in head  # of office programs
    for known, endings, magics, what, call in _OTHER_FORMATS:
        if ending in endings or any(head.lstrip().startswith(magic) for magic in magics) or (known and content):
            raise DataError(
                f"{name}: {what} not read; save it as CSV, or in Python: pandas.{call}({name!r}).to_csv('data.csv', "
                "index=False)."
            )


def _refuse_wrappings(ending, head, name):
    """Raise an error for archives, and for pages that were downloaded in place of a file."""
    if head.startswith(b"PK\x03\x04") and ending != ".npz" and b".npy" not in head:
        raise DataError(f"{name}: ZIP archives are not read; unpack it and name the file within.")
    if head.lstrip()[:14].lower().startswith(_WEB_PAGE):
        raise DataError(f"{name}: expected data, got a web page; was the download refused?")


class _Unpacked(io.RawIOBase):
    """What a packed file holds, up to a bound."""

    def __init__(self, file, most, name):
        self._file, self._most, self._name = file, most, name
        self._size = 0

    def readable(self):
        return True

    def readinto(self, buffer):
        size = self._file.readinto(buffer)
        self._size += size
        refuse_beyond(self._most, self._size, self._name)
        return size

    def close(self):
        self._file.close()
        super().close()


def _head(opened, name):
    """Return the first bytes of a file, several lines if possible; raise an error if there are none."""
    with one_sentence(name), opened() as file:
        head = file.read(_HEAD)
        while len(head) < _most_head(head.count(b"\n")) and (more := file.read(len(head))):
            head += more
    if not head:
        raise DataError(f"{name}: the file is empty.")
    return head


def _most_head(n_lines):
    """Return how many bytes to read of a file that begins with so many lines: enough for a few, however long."""
    if n_lines >= _ENOUGH_LINES:
        return 0
    return _CHUNK if n_lines > 2 else _LONGEST_LINE


def _read_svmlight(opened, name, target):
    if target not in (None, False):
        raise DataError(f"{name}: LIBSVM text has its label first in each line, so target cannot be {target!r}.")
    with opened() as file:
        X, y, notes = read_svmlight(file, name)
    if not len(y):
        raise DataError(f"{name}: the file has no rows.")
    if target is None:
        check_labels(y, name, "the labels")
    return X, y, notes


def _sniff(head):
    """Return the format that the first bytes indicate."""
    if head.startswith(b"PAR1"):
        return "parquet"
    if head.startswith(b"PK\x03\x04"):
        return "npz"
    if head.startswith(b"ARROW1"):
        return "feather"
    lines = [
        line
        for line in head.removeprefix(BOM).split(b"\n")[:200]
        if line.strip() and not line.lstrip().startswith((b"%", b"#"))
    ]
    if lines and lines[0].lstrip().lower().startswith(b"@relation"):
        return "arff"
    return "svmlight" if any(map(_SVMLIGHT_LINE.match, lines[:3])) else "csv"


def _stem(path):
    name = path.name
    while Path(name).suffix.lower() in (*_OPENERS, *_FORMATS) and Path(name).stem != name:
        name = Path(name).stem
    return name
