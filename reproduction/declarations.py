"""The tables and figures of the five papers as data: what was run on what, and every number that was printed.

One TOML file per paper in this folder says which data sets, methods, parameters, splits and statistics it has, and
``methods.toml`` which estimator stands for which method. :func:`experiments` reads them all, checks them and
returns frozen objects. Numbers were taken from the papers' text and checked twice;
:func:`reproduction.consistency.inconsistencies` sets them against the averages and counts that the papers
print themselves.

A printed number is written as in the paper, ``"0.970±0.014●"``: a star in front stands for bold type, ● and ○ are the
papers' marks of significance, ``"N/A"`` is the papers' own and ``"?"`` a number that the text at hand does not give.
"""

import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib import import_module, resources
from typing import Any

PAPERS = ("ldm", "mamc", "pumma", "mcodm", "msvmav")
KINDS = ("accuracy", "time", "margins", "influence", "updates", "tuned", "untuned")
_CELL = re.compile(r"(?P<bold>\*?)(?P<mean>\d*\.\d+)(?:±(?P<std>\d*\.\d+))?(?P<mark>[●○]?)")
_NOT_RUN = re.compile(r"N/A(?P<mark>[●○]?)")
_COUNTS = re.compile(r"(\d+)/(\d+)/(\d+)")


class DeclarationError(ValueError):
    """A declaration that contradicts itself or names what is not declared."""


@dataclass(frozen=True)
class Paper:
    """One of the five papers.

    ``claim`` is its main one in plain words, ``main`` the experiment that bears it out. ``reasons`` says, by method,
    why we think a column differs from the print where it does.
    """

    key: str
    authors: str
    title: str
    venue: str
    year: int
    claim: str = ""
    main: str = ""
    reasons: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class DataSet:
    """One line of a table: a data set as the paper names it and as the catalogue does.

    ``key`` is unique within a paper, ``catalogue`` the name for ``margindist.datasets.load`` (two lines may share one).
    What is done with the set first: ``rows`` draws that many rows, ``classes`` keeps the first so many classes,
    ``positive`` sets one class against the rest, ``generator`` holds the parameters of a generated set. ``shape`` is
    the printed (rows, columns), ``n_classes`` the printed number of classes, ``n_splits`` a number of splits other than
    the experiment's, ``train_size`` and ``test_size`` printed sizes of the parts.
    """

    key: str
    catalogue: str
    printed: str
    shape: tuple[int, ...] = ()
    n_classes: int = 2
    rows: int | None = None
    classes: int | None = None
    positive: str | int | None = None
    generator: Mapping[str, Any] = field(default_factory=dict)
    n_splits: int | None = None
    train_size: int | None = None
    test_size: int | None = None
    remark: str = ""


@dataclass(frozen=True)
class Axis:
    r"""Values of one parameter to choose from.

    ``unit`` says what they are multiplied with: "1"; "m", the number of training rows; "1/m", one over it; "1/d", one
    over the number of features; or that they are widths w of a Gaussian kernel in units of the mean distance between
    training rows ("mean-distance"), the parameter then being :math:`\gamma = 1/(2w^2)`. "mean" is the price of a loss
    that is a mean over the rows: the values are as they stand, but a value chosen on a share s of the rows is divided
    by s when it is used on all of them, so that a row weighs as much as it did. (A price of each row, such as the C of
    an SVM, carries over as it is.)

    Examples
    --------
    >>> Axis("C", (10.0, 50.0), "1/m").resolve(n_samples=100)
    (0.1, 0.5)
    >>> Axis("gamma", (0.5, 1.0), "mean-distance").resolve(mean_distance=2.0)
    (0.5, 0.125)
    >>> Axis("lam", (1.0, 4.0), "mean").resolve(share=0.25)
    (4.0, 16.0)
    """

    parameter: str
    values: tuple
    unit: str = "1"

    def resolve(self, *, n_samples=None, n_features=None, mean_distance=None, share=1.0) -> tuple:
        """Return the values of the parameter for training rows with these properties.

        `share` is that of the rows on which was chosen what is now used on all of them.
        """
        if self.unit == "mean":
            return tuple(value / share for value in self.values)
        if self.unit == "m":
            return tuple(value * n_samples for value in self.values)
        if self.unit == "1/m":
            return tuple(value / n_samples for value in self.values)
        if self.unit == "1/d":
            return tuple(value / n_features for value in self.values)
        if self.unit == "mean-distance":
            return tuple(1.0 / (2.0 * (value * mean_distance) ** 2) for value in self.values)
        return self.values


@dataclass(frozen=True)
class Method:
    """A column of a table: which estimator with which parameters.

    ``estimator`` is the full name of a class, ``inner`` that of the two-class classifier it wraps (its parameters then
    carry the prefix ``estimator__``, in ``fixed`` and ``grid`` alike), ``fixed`` the parameters that stay, ``grid``
    those chosen by cross-validation: all combinations (``search="grid"``) or one axis after the other in the order
    given, the later ones at their value in ``fixed`` (``search="line"``). ``printed`` tells the paper's columns from
    ours; ``unavailable`` is the reason if the method cannot take part; ``note`` says what the paper left open and how
    it was read.
    """

    key: str
    label: str
    estimator: str
    inner: str | None = None
    fixed: Mapping[str, Any] = field(default_factory=dict)
    grid: tuple[Axis, ...] = ()
    search: str = "grid"
    printed: bool = True
    unavailable: str = ""
    note: str = ""

    def make(self) -> Any:
        """Return the unfitted estimator with its fixed parameters."""
        kind = _import(self.estimator)
        estimator = kind() if self.inner is None else kind(_import(self.inner)())
        return estimator.set_params(**self.fixed)


@dataclass(frozen=True)
class SplitPlan:
    """How rows become training and test part, and how often.

    ``kind``: "random" (a share ``train`` of the rows, drawn anew each time), "published" (the splits that come with the
    data; where too few are at hand, random ones of the printed sizes), "whole" (training rows only) or "drawn" (the
    data themselves are generated anew each time); the study's own "halves-and-folds" has half the rows, then the folds
    of a cross-validation, in turn. ``cv`` is the number of folds within the training part, 0 for none;
    ``search_rows`` limits the rows of the training part on which parameters are chosen, to save time.
    """

    kind: str
    number: int
    train: float | None = None
    stratified: bool = False
    cv: int = 0
    search_rows: int | None = None
    note: str = ""


@dataclass(frozen=True)
class Statistics:
    """How the paper compares methods.

    ``test`` is "paired-t", "welch" or "none", at confidence ``level``. ``subject`` is the method whose wins, ties and
    losses are counted against each other one. Marks compare with ``reference``: ● on a column says that this column is
    better (``bullet="column"``) or that the reference is (``bullet="reference"``).
    """

    test: str = "none"
    level: float = 0.95
    subject: str | None = None
    reference: str | None = None
    bullet: str | None = None


@dataclass(frozen=True)
class Printed:
    """One printed number, in our units (accuracies are fractions, times seconds).

    ``status`` is "number", "not run" (the paper prints N/A) or "illegible" (lost in the text at hand); ``mean`` and
    ``std`` are None where there is none. ``resolution`` is one unit of the last printed digit. ``better`` is +1 or -1
    if the paper marks this method as significantly better or worse than the reference, 0 if it marks neither, None
    if its table has no marks. ``remark`` says what is known to be wrong with the number.
    """

    text: str
    status: str
    mean: float | None = None
    std: float | None = None
    resolution: float | None = None
    mark: str = ""
    better: int | None = None
    bold: bool = False
    remark: str = ""


@dataclass(frozen=True)
class Reading:
    """What was decided where a paper leaves a choice open, or what it says that no table holds."""

    topic: str
    text: str


@dataclass(frozen=True)
class Experiment:
    """A table or figure: what is measured on which data with which methods, and what was printed.

    ``printed`` maps a measure ("accuracy", "seconds", "margin") to {(data set key, method key): Printed}; it is empty
    for figures, of which no number is read off the picture. ``summary`` maps the names of the table's last rows to
    {method key: value}: "average" and "average-rank" to a Printed, "win-tie-loss" to three counts, "best" and "worst"
    (on how many data sets) to one. ``scaling`` is "unit" (every feature to [0, 1] by the training rows), "standard" (to
    mean 0 and variance 1) or "none".
    ``settings`` holds what is particular to one experiment: "vary" (parameters varied one at a time), "timed" (what
    the time includes, "selection" being cross-validation, training and test), "soft_margin" and "delta" of PUMMA's
    table, panels and axes of a figure. ``claims`` are the conclusions of the paper's text, ``readings`` our decisions.
    ``verdict`` names the rule by which :mod:`reproduction.claims` judges them, with its arguments; ``reasons``
    are as in :class:`Paper`, for this experiment alone.
    """

    id: str
    paper: Paper
    title: str
    kind: str
    measure: str
    data: tuple[DataSet, ...]
    methods: tuple[Method, ...]
    splits: SplitPlan
    statistics: Statistics
    scaling: str
    bias: str
    settings: Mapping[str, Any] = field(default_factory=dict)
    printed: Mapping[str, Mapping[tuple[str, str], Printed]] = field(default_factory=dict)
    summary: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    remarks: tuple[str, ...] = ()
    claims: tuple[str, ...] = ()
    readings: tuple[Reading, ...] = ()
    verdict: Mapping[str, Any] = field(default_factory=dict)
    reasons: Mapping[str, str] = field(default_factory=dict)

    def method(self, key: str) -> Method:
        """Return the method with this key."""
        return _find(self.methods, key, f"{self.id}: no method")

    def dataset(self, key: str) -> DataSet:
        """Return the data set with this key."""
        return _find(self.data, key, f"{self.id}: no data set")

    def cell(self, dataset: str, method: str, measure: str | None = None) -> Printed | None:
        """Return what was printed for a data set and a method, or None where the paper has no such cell."""
        table = self.printed.get(measure or next(iter(self.printed), ""), {})
        return table.get((dataset, method))

    def n_splits(self, dataset: str) -> int:
        """Return the paper's number of splits of this data set."""
        return self.dataset(dataset).n_splits or self.splits.number

    def remarks_on(self, dataset: str, method: str | None = None) -> tuple[str, ...]:
        """Return what is known to be wrong with a line of the table, or with one of its cells."""
        found = [self.dataset(dataset).remark]
        if method is not None:
            found += [table[dataset, method].remark for table in self.printed.values() if (dataset, method) in table]
        return tuple(dict.fromkeys(remark for remark in found if remark))


@cache
def experiments() -> Mapping[str, Experiment]:
    """Return every experiment of the five papers by its id, in the order of the papers.

    Examples
    --------
    >>> table = experiments()["ldm-table-2"]
    >>> table.cell("vote", "ldm").mean, table.cell("vote", "svm").mean
    (0.97, 0.934)
    >>> table.method("ldm-c-over-m").grid[0]
    Axis(parameter='C', values=(10, 50, 100), unit='1/m')
    """
    folder = resources.files("reproduction")
    recipes = tomllib.loads((folder / "methods.toml").read_text(encoding="utf-8"))
    found: dict[str, Experiment] = {}
    for key in PAPERS:
        found |= load_experiments((folder / f"{key}.toml").read_text(encoding="utf-8"), recipes)
    return found


def load_experiments(text: str, recipes: Mapping[str, Mapping]) -> dict[str, Experiment]:
    """Read the experiments of one paper from the text of its TOML file.

    Parameters
    ----------
    text : str
        The declaration.
    recipes : mapping
        Estimators by recipe name, as in ``methods.toml``.

    Returns
    -------
    dict
        Experiments by id.
    """
    return build_experiments(tomllib.loads(text), recipes)


def build_experiments(content: Mapping[str, Any], recipes: Mapping[str, Mapping]) -> dict[str, Experiment]:
    """Return the experiments of a declaration that has been read, by id."""
    _only(content, {"paper", "data", "method", "experiment"}, "the file")
    _needs(content, ("paper", "data", "method", "experiment"), "the file")
    paper = _build(Paper, content["paper"], "paper")
    data = {key: _dataset(key, entry) for key, entry in content["data"].items()}
    methods = content["method"]
    found: dict[str, Experiment] = {}
    for entry in content["experiment"]:
        experiment = _experiment(entry, paper, data, methods, recipes)
        if experiment.id in found:
            raise DeclarationError(f"{experiment.id}: declared twice; give the second one another id.")
        found[experiment.id] = experiment
    return found


def _experiment(entry, paper, data, methods, recipes):
    where = entry.get("id", "an experiment without id")
    fields = dict(entry)
    _needs(fields, ("kind", "data", "methods", "splits", "scaling"), where)
    _one_of(fields["kind"], KINDS, f"{where}: kind")
    _one_of(fields["scaling"], ("unit", "standard", "none"), f"{where}: scaling")
    ours = fields.pop("ours", [])
    columns = {}
    for key, name in fields.pop("methods").items():
        if name not in methods:
            raise DeclarationError(f"{where}: method {key!r} refers to {name!r}, which the file does not declare.")
        columns[key] = _method(key, name, methods[name], recipes, key not in ours, where)
    _known(ours, columns, f"{where}: 'ours'")
    lines = fields.pop("data")
    _known(lines, data, f"{where}: 'data'")
    fields["splits"] = _build(SplitPlan, fields["splits"], f"{where}: splits")
    _one_of(
        fields["splits"].kind, ("random", "published", "whole", "drawn", "halves-and-folds"), f"{where}: kind of splits"
    )
    fields["statistics"] = statistics = _build(Statistics, fields.get("statistics", {}), f"{where}: statistics")
    _one_of(statistics.test, ("paired-t", "welch", "none"), f"{where}: test")
    _one_of(statistics.bullet, (None, "column", "reference"), f"{where}: bullet")
    _known([key for key in (statistics.subject, statistics.reference) if key], columns, f"{where}: statistics")
    printed_keys = [key for key, method in columns.items() if method.printed]
    cell_remarks = _cell_remarks(fields.pop("cell-remarks", []), lines, columns, where)
    factor = fields.pop("factor", {})
    first_factor = next(iter(factor.values()), 1.0)
    fields["printed"] = {
        measure: _table(rows, lines, printed_keys, factor.get(measure, 1.0), statistics, cell_remarks, where)
        for measure, rows in fields.get("printed", {}).items()
    }
    fields["summary"] = {
        name: _summary(name, row, printed_keys, first_factor, where) for name, row in fields.get("summary", {}).items()
    }
    fields["readings"] = tuple(Reading(topic, text) for topic, text in fields.get("readings", {}).items())
    fields["settings"] = fields.get("settings", {})
    for name in ("remarks", "claims"):
        fields[name] = tuple(fields.get(name, ()))
    fields |= {"paper": paper, "data": tuple(data[key] for key in lines), "methods": tuple(columns.values())}
    return _build(Experiment, fields, where)


def _method(key, name, entry, recipes, printed, where):
    fields = dict(entry)
    _one_of(fields.get("search", "grid"), ("grid", "line"), f"{where}: search of {name!r}")
    recipe_name = fields.pop("recipe", name)
    if recipe_name not in recipes:
        raise DeclarationError(f"{where}: method {name!r} has the recipe {recipe_name!r}, which methods.toml lacks.")
    if name in recipes and recipe_name != name:
        raise DeclarationError(f"{where}: method {name!r} has the name of one recipe and is another, {recipe_name!r}.")
    recipe = recipes[recipe_name]
    inner = recipes[recipe["inner"]] if "inner" in recipe else None
    wrapped = {f"estimator__{name}": value for name, value in inner.get("fixed", {}).items()} if inner else {}
    fields["fixed"] = wrapped | recipe.get("fixed", {}) | fields.get("fixed", {})
    fields["grid"] = tuple(_axis(name, values, f"{where}: {key}") for name, values in fields.get("grid", {}).items())
    notes = (recipe.get("note", ""), fields.get("note", ""))
    fields["note"] = " ".join(note for note in notes if note)
    fields |= {"key": key, "printed": printed, "estimator": recipe["estimator"]}
    return _build(Method, fields | {"inner": inner["estimator"] if inner else None}, f"{where}: method {key!r}")


def _axis(parameter, entry, where):
    if isinstance(entry, list):
        return Axis(parameter, tuple(entry))
    known = {"values", "base", "from", "to", "step", "decades", "points", "unit"}
    _only(entry, known, f"{where}: grid of {parameter!r}")
    unit = entry.get("unit", "1")
    _one_of(unit, ("1", "m", "1/m", "1/d", "mean-distance", "mean"), f"{where}: unit of {parameter!r}")
    if "values" in entry:
        return Axis(parameter, tuple(entry["values"]), unit)
    if "decades" in entry:
        return Axis(parameter, _spread(*entry["decades"], entry["points"]), unit)
    exponents = range(entry["from"], entry["to"] + 1, entry["step"])
    return Axis(parameter, tuple(float(entry["base"]) ** exponent for exponent in exponents), unit)


def _spread(first, last, points):
    """Powers of ten from 10**first to 10**last at equal distances, to three digits."""
    step = (last - first) / (points - 1)
    return tuple(float(f"{10.0 ** (first + k * step):.3g}") for k in range(points))


def _dataset(key, entry):
    fields = {"key": key, "catalogue": key, "printed": key} | entry
    fields["shape"] = tuple(fields.get("shape", ()))
    return _build(DataSet, fields, f"data set {key!r}")


def _table(rows, lines, columns, factor, statistics, cell_remarks, where):
    _known(rows, lines, f"{where}: a printed row")
    missing = [line for line in lines if line not in rows]
    if missing:
        raise DeclarationError(f"{where}: no printed row for {', '.join(missing)}; add it, with N/A or ? if need be.")
    cells = {}
    for line, texts in rows.items():
        if len(texts) != len(columns):
            raise DeclarationError(f"{where}: {line} has {len(texts)} printed numbers for {len(columns)} methods.")
        for column, text in zip(columns, texts, strict=True):
            remark = " ".join(cell_remarks.get((line, column), []))
            try:
                cells[line, column] = _printed(text, factor, statistics, column, remark)
            except ValueError as error:
                raise DeclarationError(f"{where}: {line}, {column}: {error}") from None
    return cells


def _printed(text, factor, statistics, column, remark):
    if text == "?":
        return Printed(text, "illegible", remark=remark)
    number, not_run = _CELL.fullmatch(text), _NOT_RUN.fullmatch(text)
    if not (number or not_run):
        raise ValueError(f"expected a number such as 0.970±0.014●, N/A or ?, got {text!r}.")
    mark = (number or not_run)["mark"]
    better = None
    if statistics.bullet and column != statistics.reference:
        better = {"●": 1, "○": -1, "": 0}[mark] * (1 if statistics.bullet == "column" else -1)
    if not_run:
        return Printed(text, "not run", mark=mark, better=better if mark else None, remark=remark)
    digits = len(number["mean"].split(".")[1])
    return Printed(
        text,
        "number",
        mean=round(float(number["mean"]) / factor, 12),
        std=round(float(number["std"]) / factor, 12) if number["std"] else None,
        resolution=round(10.0**-digits / factor, 12),
        mark=mark,
        better=better,
        bold=bool(number["bold"]),
        remark=remark,
    )


def _summary(name, row, columns, factor, where):
    if name not in ("average", "win-tie-loss", "average-rank", "best", "worst"):
        raise DeclarationError(f"{where}: {name!r} is no known row of a summary.")
    _known(row, columns, f"{where}: summary row {name!r}")
    if name in ("best", "worst"):
        return row
    if name != "win-tie-loss":
        factor = factor if name == "average" else 1.0
        return {key: _printed(text, factor, Statistics(), key, "") for key, text in row.items()}
    counts = {key: _COUNTS.fullmatch(text) for key, text in row.items()}
    wrong = [key for key, match in counts.items() if match is None]
    if wrong:
        raise DeclarationError(f"{where}: wins, ties and losses look like 12/8/0, got {row[wrong[0]]!r}.")
    return {key: tuple(int(count) for count in match.groups()) for key, match in counts.items()}


def _cell_remarks(entries, lines, columns, where):
    found: dict[tuple[str, str], list[str]] = {}
    for entry in entries:
        _only(entry, {"data", "method", "text"}, f"{where}: cell-remarks")
        _needs(entry, ("data", "method", "text"), f"{where}: cell-remarks")
        keys = [entry["data"]] if isinstance(entry["data"], str) else entry["data"]
        _known([entry["method"]], columns, f"{where}: cell-remarks")
        _known(keys, lines, f"{where}: cell-remarks")
        for key in keys:
            found.setdefault((key, entry["method"]), []).append(entry["text"])
    return found


def _build(kind, fields, where):
    names = {name for name, value in kind.__dataclass_fields__.items() if value.init}
    _only(fields, names, where)
    try:
        return kind(**fields)
    except TypeError as error:
        raise DeclarationError(f"{where}: {str(error).split('() ')[-1]}.") from None


def _only(entry, allowed, where):
    unknown = sorted(set(entry) - set(allowed))
    if unknown:
        raise DeclarationError(f"{where}: unknown key {unknown[0]!r}; known are {', '.join(sorted(allowed))}.")


def _needs(entry, names, where):
    missing = [name for name in names if name not in entry]
    if missing:
        raise DeclarationError(f"{where}: {missing[0]!r} is missing; add it.")


def _one_of(value, allowed, where):
    if value not in allowed:
        raise DeclarationError(f"{where} must be one of {', '.join(map(str, allowed))}, got {value!r}.")


def _known(keys, declared, where):
    unknown = [key for key in keys if key not in declared]
    if unknown:
        raise DeclarationError(f"{where} names {unknown[0]!r}, which is not declared.")


def _find(items, key, what):
    for item in items:
        if item.key == key:
            return item
    raise KeyError(f"{what} {key!r}; there are {', '.join(item.key for item in items)}")


def _import(name):
    module, _, attribute = name.rpartition(".")
    return getattr(import_module(module), attribute)
