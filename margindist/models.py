"""Model files that are safe to load from strangers.

A model file is a zip archive without compression: ``model.json`` describes the model as a tree, and every array is a
``.npy`` member of its own. Loading never unpickles, never evaluates, and never looks up a name from the file anywhere
but in the tables below: what is not one of the listed classes of this library and of scikit-learn, or plain data, is
refused.

Without compression nothing in the file can grow: arrays take as much memory as their bytes in the file, which are
counted before they are read, and every member's SHA-256 is compared with the one in ``model.json``. Compiled code
trusts its arrays, so the loader checks what that code relies on (shapes, positions within range, canonical sparse
matrices) before a model is handed out.

A node of the tree is a string, a number, true, false, null, a list, or an object that names its kind:

===============================================  =======================================================
``{"float": "nan"}``                             numbers JSON lacks: nan, inf, -inf
``{"tuple": […]}``, ``{"set": […]}``             other collections
``{"dict": [[key, value], …]}``                  a dictionary with keys of any plain kind
``{"slice": [start, stop, step]}``
``{"array": "0.npy"}``                           an array; ``"records": true`` for record arrays
``{"objects": […], "shape": […]}``               an array of Python objects, all of them plain
``{"scalar": value, "dtype": "<f8"}``            a NumPy number
``{"dtype": "<f8"}``, ``{"type": "float64"}``    a NumPy data type, a type of numbers
``{"sparse": "csr_matrix", "shape": […], …}``    a sparse matrix with its three arrays
``{"generator": {…}}``                           NumPy's default random generator
``{"class": "LDMClassifier", "attributes": …}``  an object of a listed class
===============================================  =======================================================
"""

import hashlib
import inspect
import json
import math
import os
import platform
import re
import types
import warnings
import zipfile
from collections import UserList
from collections.abc import Iterable
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from io import BytesIO
from pathlib import Path

import numpy as np
import scipy.sparse as sp
import sklearn
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted

import margindist
from margindist.files import written_whole
from margindist.kernels import KERNELS

__all__ = ["ModelFileError", "ModelMetadata", "load_model", "read_metadata", "save_model"]

FORMAT = 1
_KIND = "margindist model"
_HEADER = "model.json"
_HEADER_BYTES = 64_000_000
_MEMBERS = 100_000
_DEPTH = 64  # of objects within objects
_KEYS = 10_000  # entries of a dictionary or set
_EPOCH = (1980, 1, 1, 0, 0, 0)  # the same model gives the same bytes

_CLASSES = {
    "margindist.estimators.ldm": ("LDMClassifier", "_Stream"),
    "margindist.estimators.lssvm": ("LSSVMClassifier",),
    "margindist.estimators.mam": ("MAMClassifier",),
    "margindist.estimators.msvmav": ("MSVMAvClassifier",),
    "margindist.estimators.odm": ("ODMClassifier",),
    "margindist.estimators.online": (
        "ALMAClassifier",
        "MICRAClassifier",
        "PUMMAClassifier",
        "ROMMAClassifier",
        "_Memory",
    ),
    "margindist.estimators.reductions": ("ECOCClassifier", "SVRClassifier"),
    "margindist.estimators.rivals": ("FMMClassifier", "KOMDClassifier", "MDOClassifier"),
    "margindist.kernels": ("Kernel",),
    "margindist.solvers.online": ("ALMA", "LinearState", "MICRA", "PUMMA", "ROMMA"),
    "margindist.solvers.online_kernel": ("KernelState",),
    "margindist.solvers.stochastic": ("State",),
    "sklearn.compose": ("ColumnTransformer", "make_column_selector"),
    "sklearn.feature_selection": ("VarianceThreshold",),
    "sklearn.impute": ("MissingIndicator", "SimpleImputer"),
    "sklearn.linear_model": ("LogisticRegression", "RidgeClassifier"),
    "sklearn.multiclass": ("OneVsOneClassifier", "OneVsRestClassifier"),
    "sklearn.pipeline": ("Pipeline",),
    "sklearn.preprocessing": (
        "FunctionTransformer",
        "LabelBinarizer",
        "LabelEncoder",
        "MaxAbsScaler",
        "MinMaxScaler",
        "Normalizer",
        "OneHotEncoder",
        "OrdinalEncoder",
        "StandardScaler",
    ),
    "sklearn.svm": ("SVC", "LinearSVC"),
}
_HOMES = {name: module for module, names in _CLASSES.items() for name in names}

# Aids to further training and bookkeeping of scikit-learn; predictions need none of them.
_LEFT_OUT = {"_classes_given", "_metadata_request", "_skl_callbacks", "_warm"}

# Parameters that concern the machine and not the model: how many processes, and a folder of pickles.
_SET_BACK = {"memory", "n_jobs"}

_TYPES = {t.__name__: t for t in (bool, int, float, str, object)} | {
    t.__name__: t
    for t in (np.float32, np.float64, np.int8, np.int16, np.int32, np.int64, np.uint8, np.object_, np.str_)
}
_TYPES |= {name: getattr(np, name) for name in ("number", "integer", "floating", "uint16", "uint32", "uint64")}
_SPARSE = {c.__name__: c for c in (sp.csr_matrix, sp.csr_array, sp.csc_matrix, sp.csc_array)}
_PLAIN_KINDS = "biufcUSmM"
_PLAIN_DTYPE = re.compile(r"[<>|=]?([biufc][0-9]{1,2}|[US][0-9]{1,7}|O|[mM]8\[[0-9]{0,6}[A-Za-z]{1,2}\])")
_ATTRIBUTE = re.compile(r"(?!__)[A-Za-z_][A-Za-z0-9_]{0,99}")


class ModelFileError(ValueError):
    """A model cannot be stored in a file, or a file holds no model that can be trusted."""


@dataclass(frozen=True)
class ModelMetadata:
    """What a model file says about its model; made by :func:`read_metadata`.

    Parameters
    ----------
    format : int
        Number of the file format.
    versions : dict of str to str
        Versions of ``margindist``, ``scikit-learn``, ``numpy`` and ``python`` that wrote the file.
    model : str
        The model's class; of a pipeline, the classes of its steps.
    classes : tuple of str
        The labels, as text.
    feature_names : tuple of str or None
        Names of the columns the model takes.
    target_name : str or None
        Name of the column it predicts.
    data_name : str or None
        Name of the training data.
    data_checksum : str or None
        Checksum of the training data.
    notes : tuple of str
        Whatever else was noted.
    """

    format: int
    versions: dict
    model: str
    classes: tuple
    feature_names: tuple | None = None
    target_name: str | None = None
    data_name: str | None = None
    data_checksum: str | None = None
    notes: tuple = ()


# ---------------------------------------------------------------------- the public functions


def save_model(
    model: BaseEstimator,
    path: str | os.PathLike,
    *,
    feature_names: Iterable[str] | None = None,
    target_name: str | None = None,
    data_name: str | None = None,
    data_checksum: str | None = None,
    notes: Iterable[str] = (),
) -> None:
    """Write a fitted classifier to a file that :func:`load_model` reads without running code from it.

    Of a search over parameters (``GridSearchCV`` or this library's own) the best model is stored. The file appears
    whole or not at all, also when the writing is interrupted. The same model gives the same bytes.

    Parameters
    ----------
    model : estimator
        A fitted classifier of this library, or a pipeline of one, or of ``LinearSVC``, ``SVC``, ``LogisticRegression``
        or ``RidgeClassifier``, with scikit-learn's scalers, encoders, imputers and ``ColumnTransformer``. A kernel that
        is a function cannot be stored; ``kernel="precomputed"`` can, and the loaded model takes kernel values with
        all training samples as before.
    path : path-like
        Where to write. A file of that name is replaced.
    feature_names : iterable of str, default=None
        Names of the columns; those of the data frame the model was fitted on, if it was, need not be given.
    target_name : str, default=None
        Name of the predicted column.
    data_name : str, default=None
        Name of the training data.
    data_checksum : str, default=None
        Checksum of the training data.
    notes : iterable of str, default=()
        Sentences to keep with the model.

    Raises
    ------
    ModelFileError
        If the model, or something it holds, cannot be stored; the message names it.

    See Also
    --------
    load_model : Reads the file.
    read_metadata : Reads what the file says about the model.

    Examples
    --------
    >>> import tempfile, pathlib
    >>> from sklearn.datasets import load_iris
    >>> from margindist import LDMClassifier, load_model, save_model
    >>> X, y = load_iris(return_X_y=True)
    >>> model = LDMClassifier(kernel="rbf").fit(X, y)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     save_model(model, pathlib.Path(folder, "iris.model"))
    ...     again = load_model(pathlib.Path(folder, "iris.model"))
    >>> bool((again.decision_function(X) == model.decision_function(X)).all())
    True
    """
    model = _unwrapped(model)
    if not isinstance(model, BaseEstimator):
        raise ModelFileError(f"save_model: expected a fitted classifier, got an object of {type(model).__name__}.")
    check_is_fitted(model)
    writer = _Writer()
    tree = writer.node(model, type(model).__name__)
    about = {
        "model": _described(model),
        "classes": [str(label) for label in np.asarray(getattr(model, "classes_", ())).tolist()],
        "feature_names": _feature_names(model, feature_names),
        "target_name": _text_or_none(target_name, "target_name"),
        "data_name": _text_or_none(data_name, "data_name"),
        "data_checksum": _text_or_none(data_checksum, "data_checksum"),
        "notes": [str(note) for note in ([notes] if isinstance(notes, str) else notes)],
    }
    with written_whole(path) as file:
        _write_archive(file, tree, about, writer.arrays)


def load_model(path: str | os.PathLike) -> BaseEstimator:
    """Read a model that :func:`save_model` wrote; safe also with files from strangers.

    Nothing but the listed classes and plain data is ever made from the file, and nothing in it is executed. Predictions
    are the same, bit for bit, as those of the model that was stored, on the same machine and versions.

    Parameters
    ----------
    path : path-like
        The file.

    Returns
    -------
    estimator
        The fitted model.

    Raises
    ------
    ModelFileError
        If the file is not a model file, is damaged, truncated or of a newer format, or holds what is not allowed.

    Warns
    -----
    UserWarning
        If another version of scikit-learn wrote the file.

    See Also
    --------
    save_model : Writes the file, with an example.
    """
    with _opened(path) as (archive, header):
        reader = _Reader(archive, header)
        model = reader.value(header["tree"])
        if not isinstance(model, BaseEstimator):
            raise ModelFileError("the model is not an estimator")
    written = header["versions"].get("scikit-learn")
    if written != sklearn.__version__:
        warnings.warn(
            f"load_model: {Path(path).name} was written with scikit-learn {written}, this is {sklearn.__version__}; "
            f"check its predictions or fit the model again.",
            UserWarning,
            stacklevel=2,
        )
    return model


def read_metadata(path: str | os.PathLike) -> ModelMetadata:
    """Read what a model file says about its model, without building the model.

    Parameters
    ----------
    path : path-like
        The file.

    Returns
    -------
    ModelMetadata

    Raises
    ------
    ModelFileError
        As :func:`load_model` does, but arrays are not looked at.
    """
    with _opened(path) as (_, header):
        about = header["about"]
        names, notes = about["feature_names"], about["notes"]
        texts = {key: about[key] for key in ("target_name", "data_name", "data_checksum")}
        lists = [about["classes"], notes, [about["model"]], *([] if names is None else [names])]
        _require(all(isinstance(item, str) for part in lists for item in part), "its metadata are not texts")
        _require(all(text is None or isinstance(text, str) for text in texts.values()), "its metadata are not texts")
        return ModelMetadata(
            format=header["format"],
            versions=dict(header["versions"]),
            model=about["model"],
            classes=tuple(about["classes"]),
            feature_names=None if names is None else tuple(names),
            notes=tuple(notes),
            **texts,
        )


# ---------------------------------------------------------------------- writing


def _unwrapped(value):
    """Return the best model of a search, anything else as it is."""
    while isinstance(value, BaseEstimator) and "best_estimator_" in vars(value):
        value = value.best_estimator_
    return value


def _described(model):
    if type(model).__name__ != "Pipeline":
        return type(model).__name__
    return "Pipeline(" + ", ".join(type(_unwrapped(step)).__name__ for _, step in model.steps) + ")"


def _feature_names(model, given):
    expected = getattr(model, "n_features_in_", None)
    if given is None:
        given = getattr(model, "feature_names_in_", None)
        return None if given is None else [str(name) for name in given]
    names = [str(name) for name in given]
    if expected is not None and len(names) != expected:
        raise ModelFileError(f"save_model: the model has {expected} features, got {len(names)} feature_names.")
    return names


def _text_or_none(value, name):
    if value is not None and not isinstance(value, str):
        raise ModelFileError(f"save_model: {name} must be a text or None, got {value!r}.")
    return value


class _Writer:
    """Turns a model into a tree; arrays are collected, each once."""

    def __init__(self):
        self.arrays = []
        self._positions = {}  # by id; ``arrays`` keeps them alive

    def node(self, value, where, depth=0):
        """Return the node of a value; ``where`` names it in error messages."""
        if depth > _DEPTH:
            raise ModelFileError(f"save_model: {where} is nested more than {_DEPTH} deep or contains itself.")
        if value is None or type(value) in (bool, int, str):
            return value
        if type(value) is float:
            return value if math.isfinite(value) else {"float": str(value)}
        if isinstance(value, np.ndarray):
            return self._array(value, where, depth)
        if sp.issparse(value):
            return self._sparse(value, where, depth)
        if isinstance(value, np.generic):
            return self._scalar(value, where)
        if isinstance(value, np.dtype):
            return {"dtype": self._dtype(value, where)}
        if isinstance(value, type) and _TYPES.get(value.__name__) is value:
            return {"type": value.__name__}
        if isinstance(value, np.random.RandomState):
            return None
        if type(value) is np.random.Generator and type(value.bit_generator) is np.random.PCG64:
            return {"generator": self.node(value.bit_generator.state, where, depth + 1)}
        return self._composite(value, where, depth)

    def _composite(self, value, where, depth):
        kind = type(value)
        if kind is list or isinstance(value, UserList):
            return self._items(value, where, depth)
        if kind.__module__.partition(".")[0] == "pandas" and hasattr(value, "to_list"):
            return self._items(value.to_list(), where, depth)
        if kind is tuple:
            return {"tuple": self._items(value, where, depth)}
        if kind in (set, frozenset):
            return {"set": self._items(self._few(sorted(value, key=repr), where), where, depth)}
        if kind is slice:
            return {"slice": self._items([value.start, value.stop, value.step], where, depth)}
        if isinstance(value, dict):
            pairs = self._few(value.items(), where)
            return {"dict": [[self.node(k, where, depth + 1), self.node(v, where, depth + 1)] for k, v in pairs]}
        return self._object(_unwrapped(value), where, depth)

    def _items(self, values, where, depth):
        return [self.node(item, where, depth + 1) for item in values]

    def _few(self, items, where):
        if len(items) > _KEYS:
            raise ModelFileError(f"save_model: {where} has {len(items):,} entries, a model file takes {_KEYS:,}.")
        return items

    def _object(self, value, where, depth):
        kind = type(value)
        name = kind.__name__
        if isinstance(value, (types.FunctionType, types.BuiltinFunctionType, types.MethodType, np.ufunc)):
            raise ModelFileError(
                f"save_model: {where} is a function, which no model file can hold safely; use a kernel by name, or "
                f"kernel='precomputed' and apply the function before."
            )
        if name not in _HOMES or _allowed_class(name) is not kind:
            raise ModelFileError(
                f"save_model: {where} is an object of {kind.__module__}.{name}, which is not among the classes a model "
                f"file can hold (this library's classifiers and scikit-learn's usual preprocessing)."
            )
        attributes = value._asdict() if hasattr(value, "_asdict") else vars(value)
        nodes = {
            key: self.node(item, f"{name}.{key}", depth + 1) for key, item in attributes.items() if key not in _LEFT_OUT
        }
        return {"class": name, "attributes": nodes}

    def _array(self, array, where, depth):
        if type(array) not in (np.ndarray, np.recarray):
            raise ModelFileError(f"save_model: {where} is an array of {type(array).__name__}, not a plain one.")
        if array.dtype == object:
            return {"objects": self._items(array.ravel().tolist(), where, depth), "shape": list(array.shape)}
        if any(kind not in _PLAIN_KINDS for kind in _kinds(array.dtype)):
            raise ModelFileError(f"save_model: {where} is an array of {array.dtype}, which a model file cannot hold.")
        if id(array) not in self._positions:
            self._positions[id(array)] = len(self.arrays)
            self.arrays.append(array)
        node = {"array": f"{self._positions[id(array)]}.npy"}
        return {**node, "records": True} if type(array) is np.recarray else node

    def _sparse(self, matrix, where, depth):
        name = type(matrix).__name__
        if _SPARSE.get(name) is not type(matrix):
            raise ModelFileError(f"save_model: {where} is a {name}; sparse matrices must be CSR or CSC.")
        parts = {key: self.node(getattr(matrix, key), where, depth + 1) for key in ("data", "indices", "indptr")}
        return {"sparse": name, "shape": [int(n) for n in matrix.shape], **parts}

    def _scalar(self, value, where):
        if value.dtype.kind not in "biufU" or (value.dtype.itemsize > 8 and value.dtype.kind == "f"):
            raise ModelFileError(f"save_model: {where} is a number of {value.dtype}, which a model file cannot hold.")
        return {"scalar": self.node(value.item(), where), "dtype": value.dtype.str}

    def _dtype(self, dtype, where):
        if not _PLAIN_DTYPE.fullmatch(dtype.str):
            raise ModelFileError(f"save_model: {where} is the data type {dtype}, which a model file cannot hold.")
        return dtype.str


def _kinds(dtype):
    """Return the kinds of a data type's fields."""
    return [dtype[name].kind for name in dtype.names] if dtype.names else [dtype.kind]


class _Digest:
    """A file to write to that remembers the SHA-256 and the length of what was written."""

    def __init__(self, file):
        self._file, self._hash, self.size = file, hashlib.sha256(), 0

    def write(self, data):
        self._hash.update(data)
        self.size += len(data)
        return self._file.write(data)

    def hexdigest(self):
        return self._hash.hexdigest()


def _write_archive(file, tree, about, arrays):
    with zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as archive:
        members = {}
        for k, array in enumerate(arrays):
            info = zipfile.ZipInfo(f"{k}.npy", _EPOCH)
            with archive.open(info, "w", force_zip64=array.nbytes > 2**30) as raw:
                stream = _Digest(raw)
                np.lib.format.write_array(stream, array, allow_pickle=False)
            members[info.filename] = {"sha256": stream.hexdigest(), "size": stream.size}
        versions = {
            "margindist": margindist.__version__,
            "scikit-learn": sklearn.__version__,
            "numpy": np.__version__,
            "python": platform.python_version(),
        }
        header = {"kind": _KIND, "format": FORMAT, "versions": versions, "about": about, "members": members}
        text = json.dumps({**header, "tree": tree}, allow_nan=False, separators=(",", ":")).encode()
        if len(text) > _HEADER_BYTES or len(arrays) > _MEMBERS:
            raise ModelFileError(
                f"save_model: the model has {len(arrays):,} arrays and {len(text):,} bytes of other data; a model file "
                f"takes {_MEMBERS:,} and {_HEADER_BYTES:,}."
            )
        archive.writestr(zipfile.ZipInfo(_HEADER, _EPOCH), text)


# ---------------------------------------------------------------------- reading


def _require(condition, complaint):
    if not condition:
        raise ModelFileError(complaint)


@contextmanager
def _opened(path):
    """Yield the archive and its header; whatever goes wrong within becomes one sentence about the file."""
    with open(path, "rb") as file:
        size = os.fstat(file.fileno()).st_size
        try:
            if not zipfile.is_zipfile(file):
                file.seek(0)
                truncated = file.read(4) == b"PK\x03\x04"
                _require(not truncated, "it is truncated or damaged")
                _require(False, "it is not a model file")
            with zipfile.ZipFile(file) as archive:
                yield archive, _header(archive, size)
        except ModelFileError as error:
            raise ModelFileError(f"The model file {Path(path).name} cannot be loaded: {error}.") from None
        except Exception as error:
            raise ModelFileError(
                f"The model file {Path(path).name} cannot be loaded: it is damaged ({type(error).__name__})."
            ) from error


def _header(archive, file_size):
    """Return ``model.json`` once the archive's own claims are checked."""
    infos = archive.infolist()
    _require(len(infos) <= _MEMBERS + 1, "it has too many members")
    _require(any(info.filename == _HEADER for info in infos), "it is not a model file")
    for info in infos:
        _require(info.compress_type == zipfile.ZIP_STORED and not info.flag_bits & 0x1, "a member is compressed")
        _require(info.file_size == info.compress_size, "a member's size does not fit")
    _require(sum(info.file_size for info in infos) <= file_size, "its members are larger than the file")
    _require(len({info.filename for info in infos}) == len(infos), "two members have the same name")
    _require(archive.getinfo(_HEADER).file_size <= _HEADER_BYTES, f"its {_HEADER} is too large")
    header = json.loads(archive.read(_HEADER), parse_constant=_no_constant)
    _require(isinstance(header, dict) and header.get("kind") == _KIND, "it is not a model file")
    number = header.get("format")
    _require(type(number) is int and number >= 1, "it has no format number")
    _require(
        number <= FORMAT,
        f"it has format {number}, made by a newer margindist; this one reads formats up to {FORMAT}, so upgrade it",
    )
    for key in ("versions", "about", "members"):
        _require(isinstance(header.get(key), dict), f"its {_HEADER} has no {key}")
    _require(all(isinstance(version, str) for version in header["versions"].values()), "its versions are not texts")
    _require("tree" in header, f"its {_HEADER} has no tree")
    return header


def _no_constant(name):
    raise ModelFileError(f"its {_HEADER} has the number {name}")


def _allowed_class(name):
    """Return the listed class of that name."""
    return getattr(import_module(_HOMES[name]), name)


class _Reader:
    """Turns a tree back into a model."""

    def __init__(self, archive, header):
        self._archive, self._members, self._arrays = archive, header["members"], {}
        self._kinds = {
            "float": self._float,
            "tuple": lambda node, depth: tuple(self._items(node["tuple"], depth)),
            "set": lambda node, depth: set(self._few(self._items(node["set"], depth))),
            "dict": self._dict,
            "slice": self._slice,
            "array": self._array,
            "objects": self._objects,
            "scalar": self._scalar,
            "dtype": lambda node, depth: self._dtype(node["dtype"]),
            "type": self._type,
            "sparse": self._sparse,
            "generator": self._generator,
            "class": self._object,
        }

    def value(self, node, depth=0):
        """Return the value of a node."""
        _require(depth <= _DEPTH, "it is nested too deeply")
        if isinstance(node, list):
            return self._items(node, depth)
        if not isinstance(node, dict):
            return node
        kind = next(iter(node), None)
        _require(kind in self._kinds, f"it has a node of the unknown kind {str(kind)[:40]!r}")
        return self._kinds[kind](node, depth + 1)

    def _items(self, nodes, depth):
        _require(isinstance(nodes, list), "a collection is not a list")
        return [self.value(node, depth + 1) for node in nodes]

    def _few(self, items):
        _require(len(items) <= _KEYS, "a collection is too large")
        return items

    def _dict(self, node, depth):
        pairs = self._few(node["dict"])
        return {self.value(key, depth): self.value(item, depth) for key, item in pairs}

    def _float(self, node, depth):
        _require(node["float"] in ("nan", "inf", "-inf"), "a number is none")
        return float(node["float"])

    def _slice(self, node, depth):
        parts = self._items(node["slice"], depth)
        _require(len(parts) == 3 and all(part is None or type(part) in (int, str) for part in parts), "a slice is none")
        return slice(*parts)

    def _type(self, node, depth):
        name = node["type"]
        _require(isinstance(name, str) and name in _TYPES, f"the type {str(name)[:40]!r} is not allowed")
        return _TYPES[name]

    def _dtype(self, text):
        _require(isinstance(text, str) and _PLAIN_DTYPE.fullmatch(text), "a data type is not allowed")
        return np.dtype(text)

    def _scalar(self, node, depth):
        dtype, value = self._dtype(node["dtype"]), self.value(node["scalar"], depth)
        _require(dtype.kind in "biufU" and type(value) in (bool, int, float, str), "a number is none")
        _require(dtype.kind != "U" or type(value) is str, "a text is none")
        return dtype.type(value)

    def _objects(self, node, depth):
        items, shape = self._items(node["objects"], depth), self._shape(node["shape"])
        _require(math.prod(shape) == len(items), "an array's shape does not fit")
        plain = (type(None), bool, int, float, str, np.generic)
        _require(all(isinstance(item, plain) for item in items), "an array of objects holds more than plain values")
        array = np.empty(len(items), dtype=object)
        array[:] = items
        return array.reshape(shape)

    def _shape(self, shape):
        _require(isinstance(shape, list) and len(shape) <= 8, "a shape is none")
        _require(all(type(n) is int and 0 <= n < 2**40 for n in shape), "a shape is none")
        return tuple(shape)

    def _sparse(self, node, depth):
        name, shape = node["sparse"], self._shape(node["shape"])
        _require(isinstance(name, str) and name in _SPARSE and len(shape) == 2, "a sparse matrix is none")
        parts = [self.value(node[key], depth) for key in ("data", "indices", "indptr")]
        _require(all(type(p) is np.ndarray and p.ndim == 1 for p in parts), "a sparse matrix is damaged")
        data, indices, indptr = parts
        _require(data.dtype.kind in "biufc" and indices.dtype == indptr.dtype, "a sparse matrix is damaged")
        _require(indices.dtype in (np.int32, np.int64), "a sparse matrix is damaged")
        rows, columns = shape if name.startswith("csr") else shape[::-1]
        _require(len(indptr) == rows + 1 and indptr[0] == 0 and indptr[-1] == len(data), "a sparse matrix is damaged")
        _require(len(data) == len(indices) and not (np.diff(indptr) < 0).any(), "a sparse matrix is damaged")
        in_range = len(indices) == 0 or (indices.min() >= 0 and indices.max() < columns)
        _require(in_range, "a sparse matrix has entries outside its shape")
        return _SPARSE[name]((data, indices, indptr), shape=shape)

    def _generator(self, node, depth):
        state = self.value(node["generator"], depth)
        _require(isinstance(state, dict) and state.get("bit_generator") == "PCG64", "a random generator is none")
        generator = np.random.default_rng(0)
        generator.bit_generator.state = state
        return generator

    # ------------------------------------------------------------------ arrays

    def _array(self, node, depth):
        name, records = node["array"], node.get("records", False)
        _require(isinstance(name, str) and isinstance(self._members.get(name), dict), "an array is missing")
        if name not in self._arrays:
            self._arrays[name] = self._read_array(name)
        array = self._arrays[name]
        _require(not records or array.dtype.names, "an array has the wrong kind")
        return array.view(np.recarray) if records else array

    def _read_array(self, name):
        info, promised = self._archive.getinfo(name), self._members[name]
        _require(promised.get("size") == info.file_size, f"the size of {name} does not fit")
        digest = hashlib.sha256()
        with self._archive.open(info) as stream:
            head = stream.read(10)
            _require(len(head) == 10 and head[:8] == b"\x93NUMPY\x01\x00", f"{name} is not an array")
            head += stream.read(int.from_bytes(head[8:], "little"))
            digest.update(head)
            array, order = _empty_array(head, info.file_size - len(head), name)
            bytes_left = memoryview(array.reshape(-1, order=order).view(np.uint8)) if array.size else b""
            done = 0
            while done < len(bytes_left):
                piece = stream.read(min(1 << 20, len(bytes_left) - done))
                _require(piece, f"{name} is truncated")
                digest.update(piece)
                bytes_left[done : done + len(piece)] = piece
                done += len(piece)
            _require(not stream.read(1), f"{name} is too long")
        _require(digest.hexdigest() == promised.get("sha256"), f"the checksum of {name} does not fit, so it is damaged")
        return array

    # ------------------------------------------------------------------ objects

    def _object(self, node, depth):
        name, nodes = node["class"], node.get("attributes")
        _require(
            isinstance(name, str) and name in _HOMES,
            f"the class {str(name)[:60]!r} is not among those a model file may hold",
        )
        _require(isinstance(nodes, dict), f"{name} has no attributes")
        kind = _allowed_class(name)
        if issubclass(kind, tuple):
            _require(set(nodes) == set(kind._fields), f"{name} does not have the fields it should")
            return kind(**{key: self.value(item, depth) for key, item in nodes.items()})
        for key in nodes:
            _require(_ATTRIBUTE.fullmatch(key) and key not in _LEFT_OUT, f"{name} has the attribute {key[:40]!r}")
            _require(not hasattr(kind, key), f"{name} has the attribute {key[:40]!r}, which belongs to its class")
        built = kind.__new__(kind)
        attributes = {key: self.value(item, depth) for key, item in nodes.items()}
        vars(built).update(_defaults(kind) | attributes)
        for key in _SET_BACK & attributes.keys():
            setattr(built, key, None)
        _check_object(built)
        return built


def _empty_array(head, n_bytes, name):
    """Return an array as the header of a ``.npy`` member describes it, if exactly that many bytes follow."""
    shape, fortran, dtype = np.lib.format.read_array_header_1_0(BytesIO(head[8:]))
    _require(not dtype.hasobject and all(kind in _PLAIN_KINDS for kind in _kinds(dtype)), f"{name} holds no plain data")
    _require(dtype.itemsize > 0 and all(type(n) is int and 0 <= n < 2**40 for n in shape), f"{name} has no valid shape")
    _require(math.prod(shape) * dtype.itemsize == n_bytes, f"the size of {name} does not fit")
    order = "F" if fortran else "C"
    return np.empty(shape, dtype=dtype, order=order), order


def _defaults(kind):
    """Return the default parameters: versions of scikit-learn add some."""
    parameters = inspect.signature(kind.__init__).parameters.values()
    return {p.name: p.default for p in parameters if p.default is not p.empty and p.name != "self"}


# ---------------------------------------------------------------------- what compiled code relies on


def _check_object(built):
    """Refuse an object whose arrays do not fit together: compiled code would read outside them."""
    name = type(built).__name__
    if name == "SVC":
        _check_svc(built)
    elif name == "OneHotEncoder":
        _check_one_hot(built)
    elif name == "FunctionTransformer":
        _require(built.func is None and built.inverse_func is None, "FunctionTransformer has a function")
    elif _HOMES[name].startswith("margindist."):
        _check_classifier(built)


def _is_array(value, shape, kinds="f"):
    return type(value) is np.ndarray and value.dtype.kind in kinds and value.shape == shape


def _check_classifier(model):
    attributes = vars(model)
    if "classes_" not in attributes:
        return
    name, classes, d = type(model).__name__, model.classes_, attributes.get("n_features_in_")
    _require(type(classes) is np.ndarray and classes.ndim == 1 and len(classes) >= 2, f"{name} has no classes")
    _require(type(d) is int and d > 0, f"{name} has no number of features")
    rows = 1 if len(classes) == 2 else len(classes)
    if "_memory" in attributes:
        _check_memory(model, rows, d)
    if "_stream" in attributes:
        _check_stream(model, rows, d + bool(model.fit_intercept))
    if "intercept_" in attributes:
        _require(_is_array(model.intercept_, (rows,)), f"{name} has intercepts that do not fit")
    if "coef_" in attributes:
        _require(_is_array(model.coef_, (rows, d)), f"{name} has weights that do not fit")
    if "dual_coef_" in attributes:
        _check_kernel_model(model, name, rows, d)
    if "estimators_" in attributes:
        fitted = all(isinstance(one, BaseEstimator) for one in model.estimators_)
        _require(fitted, f"{name} has parts that are no classifiers")
        _require(_is_array(model.code_book_, (len(classes), len(model.estimators_)), "i"), f"{name} has no code book")


def _check_kernel_model(model, name, rows, d):
    support, kernel = model.support_, getattr(model, "kernel_", None)
    _require(isinstance(kernel, _allowed_class("Kernel")), f"{name} has no kernel")
    _require(
        type(kernel.name) is str and kernel.name in KERNELS and kernel.name == model.kernel, f"{name} has no kernel"
    )
    numbers = (kernel.gamma, kernel.degree, kernel.coef0, kernel.bias)
    _require(all(isinstance(number, (int, float, np.number)) for number in numbers), f"{name} has no valid kernel")
    _require(type(support) is np.ndarray and support.ndim == 1 and support.dtype.kind == "i", f"{name} has no support")
    _require(len(support) == 0 or support.min() >= 0, f"{name} has a support out of range")
    _require(_is_array(model.dual_coef_, (rows, len(support))), f"{name} has coefficients that do not fit")
    if kernel.name == "precomputed":
        _require(len(support) == 0 or support.max() < d, f"{name} has a support out of range")
        return
    vectors = getattr(model, "support_vectors_", None)
    fits = sp.issparse(vectors) or type(vectors) is np.ndarray
    _require(
        fits and vectors.shape == (len(support), d) and vectors.dtype.kind == "f", f"{name} has no support vectors"
    )


def _like(value, pattern):
    return type(value) is type(pattern) and value.dtype == pattern.dtype and value.shape == pattern.shape


def _check_memory(model, rows, d):
    """Compare what an online learner remembers with what one that has seen nothing looks like."""
    from margindist.solvers import online, online_kernel

    memory, name = model._memory, type(model).__name__
    damaged = f"{name} has a memory that does not fit"
    _require(isinstance(memory, _allowed_class("_Memory")), damaged)
    method = memory.method
    _require(type(method) is getattr(online, name.removesuffix("Classifier"), None), damaged)
    _require(all(isinstance(number, (bool, int, float, np.number)) for number in method), damaged)
    if memory.kernel is not None:
        state, fresh = memory.learners, online_kernel.kernel_state(rows, 0.0)
        _require(isinstance(state, online_kernel.KernelState) and type(state.n_seen) is int, damaged)
        _require(_like(state.owners, fresh.owners) and _like(state.pair, fresh.pair), damaged)
        _require(state.owners.min() >= -1 and state.owners.max() < len(model.support_), damaged)
        _require(isinstance(state.tracks, list) and len(state.tracks) == rows, damaged)
        _require(all(map(_like, state.tracks, fresh.tracks)), damaged)
        state = state._replace(X=model.support_vectors_, numbers=model.support_, coef=model.dual_coef_)
        model._memory = memory._replace(kernel=model.kernel_, learners=state)
        return
    _require(isinstance(memory.learners, list) and len(memory.learners) == rows, damaged)
    for state in memory.learners:
        fresh = online.linear_state(method, d)
        _require(isinstance(state, online.LinearState), damaged)
        _require(all(_like(value, pattern) for value, pattern in zip(state, fresh)), damaged)
        _require((state.link is state.v) == (fresh.link is fresh.v), damaged)
        n_kept = len(fresh.kept)
        _require(state.columns.min() >= 0 and state.columns.max() < d, damaged)
        _require(state.counts.min() >= 0 and state.counts.max() <= d, damaged)
        _require(state.slots.min() >= -1 and state.slots.max() < n_kept and state.slots[2] >= 0, damaged)


def _check_stream(model, rows, n_columns):
    from margindist.solvers.stochastic import new_state

    stream, damaged, fresh = model._stream, "LDMClassifier has a stream that does not fit", new_state(n_columns)
    _require(isinstance(stream, _allowed_class("_Stream")), damaged)
    _require(isinstance(stream.rng, np.random.Generator) and len(stream.etas) == len(stream.states) == rows, damaged)
    numbers = (*stream.etas, stream.first_piece, stream.seen)
    _require(all(isinstance(number, (int, float, np.number)) for number in numbers), damaged)
    for state in stream.states:
        _require(isinstance(state, type(fresh)) and all(map(_like, state, fresh)), damaged)


def _check_svc(model):
    """Refuse what libsvm would read beyond: it takes every length on trust."""
    attributes = vars(model)
    _require(type(model.kernel) is str, "SVC has no kernel")
    if "support_" not in attributes:
        return
    damaged = "SVC has arrays that do not fit together"
    k, d, n, vectors = len(model.classes_), model.n_features_in_, len(model.support_), model.support_vectors_
    _require(k >= 2 and type(d) is int and model.support_.dtype == np.int32 and model.support_.ndim == 1, damaged)
    _require(n == 0 or (model.support_.min() >= 0 and model.support_.max() < model.shape_fit_[0]), damaged)
    counts = model._n_support
    _require(_is_array(counts, (k,), "i") and counts.dtype == np.int32, damaged)
    _require(counts.min() >= 0 and counts.sum() == n, damaged)
    pairs = k * (k - 1) // 2
    _require(_is_array(model._intercept_, (pairs,)) and model._intercept_.dtype == np.float64, damaged)
    probability = attributes.get("_effective_probability", model.probability)
    _require(type(probability) is bool, damaged)
    expected = (pairs if probability else 0,)
    for name in ("_probA", "_probB"):
        _require(_is_array(attributes[name], expected) and attributes[name].dtype == np.float64, damaged)
    dual = model._dual_coef_
    _require(dual.shape == (k - 1, n) and dual.dtype == np.float64 and vectors.dtype == np.float64, damaged)
    _require(type(model._sparse) is bool and model._sparse == sp.issparse(vectors) == sp.issparse(dual), damaged)
    if model._sparse:
        _require(model.kernel in ("linear", "poly", "rbf", "sigmoid"), "SVC has no kernel")
        _require(vectors.shape == (n, d) and len(dual.data) == (k - 1) * n, damaged)
        _require(vectors.indices.dtype == vectors.indptr.dtype == np.int32, damaged)
    else:
        expected = (0, 0) if model.kernel == "precomputed" else (n, d)
        _require(vectors.shape == expected and vectors.flags.c_contiguous and dual.flags.c_contiguous, damaged)


def _check_one_hot(encoder):
    """Refuse counts of columns that the categories do not give: the sparse result would have entries outside it."""
    attributes = vars(encoder)
    if "categories_" not in attributes:
        return
    damaged = "OneHotEncoder has categories that do not fit together"
    categories, counts = encoder.categories_, encoder._n_features_outs
    _require(isinstance(categories, list) and isinstance(counts, list) and len(categories) == len(counts), damaged)
    _require(all(type(part) is np.ndarray and part.ndim == 1 for part in categories), damaged)
    sizes = [len(part) for part in categories]
    if encoder._infrequent_enabled:
        mappings = encoder._default_to_infrequent_mappings
        _require(isinstance(mappings, list) and len(mappings) == len(sizes), damaged)
        for k, mapping in enumerate(mappings):
            if mapping is not None:
                _require(_is_array(mapping, (sizes[k],), "i") and mapping.min() >= 0, damaged)
                sizes[k] = int(mapping.max()) + 1
    dropped = encoder._drop_idx_after_grouping
    if dropped is not None:
        _require(type(dropped) is np.ndarray and dropped.shape == (len(sizes),), damaged)
        for k, position in enumerate(dropped.tolist()):
            if position is not None:
                _require(type(position) is int and 0 <= position < sizes[k], damaged)
                sizes[k] -= 1
    _require([int(count) for count in counts] == sizes, damaged)
