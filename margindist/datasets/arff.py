"""ARFF, dense and sparse, and KEEL's dialect of it."""

import math
import re
from array import array
from itertools import chain
from typing import NamedTuple

import numpy as np

from margindist.datasets.dataset import DataError
from margindist.datasets.delimited import decoded_lines
from margindist.datasets.tables import Sparse, Table, order_levels

__all__ = ["read_arff"]

_MOST_CODES = 100_000_000
_QUOTED = r"'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\""
_FIELD = re.compile(rf"\s*({_QUOTED}|[^,'\"]*)\s*(,|$)")
_TAB_FIELD = re.compile(rf"\s*({_QUOTED}|[^,\s'\"]+)\s*(,|\s|$)")
_PAIR = re.compile(rf"\s*(\d+)\s+({_QUOTED}|[^,'\"\s]+)\s*(,|$)")
_ATTRIBUTE = re.compile(rf"@attribute\s+({_QUOTED}|[^\s{{'\"]+)\s*(.*)$", re.IGNORECASE | re.DOTALL)
_NUMERIC = re.compile(r"(numeric|real|integer)\b", re.IGNORECASE)


class _Quoted(str):
    """A field that stood in quotes: a question mark there is a value, not a missing one."""


class _Attribute(NamedTuple):
    name: str
    kind: str  # "number", "nominal", "string" or "date"
    levels: dict


def read_arff(opened, name, head):
    """Return a :class:`Table` from ARFF text; ``opened`` opens the file."""
    del head
    with opened() as file:
        lines = enumerate(decoded_lines(file, name), start=1)
        attributes, target = _read_header(lines, name)
        columns, sparse = _read_rows(lines, attributes, name)
    kept = [k for k, attribute in enumerate(attributes) if attribute.kind != "date"]
    notes = ["The rows are sparse: values left out were taken as 0, or as a nominal attribute's first value."] * sparse
    if len(kept) < len(attributes):
        dates = ", ".join(repr(attribute.name) for attribute in attributes if attribute.kind == "date")
        notes.append(f"Columns of dates left out: {dates}.")
    finished = [
        columns[k] if attributes[k].kind == "number" else order_levels(columns[k], list(attributes[k].levels))
        for k in kept
    ]
    return Table(tuple(attributes[k].name for k in kept), finished, tuple(notes), target)


def _read_header(lines, name):
    """Return the attributes, and the output where the file names one (KEEL does), up to @data."""
    attributes, target = [], None
    for number, line in lines:
        text = line.strip()
        word = text.split(None, 1)[0].lower() if text else ""
        if word == "@attribute":
            attributes.append(_attribute(text, number, name))
        elif word in ("@output", "@outputs") and len(text.split(None, 1)) == 2:
            target = text.split(None, 1)[1].strip()
        elif word == "@data":
            break
        elif word and not word.startswith("%") and word not in ("@relation", "@input", "@inputs"):
            raise DataError(f"{name}, line {number}: expected @relation, @attribute or @data, got {text[:40]!r}.")
    else:
        raise DataError(f"{name}: expected a line with @data, got none.")
    names = [attribute.name for attribute in attributes]
    if not names:
        raise DataError(f"{name}: expected a line with @attribute before @data, got none.")
    if len(set(names)) < len(names):
        raise DataError(f"{name}: two attributes have the same name.")
    return attributes, target if target in names else None


def _attribute(text, number, name):
    found = _ATTRIBUTE.match(text)
    if found is None:
        raise DataError(f"{name}, line {number}: expected @attribute NAME TYPE, got {text[:60]!r}.")
    label, kind = _unquote(found[1]), found[2].strip()
    if _NUMERIC.match(kind):
        return _Attribute(label, "number", {})
    if kind.startswith("{"):
        levels = _split(kind[1 : kind.rfind("}")].strip() if "}" in kind else kind[1:].strip(), number, name)
        return _Attribute(label, "nominal", {level: k for k, level in enumerate(dict.fromkeys(levels))})
    if kind.lower().startswith(("string", "date")):
        return _Attribute(label, kind[:6].lower().split()[0], {})
    raise DataError(f"{name}, line {number}: the type {kind[:40]!r} of attribute {label!r} is not supported.")


def _read_rows(lines, attributes, name):
    """Return the columns (codes for nominal ones, NaN or -1 for missing), and whether rows are sparse."""
    rows = ((number, text) for number, line in lines if (text := line.strip()) and text[0] != "%")
    first = next(rows, None)
    if first is None:
        raise DataError(f"{name}: the file has no rows below @data.")
    sparse = first[1][0] == "{"
    alike = _all_alike(chain([first], rows), sparse, name)
    return (_sparse_columns if sparse else _dense_columns)(alike, attributes, name), sparse


def _all_alike(rows, sparse, name):
    for number, text in rows:
        if (text[0] == "{") != sparse:
            raise DataError(f"{name}, line {number}: dense and sparse rows in one file are not supported.")
        yield number, text


def _dense_columns(rows, attributes, name):
    columns = [array("d" if attribute.kind == "number" else "i") for attribute in attributes]
    for number, text in rows:
        fields = _split(text, number, name)
        if len(fields) != len(columns):
            raise DataError(f"{name}, line {number}: expected {len(columns)} fields, got {len(fields)}.")
        row = [_value(attribute, field, number, name) for attribute, field in zip(attributes, fields, strict=True)]
        for column, value in zip(columns, row, strict=True):
            column.append(value)
    return [np.array(column) for column in columns]


def _sparse_columns(rows, attributes, name):
    """Only nominal columns are as long as the file; what a row leaves out of them is their first value."""
    nominal = [k for k, attribute in enumerate(attributes) if attribute.kind != "number"]
    codes = {k: array("i") for k in nominal}
    entries = {k: (array("q"), array("d")) for k in range(len(attributes)) if k not in codes}
    n_rows = 0
    for number, text in rows:
        for k in nominal:
            codes[k].append(0)
        for k, field in _pairs(text, len(attributes), number, name):
            value = _value(attributes[k], field, number, name)
            if k in codes:
                codes[k][-1] = value
            elif value != 0.0:
                entries[k][0].append(n_rows)
                entries[k][1].append(value)
        n_rows += 1
        if len(nominal) * n_rows > _MOST_CODES:
            raise DataError(f"{name}: sparse rows with more than {_MOST_CODES:,} nominal values are not supported.")
    return [
        np.array(codes[k]) if k in codes else Sparse(np.array(entries[k][0]), np.array(entries[k][1]), n_rows)
        for k in range(len(attributes))
    ]


def _value(attribute, field, number, name):
    missing = type(field) is str and field in ("?", "<null>", "")
    if attribute.kind == "number":
        try:
            value = math.nan if missing else float(field)
        except ValueError:
            value = math.inf
        if math.isinf(value):
            raise DataError(
                f"{name}, line {number}: expected a finite number for {attribute.name!r}, got {field[:40]!r}."
            )
        return value
    if missing:
        return -1
    if attribute.kind == "nominal" and field not in attribute.levels:
        raise DataError(f"{name}, line {number}: {field[:40]!r} is not among the values of {attribute.name!r}.")
    return attribute.levels.setdefault(field, len(attribute.levels))


def _pairs(text, n_columns, number, name):
    """Yield (column, value) of a sparse row."""
    if not text.endswith("}"):
        raise DataError(f"{name}, line {number}: expected a closing brace at the end of a sparse row.")
    inner, position, last = text[1:-1].strip(), 0, -1
    while position < len(inner):
        found = _PAIR.match(inner, position)
        column = int(found[1][:10]) if found else -1
        if not last < column < n_columns:
            raise DataError(f"{name}, line {number}: expected ascending column numbers below {n_columns} with values.")
        yield column, _unquote(found[2])
        position, last = found.end(), column


def _split(text, number, name):
    """Return the fields of a dense row or of a list of values."""
    if "'" not in text and '"' not in text and "," in text:
        return [field.strip() for field in text.split(",")]
    pattern = _FIELD if "," in text else _TAB_FIELD
    fields, position, comma = [], 0, False
    while position < len(text) or comma:
        found = pattern.match(text, position)
        if found is None or (found.end() == position and not comma and position < len(text)):
            raise DataError(f"{name}, line {number}: quotes do not match.")
        fields.append(_unquote(found[1].strip()))
        position, comma = found.end(), found[2] == ","
    return fields


def _unquote(field):
    if len(field) >= 2 and field[0] in "'\"" and field[-1] == field[0]:
        return _Quoted(re.sub(r"\\(.)", r"\1", field[1:-1]))
    return field
