"""Model files that are safe to load from strangers.

A model file holds what *prediction* needs and nothing else: a line that says what it is, a SHA-256 of the rest, the
length of the header, the header (JSON), and the numbers of all arrays one after the other. Loading never unpickles,
never evaluates, and never looks up a name from the file anywhere but in the tables below.

Three checks stand between a file and a model:

1. Size, depth and number of parts of the header are bounded before it is parsed, and an array is made only if the file
   has as many bytes as it needs, so a small file takes little time and memory.
2. :mod:`margindist.model_schema` declares, class by class, the attributes there must be, with type, shape and range; an
   object with others is not made, so compiled code gets no index that was not checked.
3. The whole model predicts an example of its own making: parts that do not fit together are found at once.

Pickle and joblib run what a file says. skops does not, but asks the user which types to trust, and its files depend on
the versions of all packages; the estimators work with it too.

In the header's tree, lists, texts and finite numbers are themselves; ``{"tuple": […]}`` and the like name other kinds
(``_CODECS``), ``{"array": "<f8", "shape": […]}`` is the next array of the file, and ``{"class": …, "parameters": …,
"fitted": …}`` an object of one of the classes that have a schema.
"""

import functools
import hashlib
import inspect
import json
import math
import os
import platform
import re
import types
import warnings
from collections import UserList
from collections.abc import Iterable
from contextlib import contextmanager
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import scipy.sparse as sp
import sklearn
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted

import margindist
from margindist.estimators._training_data import MatrixLike
from margindist.files import written_whole
from margindist.kernels import Kernel
from margindist.methods import best_model
from margindist.model_schema import SchemaError, check_fitted, check_parameters, class_named, complete, schema_of

__all__ = ["ModelFileError", "ModelMetadata", "load_model", "read_metadata", "save_model"]

FORMAT = 2
_MAGIC = b"margindist model\n"
_PRELUDE = len(_MAGIC) + 32 + 8  # the SHA-256 of what follows it, the length of the header
_HEADER_BYTES = 16_000_000
_VALUES = 500_000  # in the header
_CONTAINERS = 100_000  # lists and objects in the header
_OBJECTS = 10_000  # objects of the classes that may be in a file
_DEPTH = 100  # of lists and objects within each other
_DIGITS = 20  # of an integer

# Parameters that concern the fitting and not the model: how many processes, a folder of pickles, and folds.
_SET_BACK = {"memory", "n_jobs", "cv"}

_TYPES = [
    bool,
    int,
    float,
    str,
    object,
    np.object_,
    np.str_,
    np.number,
    np.integer,
    np.floating,
    np.float32,
    np.float64,
]
_TYPES += [np.int8, np.int16, np.int32, np.int64, np.uint8, np.uint16, np.uint32, np.uint64]
_TYPES = {kind.__name__: kind for kind in _TYPES}
_PLAIN = (type(None), bool, int, float, str, np.generic)
_SPARSE = {"csr_matrix": sp.csr_matrix, "csr_array": sp.csr_array}
_DTYPE = re.compile(r"\|[biu]1|<[iu][248]|<f[248]|\|S[0-9]{1,7}|<U[0-9]{1,7}|<[mM]8\[[0-9]{0,6}[A-Za-z]{1,2}\]")

# Types that JSON lacks: the type, how to encode a value, and how to decode it.
_CODECS = {
    "float": (float, str, float),
    "tuple": (tuple, list, tuple),
    "dict": (dict, lambda value: [list(pair) for pair in value.items()], lambda pairs: _plain_keys(dict(pairs))),
    "slice": (slice, lambda value: [value.start, value.stop, value.step], lambda parts: slice(*parts)),
    "type": (type, lambda value: value.__name__, lambda name: _TYPES[name]),
}


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

    The file has what prediction needs: parameters, and the attributes that ``predict``, ``decision_function`` and
    ``transform`` use. Training cannot go on from it; keep the learner itself by pickle for that. Of a search over
    parameters (``GridSearchCV`` or this library's own) the best model is stored. The file appears whole or not at all,
    also when the writing is interrupted. The same model gives the same bytes.

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
        Names of the columns for a model that was fitted on arrays: the loaded model checks them in data frames. Those
        of the data frame the model was fitted on need not be given.
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
    model = best_model(model)
    if not isinstance(model, BaseEstimator):
        raise ModelFileError(f"save_model: expected a fitted classifier, got an object of {type(model).__name__}.")
    try:
        check_is_fitted(model)
        writer = _Writer()
        tree = writer.node(model, type(model).__name__, fitted=True)
        about = {
            "model": _described(model),
            "classes": [str(label) for label in np.asarray(getattr(model, "classes_", ())).tolist()],
            "feature_names": _feature_names(model, feature_names),
            "target_name": target_name,
            "data_name": data_name,
            "data_checksum": data_checksum,
            "notes": [str(note) for note in ([notes] if isinstance(notes, str) else notes)],
        }
        _check_about(about)
        parts = _file_parts(tree, about, writer.arrays)
    except (ModelFileError, SchemaError) as error:
        raise ModelFileError(f"save_model: {error}.") from None
    except RecursionError:
        raise ModelFileError("save_model: the model is nested too deeply or contains itself.") from None
    with written_whole(path) as file:
        file.writelines(parts)


class Model(Protocol):
    """What is loaded: a classifier, or a pipeline that ends with one."""

    classes_: np.ndarray
    n_features_in_: int

    def predict(self, X: MatrixLike) -> np.ndarray: ...

    def decision_function(self, X: MatrixLike) -> np.ndarray: ...

    def score(self, X: MatrixLike, y: ArrayLike, sample_weight: ArrayLike | None = None) -> float: ...

    def get_params(self, deep: bool = True) -> dict[str, Any]: ...


def load_model(path: str | os.PathLike) -> Model:
    """Read a model that :func:`save_model` wrote; safe also with files from strangers.

    Nothing but the listed classes and plain data is ever made from the file, and nothing in it is executed. What loads
    predicts, the same bit for bit as the model that was stored, on the same machine and versions; ``partial_fit`` is
    refused.

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
    with _opened(path) as (header, reader):
        model = reader.model(header["tree"])
        _name_columns(model, header["about"]["feature_names"])
        _try_out(model, reader.n_bytes)
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
    with _opened(path) as (header, _):
        about = {key: tuple(item) if isinstance(item, list) else item for key, item in header["about"].items()}
        return ModelMetadata(format=header["format"], versions=header["versions"], **about)


# ---------------------------------------------------------------------- writing


def _require(condition, complaint):
    if not condition:
        raise ModelFileError(complaint)


def _described(model):
    if type(model).__name__ != "Pipeline":
        return type(model).__name__
    return "Pipeline(" + ", ".join(type(best_model(step)).__name__ for _, step in model.steps) + ")"


def _feature_names(model, given):
    """Return the names of the columns: those the model was fitted on, or else those given."""
    own = getattr(model, "feature_names_in_", None)
    if given is None:
        return None if own is None else own.tolist()
    names = [str(name) for name in given]
    expected = getattr(model, "n_features_in_", None)
    _require(expected in (None, len(names)), f"the model has {expected} features, got {len(names)} feature_names")
    _require(own is None or names == own.tolist(), "the feature_names are not those of the columns the model has seen")
    return names


class _Writer:
    """Turns a model into a tree; arrays are collected in the order of the tree."""

    def __init__(self):
        self.arrays = []

    def node(self, value, where, fitted=False):
        """Return the node of a value; ``where`` names it in messages, ``fitted`` asks for what objects learnt."""
        if value is None or type(value) in (bool, str):
            return value
        if type(value) is int:
            _require(abs(value) < 10**_DIGITS, f"{where} is an integer of more than {_DIGITS} digits")
            return value
        if type(value) is float and math.isfinite(value):
            return value
        if isinstance(value, np.random.RandomState):
            return None
        if isinstance(value, (np.ndarray, np.generic)):
            return self._array(value, where)
        if sp.issparse(value):
            return self._sparse(value, where)
        if isinstance(value, np.dtype):
            value = value.type
        if isinstance(value, UserList) or (type(value).__module__.startswith("pandas") and hasattr(value, "to_list")):
            value = list(value)
        if type(value) is list:
            return [self.node(item, where, fitted) for item in value]
        for tag, (kind, encode, _) in _CODECS.items():
            if type(value) is kind and (kind is not type or _TYPES.get(value.__name__) is value):
                return {tag: self.node(encode(value), where, fitted)}
        return self._object(best_model(value), where, fitted)

    def _object(self, value, where, fitted):
        kind = type(value)
        name = kind.__name__
        function = isinstance(value, (types.FunctionType, types.BuiltinFunctionType, types.MethodType, np.ufunc))
        _require(
            not function,
            f"{where} is a function, which no model file can hold safely; use a kernel by name, or "
            f"kernel='precomputed' and apply the function before",
        )
        _require(
            class_named(name) is kind,
            f"{where} is an object of {kind.__module__}.{name}, which is not among the classes a model file can hold "
            f"(this library's classifiers and scikit-learn's usual preprocessing)",
        )
        parameters = value.get_params(deep=False) if isinstance(value, BaseEstimator) else _fields(value)
        steps = fitted and name == "Pipeline"  # all that it has learnt
        given = {
            key: self.node(item, f"{name}.{key}", steps) for key, item in parameters.items() if key not in _SET_BACK
        }
        if not (fitted and isinstance(value, BaseEstimator)):
            return {"class": name, "parameters": given}
        learnt = {key: getattr(value, key) for key in schema_of(value) if hasattr(value, key)}
        check_fitted(value, learnt)
        nodes = {key: self.node(item, f"{name}.{key}", fitted) for key, item in learnt.items()}
        return {"class": name, "parameters": given, "fitted": nodes}

    def _array(self, array, where):
        plain = np.asarray(array)
        _require(type(array) is np.ndarray or isinstance(array, np.generic), f"{where} is a {type(array).__name__}")
        if plain.dtype == object:
            _require(plain.ndim == 1, f"{where} is an array of objects with {plain.ndim} dimensions")
            return {"objects": self.node(plain.tolist(), where)}
        plain = plain.astype(plain.dtype.newbyteorder("<"), copy=False)
        _require(_DTYPE.fullmatch(plain.dtype.str), f"{where} is an array of {plain.dtype}")
        node = {"array": plain.dtype.str, "shape": list(plain.shape)}
        if plain.flags.f_contiguous and not plain.flags.c_contiguous:
            node["order"] = "F"
            plain = plain.T
        self.arrays.append(np.ascontiguousarray(plain))
        return node

    def _sparse(self, matrix, where):
        name = type(matrix).__name__
        _require(_SPARSE.get(name) is type(matrix), f"{where} is a {name}, but sparse matrices must be CSR")
        if not matrix.has_canonical_format:
            matrix = matrix.copy()
            matrix.sum_duplicates()
        parts = [self._array(part, where) for part in (matrix.data, matrix.indices, matrix.indptr)]
        return {"sparse": name, "shape": [int(n) for n in matrix.shape], "parts": parts}


def _fields(value):
    return value._asdict() if isinstance(value, Kernel) else vars(value)


def _file_parts(tree, about, arrays):
    """Return the pieces of a file in their order."""
    versions = {
        "margindist": margindist.__version__,
        "scikit-learn": sklearn.__version__,
        "numpy": np.__version__,
        "python": platform.python_version(),
    }
    header = {"format": FORMAT, "versions": versions, "about": about, "tree": tree}
    text = json.dumps(header, allow_nan=False, separators=(",", ":")).encode()
    _check_bounds(text)
    contents = [array.reshape(-1).view(np.uint8).data for array in arrays if array.nbytes]
    parts = [len(text).to_bytes(8, "little"), text, *contents]
    digest = hashlib.sha256()
    for part in parts:
        digest.update(part)
    return [_MAGIC, digest.digest(), *parts]


# ---------------------------------------------------------------------- reading


@contextmanager
def _opened(path):
    """Yield the header and a reader of what follows; whatever goes wrong becomes one sentence about the file."""
    with open(path, "rb") as file:
        try:
            yield _read_header(file)
        except Exception as error:
            known = isinstance(error, (ModelFileError, SchemaError))
            reason = str(error) if known else f"it is damaged ({type(error).__name__})"
            cause = None if known else error
            raise ModelFileError(f"The model file {Path(path).name} cannot be loaded: {reason}.") from cause


def _read_header(file):
    """Return the checked header of a file and a reader of its arrays."""
    size = os.fstat(file.fileno()).st_size
    magic = file.read(len(_MAGIC))
    promised = file.read(32)
    length = int.from_bytes(file.read(8), "little")
    _require(
        not magic.startswith(b"PK\x03\x04"),
        "it has the format of margindist 0.1, which is no longer read; save the model again",
    )
    _require(magic == _MAGIC, "it is not a model file")
    _require(length <= size - _PRELUDE, "it is truncated or damaged")
    _require(length <= _HEADER_BYTES, f"its header has more than {_HEADER_BYTES:,} bytes")
    file.seek(_PRELUDE - 8)
    digest = hashlib.file_digest(file, "sha256").digest()
    _require(digest == promised, "its checksum does not fit, so it is truncated or damaged")
    file.seek(_PRELUDE)
    text = file.read(length)
    _check_bounds(text)
    header = json.loads(text, parse_int=_bounded_integer)
    _check_header(header)
    return header, _Reader(file, size - _PRELUDE - length)


def _check_bounds(text):
    """Refuse JSON that would take long to parse: its parts are counted before, without the texts in it."""
    _require(len(text) <= _HEADER_BYTES, f"the header has more than {_HEADER_BYTES:,} bytes")
    bare = re.sub(rb'"(?:[^"\\]++|\\.)*+"?', b"", text, flags=re.DOTALL)
    _require(bare.count(b",") < _VALUES, f"the header has more than {_VALUES:,} values")
    codes = np.frombuffer(bare, dtype=np.uint8)
    opens = (codes == ord("[")) | (codes == ord("{"))
    closes = (codes == ord("]")) | (codes == ord("}"))
    _require(opens.sum() <= _CONTAINERS, f"the header has more than {_CONTAINERS:,} lists and objects")
    depth = np.cumsum(opens.astype(np.int32) - closes)
    _require(depth.max(initial=0) <= _DEPTH, f"the header is nested more than {_DEPTH} deep")


def _bounded_integer(text):
    _require(len(text) <= _DIGITS + 1, f"the header has an integer of more than {_DIGITS} digits")
    return int(text)


def _check_header(header):
    number = header.get("format") if isinstance(header, dict) else None
    _require(type(number) is int and number >= FORMAT, "it has no format number")
    _require(
        number == FORMAT,
        f"it has format {number}, made by a newer margindist; this one reads format {FORMAT}, so upgrade it",
    )
    for key in ("versions", "about", "tree"):
        _require(isinstance(header.get(key), dict), f"its header has no {key}")
    _require(all(isinstance(version, str) for version in header["versions"].values()), "its versions are not texts")
    _check_about(header["about"])


def _check_about(about):
    expected = {field.name for field in fields(ModelMetadata)} - {"format", "versions"}
    _require(set(about) == expected and isinstance(about["model"], str), "its metadata are incomplete")
    for key, item in about.items():
        several = key in ("classes", "feature_names", "notes")
        optional = key not in ("model", "classes", "notes")
        texts = item if several and isinstance(item, list) else [item]
        fits = all(isinstance(text, str) for text in texts) and isinstance(item, list) == several
        _require(fits or (optional and item is None), f"{key} must be {'texts' if several else 'a text'}")


class _Reader:
    """Turns a tree back into a model; arrays are read from the file in the order of the tree."""

    def __init__(self, file, n_bytes):
        self.n_bytes = n_bytes
        self._left = n_bytes
        self._n_objects = 0
        self._file = file

    def model(self, tree):
        """Return the model of a tree that uses up the file."""
        model = self.value(tree)
        _require(isinstance(model, BaseEstimator), "it is not a model")
        _require(self._left == 0, "it has more bytes than its arrays")
        check_is_fitted(model)
        return model

    def value(self, node):
        """Return the value of a node."""
        if isinstance(node, list):
            return [self.value(item) if type(item) in (list, dict) else item for item in node]
        if not isinstance(node, dict):
            return node
        kind = next(iter(node), None)
        if kind in _CODECS:
            return _CODECS[kind][2](self.value(node[kind]))
        _require(kind in ("array", "objects", "sparse", "class"), f"it has a node of unknown kind {str(kind)[:40]!r}")
        return getattr(self, f"_{kind}")(node)

    def _array(self, node):
        text, shape = node["array"], _shape(node["shape"])
        _require(isinstance(text, str) and _DTYPE.fullmatch(text), f"the data type {str(text)[:40]!r} is not allowed")
        dtype = np.dtype(text)
        needed = math.prod(shape) * dtype.itemsize
        _require(needed <= self._left, "an array is larger than the rest of the file")
        by_columns = node.get("order") == "F"
        array = np.empty(shape[::-1] if by_columns else shape, dtype)
        if needed:
            content = array.reshape(-1).view(np.uint8)
            _require(self._file.readinto(content) == needed, "it is truncated")
            self._left -= needed
            _require(dtype.kind != "b" or content.max() <= 1, "a flag is neither true nor false")
            _require(dtype.kind != "U" or content.view("<u4").max() < 0x110000, "a text has characters beyond Unicode")
        return array.T if by_columns else array[()]

    def _objects(self, node):
        items = self.value(node["objects"])
        _require(all(isinstance(item, _PLAIN) for item in items), "an array of objects holds more than plain values")
        array = np.empty(len(items), dtype=object)
        array[:] = items
        return array

    def _sparse(self, node):
        data, indices, indptr = self.value(node["parts"])
        matrix = _SPARSE[node["sparse"]]((data, indices, indptr), shape=_shape(node["shape"]))
        matrix.check_format(full_check=True)
        _require(matrix.has_canonical_format and matrix.nnz == len(data) == len(indices), "a sparse matrix is damaged")
        return matrix

    def _class(self, node):
        self._n_objects += 1
        _require(self._n_objects <= _OBJECTS, f"it has more than {_OBJECTS:,} objects")
        name, given = node["class"], node.get("parameters")
        _require(
            isinstance(name, str) and class_named(name) is not None,
            f"the class {str(name)[:60]!r} is not among those a model file may hold",
        )
        _require(isinstance(given, dict), f"{name} has no parameters")
        kind = class_named(name)
        known = _parameter_names(kind) - _SET_BACK
        for key in given:
            _require(key in known, f"{name} has no parameter {key[:40]!r}")
        parameters = {key: self.value(item) for key, item in given.items()}
        for key, item in parameters.items():
            _require(not isinstance(item, type) or key.startswith("dtype"), f"{name}.{key} is a type")
        built = kind(**parameters)
        if not isinstance(built, BaseEstimator):
            return built
        check_parameters(built)
        if "fitted" in node:
            self._set_learnt(built, node["fitted"])
        return built

    def _set_learnt(self, model, nodes):
        """Give a model what it has learnt."""
        _require(isinstance(nodes, dict), f"{type(model).__name__} has no attributes")
        attributes = {key: self.value(item) for key, item in nodes.items()}
        check_fitted(model, attributes)
        vars(model).update(attributes)
        complete(model)


@functools.cache
def _parameter_names(kind):
    return set(inspect.signature(kind).parameters)


def _plain_keys(found):
    """Return a dictionary; integers are short and texts are hashed with a secret, so no file makes keys collide."""
    _require(all(isinstance(key, _PLAIN) for key in found), "a dictionary has keys that are not plain")
    return found


def _shape(shape):
    sizes = shape if isinstance(shape, list) else [None]
    fits = len(sizes) <= 2 and all(type(n) is int and 0 <= n < 2**40 for n in sizes)
    _require(fits, "an array has a shape that is not a list of at most two sizes")
    return tuple(shape)


# ---------------------------------------------------------------------- the whole model


def _estimators(pipeline):
    return [step for _, step in pipeline.steps if isinstance(step, BaseEstimator)]


def _name_columns(model, names):
    """Give a model that was fitted without names those of the file, so that columns are found or checked by name."""
    if names is None or hasattr(model, "feature_names_in_"):
        return
    if hasattr(model, "steps"):
        for step in _estimators(model)[:1]:
            _name_columns(step, names)
        return
    _require(getattr(model, "n_features_in_", None) == len(names), "its feature names do not fit the model")
    model.feature_names_in_ = np.array(names, dtype=object)
    for name, step, _ in getattr(model, "transformers_", ()):
        if isinstance(step, BaseEstimator):
            _name_columns(step, [names[j] for j in model._transformer_to_input_indices[name]])
    if type(model).__name__ == "OneVsRestClassifier":  # does not look at the columns itself
        for one in model.estimators_:
            _name_columns(one, names)


def _try_out(model, n_bytes):
    """Raise an error if the model cannot predict two example rows, so that whatever loads can predict."""
    rows = _example_rows(model, n_bytes)
    if rows is None:
        return
    *steps, last = _estimators(model) if hasattr(model, "steps") else [model]
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        try:
            for step in steps:
                rows = step.transform(rows)
            if not hasattr(last, "predict"):
                last.transform(rows)
                return
            labels, scores = last.predict(rows), last.decision_function(rows)
        except Exception as error:
            raise ModelFileError("its parts do not fit together, so that it cannot predict") from error
    n_classes = len(last.classes_)
    shapes = [(2,)] if n_classes == 2 else [(2, n_classes), (2, n_classes * (n_classes - 1) // 2)]
    _require(labels.shape == (2,) and scores.shape in shapes, "it does not predict one label per row")
    _require(np.isfinite(scores).all(), "its scores are not finite numbers")
    if type(last).__name__ == "CalibratedClassifier":
        p = last.predict_proba(rows)
        sums = p.sum(axis=1)
        _require(p.shape == (2, n_classes) and np.allclose(sums, 1.0), "its probabilities do not sum to one")


def _example_rows(model, n_bytes):
    """Return two rows that a model should accept, or None if they cannot be made."""
    first = _estimators(model)[0] if hasattr(model, "steps") else model
    if hasattr(first, "steps"):
        return _example_rows(first, n_bytes)
    if not hasattr(first, "n_features_in_"):
        return None
    n_features = first.n_features_in_
    names = getattr(first, "feature_names_in_", None)
    special = _example(model)
    if not special and 16 * n_features > max(n_bytes, 2**20):  # only a sparse matrix can have so many columns
        return sp.csr_matrix((2, n_features))
    values = np.zeros((2, n_features), dtype=object if any(isinstance(v, str) for v in special.values()) else float)
    values[1] = 1.0
    for column, value in special.items():
        values[:, column] = value
    if not special or names is None:
        return values
    try:
        import pandas as pd
    except ImportError:
        return None
    return pd.DataFrame({name: values[:, k].tolist() for k, name in enumerate(names)})


def _example(model):
    """Return the columns that do not take arbitrary numbers, each with a value that it does take."""
    if hasattr(model, "steps"):
        return _example_of_steps(_estimators(model))
    if hasattr(model, "categories_"):
        return {k: categories[0] for k, categories in enumerate(model.categories_)}
    if hasattr(model, "estimators_"):
        return _example(model.estimators_[0])
    found = {}
    for name, step, _ in getattr(model, "transformers_", ()):
        columns = model._transformer_to_input_indices[name]
        inner = _example(step) if isinstance(step, BaseEstimator) else {}
        found |= {column: inner.get(k, 0.0) for k, column in enumerate(columns)}
    return found


def _example_of_steps(steps):
    """Return the same for the steps of a pipeline; an imputer passes values on."""
    if not steps or type(steps[0]).__name__ != "SimpleImputer":
        return _example(steps[0]) if steps else {}
    fills = steps[0].statistics_
    dropped = not steps[0].keep_empty_features and steps[0].strategy != "constant"
    kept = [k for k, fill in enumerate(fills) if fill == fill or not dropped]
    return {kept[k]: value for k, value in _example_of_steps(steps[1:]).items() if k < len(kept)}
