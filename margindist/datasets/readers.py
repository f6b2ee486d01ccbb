"""Data sets from files: CSV, Parquet, LIBSVM text, ARFF and NPZ."""

import bz2
import gzip
import lzma
import re
from functools import partial
from pathlib import Path

from margindist.datasets.arff import read_arff
from margindist.datasets.dataset import DataError, Dataset, check_labels, one_sentence, table_to_dataset
from margindist.datasets.delimited import read_delimited
from margindist.datasets.fields import BOM
from margindist.datasets.npz import read_npz
from margindist.datasets.parquet import read_parquet
from margindist.datasets.svmlight import read_svmlight

_FORMATS = {
    ".csv": "csv",
    ".tsv": "csv",
    ".tab": "csv",
    ".parquet": "parquet",
    ".pq": "parquet",
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
_MAGIC = {b"\x1f\x8b": gzip.open, b"BZh": bz2.open, b"\xfd7zXZ\x00": lzma.open}
_SVMLIGHT_LINE = re.compile(rb"\s*[+-]?[\d.]+(e[+-]?\d+)?(\s+\d+:\S+)+\s*(#.*)?$", re.IGNORECASE)


def read_file(path, *, target=None, text=()):
    r"""Read a data set from a CSV, Parquet, LIBSVM/svmlight, ARFF or NPZ file.

    The format is chosen by the file's ending, and by its content where the ending says nothing. Text formats may be
    compressed (``.gz``, ``.bz2``, ``.xz``). What is guessed or left out is a sentence in the result's ``notes``.

    Parameters
    ----------
    path : str or path-like
        The file.
    target : str, int, False or None, default=None
        Target column of a table by its name or its number (from 0, or from the end: -1 is the last); the key of an NPZ
        file. None guesses: a column called target, class, label, y or the like, else the last one, or the first
        where that has few different values and the last has many. False reads a table without a target, as for
        prediction: ``y`` is None and no row or column is left out.
    text : iterable of str, default=()
        Columns of a delimited file to read as text, whatever they hold: 007 stays 007.

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
    target, or differs from everything below it. LIBSVM text is read in blocks: the peak in memory is the arrays and a
    few MB.

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
    path = Path(path)
    name, label = path.name, _stem(path)
    if path.is_dir():
        raise DataError(f"{path}: expected a file, got a folder.")
    if not path.exists():
        raise DataError(f"{path}: there is no such file.")
    head = _head(path, open)
    ending = path.suffix.lower()
    by_content = (opener for magic, opener in _MAGIC.items() if head.startswith(magic))
    unpack = _OPENERS.get(ending) or next(by_content, None)
    if unpack is not None:
        head = _head(path, unpack)
    opened = partial(unpack or open, path, "rb")
    inner = Path(path.stem) if ending in _OPENERS else path
    kind = _FORMATS.get(inner.suffix.lower()) or _sniff(head)
    if unpack is not None and kind in ("parquet", "npz"):
        raise DataError(f"{name}: {kind} files are compressed inside; unpack it first.")
    if kind == "npz":
        return read_npz(path, label, target)
    if kind == "svmlight":
        return _read_svmlight(opened, path, label, target)
    with one_sentence(name):
        if kind == "parquet":
            table = read_parquet(path, name)
        elif kind == "arff":
            table = read_arff(opened, name)
        else:
            table = read_delimited(opened, name, head, text)
    return table_to_dataset(table, target=target, name=label, file=name, source=str(path))


def _head(path, opener):
    """Return the first bytes of a file; raise an error if there are none."""
    with one_sentence(path.name), opener(path, "rb") as file:
        head = file.read(1 << 16)
    if not head:
        raise DataError(f"{path.name}: the file is empty.")
    return head


def _read_svmlight(opened, path, label, target):
    name = path.name
    if target not in (None, False):
        raise DataError(f"{name}: LIBSVM text has its label first in each line, so target cannot be {target!r}.")
    with one_sentence(name), opened() as file:
        X, y, notes = read_svmlight(file, name)
    if not len(y):
        raise DataError(f"{name}: the file has no rows.")
    if target is None:
        check_labels(y, name, "the labels")
    return Dataset(label, X, y, (), "label", None, "", str(path), notes)


def _sniff(head):
    """Return the format that the first bytes indicate."""
    if head.startswith(b"PAR1"):
        return "parquet"
    if head.startswith(b"PK\x03\x04"):
        return "npz"
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
