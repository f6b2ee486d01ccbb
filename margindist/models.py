"""Model files that are safe to load from strangers.

A model file is a zip archive of skops: ``schema.json`` says what the model is made of, the arrays stand beside it, and
``margindist.json`` has what is known about the model, as plain data. Nothing of a file is run, and none predicts to
find out whether it is good. Three checks stand between a file and a model:

1. Nothing in the archive is compressed, no array stands for two, and the schema is bounded, so what a file takes in
   memory follows from its size: a few times for arrays, up to 26 times for their description.
2. Before skops makes anything, every node of the schema is one of the tables below: plain data, arrays, and classes
   whose prediction is known. skops alone would also take functions, methods, and every class of scikit-learn.
3. What was made has only the attributes that prediction needs, so training cannot go on from what a stranger wrote.
   Where prediction relies on positions unseen (sparse matrices, one-hot encoders, libsvm), they are checked.

The arithmetic of prediction is NumPy's and SciPy's, which raise an error for sizes that do not fit. The compiled code
that completes kernel values gets arrays that NumPy has multiplied before, and of sparse rows the checked positions.
"""

import io
import json
import os
import platform
import warnings
from collections import UserList
from collections.abc import Iterable, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Protocol
from zipfile import ZIP_STORED, ZipFile, ZipInfo

import numpy as np
import scipy.sparse as sp
import sklearn
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted

import margindist
from margindist.estimators._training_data import MatrixLike
from margindist.files import written_whole
from margindist.kernels import KERNELS, Kernel
from margindist.methods import OURS, best_model

__all__ = ["ModelFileError", "ModelMetadata", "load_model", "read_metadata", "save_model"]

FORMAT = 3
_ABOUT = "margindist.json"
_JSON_BYTES = 32_000_000  # Python's objects take up to 26 times as much
_NESTED = 10  # estimators within each other: each may ask those within it twice

_CLASSES = {
    "sklearn.calibration": "CalibratedClassifierCV _CalibratedClassifier _SigmoidCalibration _TemperatureScaling",
    "sklearn.compose": "ColumnTransformer",
    "sklearn.feature_selection": "VarianceThreshold",
    "sklearn.frozen": "FrozenEstimator",
    "sklearn.impute": "MissingIndicator SimpleImputer",
    "sklearn.isotonic": "IsotonicRegression",
    "sklearn.linear_model": "LogisticRegression RidgeClassifier",
    "sklearn.multiclass": "OneVsOneClassifier OneVsRestClassifier",
    "sklearn.pipeline": "Pipeline",
    "sklearn.preprocessing": "FunctionTransformer LabelBinarizer LabelEncoder MaxAbsScaler MinMaxScaler Normalizer "
    "OneHotEncoder OrdinalEncoder StandardScaler",
    "sklearn.svm": "LinearSVC SVC",
}
_HOMES = {name: module for module, names in _CLASSES.items() for name in names.split()}
_NUMBERS = {f"numpy.{kind}{bits}" for kind in ("int", "uint", "float") for bits in (8, 16, 32, 64)}
_NUMBERS |= {"numpy.bool", "numpy.bool_", "numpy.str_"}
_PLAIN = {  # kinds of nodes that skops makes, each with the classes that it may make
    "JsonNode": {"builtins.str"},
    "DictNode": {"builtins.dict"},
    "ListNode": {"builtins.list"},
    "TupleNode": {"builtins.tuple", "margindist.kernels.Kernel"},
    "SliceNode": {"builtins.slice"},
    "TypeNode": {f"builtins.{kind.__name__}" for kind in (bool, int, float, str, object)} | _NUMBERS,
    "DTypeNode": {"numpy.dtype"},
    "NdArrayNode": {"numpy.ndarray"} | _NUMBERS,
    "SparseMatrixNode": {"scipy.sparse.csr_matrix", "scipy.sparse.csr_array"},
}
_KEYS = (int, float, str, np.integer, np.floating)
_VALUES = (type(None), bool, int, float, str, slice, type, np.dtype, np.generic)

# What prediction needs of a classifier of ours besides its parameters, and the sizes of what must fit together.
_LEARNT = {"classes_", "n_features_in_", "feature_names_in_", "coef_", "intercept_", "dual_coef_", "support_"}
_LEARNT |= {"support_vectors_", "kernel_", "code_book_", "estimators_"}
_SIZES = {
    "coef_": ("problems", "features"),
    "dual_coef_": ("problems", "support"),
    "intercept_": ("problems",),
    "support_": ("support",),
    "support_vectors_": ("support", "features"),
}
# Parameters that concern the fitting and not the model: how many processes, a folder of pickles, and folds.
_SET_BACK = {"memory", "n_jobs", "cv"}


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
    about : dict
        Plain data that were kept beside the model, such as how columns were read.
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
    about: dict = field(default_factory=dict)


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
    about: Mapping[str, Any] | None = None,
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
        or ``RidgeClassifier``, with scikit-learn's scalers, encoders, imputers and ``ColumnTransformer``, calibrated or
        not. A kernel that is a function cannot be stored; ``kernel="precomputed"`` can, and the loaded model takes
        kernel values with all training samples as before.
    path : path-like
        Where to write. A file of that name is replaced.
    feature_names : iterable of str, default=None
        Names of the columns for a model that was fitted on arrays, for :func:`read_metadata` and ``margindist
        predict``. Those of the data frame the model was fitted on need not be given.
    target_name : str, default=None
        Name of the predicted column.
    data_name : str, default=None
        Name of the training data.
    data_checksum : str, default=None
        Checksum of the training data.
    notes : iterable of str, default=()
        Sentences to keep with the model.
    about : dict, default=None
        Anything else to keep with the model: numbers, texts, and lists and dictionaries of these.

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
    skops = _skops()
    model = best_model(model)
    if not isinstance(model, BaseEstimator):
        raise ModelFileError(f"save_model: expected a fitted classifier, got an object of {type(model).__name__}.")
    try:
        check_is_fitted(model)
        names = _feature_names(model, feature_names)
        stored = _stored(model, type(model).__name__)
        _check_model(stored)
        schema, arrays = _tidied(skops.dumps(stored))
        _check_schema(schema, arrays.__getitem__)
    except ModelFileError as error:
        raise ModelFileError(f"save_model: {error}.") from None
    except RecursionError:
        raise ModelFileError("save_model: the model is nested too deeply or contains itself.") from None
    metadata = ModelMetadata(
        FORMAT,
        {
            "margindist": margindist.__version__,
            "scikit-learn": sklearn.__version__,
            "numpy": np.__version__,
            "python": platform.python_version(),
        },
        _described(model),
        tuple(str(label) for label in np.asarray(getattr(model, "classes_", ())).tolist()),
        names,
        target_name,
        data_name,
        data_checksum,
        tuple(str(note) for note in ([notes] if isinstance(notes, str) else notes)),
        dict(about or {}),
    )
    with written_whole(path) as file, ZipFile(file, "w") as archive:
        for name, content in {_ABOUT: json.dumps(asdict(metadata)), "schema.json": schema, **arrays}.items():
            archive.writestr(ZipInfo(name), content)


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
    predicts the same bit for bit as the model that was stored, on the same machine and versions, or, if somebody has
    tampered with the file, raises an error or predicts nonsense. ``partial_fit`` is refused.

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
        If the file is not a model file, is damaged, truncated or of another format, or holds what is not allowed.

    Warns
    -----
    UserWarning
        If another version of scikit-learn wrote the file.

    See Also
    --------
    save_model : Writes the file, with an example.
    """
    skops = _skops()
    with _opened(path) as (file, archive, metadata):
        classes = _check_schema(archive.read("schema.json"), archive.read)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # scikit-learn warns of its version once for each object
            model = skops.load(file, trusted=sorted(classes))
        _require(isinstance(model, BaseEstimator), "it is not a model")
        _check_model(model)
        check_is_fitted(model)
    written = metadata.versions.get("scikit-learn")
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
        As :func:`load_model` does, but the model is not looked at.
    """
    with _opened(path) as (_, _, metadata):
        return metadata


def _skops():
    try:
        import skops.io
    except ImportError:
        raise ImportError("Model files need skops: pip install 'margindist[models]'.") from None
    return skops.io


def _require(condition, complaint):
    if not condition:
        raise ModelFileError(complaint)


def _home(name):
    """Return the module of a class that may be in a file, else None."""
    return OURS[name].home if name in OURS else _HOMES.get(name)


# ---------------------------------------------------------------------- writing


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


def _stored(value, where):
    """Return what a file holds in place of a value, which ``where`` names in messages."""
    value = best_model(value)
    kind, name = type(value), type(value).__name__
    if isinstance(value, (np.random.RandomState, np.random.Generator)):
        return None
    if isinstance(value, (*_VALUES, np.ndarray)) or sp.issparse(value) or (kind is Kernel and value.name in KERNELS):
        return value  # it is checked later
    if isinstance(value, (list, UserList)):
        return [_stored(item, where) for item in value]
    if kind is tuple:
        return tuple(_stored(item, where) for item in value)
    if kind is dict:
        plain = all(isinstance(key, _KEYS) and type(key) is not bool for key in value)
        _require(plain and len(set(map(str, value))) == len(value), f"{where} has keys that are no texts or numbers")
        return {key: _stored(item, where) for key, item in value.items()}
    known = OURS[name].load() is kind if name in OURS else f"{kind.__module__}.".startswith(f"{_HOMES.get(name)}.")
    _require(
        known,
        f"{where} is an object of {kind.__module__}.{name}, which is not among the classes a model file can hold "
        f"(this library's classifiers and scikit-learn's usual preprocessing; in place of a function, give kernel "
        f"values with kernel='precomputed', or the columns that it makes)",
    )
    copy = object.__new__(kind)
    vars(copy).update({key: _stored(item, f"{name}.{key}") for key, item in _kept(value).items()})
    return copy


def _kept(value):
    """Return the attributes of an object that its prediction needs."""
    if type(value).__name__ in OURS:
        names = sorted({*value.get_params(deep=False), *_LEARNT})
        kept = {name: getattr(value, name) for name in names if hasattr(value, name)}
    else:
        kept = {name: item for name, item in value.__getstate__().items() if name != "_sklearn_version"}
    if "transformers_" in kept:
        kept |= _listed_columns(**kept)
    return kept | dict.fromkeys(_SET_BACK & kept.keys())


def _listed_columns(transformers, transformers_, _remainder, _transformer_to_input_indices, **_):
    """Return the parts of a ColumnTransformer, with lists of columns that were chosen by a mask or a function."""

    def part(name, step, columns):
        chosen = _transformer_to_input_indices.get(name, ())
        return name, step, columns if isinstance(columns, (list, str, int, slice)) else [int(j) for j in chosen]

    parts = [part(*one) for one in transformers]
    return {
        "transformers": parts,
        "transformers_": [part(*one) for one in transformers_],
        "_columns": [columns for _, _, columns in parts],
        "_remainder": part(*_remainder),
    }


def _tidied(data):
    """Return the schema that skops has written, without addresses in memory, and the arrays by new names."""
    arrays = {}
    with ZipFile(io.BytesIO(data)) as archive:
        schema = json.loads(archive.read("schema.json"))
        for node in _nodes(schema):
            node.pop("__id__", None)
            if node["__loader__"] == "ObjectNode":
                node["__module__"] = _home(node["__class__"])
            if "file" in node:
                content = archive.read(node["file"])
                node["file"] = f"{len(arrays)}.npy"
                if node["__loader__"] == "SparseMatrixNode":
                    node["__module__"] = "scipy.sparse"
                    content = _uncompressed(content)
                arrays[node["file"]] = content
    return json.dumps(schema, separators=(",", ":")).encode(), arrays


def _uncompressed(content):
    buffer = io.BytesIO()
    sp.save_npz(buffer, sp.load_npz(io.BytesIO(content)), compressed=False)
    return buffer.getvalue()


# ---------------------------------------------------------------------- reading


@contextmanager
def _opened(path):
    """Yield a file, its archive and its metadata; whatever goes wrong becomes one sentence about the file."""
    with open(path, "rb") as file:
        try:
            start = file.read(17)
            _require(
                start != b"margindist model\n",
                "it has format 2, which is no longer read; fit the model again, or load the file with the margindist "
                "that wrote it, pickle the model there and save it again here",
            )
            _require(start.startswith(b"PK\x03\x04"), "it is not a model file")
            with ZipFile(file) as archive:
                _check_archive(archive, os.fstat(file.fileno()).st_size)
                yield file, archive, _metadata(archive)
        except Exception as error:
            known = isinstance(error, ModelFileError)
            reason = str(error) if known else f"it is damaged ({type(error).__name__})"
            raise ModelFileError(f"The model file {Path(path).name} cannot be loaded: {reason}.") from (
                None if known else error
            )


def _check_archive(archive, size):
    """Refuse what is compressed or overlaps, so that a file holds no more than its size."""
    stored = all(info.compress_type == ZIP_STORED for info in archive.infolist())
    total = sum(max(info.file_size, info.compress_size) for info in archive.infolist())
    _require(stored and total <= size, "it holds more than its size")


def _metadata(archive):
    names = archive.namelist()
    _require(
        "model.json" not in names or _ABOUT in names,
        "it has the format of margindist 0.1, which is no longer read; save the model again",
    )
    _require(_ABOUT in names, "it is not a model file")
    result = _parsed(archive.read(_ABOUT))
    number = result.get("format") if isinstance(result, dict) else None
    _require(type(number) is int and number >= FORMAT, "it has no format number")
    _require(
        number == FORMAT,
        f"it has format {number}, made by a newer margindist; this one reads format {FORMAT}, so upgrade it",
    )
    versions = result.get("versions")
    _require(isinstance(versions, dict), "it has no versions")
    return ModelMetadata(**{key: tuple(item) if isinstance(item, list) else item for key, item in result.items()})


def _parsed(text):
    _require(len(text) <= _JSON_BYTES, f"its description has more than {_JSON_BYTES:,} bytes")
    return json.loads(text)


def _nodes(schema):
    """Yield every node of a schema: what skops makes an object of."""
    left = [schema]
    while left:
        value = left.pop()
        if isinstance(value, dict):
            if "__loader__" in value:
                yield value
            left.extend(value.values())
        elif isinstance(value, list):
            left.extend(value)


def _check_schema(schema, read):
    """Return the classes that a schema names; refuse it unless each of its nodes is one of the tables."""
    files, classes = set(), set()
    for node in _nodes(_parsed(schema)):
        loader, name = str(node["__loader__"]), str(node["__class__"])
        made = f"{node['__module__']}.{name}"
        allowed = {f"{_home(name)}.{name}"} if loader == "ObjectNode" and _home(name) else _PLAIN.get(loader, ())
        _require(made in allowed, f"{made[:80]!r} is not among the classes a model file may hold")
        _require("__id__" not in node, "it has an object in two places")
        if "file" in node:
            _require(node["file"] not in files, "it has an array in two places")
            files.add(node["file"])
        if loader == "SparseMatrixNode":
            content = read(node["file"])
            with ZipFile(io.BytesIO(content)) as inner:
                _check_archive(inner, len(content))
        if loader == "JsonNode":
            text = node["content"]
            _require(text.startswith('"') or len(text) <= 25, "it has a number of too many digits")
        if loader == "DictNode":
            kinds = {kind["__class__"] for kind in node["key_types"]["content"]}
            short = kinds <= {"str"} or max(map(len, node["content"])) <= 25  # equal hashes need many digits
            _require(short, "it has a number of too many digits")
        classes.add(made)
    return classes


# ---------------------------------------------------------------------- the whole model


def _check_model(model):
    """Refuse a model with what its prediction does not need, or with positions beyond what they point into."""
    left = [(model, 0)]
    while left:
        part, depth = left.pop()
        _require(depth <= _NESTED, f"it has more than {_NESTED} estimators within each other")
        if isinstance(part, np.ndarray):
            _check_array(part)
        elif sp.issparse(part):
            _require(part.format == "csr", "sparse matrices must be CSR")
            part.check_format(full_check=True)
        elif type(part) is Kernel:
            numbers = all(isinstance(one, (int, float, np.number)) for one in part[1:])
            _require(part.name in KERNELS and numbers, "its kernel is none")
        elif isinstance(part, (list, tuple, dict)):
            left.extend((one, depth) for one in (part.values() if isinstance(part, dict) else part))
        elif _home(type(part).__name__) is not None:
            _check_object(part)
            left.extend((one, depth + 1) for one in vars(part).values())


def _check_array(array):
    plain = type(array) is np.ndarray and array.dtype.kind in "biufUSmMO" and array.dtype.itemsize > 0
    _require(plain, f"it has a {type(array).__name__} of {array.dtype}")
    if array.dtype == object:
        _require(array.ndim == 1 and all(isinstance(one, _VALUES) for one in array), "it has an array of objects")
    if array.dtype == bool:
        _require(array.view(np.uint8).max(initial=0) <= 1, "a flag is neither true nor false")


def _check_object(part):
    kind, name, result = type(part), type(part).__name__, vars(part)
    parameters = kind._get_param_names() if isinstance(part, BaseEstimator) else ()
    for key in result:
        fits = key in parameters or (key in _LEARNT if name in OURS else not hasattr(kind, key))
        _require(fits, f"{name} has the attribute {str(key)[:40]!r}, which prediction does not need")
    result.update(dict.fromkeys(_SET_BACK & result.keys()))
    needed, check = _CHECKS.get(name, (None, _check_sizes))
    try:
        if needed is None or needed in result:  # an object that was not fitted cannot predict
            check(part)
    except (AttributeError, TypeError, IndexError) as error:
        raise ModelFileError(f"{name} lacks what prediction needs") from error


def _check_sizes(model):
    """Refuse numbers that do not fit together, which NumPy might stretch to all pairs."""
    sizes = {"features": getattr(model, "n_features_in_", None)}
    if hasattr(model, "coef_") or hasattr(model, "dual_coef_"):
        sizes["problems"] = 1 if len(model.classes_) == 2 else len(model.classes_)
    for name, expected in _SIZES.items():
        value = vars(model).get(name)
        if value is None or (name == "intercept_" and np.ndim(value) == 0):
            continue
        shape = value.shape if len(expected) == 1 or len(value.shape) == 2 else (1, *value.shape)
        fits = len(shape) == len(expected) and all(sizes.setdefault(*one) == one[1] for one in zip(expected, shape))
        _require(fits, f"{type(model).__name__}.{name} is of the wrong shape")


def _check_codes(model):
    shape = (len(model.classes_), len(model.estimators_))
    _require(model.code_book_.shape == shape, "ECOCClassifier.code_book_ is of the wrong shape")


def _check_curve(curve):
    _require(all(np.ndim(value) == 0 for value in vars(curve).values()), f"{type(curve).__name__} has arrays")


def _check_columns(chooser):
    """Refuse slices of more columns than are listed: a small file would make many columns of a few."""
    names = [name for name, _, _ in chooser.transformers_]
    _require(len(set(names)) == len(names), "ColumnTransformer.transformers_ has one name twice")
    for name, _, columns in chooser.transformers_:
        listed = isinstance(columns, (list, str, int)) or str in map(type, (columns.start, columns.stop))
        most = len(chooser._transformer_to_input_indices[name])
        fits = listed or len(range(chooser.n_features_in_)[columns]) <= most
        _require(fits, "ColumnTransformer.transformers_ has columns that are not listed")


def _check_one_hot(encoder):
    """Refuse codes beyond the columns of a feature: sparse rows are made of them unseen."""
    nothing = [None] * len(encoder.categories_)
    groups = encoder._default_to_infrequent_mappings if encoder._infrequent_enabled else nothing
    rare = encoder._infrequent_indices if encoder._infrequent_enabled else nothing
    dropped = nothing if encoder._drop_idx_after_grouping is None else encoder._drop_idx_after_grouping
    sizes = {len(nothing), len(groups), len(rare), len(dropped), len(encoder._n_features_outs)}
    fits = len(sizes) == 1 and encoder.n_features_in_ == len(nothing)
    columns = zip(encoder.categories_, encoder._n_features_outs, groups, rare, dropped)
    _require(fits and all(map(_fits_codes, *zip(*columns))), "OneHotEncoder has codes that are not of its categories")


def _fits_codes(categories, width, group, rare, drop):
    """Tell whether categories ascend, and whether the codes of one feature are below its number of columns."""
    known = categories[:-1] if categories.dtype.kind == "f" and np.isnan(categories[-1]) else categories
    ordered = categories.dtype == object or bool((known[:-1] < known[1:]).all())
    n_codes = len(categories) if group is None else int(group.max()) + 1
    whole = (group is None) == (rare is None) and (
        group is None or (len(group) == len(categories) and group.min() >= 0)
    )
    if drop is not None:
        return ordered and whole and 0 <= drop < n_codes and width == n_codes - 1
    return ordered and whole and width == n_codes


def _check_libsvm(model):
    """Refuse sizes and positions that do not fit together, which libsvm takes for granted."""
    n_classes, n_support = len(model.classes_), len(model.support_)
    pairs, vectors, dual = n_classes * (n_classes - 1) // 2, model.support_vectors_, model._dual_coef_
    given = model.kernel == "precomputed"
    fits = [
        vectors.shape == ((0, 0) if given else (n_support, model.n_features_in_)),
        not given or (model.support_.min() >= 0 and model.support_.max() < model.n_features_in_),
        not given or tuple(model.shape_fit_) == (model.n_features_in_,) * 2,
        model._n_support.shape == (n_classes,) and model._n_support.min() >= 0,
        model._n_support.sum(dtype=np.int64) == n_support,
        dual.shape == (n_classes - 1, n_support) and model._intercept_.shape == (pairs,),
        model._probA.shape == model._probB.shape and model._probA.shape in ((0,), (pairs,)),
        sp.issparse(vectors) == sp.issparse(dual) == model._sparse,
        not sp.issparse(dual) or dual.nnz == (n_classes - 1) * n_support,
    ]
    _require(all(fits), "SVC has parts that do not fit together")


_CHECKS = {
    "SVC": ("support_", _check_libsvm),
    "OneHotEncoder": ("categories_", _check_one_hot),
    "ColumnTransformer": ("transformers_", _check_columns),
    "ECOCClassifier": ("code_book_", _check_codes),
    "_SigmoidCalibration": (None, _check_curve),
    "_TemperatureScaling": (None, _check_curve),
}
