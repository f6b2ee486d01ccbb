"""Numbers and dates as people write them, decided on the different texts of a column.

A column is read so only if all its values are, in one and the same manner, and a sentence says what was done. Where two
readings are possible (is 3/4/2024 in March or in April?) it stays text. What was decided is a :class:`Numbers`,
:class:`Dates` or :class:`Words`, which a model keeps: the columns of new rows are read as those that it was fitted to,
whatever the new rows alone would look like.
"""

import re
from datetime import datetime
from typing import NamedTuple

import numpy as np

from margindist.datasets.dataset import MISSING_NUMBERS, DataError

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
    ("", "."),
    (",", "."),
    (".", ","),
    *((gap, point) for gap in _GAPS for point in ".,"),
    ("", ","),
)
_PLAIN = "[+-]?([0-9]+[.]?[0-9]*|[.][0-9]+)([eE][+-]?[0-9]+)?"
_INFINITE = "[+-]?[iI][nN][fF]([iI][nN][iI][tT][yY])?"
_NUMBER = re.compile(f"{_PLAIN}|{_INFINITE}")
_DAY_FIRST, _MONTH_FIRST, _YEAR_FIRST = "day first", "month first", "year first"
_PARTS = {_DAY_FIRST: "cba", _MONTH_FIRST: "cab", _YEAR_FIRST: "abc"}
_TIME = (
    r"(?:[T ](?P<hour>[0-9]{1,2}):(?P<minute>[0-9]{2})(?::(?P<second>[0-9]{2})(?:\.[0-9]+)?)?"
    r"(?P<zone>Z|[+-][0-9]{2}:?[0-9]{2})?)?"
)
_ISO = re.compile(r"(?P<a>[0-9]{4})(?P<apart>[-/])(?P<b>[0-9]{1,2})(?P=apart)(?P<c>[0-9]{1,2})" + _TIME)
_OTHER = re.compile(r"(?P<a>[0-9]{1,2})(?P<apart>[./-])(?P<b>[0-9]{1,2})(?P=apart)(?P<c>[0-9]{4})" + _TIME)


class Words(NamedTuple):
    """Values are what they are."""

    def described(self):
        """Say how the column was read."""
        return "text"


class Numbers(NamedTuple):
    """Numbers with this decimal point, a mark between thousands, and a sign before or after, where there are any."""

    point: str = "."
    thousands: str = ""
    before: str = ""
    after: str = ""

    @property
    def plain(self):
        """Whether nothing but a decimal point tells them from a computer's numbers."""
        return not (self.thousands or self.before or self.after)

    def described(self):
        """Say how the column was read."""
        return f"numbers ({', '.join(self.habits())})" if self.habits() else "numbers"

    def habits(self):
        """Return, in words, what is unlike a computer's numbers."""
        what = []
        if self.before or self.after:
            what.append(f"{self.before or self.after} left out")
        if self.thousands:
            what.append(f"{'blanks' if self.thousands.isspace() else repr(self.thousands)} between thousands")
        if self.point == ",":
            what.append("decimal commas")
        return what

    def read(self, level):
        """Return the number that a text spells so, the sign or none, or None."""
        match = _DECORATED.fullmatch(level)
        if match is None or (match["before"] or self.before, match["after"] or self.after) != (self.before, self.after):
            return None
        digits = _digits(match["number"], self.thousands, self.point)
        return None if digits is None else float(match["minus"] + digits)


class Dates(NamedTuple):
    """Dates with their parts in this order, with a time of the day in this zone, or without."""

    order: str
    hours: bool
    zone: str = ""

    def described(self):
        """Say how the column was read."""
        return f"dates{' and times' if self.hours else ''} with the {self.order}"

    def read(self, level):
        """Return the moment that a text names so, or None."""
        match = (_ISO if self.order == _YEAR_FIRST else _OTHER).fullmatch(level)
        if match is None or (match["hour"] is not None, match["zone"] or "") != (self.hours, self.zone):
            return None
        clock = [int(match[part] or 0) for part in ("hour", "minute", "second")]
        try:
            return datetime(*(int(match[part]) for part in _PARTS[self.order]), *clock)
        except ValueError:
            return None


def as_plain(how):
    """Return what was decided as a dictionary of strings."""
    return {"kind": type(how).__name__.lower(), **{name: str(value) for name, value in how._asdict().items()}}


def from_plain(described, column):
    """Return what a dictionary of strings says; raise an error where it says nothing known."""
    kinds = {"words": Words, "numbers": Numbers, "dates": Dates}
    rest = dict(described) if isinstance(described, dict) else {}
    kind = kinds.get(rest.pop("kind", None))
    if kind is not None and rest.keys() == set(kind._fields) and all(isinstance(text, str) for text in rest.values()):
        how = kind(**rest)
        how = how._replace(hours=how.hours == "True") if kind is Dates else how
        if not (kind is Numbers and how.point not in (".", ",")) and not (kind is Dates and how.order not in _PARTS):
            return how
    raise DataError(f"how the column {column!r} was read is not understood: {str(described)[:80]}.")


def is_number(text):
    """Tell whether a text is a number as computers write it."""
    return _NUMBER.fullmatch(text) is not None


def numbers_among(levels, point="."):
    """Return the numbers, infinite ones too, that different texts are as computers write them; others are NaN."""
    import pyarrow as pa
    import pyarrow.compute as pc

    written = _PLAIN.replace("[.]", f"[{point}]")
    spelled = pc.match_substring_regex(levels, f"^(({written})|({_INFINITE}))$")
    if point == ",":
        levels = pc.replace_substring(levels, ",", ".")
    known = pc.if_else(spelled, levels, pa.scalar(None, levels.type))
    try:
        return pc.cast(known, pa.float64()).to_numpy(zero_copy_only=False)
    except pa.ArrowInvalid:  # earlier versions refuse +1 and 1e400
        return np.array([np.nan if text is None else float(text) for text in known.to_pylist()])


def guessed(levels, commas):
    """Return how texts, none of which stands for a missing value, are read as numbers or dates; Words if they are not.

    ``commas`` tells whether 1,234 is a decimal number rather than a thousand.
    """
    for point in (".", ",") if commas else (".",):
        if not np.isnan(numbers_among(levels[:50], point)).any() and not np.isnan(numbers_among(levels, point)).any():
            return Numbers(point)
    (first,) = levels[:1].to_pylist()
    if _DECORATED.fullmatch(first) is not None:
        return _guessed_numbers(levels.to_pylist()) or _guessed_dates(levels.to_pylist()) or Words()
    if _ISO.fullmatch(first) or _OTHER.fullmatch(first):
        return _guessed_dates(levels.to_pylist()) or Words()
    return Words()


def _guessed_numbers(levels):
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
        if all(_digits(text, gap, point) is not None for text in digits):
            break
    else:
        return None
    used = {mark for mark in (gap, point) if mark and any(mark in text for text in digits)}
    bare = signs == {("", "")}
    if bare and {".", ","} <= used and not any("." in text and "," in text for text in digits):
        return None  # 1.500 beside 2,5 may be a point or a thousand
    if gap == "." and "," not in used:
        return None  # 1.234.567 may as well be a version
    (before, after) = signs.pop()
    return Numbers(point if point in used else ".", gap if gap in used else "", before, after)


def _digits(text, gap, point):
    """The number as Python reads it if its digits are grouped so, else None."""
    whole, dot, fraction = text.partition(point)
    if dot and not fraction.isdecimal():
        return None
    if gap and gap in whole:
        first, *others = whole.split(gap)
        grouped = 1 <= len(first) <= 3 and first[0] != "0" and all(len(group) == 3 for group in others)
        whole = "".join([first, *others]) if grouped else ""
    if not (whole.isascii() and whole.isdecimal()):
        return None
    return f"{whole}.{fraction or 0}"


def _guessed_dates(levels):
    pattern = _ISO if _ISO.fullmatch(levels[0]) else _OTHER
    manners = set()
    for level in levels:
        match = pattern.fullmatch(level)
        if match is None:
            return None
        manners.add((match["apart"], match["hour"] is not None, match["zone"] or ""))
    if len(manners) > 1:
        return None
    ((_, hours, zone),) = manners
    orders = (_YEAR_FIRST,) if pattern is _ISO else (_DAY_FIRST, _MONTH_FIRST)
    result = [Dates(order, hours, zone) for order in orders]
    result = [how for how in result if all(how.read(level) is not None for level in levels)]
    return result[0] if len(result) == 1 else None  # none, or day and month cannot be told apart


def names_of(name, how):
    """Return the names of the columns that a column becomes."""
    if not isinstance(how, Dates):
        return (name,)
    return tuple(date_parts(name, np.array(["NaT"], dtype="datetime64[s]"), how.hours))


def missing_among(levels):
    """Tell which texts stand for a missing number or date."""
    import pyarrow as pa
    import pyarrow.compute as pc

    result = pc.is_in(levels, value_set=pa.array(sorted(MISSING_NUMBERS), levels.type))
    return result.to_numpy(zero_copy_only=False)


def applied(name, how, levels):
    """Return the columns of numbers that different texts stand for, by name, and the first that does not fit, or None.

    Texts that stand for a missing value are NaN.
    """
    unknown = missing_among(levels)
    if isinstance(how, Numbers) and how.plain:
        values = numbers_among(levels, how.point)
        bad = np.flatnonzero(np.isnan(values) & ~unknown)
        return {name: values}, levels[int(bad[0])].as_py() if len(bad) else None
    read = [None if skip else how.read(level) for level, skip in zip(levels.to_pylist(), unknown.tolist())]
    bad = next((k for k, value in enumerate(read) if value is None and not unknown[k]), None)
    if bad is not None:
        return {}, levels[bad].as_py()
    if isinstance(how, Numbers):
        return {name: np.array(read, dtype=np.float64)}, None
    return date_parts(name, np.array(read, dtype="datetime64[s]"), how.hours), None


def sentence(name, how, columns, levels):
    """Return what there is to say about a column that was read so, or None; ``levels`` are not missing."""
    if isinstance(how, Dates):
        first = "" if how.order == _YEAR_FIRST else f", the {how.order},"
        return date_sentence(name, columns, f" ({min(levels.to_pylist())!r}){first}")
    if not isinstance(how, Numbers) or how.plain:
        return None
    longest = max(sorted(levels.to_pylist()), key=len)
    number = how.read(longest)
    return f"The column {name!r} was read as {how.described()}: {longest!r} is {number:.15g}."


def date_sentence(name, columns, example=""):
    """Return the sentence that names the parts of a date."""
    return f"The column {name!r} holds dates{example} and was read as numbers: {', '.join(map(repr, columns))}."


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
