r"""Fitted classifiers as ONNX graphs, which many runtimes and languages compute without Python.

A score is a sum the graph writes out: :math:`w \cdot x + b` for linear models, :math:`\sum_i \alpha_i K(x_i, x) + b`
with the support vectors as constants for kernels. Kernel coefficients may be large and of opposite signs, and their sum
small, so the arithmetic inside is float64 whatever the inputs are; only what comes in and goes out has the type asked
for.

Steps before the classifier are converted by skl2onnx and put into the graph, but for those that it computes in float32
(``SimpleImputer``), refuses (columns of texts with missing values or rare categories, which
:func:`margindist.datasets.encoder` takes), or divides by zero (``Normalizer`` of an empty row): these are written out.
"""

import json
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from sklearn.base import BaseEstimator
from sklearn.calibration import CalibratedClassifierCV
from sklearn.compose import ColumnTransformer
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression, RidgeClassifier
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import Normalizer, OneHotEncoder
from sklearn.svm import LinearSVC
from sklearn.utils.validation import check_is_fitted

import margindist
from margindist.estimators._base import MarginClassifier
from margindist.estimators.reductions import ECOCClassifier
from margindist.methods import OURS, best_model

if TYPE_CHECKING:
    import onnx

__all__ = ["to_onnx"]

_OPSET = 17
_OLDEST_OPSET = 13
_ML_OPSET = {"ai.onnx.ml": 2}
_LINEAR = (LinearSVC, LogisticRegression, RidgeClassifier)


def to_onnx(
    model: BaseEstimator,
    *,
    feature_names: Iterable[str] | None = None,
    dtype: str = "float32",
    target_opset: int = _OPSET,
) -> "onnx.ModelProto":
    """Return a fitted classifier as an ONNX model.

    The model has two outputs: ``label``, and ``scores`` with the values of ``decision_function``, one per sample for
    two classes and one per class for more. A calibrated model also has ``probabilities``, one per class, and its scores
    are those of the classifier inside. Its metadata have the labels (``classes``) and, where they are known, the
    names of the columns in their order (``feature_names``), both as JSON.

    Parameters
    ----------
    model : estimator
        A classifier of this library, or ``LinearSVC``, ``LogisticRegression`` or ``RidgeClassifier``, alone or in
        ``CalibratedClassifierCV(ensemble=False)``, and at the end of a pipeline of steps that skl2onnx can convert. Of
        a search over parameters the best model is taken. Kernels that are functions cannot be exported.
    feature_names : iterable of str, default=None
        If given, every feature is an input of its own of this name and shape (n_samples, 1). Otherwise there is
        one input ``X`` of shape (n_samples, n_features), unless the model takes texts: then every column is an input,
        named as in the data frame it was fitted on.
    dtype : {"float32", "float64"}, default="float32"
        Type of numbers that go in and scores that come out; the arithmetic inside is float64.
    target_opset : int, default=17
        Version of ONNX's operators to use, at least 13.

    Returns
    -------
    onnx.ModelProto
        ``model.SerializeToString()`` is what a file holds.

    Notes
    -----
    Missing texts are empty strings in ONNX. A category that was not there in training counts as none of them, also
    where scikit-learn would raise an error.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from margindist import LDMClassifier, to_onnx
    >>> X, y = load_iris(return_X_y=True)
    >>> exported = to_onnx(LDMClassifier(kernel="rbf").fit(X, y))
    >>> [output.name for output in exported.graph.output]
    ['label', 'scores']
    """
    if dtype not in ("float32", "float64"):
        raise ValueError(f"to_onnx: dtype must be 'float32' or 'float64', got {dtype!r}.")
    onnx = _onnx()
    newest = onnx.defs.onnx_opset_version()
    if not (isinstance(target_opset, int) and _OLDEST_OPSET <= target_opset <= newest):
        raise ValueError(f"to_onnx: target_opset must be from {_OLDEST_OPSET} to {newest}, got {target_opset!r}.")
    model = best_model(model)
    if not isinstance(model, BaseEstimator):
        raise TypeError(f"to_onnx expects a fitted classifier, got an object of {type(model).__name__}.")
    check_is_fitted(model)
    n_features = model.n_features_in_
    texts = _text_columns(model, list(range(n_features)))
    names = _input_names(model, feature_names, n_features, texts)
    graph = _Graph(onnx, dtype, n_features, names, texts, target_opset)
    scores = _scores(graph, model, _Columns(tuple(range(n_features))))
    last = model.steps[-1][1] if isinstance(model, Pipeline) else model
    p = _probabilities(graph, last, scores) if isinstance(last, CalibratedClassifierCV) else None
    return graph.finish(scores, p, model.classes_, getattr(model, "feature_names_in_", names))


def _onnx():
    try:
        import onnx
        import onnx.compose
    except ImportError as error:
        raise ImportError("to_onnx needs onnx: pip install 'margindist[onnx]'.") from error
    return onnx


def _input_names(model, given, n_features, texts):
    """Return the names of the inputs, one per feature; None for one input of all features."""
    if given is not None:
        names = [str(name) for name in given]
        if len(names) != n_features or len(set(names)) != n_features or not all(names):
            raise ValueError(
                f"to_onnx: feature_names must be {n_features} different names, one per feature, got {len(set(names))}."
            )
        return names
    if not texts:
        return None
    return [str(name) for name in getattr(model, "feature_names_in_", [f"x{j}" for j in range(n_features)])]


class _Columns(NamedTuple):
    """Some of the inputs, not yet joined; columns of text may have values for missing entries."""

    which: tuple
    fills: tuple = ()  # one per column, if there was an imputer


class _Graph:
    """An ONNX graph in the making; values are known by their names."""

    def __init__(self, onnx, dtype, n_features, names, texts, opset):
        self.onnx = onnx
        self.dtype = np.dtype(dtype)
        self.opset = opset
        self.n_features = n_features
        self.names = names
        self.texts = texts
        self.nodes = []
        self.constants = []
        self._whole = None  # all numbers as one matrix, once it is needed

    def constant(self, values, dtype=np.float64):
        """Return the name of a constant."""
        name = f"c{len(self.constants)}"
        values = np.ascontiguousarray(values, dtype=dtype)
        self.constants.append(self.onnx.numpy_helper.from_array(values, name))
        return name

    def op(self, kind, *inputs, domain="", output=None, **attributes):
        """Add an operator; return the name of its output."""
        output = output or f"v{len(self.nodes)}"
        node = self.onnx.helper.make_node(kind, list(inputs), [output], domain=domain, **attributes)
        self.nodes.append(node)
        return output

    def double(self, name):
        """Return a value as float64."""
        return self.op("Cast", name, to=self.onnx.TensorProto.DOUBLE)

    def matrix(self, value):
        """Return columns as one float64 matrix; a matrix as it is."""
        if not isinstance(value, _Columns):
            return value
        if set(value.which) & self.texts:
            raise ValueError("to_onnx: a column of texts reaches a step that takes numbers; encode it before.")
        if self._whole is None:
            parts = (
                ["X"] if self.names is None else [self.names[j] for j in range(self.n_features) if j not in self.texts]
            )
            whole = parts[0] if len(parts) == 1 else self.op("Concat", *parts, axis=1)
            self._whole = self.double(whole) if self.dtype == np.float32 else whole
        numeric = [j for j in range(self.n_features) if j not in self.texts]
        return self.take(self._whole, [numeric.index(j) for j in value.which], len(numeric))

    def take(self, matrix, columns, width):
        """Return some columns of a matrix."""
        if list(columns) == list(range(width)):
            return matrix
        return self.op("Gather", matrix, self.constant(columns, np.int64), axis=1)

    def insert(self, other, given):
        """Add all nodes of another graph, whose one input is the value ``given``; return its output as float64."""
        other = self.onnx.compose.add_prefix_graph(other, f"s{len(self.nodes)}_")
        self.op("Identity", given, output=other.input[0].name)
        self.constants.extend(other.initializer)
        self.nodes.extend(other.node)
        return self.double(other.output[0].name)

    def finish(self, scores, p, classes, columns):
        """Return the model: labels from probabilities or scores, inputs and outputs declared, the whole checked."""
        helper, proto = self.onnx.helper, self.onnx.TensorProto
        number = proto.FLOAT if self.dtype == np.float32 else proto.DOUBLE
        labels, label_type = _label_values(classes)
        if len(classes) == 2:
            scores = self.op("Reshape", scores, self.constant([-1], np.int64))
        if len(classes) == 2 and p is None:
            winner = self.op("Cast", self.op("Greater", scores, self.constant(0.0)), to=proto.INT64)
        else:
            winner = self.op("ArgMax", scores if p is None else p, axis=1, keepdims=0)
        self.op("Gather", self.constant(labels, labels.dtype), winner, axis=0, output="label")
        self.op("Cast", scores, to=number, output="scores")
        if self.names is None:
            inputs = [helper.make_tensor_value_info("X", number, [None, self.n_features])]
        else:
            kinds = [proto.STRING if j in self.texts else number for j in range(self.n_features)]
            inputs = [helper.make_tensor_value_info(name, kind, [None, 1]) for name, kind in zip(self.names, kinds)]
        shape = [None] if len(classes) == 2 else [None, len(classes)]
        outputs = [
            helper.make_tensor_value_info("label", getattr(proto, label_type), [None]),
            helper.make_tensor_value_info("scores", number, shape),
        ]
        if p is not None:
            self.op("Cast", p, to=number, output="probabilities")
            outputs.append(helper.make_tensor_value_info("probabilities", number, [None, len(classes)]))
        graph = helper.make_graph(self.nodes, "margindist", inputs, outputs, self.constants)
        opsets = [helper.make_opsetid("", self.opset), *(helper.make_opsetid(*one) for one in _ML_OPSET.items())]
        model = helper.make_model(
            graph, opset_imports=opsets, producer_name="margindist", producer_version=margindist.__version__
        )
        model.ir_version = helper.find_min_ir_version_for(opsets)
        about = {"classes": json.dumps([str(label) for label in classes.tolist()])}
        if columns is not None:
            about["feature_names"] = json.dumps([str(name) for name in columns])
        helper.set_model_props(model, about)
        self.onnx.checker.check_model(model)
        return model


def _label_values(classes):
    kind = classes.dtype.kind
    if kind in "iu":
        return classes.astype(np.int64), "INT64"
    if kind == "b":
        return classes, "BOOL"
    if kind == "f":
        return classes.astype(np.float64), "DOUBLE"
    if all(isinstance(label, str) for label in classes.tolist()):
        return np.array(classes.tolist(), dtype=object), "STRING"
    raise ValueError(f"to_onnx: labels must be integers, texts, numbers or flags, got {classes.tolist()[:3]}.")


# ---------------------------------------------------------------------- classifiers


def _scores(graph, model, value):
    """Return the decision values of a classifier as a matrix: one column for two classes, one per class for more."""
    model = best_model(model)
    if isinstance(model, Pipeline):
        for _, step in model.steps[:-1]:
            value = _transformed(graph, step, value)
        return _scores(graph, model.steps[-1][1], value)
    if isinstance(model, CalibratedClassifierCV):
        if len(model.calibrated_classifiers_) > 1:
            raise ValueError(
                "to_onnx: CalibratedClassifierCV cannot be exported with ensemble=True; use ensemble=False."
            )
        return _scores(graph, model.calibrated_classifiers_[0].estimator, value)
    if isinstance(model, ECOCClassifier):
        return _code_scores(graph, model, value)
    declared = OURS.get(type(model).__name__)
    if not isinstance(model, (MarginClassifier, *_LINEAR)) and declared is None:
        raise ValueError(
            f"to_onnx: {type(model).__name__} cannot be exported; the classifier must be one of this library's, "
            f"LinearSVC, LogisticRegression or RidgeClassifier."
        )
    X = graph.matrix(value)
    coef = getattr(model, "coef_", None)
    if coef is not None:
        coef = coef.toarray() if sp.issparse(coef) else coef
        return _plus(graph, graph.op("MatMul", X, graph.constant(np.atleast_2d(coef).T)), model.intercept_)
    values = _kernel_values(graph, model, X)
    return _plus(graph, graph.op("MatMul", values, graph.constant(model.dual_coef_.T)), model.intercept_)


def _plus(graph, matrix, row):
    row = np.atleast_1d(np.asarray(row, dtype=np.float64))
    return graph.op("Add", matrix, graph.constant(row)) if row.any() else matrix


def _kernel_values(graph, model, X):
    """Return the kernel values of the samples with the support vectors."""
    kernel = model.kernel_
    if callable(kernel.name):
        raise ValueError(
            f"to_onnx: {type(model).__name__} has a kernel that is a function, which ONNX cannot hold; use a kernel by "
            f"name, or kernel='precomputed' and compute its values before."
        )
    if kernel.is_precomputed:
        return graph.take(X, model.support_.tolist(), model.n_features_in_)
    vectors = model.support_vectors_
    vectors = (vectors.toarray() if sp.issparse(vectors) else vectors).astype(np.float64)
    return _KERNELS[kernel.name](graph, kernel, X, vectors)


def _linear_kernel(graph, kernel, X, vectors):
    return graph.op("MatMul", X, graph.constant(vectors.T))


def _radial_kernel(graph, kernel, X, vectors):
    squares = graph.op("ReduceSum", graph.op("Mul", X, X), graph.constant([1], np.int64), keepdims=1)
    products = graph.op("MatMul", X, graph.constant(-2.0 * vectors.T))
    distances = graph.op("Add", graph.op("Add", products, squares), graph.constant((vectors**2).sum(axis=1)))
    distances = graph.op("Max", distances, graph.constant(0.0))
    return graph.op("Exp", graph.op("Mul", distances, graph.constant(-kernel.gamma)))


def _polynomial_kernel(graph, kernel, X, vectors):
    inner = _linear_kernel(graph, kernel, X, kernel.gamma * vectors)
    return graph.op("Pow", _plus(graph, inner, kernel.coef0), graph.constant(float(kernel.degree)))


def _sigmoid_kernel(graph, kernel, X, vectors):
    inner = _linear_kernel(graph, kernel, X, kernel.gamma * vectors)
    return graph.op("Tanh", _plus(graph, inner, kernel.coef0))


_KERNELS = {
    "linear": _linear_kernel,
    "rbf": _radial_kernel,
    "poly": _polynomial_kernel,
    "sigmoid": _sigmoid_kernel,
}


def _code_scores(graph, model, value):
    """Return agreement with the code words, the sum of the margins deciding between equals."""
    margins = [_scores(graph, one, value) for one in model.estimators_]
    if len(model.classes_) == 2:
        return margins[0]
    codes = graph.constant(model.code_book_.T)
    margins = graph.op("Concat", *margins, axis=1)
    positive = graph.op("Greater", margins, graph.constant(0.0))
    sides = graph.op("Where", positive, graph.constant(1.0), graph.constant(-1.0))
    total = graph.op("MatMul", margins, codes)
    share = graph.op("Div", total, graph.op("Add", graph.op("Abs", total), graph.constant(1.0)))
    return graph.op("Add", graph.op("MatMul", sides, codes), share)


def _probabilities(graph, model, scores):
    """Return the probabilities of a calibrated classifier, one column per class."""
    curves, n_classes = model.calibrated_classifiers_[0].calibrators, len(model.classes_)
    if hasattr(curves[0], "beta_"):
        logits = graph.op("Concat", graph.op("Neg", scores), scores, axis=1) if n_classes == 2 else scores
        return graph.op("Softmax", graph.op("Mul", logits, graph.constant(curves[0].beta_)), axis=1)
    columns = [_curve(graph, curve, graph.take(scores, [k], len(curves))) for k, curve in enumerate(curves)]
    one = graph.constant(1.0)
    if n_classes == 2:
        return graph.op("Concat", graph.op("Sub", one, columns[0]), columns[0], axis=1)
    p = graph.op("Concat", *columns, axis=1)
    total = graph.op("ReduceSum", p, graph.constant([1], np.int64), keepdims=1)
    nothing = graph.op("Equal", total, graph.constant(0.0))
    shares = graph.op("Div", p, graph.op("Where", nothing, one, total))
    return graph.op("Where", nothing, graph.constant(1.0 / n_classes), shares)


def _curve(graph, curve, scores):
    """Return the probabilities of one class: by a sigmoid, or by straight lines between points."""
    if not hasattr(curve, "X_thresholds_"):
        exponent = graph.op("Add", graph.op("Mul", scores, graph.constant(curve.a_)), graph.constant(curve.b_))
        return graph.op("Sigmoid", graph.op("Neg", exponent))
    x, p = curve.X_thresholds_.astype(np.float64), curve.y_thresholds_.astype(np.float64)
    x, p = np.append(x, x[-1] + 1.0), np.append(p, p[-1])
    start = graph.constant(x[:-1])
    passed = graph.op("Sub", graph.op("Max", graph.op("Min", scores, graph.constant(x[1:])), start), start)
    return graph.op(
        "Add", graph.op("MatMul", passed, graph.constant((np.diff(p) / np.diff(x))[:, None])), graph.constant(p[0])
    )


# ---------------------------------------------------------------------- preprocessing


def _transformed(graph, step, value):
    """Return what a preprocessing step makes of a matrix or of columns."""
    if step is None or isinstance(step, str):
        return value
    for kind, transform in _TRANSFORMS.items():
        if isinstance(step, kind):
            return transform(graph, step, value)
    return _converted(graph, step, value)


def _converted(graph, step, value):
    """Return what a step makes of a matrix, by the graph that skl2onnx makes of it."""
    try:
        import skl2onnx
        from skl2onnx.common.data_types import DoubleTensorType, FloatTensorType
    except ImportError as error:
        raise ValueError(
            f"to_onnx: {type(step).__name__} cannot be exported without skl2onnx; pip install 'margindist[onnx]', or "
            f"apply it before."
        ) from error
    matrix = graph.matrix(value)
    trouble = None
    # float32 only if the step has no conversion in float64
    for kind, element in ((DoubleTensorType, "DOUBLE"), (FloatTensorType, "FLOAT")):
        try:
            model = skl2onnx.convert_sklearn(
                step,
                initial_types=[("X", kind([None, step.n_features_in_]))],
                target_opset={"": graph.opset, **_ML_OPSET},
            )
            graph.onnx.shape_inference.infer_shapes(model, check_type=True, strict_mode=True)
        except Exception as error:  # skl2onnx raises errors of many types, and so does the check of its graph
            trouble = error
            continue
        return graph.insert(model.graph, graph.op("Cast", matrix, to=getattr(graph.onnx.TensorProto, element)))
    reason = str(trouble).strip().splitlines()[0]
    raise ValueError(
        f"to_onnx: {type(step).__name__} cannot be exported ({reason}); apply it before, or use another step."
    )


def _pipeline(graph, step, value):
    for _, inner in step.steps:
        value = _transformed(graph, inner, value)
    return value


def _normalised(graph, step, value):
    matrix, axis = graph.matrix(value), graph.constant([1], np.int64)
    if step.norm == "l2":
        lengths = graph.op("Sqrt", graph.op("ReduceSum", graph.op("Mul", matrix, matrix), axis, keepdims=1))
    elif step.norm == "l1":
        lengths = graph.op("ReduceSum", graph.op("Abs", matrix), axis, keepdims=1)
    else:
        raise ValueError(f"to_onnx: Normalizer(norm={step.norm!r}) cannot be exported; use 'l1' or 'l2'.")
    empty = graph.op("Equal", lengths, graph.constant(0.0))
    return graph.op("Div", matrix, graph.op("Where", empty, graph.constant(1.0), lengths))


def _imputed(graph, step, value):
    if isinstance(value, _Columns) and set(value.which) & graph.texts:
        if not set(value.which) <= graph.texts or step.add_indicator:
            raise ValueError(
                "to_onnx: SimpleImputer of texts cannot be exported with add_indicator or with numbers among them; "
                "give texts an imputer of their own."
            )
        return value._replace(fills=tuple(str(fill) for fill in step.statistics_))
    matrix, statistics = graph.matrix(value), np.asarray(step.statistics_, dtype=np.float64)
    absent = _missing(graph, matrix, step.missing_values)
    filled = graph.op("Where", absent, graph.constant(statistics), matrix)
    if not step.keep_empty_features:
        filled = graph.take(filled, np.flatnonzero(~np.isnan(statistics)).tolist(), len(statistics))
    if not step.add_indicator:
        return filled
    flags = graph.take(graph.double(absent), step.indicator_.features_.tolist(), len(statistics))
    return graph.op("Concat", filled, flags, axis=1)


def _missing(graph, matrix, marker):
    if marker is None or isinstance(marker, str):
        raise ValueError(f"to_onnx: SimpleImputer(missing_values={marker!r}) cannot be exported for numbers.")
    if np.isnan(marker):
        return graph.op("IsNaN", matrix)
    return graph.op("Equal", matrix, graph.constant(graph.dtype.type(marker)))


def _one_hot(graph, step, value):
    if not isinstance(value, _Columns):
        columns = [
            (graph.op("Gather", value, graph.constant([k], np.int64), axis=1), "") for k in range(step.n_features_in_)
        ]
    else:
        fills = value.fills or ("",) * len(value.which)
        columns = [
            (graph.names[j] if j in graph.texts else graph.matrix(_Columns((j,))), fill)
            for j, fill in zip(value.which, fills)
        ]
    parts = [_hot_columns(graph, step, k, name, fill) for k, (name, fill) in enumerate(columns)]
    return parts[0] if len(parts) == 1 else graph.op("Concat", *parts, axis=1)


def _hot_columns(graph, step, k, name, fill):
    """Return the 0/1 columns of one feature."""
    categories = step.categories_[k]
    grouped = step._default_to_infrequent_mappings[k] if step._infrequent_enabled else None
    codes = np.arange(len(categories)) if grouped is None else np.asarray(grouped)
    unknown = -1
    if grouped is not None and step.handle_unknown in ("infrequent_if_exist", "warn"):
        unknown = int(codes.max())
    if _is_text(categories):
        places = {"" if _is_missing(label) else label: int(code) for label, code in zip(categories.tolist(), codes)}
        if fill:
            places[""] = places.get(fill, unknown)
        result = graph.op(
            "LabelEncoder", name, domain="ai.onnx.ml", keys_strings=list(places), values_int64s=list(places.values()),
            default_int64=unknown,
        )  # fmt: skip
        hot = graph.op("Equal", result, graph.constant(np.arange(codes.max() + 1), np.int64))
        columns = graph.double(hot)
    else:
        if grouped is not None or np.isnan(categories.astype(np.float64)).any():
            raise ValueError(
                "to_onnx: OneHotEncoder of numbers with infrequent or missing categories cannot be exported; turn the "
                "numbers into texts."
            )
        columns = graph.double(graph.op("Equal", name, graph.constant(categories.astype(graph.dtype))))
    dropped = None if step._drop_idx_after_grouping is None else step._drop_idx_after_grouping[k]
    width = int(codes.max()) + 1
    return graph.take(columns, [j for j in range(width) if j != dropped], width)


def _column_transformer(graph, step, value):
    if step.transformer_weights:
        raise ValueError("to_onnx: ColumnTransformer with transformer_weights cannot be exported; scale the columns.")
    parts = []
    for name, transformer, _ in step.transformers_:
        which = step._transformer_to_input_indices[name]
        if len(which) == 0 or (isinstance(transformer, str) and transformer == "drop"):
            continue
        if isinstance(value, _Columns):
            part = _Columns(tuple(value.which[j] for j in which))
        else:
            part = graph.take(value, which, step.n_features_in_)
        parts.append(graph.matrix(_transformed(graph, transformer, part)))
    return parts[0] if len(parts) == 1 else graph.op("Concat", *parts, axis=1)


_TRANSFORMS: dict[type, Any] = {
    Pipeline: _pipeline,
    ColumnTransformer: _column_transformer,
    Normalizer: _normalised,
    SimpleImputer: _imputed,
    OneHotEncoder: _one_hot,
}


# ---------------------------------------------------------------------- which columns are texts


def _is_missing(label):
    return label is None or (isinstance(label, float) and np.isnan(label))


def _is_text(values):
    return values.dtype.kind in "OU" and any(isinstance(value, str) for value in values.tolist())


def _text_columns(model, which):
    """Return the columns, out of ``which`` given to this step, that it takes as texts."""
    model = best_model(model)
    if isinstance(model, Pipeline):
        result = set()
        for _, step in model.steps:
            result |= _text_columns(step, which)
            if not isinstance(step, (SimpleImputer, str)) and step is not None:
                break
        return result
    if isinstance(model, ColumnTransformer):
        result = set()
        for name, transformer, _ in model.transformers_:
            inner = [which[j] for j in model._transformer_to_input_indices[name]]
            result |= _text_columns(transformer, inner)
        return result
    if isinstance(model, OneHotEncoder):
        return {which[k] for k, categories in enumerate(model.categories_) if _is_text(categories)}
    if isinstance(model, SimpleImputer):
        return {which[k] for k, fill in enumerate(model.statistics_) if isinstance(fill, str)}
    return set()
