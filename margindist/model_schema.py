"""What a fitted model must look like: the attributes prediction needs, class by class, with type, shape and range.

A description is a function of a value and of the dimensions known so far; it tells whether the value fits. The first
size seen of a dimension ("features", "support") sets it, every later one must agree. Attributes that follow from others
are not part of a schema: :func:`complete` computes them. So compiled code gets no index that was not checked.
"""

import math
from importlib import import_module

import numpy as np
import scipy.sparse as sp
from sklearn.base import BaseEstimator
from sklearn.preprocessing import LabelBinarizer

from margindist.kernels import Kernel
from margindist.methods import OURS

_LARGEST = 1e150  # so that the product of two numbers is finite
_INTEGERS = ("i8", "i4")


class SchemaError(ValueError):
    """A fitted model has an attribute that prediction cannot use."""


def class_named(name):
    """Return the class of that name if it has a schema or is a declared classifier, else None."""
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    return OURS[name].load() if name in OURS else None


def schema_of(model):
    """Return the description of every attribute of a fitted model of this class with these parameters."""
    name, kernel = type(model).__name__, getattr(model, "kernel", "linear")
    if name == "SVC":
        found = {"precomputed": _SVC_PRECOMPUTED}.get(kernel, _SVC)
        return found | (_PROBABILITIES if model.probability is True else _NO_PROBABILITIES)
    if name in _HOMES:
        return _SCHEMAS[f"{_HOMES[name]}.{name}"]
    return {"linear": _LINEAR, "precomputed": _PRECOMPUTED}.get(kernel, _KERNEL)


def check_parameters(model):
    """Raise an error if a parameter is out of its range."""
    name = type(model).__name__
    try:
        if hasattr(model, "_check_parameters"):
            model._check_parameters()
        elif hasattr(model, "_parameter_constraints"):
            model._validate_params()
    except (TypeError, ValueError) as error:
        raise SchemaError(f"{name} has a parameter out of its range") from error
    if name == "Pipeline" and not _STEPS(model.steps, {}):
        raise SchemaError("Pipeline.steps are not names with estimators")


def check_fitted(model, attributes):
    """Raise an error if these attributes are not what a fitted model of this class has."""
    name, schema = type(model).__name__, schema_of(model)
    dimensions = {"kernel": getattr(model, "kernel", None)}
    for key in attributes:
        if key not in schema:
            raise SchemaError(f"{name} has the attribute {key[:40]!r}, which prediction does not need")
    for key, fits in schema.items():
        value = attributes.get(key)
        if not fits(value, dimensions):
            problem = "missing" if value is None else "of the wrong type or shape, or out of range"
            raise SchemaError(f"{name}.{key} is {problem}")


# ---------------------------------------------------------------------- descriptions


def _agree(dims, name, size):
    """Tell whether a size is that of the dimension; a number stands for itself, None for any size."""
    if name is None or isinstance(name, int):
        return name in (None, size)
    if name not in dims:
        dims[name] = size
        if name == "classes":
            dims |= {"problems": 1 if size == 2 else size, "pairs": size * (size - 1) // 2, "others": size - 1}
    return dims[name] == size


def _count(dimension):
    return lambda value, dims: type(value) is int and 1 <= value < 2**31 and _agree(dims, dimension, value)


def _numbers(*shape, dtypes=("f8", "f4"), least=-_LARGEST, most=_LARGEST, below=None, total=None, sparse=False):
    """Describe an array, or a CSR matrix, of finite numbers, which may be indices below a dimension."""

    def fits(value, dims):
        if not (type(value) is np.ndarray or (sparse and sp.issparse(value))):
            return False
        entries = value.data if sp.issparse(value) else value
        if entries.dtype.str[1:] not in dtypes or len(value.shape) != len(shape):
            return False
        if not all(_agree(dims, name, size) for name, size in zip(shape, value.shape)):
            return False
        if total is not None and entries.sum(dtype=np.int64) != dims[total]:
            return False
        highest = most if below is None else dims[below] - 1
        return entries.size == 0 or (
            float(entries.min()) >= least and float(entries.max()) <= highest
        )  # NaN is neither

    return fits


def _indices(*shape, below=None):
    return _numbers(*shape, dtypes=_INTEGERS, least=0, below=below)


def _values(dimension=None, *, ordered=False, least=0):
    """Describe a vector of plain values; if ordered, they ascend, but for a NaN at the end and unless objects."""

    def fits(value, dims):
        if type(value) is not np.ndarray or value.ndim != 1 or len(value) < least:
            return False
        if not _agree(dims, dimension, len(value)):
            return False
        if not ordered or value.dtype == object or len(value) == 0:
            return True
        known = value[:-1] if value[-1] != value[-1] else value
        return bool((known == known).all() and (known[:-1] < known[1:]).all())

    return fits


def _labels(least=2):
    """Describe the classes: different labels in ascending order."""
    vector = _values("classes", least=least)
    return lambda value, dims: (
        vector(value, dims) and all(a < b for a, b in zip(value[:-1].tolist(), value[1:].tolist()))
    )


def _texts(dimension):
    vector = _values(dimension)
    return lambda value, dims: vector(value, dims) and all(type(text) is str for text in value.tolist())


def _number(least=-_LARGEST, most=_LARGEST):
    kinds = (int, float, np.integer, np.floating)
    return lambda value, dims: isinstance(value, kinds) and type(value) is not bool and bool(least <= value <= most)


def _one_of(*options):
    return lambda value, dims: any(type(value) is type(option) and value == option for option in options)


def _instance(kind):
    return lambda value, dims: isinstance(value, kind)  # it was checked when it was made


def _each(item, dimension=None):
    return lambda value, dims: (
        type(value) in (list, tuple) and _agree(dims, dimension, len(value)) and all(item(one, dims) for one in value)
    )


def _row(*items):
    return lambda value, dims: (
        type(value) is tuple and len(value) == len(items) and all(fits(item, dims) for fits, item in zip(items, value))
    )


def _table(item):
    return lambda value, dims: (
        type(value) is dict and all(type(key) is str and item(one, dims) for key, one in value.items())
    )


def _any_of(*options):
    return lambda value, dims: any(option(value, dims) for option in options)


def _maybe(item):
    return lambda value, dims: value is None or item(value, dims)


def _kernel(value, dims):
    if type(value) is not Kernel or value.name != dims["kernel"] or value.bias != 0.0:
        return False
    numbers = (value.gamma, value.degree, value.coef0)
    return all(fits(one, dims) for fits, one in zip((_number(0), _number(1, 1000), _number()), numbers))


# ---------------------------------------------------------------------- the table

_FLAG = _one_of(True, False)
_PART = _instance(BaseEstimator)
_STEPS = _each(_row(_instance(str), _any_of(_PART, _one_of(None, "passthrough"))))
_BINARIZER = _instance(LabelBinarizer)
_DTYPE = _instance((np.dtype, type))  # a type in a file
_PER_FEATURE = _numbers("features")
_DIVISORS = _numbers("features", least=1 / _LARGEST)
_SEEN = _any_of(_number(0), _numbers("features", dtypes=("f8", *_INTEGERS), least=0))

_OUTPUT = {"_sklearn_output_config": _maybe(_table(_one_of("default", "pandas", "polars")))}
_COLUMNS = {"n_features_in_": _count("features"), "feature_names_in_": _maybe(_texts("features"))}
_STEP = _COLUMNS | _OUTPUT
_CLASSIFIER = _COLUMNS | {"classes_": _labels()}
_LINEAR = _CLASSIFIER | {
    "coef_": _numbers("problems", "features", sparse=True),
    "intercept_": _any_of(_numbers("problems"), _one_of(0.0)),
}
_PRECOMPUTED = _CLASSIFIER | {
    "support_": _indices("support", below="features"),
    "dual_coef_": _numbers("problems", "support"),
    "intercept_": _numbers("problems"),
    "kernel_": _kernel,
}
_KERNEL = _PRECOMPUTED | {
    "support_": _indices("support"),
    "support_vectors_": _numbers("support", "features", sparse=True),
}
_SVC = _CLASSIFIER | {
    "support_": _numbers("support", dtypes=("i4",), least=0),
    "support_vectors_": _numbers("support", "features", dtypes=("f8",), sparse=True),
    "_n_support": _numbers("classes", dtypes=("i4",), least=0, total="support"),
    "_dual_coef_": _numbers("others", "support", dtypes=("f8",), sparse=True),
    "_intercept_": _numbers("pairs", dtypes=("f8",)),
    "_gamma": _number(0),
}
_SVC_PRECOMPUTED = _SVC | {
    "support_": _numbers("support", dtypes=("i4",), least=0, below="features"),
    "support_vectors_": _numbers(0, 0, dtypes=("f8",)),
}
_PROBABILITIES = dict.fromkeys(["_probA", "_probB"], _numbers("pairs", dtypes=("f8",)))
_NO_PROBABILITIES = dict.fromkeys(["_probA", "_probB"], _numbers(0, dtypes=("f8",)))
_CATEGORIES = _STEP | {
    "categories_": _each(_values(ordered=True, least=1), "features"),
    "_infrequent_indices": _maybe(_each(_maybe(_indices(None)), "features")),
}
_CURVE = _row(_numbers("points", dtypes=("f8",)), _numbers("points", dtypes=("f8",), least=0.0, most=1.0))
_SCHEMAS = {
    "margindist.estimators.calibration.CalibratedClassifier": _CLASSIFIER
    | {
        "estimator_": _PART,
        "sigmoid_": _maybe(_numbers("problems", 2, dtypes=("f8",))),
        "isotonic_": _maybe(_each(lambda curve, dims: _CURVE(curve, {}), "problems")),  # each of its own length
    },
    "margindist.ECOCClassifier": _CLASSIFIER
    | {
        "code_book_": _numbers("classes", "splits", dtypes=_INTEGERS, least=-1, most=1),
        "estimators_": _each(_PART, "splits"),
    },
    "sklearn.linear_model.LogisticRegression": _LINEAR,
    "sklearn.svm.LinearSVC": _LINEAR,
    "sklearn.linear_model.RidgeClassifier": _LINEAR
    | {
        "coef_": _any_of(_numbers("problems", "features"), _numbers("features")),
        "_label_binarizer": _BINARIZER,
    },
    "sklearn.multiclass.OneVsRestClassifier": _CLASSIFIER
    | {
        "estimators_": _each(_PART, "problems"),
        "label_binarizer_": _BINARIZER,
    },
    "sklearn.multiclass.OneVsOneClassifier": _CLASSIFIER
    | {
        "estimators_": _each(_PART, "pairs"),
        "pairwise_indices_": _maybe(_each(_indices(None, below="features"), "pairs")),
    },
    "sklearn.preprocessing.LabelBinarizer": {
        "classes_": _labels(least=1),
        "y_type_": _one_of("binary", "multiclass"),
        "sparse_input_": _FLAG,
    },
    "sklearn.preprocessing.LabelEncoder": {"classes_": _labels(least=1)},
    "sklearn.pipeline.Pipeline": _OUTPUT,  # its steps are parameters
    "sklearn.compose.ColumnTransformer": _STEP
    | {
        "transformers_": _each(_row(_instance(str), _any_of(_PART, _one_of("drop", "passthrough")), _instance(object))),
        "_transformer_to_input_indices": _table(_each(lambda j, dims: type(j) is int and 0 <= j < dims["features"])),
        "sparse_output_": _FLAG,
        "output_indices_": _table(_instance(slice)),
    },
    "sklearn.preprocessing.FunctionTransformer": _STEP,
    "sklearn.preprocessing.Normalizer": _STEP,
    "sklearn.feature_selection.VarianceThreshold": _STEP | {"variances_": _PER_FEATURE},
    "sklearn.impute.SimpleImputer": _STEP
    | {
        "statistics_": _values("features"),
        "indicator_": _maybe(_PART),
        "_fit_dtype": _DTYPE,
        "_fill_dtype": _maybe(_DTYPE),
    },
    "sklearn.impute.MissingIndicator": _STEP
    | {
        "_n_features": _count("features"),
        "_precomputed": _FLAG,
        "features_": _indices("flagged", below="features"),
    },
    "sklearn.preprocessing.OneHotEncoder": _CATEGORIES,
    "sklearn.preprocessing.OrdinalEncoder": _CATEGORIES,
    # Statistics beyond what transform needs: without them, partial_fit would silently begin anew.
    "sklearn.preprocessing.MaxAbsScaler": _STEP
    | {"max_abs_": _PER_FEATURE, "scale_": _DIVISORS, "n_samples_seen_": _SEEN},
    "sklearn.preprocessing.MinMaxScaler": _STEP
    | dict.fromkeys(["min_", "scale_", "data_min_", "data_max_", "data_range_"], _PER_FEATURE)
    | {"n_samples_seen_": _SEEN},
    "sklearn.preprocessing.StandardScaler": _STEP
    | {
        "mean_": _maybe(_PER_FEATURE),
        "var_": _maybe(_PER_FEATURE),
        "scale_": _maybe(_DIVISORS),
        "n_samples_seen_": _SEEN,
    },
    "margindist.kernels.Kernel": {},
    "sklearn.compose.make_column_selector": {},
    "sklearn.svm.SVC": _SVC,
}
_HOMES = {path.rpartition(".")[2]: path.rpartition(".")[0] for path in _SCHEMAS}


# ---------------------------------------------------------------------- what follows from other attributes


def complete(model):
    """Set the attributes of a fitted model that follow from those of its schema."""
    completion = _COMPLETIONS.get(type(model).__name__)
    if completion is not None:
        completion(model)


def _complete_svc(model):
    vectors, dual = model.support_vectors_, model._dual_coef_
    sparse = sp.issparse(vectors)
    if sparse != sp.issparse(dual) or (sparse and dual.nnz != math.prod(dual.shape)):
        raise SchemaError("SVC._dual_coef_ does not have the form of SVC.support_vectors_")
    if sparse and not all(matrix.indices.dtype == matrix.indptr.dtype == np.int32 for matrix in (vectors, dual)):
        raise SchemaError("SVC has indices that libsvm does not take")
    if not sparse:
        model.support_vectors_ = np.ascontiguousarray(vectors)
        model._dual_coef_ = np.ascontiguousarray(dual)
    sign = -1.0 if len(model.classes_) == 2 else 1.0
    model.dual_coef_ = sign * model._dual_coef_
    model.intercept_ = sign * model._intercept_
    model._sparse = sparse
    model._effective_probability = model.probability is True
    if Kernel(model.kernel).is_precomputed:
        model.shape_fit_ = (model.n_features_in_, model.n_features_in_)


def _complete_encoder(encoder):
    sizes = [len(categories) for categories in encoder.categories_]
    encoder._check_infrequent_enabled()
    if type(encoder).__name__ == "OrdinalEncoder":  # a missing value is a category of its own, after the others
        lasts = [categories[-1] for categories in encoder.categories_]
        encoder._missing_indices = {k: sizes[k] - 1 for k, last in enumerate(lasts) if last != last}
        sizes = [size - (k in encoder._missing_indices) for k, size in enumerate(sizes)]
    if encoder._infrequent_enabled:
        rare = getattr(encoder, "_infrequent_indices", None) or []
        if len(rare) != len(sizes):
            raise SchemaError(f"{type(encoder).__name__}._infrequent_indices is missing")
        encoder._default_to_infrequent_mappings = list(map(_grouped, sizes, rare))
    if type(encoder).__name__ == "OneHotEncoder":
        encoder._set_drop_idx()
        encoder._n_features_outs = encoder._compute_n_features_outs()


def _grouped(size, rare):
    """Return the codes of categories, of which the rare ones share the last; None if none is rare."""
    if rare is None:
        return None
    if len(rare) == 0 or rare.max() >= size or len(np.unique(rare)) < len(rare):
        raise SchemaError("an encoder has rare categories that are not among its categories")
    codes = np.full(size, size - len(rare))
    codes[np.setdiff1d(np.arange(size), rare)] = np.arange(size - len(rare))
    return codes


def _complete_labels(model):
    binarizer = vars(model).get("label_binarizer_", vars(model).get("_label_binarizer"))
    binarizer.classes_ = model.classes_
    binarizer.y_type_ = "binary" if len(model.classes_) == 2 else "multiclass"


def _complete_calibrated(model):
    if (model.sigmoid_ is None) == (model.isotonic_ is None):
        raise SchemaError("CalibratedClassifier must have either sigmoids or step functions")
    inner = model.estimator_
    if not hasattr(inner, "decision_function") or not np.array_equal(inner.classes_, model.classes_):
        raise SchemaError("CalibratedClassifier.estimator_ does not score the same classes")
    for scores, p in model.isotonic_ or ():
        if len(scores) == 0 or (np.diff(scores) < 0.0).any() or (np.diff(p) < 0.0).any():
            raise SchemaError("CalibratedClassifier.isotonic_ does not ascend")


def _complete_imputer(imputer):
    for name in ("_fit_dtype", "_fill_dtype"):
        if hasattr(imputer, name):
            setattr(imputer, name, np.dtype(getattr(imputer, name)))


def _complete_columns(chooser):
    names = [name for name, _, _ in chooser.transformers_]
    if len(set(names)) < len(names) or not set(names) <= set(chooser._transformer_to_input_indices):
        raise SchemaError("ColumnTransformer._transformer_to_input_indices does not have the steps")
    rest = chooser.transformers_[-1][2] if names and names[-1] == "remainder" else []
    chooser._remainder = ("remainder", chooser.remainder, rest)
    chooser._columns = [columns for _, _, columns in chooser.transformers]  # scikit-learn 1.6 walks through them


_COMPLETIONS = {
    "SVC": _complete_svc,
    "CalibratedClassifier": _complete_calibrated,
    "OneHotEncoder": _complete_encoder,
    "OrdinalEncoder": _complete_encoder,
    "OneVsRestClassifier": _complete_labels,
    "RidgeClassifier": _complete_labels,
    "SimpleImputer": _complete_imputer,
    "ColumnTransformer": _complete_columns,
}
