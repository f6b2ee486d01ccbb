"""ARFF, dense and sparse, and KEEL's dialect of it."""

import math
import re
from array import array
from itertools import chain
from typing import NamedTuple

import numpy as np

from margindist.datasets.dataset import NAN, DataError, Sparse, Table, order_levels
from margindist.datasets.delimited import BOM, LONE_CR, check_text
from margindist.datasets.spelling import is_number

_MOST_CODES = 100_000_000
_BLANKS = " \t"
_QUOTED = r"'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\""
_FIELD = re.compile(rf"[ \t]*({_QUOTED}|[^,'\"]*)[ \t]*(,|$)")
_TAB_FIELD = re.compile(rf"[ \t]*({_QUOTED}|[^, \t'\"]+)[ \t]*(,|[ \t]|$)")
_PAIR = re.compile(rf"[ \t]*([0-9]{{1,9}})[ \t]+({_QUOTED}|[^,'\" \t]+)[ \t]*(,|$)")
_ATTRIBUTE = re.compile(rf"@attribute[ \t]+({_QUOTED}|[^ \t{{'\"]+)[ \t]*(.*)$", re.IGNORECASE | re.DOTALL)
_COMMENT = r"[ \t]*(?:%.*)?"
_NUMERIC = re.compile(rf"(?:numeric|real|integer)(?:[ \t]*\[[^\]]*\])?{_COMMENT}", re.IGNORECASE)
_STRING = re.compile(rf"string{_COMMENT}", re.IGNORECASE)
_DATE = re.compile(rf"date(?:[ \t]+(?:{_QUOTED}|[^ \t%'\"]+))?{_COMMENT}", re.IGNORECASE)
_NOMINAL = re.compile(rf"\{{((?:{_QUOTED}|[^'\"}}])*)\}}{_COMMENT}")
_DATA = re.compile(rf"@data{_COMMENT}", re.IGNORECASE)
_ESCAPE = re.compile(r"\\([0-7]{1,3}|u[0-9a-fA-F]{4}|.)")
_ESCAPED = dict(zip("\\\"'%tnrbf", "\\\"'%\t\n\r\b\f", strict=True))


class _Quoted(str):
    """A field that stood in quotes: a question mark there is a value, not a missing one."""


class _Attribute(NamedTuple):
    name: str
    kind: str  # "number", "nominal", "string" or "date"
    levels: dict


def read_arff(opened, name):
    """Return a :class:`Table` from ARFF text; ``opened`` opens the file."""
    with opened() as file:
        lines = enumerate(_decoded_lines(file, name), start=1)
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


def _decoded_lines(file, name):
    """Yield the lines of a file of bytes as text; refuse what is not UTF-8 and say where."""
    for number, line in enumerate(file):
        content = line if number else line.removeprefix(BOM)
        check_text(content, number, name)
        text = content.decode()
        if "\r" in text.removesuffix("\n").removesuffix("\r"):
            raise DataError(f"{name}, line {number + 1}: {LONE_CR}.")
        yield text


def _read_header(lines, name):
    """Return the attributes, and the output where the file names one (KEEL does), up to @data."""
    attributes, target = [], None
    for number, line in lines:
        text = line.strip("\r\n" + _BLANKS)
        word = re.split(f"[{_BLANKS}]", text, maxsplit=1)[0].lower()
        if word == "@attribute":
            attributes.append(_attribute(text, number, name))
        elif word in ("@output", "@outputs") and len(text.split(None, 1)) == 2:
            target = text.split(None, 1)[1].strip()
        elif _DATA.fullmatch(text):
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
    result = _ATTRIBUTE.match(text)
    if result is None:
        raise DataError(f"{name}, line {number}: expected @attribute NAME TYPE, got {text[:60]!r}.")
    label, kind = _unquote(result[1], number, name), result[2].strip(_BLANKS)
    if _NUMERIC.fullmatch(kind):
        return _Attribute(label, "number", {})
    if nominal := _NOMINAL.fullmatch(kind):
        levels = _split(nominal[1].strip(_BLANKS), number, name)
        return _Attribute(label, "nominal", {level: k for k, level in enumerate(dict.fromkeys(levels))})
    if _STRING.fullmatch(kind):
        return _Attribute(label, "string", {})
    if _DATE.fullmatch(kind):
        return _Attribute(label, "date", {})
    raise DataError(f"{name}, line {number}: the type {kind[:40]!r} of attribute {label!r} is not supported.")


def _read_rows(lines, attributes, name):
    """Return the columns (codes for nominal ones, NaN or -1 for missing), and whether rows are sparse."""
    rows = ((number, text) for number, line in lines if (text := line.strip("\r\n" + _BLANKS)) and text[0] != "%")
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
    coded = [k for k, attribute in enumerate(attributes) if attribute.kind != "number"]
    strings = [k for k in coded if attributes[k].kind == "string"]
    codes = {k: array("i") for k in coded}
    entries = {k: (array("q"), array("d")) for k in range(len(attributes)) if k not in codes}
    n_rows = 0
    for number, text in rows:
        given = {k: _value(attributes[k], field, number, name) for k, field in _pairs(text, attributes, number, name)}
        for k in strings:
            if k not in given:
                raise DataError(
                    f"{name}, line {number}: expected a value for the string attribute {attributes[k].name!r}, because "
                    "strings have no first value that could be left out."
                )
        for k in coded:
            codes[k].append(given.pop(k, 0))
        for k, value in given.items():
            if value != 0.0:
                entries[k][0].append(n_rows)
                entries[k][1].append(value)
        n_rows += 1
        if len(coded) * n_rows > _MOST_CODES:
            raise DataError(f"{name}: sparse rows with more than {_MOST_CODES:,} nominal values are not supported.")
    return [
        np.array(codes[k]) if k in codes else Sparse(np.array(entries[k][0]), np.array(entries[k][1]), n_rows)
        for k in range(len(attributes))
    ]


def _value(attribute, field, number, name):
    missing = type(field) is str and field in ("?", "<null>", "")
    if attribute.kind == "number":
        value = math.nan if missing or field in NAN else float(field) if is_number(field) else math.inf
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


def _pairs(text, attributes, number, name):
    """Yield (column, value) of a sparse row."""
    if not text.endswith("}"):
        raise DataError(f"{name}, line {number}: expected a closing brace at the end of a sparse row.")
    inner = text[1:-1].strip(_BLANKS)
    position = 0
    last = -1
    more = False  # after a comma
    while position < len(inner) or more:
        result = _PAIR.match(inner, position)
        column = int(result[1]) if result else -1
        if not last < column < len(attributes):
            raise DataError(
                f"{name}, line {number}: expected ascending column numbers below {len(attributes)} with values."
            )
        yield column, _unquote(result[2], number, name)
        position = result.end()
        last = column
        more = result[3] == ","


def _split(text, number, name):
    """Return the fields of a dense row or of a list of values."""
    if "'" not in text and '"' not in text and "," in text:
        return [field.strip(_BLANKS) for field in text.split(",")]
    pattern = _FIELD if "," in text else _TAB_FIELD
    fields = []
    position = 0
    comma = False
    while position < len(text) or comma:
        result = pattern.match(text, position)
        if result is None or (result.end() == position and not comma and position < len(text)):
            raise DataError(f"{name}, line {number}: quotes do not match.")
        fields.append(_unquote(result[1].strip(_BLANKS), number, name))
        position, comma = result.end(), result[2] == ","
    return fields


def _unquote(field, number, name):
    """Return what a field stands for; a backslash means something only within quotes."""
    if len(field) < 2 or field[0] not in "'\"" or field[-1] != field[0]:
        return field

    def unescaped(result):
        sign = result[1]
        if sign in _ESCAPED:
            return _ESCAPED[sign]
        if sign[0] in "01234567":
            return chr(int(sign, 8))
        if len(sign) == 5 and not 0xD800 <= int(sign[1:], 16) < 0xE000:
            return chr(int(sign[1:], 16))
        raise DataError(f"{name}, line {number}: the escape sequence {result[0]} is not known; write \\\\ for \\.")

    return _Quoted(_ESCAPE.sub(unescaped, field[1:-1]))
