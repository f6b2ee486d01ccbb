"""Numbers and dates as people write them, in columns that would otherwise be text.

A column is read so only if all its values are, in one and the same manner, and a sentence says what was done. Where two
readings are possible (is 3/4/2024 in March or in April?) it stays text.
"""

import re
from datetime import datetime

import numpy as np

from margindist.datasets.dataset import MISSING_NUMBERS

_SIGNS = "$€£¥₹"
_CODES = "USD|EUR|GBP|JPY|CHF|CNY|INR|SEK|NOK|DKK|PLN|CZK|AUD|CAD|BRL|KRW|MXN|ZAR"
_BLANK = "[ \u00a0\u202f]?"
_GAPS = " '\u00a0\u2009\u202f’"  # between groups of three digits
_DECORATED = re.compile(
    rf"(?P<minus>[+-]?)(?:(?P<before>[{_SIGNS}]|{_CODES}){_BLANK})?(?P<number>[0-9](?:[0-9.,{_GAPS}]*[0-9])?)"
    rf"(?:{_BLANK}(?P<after>[{_SIGNS}%‰]|{_CODES}))?"
)
# How digits may be grouped, and what then stands for the decimal point.
_GROUPINGS = (
    (None, "."),
    (",", "."),
    (".", ","),
    *((gap, point) for gap in _GAPS for point in ".,"),
    (None, ","),
)
_DAY_FIRST, _MONTH_FIRST, _YEAR_FIRST = range(3)
_TIME = (
    r"(?:[T ](?P<hour>[0-9]{1,2}):(?P<minute>[0-9]{2})(?::(?P<second>[0-9]{2})(?:\.[0-9]+)?)?"
    r"(?P<zone>Z|[+-][0-9]{2}:?[0-9]{2})?)?"
)
_ISO = re.compile(r"(?P<a>[0-9]{4})(?P<apart>[-/])(?P<b>[0-9]{1,2})(?P=apart)(?P<c>[0-9]{1,2})" + _TIME)
_OTHER = re.compile(r"(?P<a>[0-9]{1,2})(?P<apart>[./-])(?P<b>[0-9]{1,2})(?P=apart)(?P<c>[0-9]{4})" + _TIME)


def interpret(name, column):
    """Return the columns of numbers that a text column spells, by name, and a sentence; None if it is text."""
    spelled = [level not in MISSING_NUMBERS for level in column.levels]
    levels = [level for level, is_value in zip(column.levels, spelled) if is_value]
    if not levels:
        return None
    for read in (_as_numbers, _as_dates):
        found = read(name, levels)
        if found is not None:
            values, sentence = found
            places = np.full(len(column.levels) + 1, -1)
            places[:-1][np.array(spelled)] = np.arange(len(levels))
            rows = places[column.codes]
            return {key: np.append(part, np.nan)[rows] for key, part in values.items()}, sentence
    return None


def _as_numbers(name, levels):
    parts = []
    for level in levels:
        match = _DECORATED.fullmatch(level)
        if match is None:
            return None
        parts.append(match)
    signs = {(part["before"] or "", part["after"] or "") for part in parts}
    if len(signs) > 1:
        return None  # some have a sign and some have not, or another one
    digits = [part["number"] for part in parts]
    for gap, point in _GROUPINGS:
        written = [_digits(text, gap, point) for text in digits]
        if None not in written:
            break
    else:
        return None
    used = {mark for mark in (gap, point) if mark is not None and any(mark in text for text in digits)}
    plain = signs == {("", "")}
    if plain and {".", ","} <= used and not any("." in text and "," in text for text in digits):
        return None  # 1.500 beside 2,5 may be a point or a thousand
    if gap == "." and "," not in used:
        return None  # 1.234.567 may as well be a version
    if plain and used <= {"."}:
        return None  # plain numbers beside words for missing ones
    numbers = np.array([float(f"{part['minus']}{text}") for part, text in zip(parts, written)])
    (before, after) = signs.pop()
    what = []
    if before or after:
        what.append(f"{before or after} left out")
    if gap in used:
        what.append(f"{'blanks' if gap.isspace() else repr(gap)} between thousands")
    if point == "," and "," in used:
        what.append("decimal commas")
    longest = max(levels, key=len)
    return {name: numbers}, (
        f"The column {name!r} was read as numbers ({', '.join(what)}): {longest!r} is "
        f"{numbers[levels.index(longest)]:.15g}."
    )


def _digits(text, gap, point):
    """The number as Python reads it if its digits are grouped so, else None."""
    whole, dot, fraction = text.partition(point)
    if dot and not fraction.isdecimal():
        return None
    if gap is not None and gap in whole:
        first, *others = whole.split(gap)
        grouped = 1 <= len(first) <= 3 and first[0] != "0" and all(len(group) == 3 for group in others)
        whole = "".join([first, *others]) if grouped else ""
    if not (whole.isascii() and whole.isdecimal()):
        return None
    return f"{whole}.{fraction or 0}"


def _as_dates(name, levels):
    pattern = _ISO if _ISO.fullmatch(levels[0]) else _OTHER
    matches = []
    for level in levels:
        match = pattern.fullmatch(level)
        if match is None:
            return None
        matches.append(match)
    if len({match["apart"] for match in matches}) > 1:
        return None
    if len({match["zone"] for match in matches}) > 1 or len({match["hour"] is None for match in matches}) > 1:
        return None
    orders = (_YEAR_FIRST,) if pattern is _ISO else (_DAY_FIRST, _MONTH_FIRST)
    found = [(order, moments) for order in orders if (moments := _moments(matches, order)) is not None]
    if len(found) != 1:
        return None  # none, or day and month cannot be told apart
    order, moments = found[0]
    values = date_parts(name, moments, with_hours=matches[0]["hour"] is not None)
    how = {_DAY_FIRST: ", the day first,", _MONTH_FIRST: ", the month first,"}.get(order, "")
    return values, date_sentence(name, values, f" ({levels[0]!r}){how}")


def date_sentence(name, values, example=""):
    """Return the sentence that names the parts of a date."""
    return f"The column {name!r} holds dates{example} and was read as numbers: {', '.join(map(repr, values))}."


def _moments(matches, order):
    """The moments, or None if one of them does not exist when the parts are in this order."""
    names = {_DAY_FIRST: "cba", _MONTH_FIRST: "cab", _YEAR_FIRST: "abc"}[order]
    moments = []
    for match in matches:
        clock = [int(match[part] or 0) for part in ("hour", "minute", "second")]
        try:
            moments.append(datetime(*(int(match[part]) for part in names), *clock))
        except ValueError:
            return None
    return np.array(moments, dtype="datetime64[s]")


def date_parts(name, moments, with_hours):
    """Return the numbers that a date is made of, by the names of their columns; NaT is missing."""
    missing = np.isnat(moments)
    days = moments.astype("datetime64[D]")
    months = moments.astype("datetime64[M]").astype(np.int64)
    parts = {
        "days since 1970": moments.astype(np.int64) / 86400.0,
        "year": months // 12 + 1970,
        "month": months % 12 + 1,
        "day": (days - moments.astype("datetime64[M]").astype("datetime64[D]")).astype(np.int64) + 1,
        "weekday": (days.astype(np.int64) + 3) % 7 + 1,
    }
    if with_hours:
        parts["hour"] = (moments - days).astype(np.int64) / 3600.0
    return {f"{name} ({part})": np.where(missing, np.nan, values) for part, values in parts.items()}
