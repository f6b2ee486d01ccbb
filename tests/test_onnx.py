"""ONNX graphs compute what the classifiers compute."""

import builtins
import json

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
import sklearn.calibration
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.calibration import CalibratedClassifierCV
from sklearn.compose import ColumnTransformer, make_column_transformer
from sklearn.datasets import load_breast_cancer, load_iris
from sklearn.decomposition import PCA
from sklearn.ensemble import RandomForestClassifier
from sklearn.feature_selection import SelectKBest
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression, RidgeClassifier
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import (
    FunctionTransformer,
    MaxAbsScaler,
    MinMaxScaler,
    Normalizer,
    OneHotEncoder,
    PolynomialFeatures,
    RobustScaler,
    SplineTransformer,
    StandardScaler,
)
from sklearn.svm import LinearSVC

import margindist
from margindist import ECOCClassifier, LDMClassifier, LSSVMClassifier, LSSVMClassifierCV, MAMClassifier, to_onnx
from margindist.datasets import encoder

onnx = pytest.importorskip("onnx")
onnxruntime = pytest.importorskip("onnxruntime")

pytestmark = pytest.mark.filterwarnings(
    "ignore::sklearn.exceptions.ConvergenceWarning", "ignore:.*negative eigenvalues:UserWarning"
)

IRIS, SPECIES = load_iris(return_X_y=True)
X = MinMaxScaler().fit_transform(IRIS)[::2].astype(np.float32)
Y = SPECIES[::2]
NAMES = np.array(["setosa", "versicolor", "virginica"], dtype=object)[Y]
TWO = Y < 2
CLASSIFIERS = [name for name in margindist.__all__ if name.endswith("Classifier")]
KERNELS = ["linear", "rbf", "poly", "sigmoid"]


def run(model, inputs, **options):
    """Return labels and scores as onnxruntime computes them."""
    exported = to_onnx(model, **options)
    settings = onnxruntime.SessionOptions()
    settings.intra_op_num_threads = settings.inter_op_num_threads = 1
    session = onnxruntime.InferenceSession(exported.SerializeToString(), settings, providers=["CPUExecutionProvider"])
    if not isinstance(inputs, dict):
        inputs = {"X": inputs}
    assert [one.name for one in session.get_inputs()] == list(inputs)
    return session.run(["label", "scores"], inputs)


def assert_agree(model, rows, inputs=None, rtol=1e-5, **options):
    labels, scores = run(model, rows if inputs is None else inputs, **options)
    expected = model.decision_function(rows)
    assert scores.shape == expected.shape
    assert_allclose(scores, expected, rtol=rtol, atol=rtol * np.abs(expected).max())
    assert_array_equal(labels, model.predict(rows))
    return labels, scores


def make(name, kernel):
    cls = getattr(margindist, name)
    if name == "ECOCClassifier":
        return cls(MAMClassifier(kernel=kernel))
    return cls(kernel=kernel) if "kernel" in cls().get_params() else cls()


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("name", CLASSIFIERS)
def test_every_classifier(name, kernel):
    rows = X.astype(np.float64)
    for labels, part in ((Y[TWO], TWO), (NAMES, slice(None))):
        model = make(name, kernel).fit(rows[part], labels)
        found, scores = assert_agree(model, X)
        assert scores.dtype == np.float32
        assert found.dtype == (np.int64 if labels.dtype != object else object)
    assert_agree(model, rows, dtype="float64", rtol=1e-10)


@pytest.mark.parametrize(
    ("steps", "digits"),
    [
        ([RobustScaler()], 1e-10),
        ([StandardScaler(), PCA(2), MinMaxScaler()], 1e-10),
        ([SelectKBest(k=3)], 1e-10),
        ([PolynomialFeatures(2)], 1e-4),  # skl2onnx has it in float32 only
    ],
    ids=repr,
)
def test_steps_of_scikit_learn_that_skl2onnx_converts(steps, digits):
    pytest.importorskip("skl2onnx")
    rows = X.astype(np.float64)
    model = make_pipeline(*steps, LDMClassifier(kernel="rbf")).fit(rows, NAMES)
    assert_agree(model, rows, dtype="float64", rtol=digits)


@pytest.mark.parametrize("method", ["sigmoid", "isotonic", "temperature"])
@pytest.mark.parametrize("labels", [NAMES, TWO], ids=["three", "two"])
def test_calibrated_classifiers(method, labels):
    if method == "temperature" and not hasattr(sklearn.calibration, "_TemperatureScaling"):
        pytest.skip("scikit-learn 1.8 has it")
    rows = X.astype(np.float64) + np.random.default_rng(0).normal(scale=0.2, size=X.shape)
    calibrated = CalibratedClassifierCV(LSSVMClassifier(kernel="rbf"), method=method, ensemble=False, cv=3)
    model = make_pipeline(StandardScaler(), calibrated).fit(rows, labels)
    session = onnxruntime.InferenceSession(to_onnx(model, dtype="float64").SerializeToString())
    found, scores, p = session.run(["label", "scores", "probabilities"], {"X": rows})
    assert_allclose(p, model.predict_proba(rows), rtol=1e-9, atol=1e-12)
    highest = np.sort(p, axis=1)
    clear = highest[:, -1] - highest[:, -2] > 1e-9  # steps make ties
    assert_array_equal(found[clear], model.predict(rows)[clear])
    inner = make_pipeline(model[0], model[1].calibrated_classifiers_[0].estimator)
    assert_allclose(scores, inner.decision_function(rows), rtol=1e-9, atol=1e-12)
    with pytest.raises(ValueError, match="ensemble=False"):
        to_onnx(model.set_params(calibratedclassifiercv__ensemble=True).fit(rows, labels))


@pytest.mark.parametrize("kernel", KERNELS)
def test_strong_coefficients_of_opposite_signs(kernel):
    cancer, labels = load_breast_cancer(return_X_y=True)
    model = make_pipeline(StandardScaler(), LDMClassifier(C=1e4, kernel=kernel)).fit(cancer[::3], labels[::3])
    assert_agree(model, cancer.astype(np.float32))


@pytest.mark.parametrize("classifier", [LinearSVC(), LogisticRegression(), RidgeClassifier(fit_intercept=False)])
def test_linear_models_of_scikit_learn(classifier):
    assert_agree(classifier.fit(X, Y), X)
    assert_agree(classifier.fit(X, np.where(TWO, "b", "a")), X)


def test_models_of_sparse_rows_and_precomputed_kernels():
    assert_agree(LDMClassifier(kernel="rbf").fit(sp.csr_matrix(X, dtype=np.float64), Y), X)
    gram = X @ X.T
    assert_agree(MAMClassifier(kernel="precomputed").fit(gram, Y), gram)


@pytest.mark.parametrize(
    ("labels", "dtype"),
    [
        (np.where(TWO, True, False), np.bool_),
        (Y.astype(np.float64), np.float64),
        (Y.astype(np.uint8), np.int64),
        (NAMES, object),
    ],
)
def test_labels_of_every_kind(labels, dtype):
    found, _ = assert_agree(LSSVMClassifier().fit(X, labels), X)
    assert found.dtype == dtype


@pytest.mark.parametrize(
    "steps",
    [
        [MinMaxScaler(feature_range=(-1, 1), clip=True)],
        [StandardScaler(), Normalizer()],
        [StandardScaler(with_mean=False), Normalizer("l1")],
        [StandardScaler(with_std=False)],
        [MaxAbsScaler(), FunctionTransformer()],
        [SimpleImputer(), MinMaxScaler()],
        [SimpleImputer(strategy="median", add_indicator=True)],
        [SimpleImputer(missing_values=0.0, keep_empty_features=True)],
        [make_column_transformer((MinMaxScaler(), [2, 0]), ("drop", [1]), remainder="passthrough")],
        [make_column_transformer((OneHotEncoder(handle_unknown="ignore"), [0, 3]), remainder=StandardScaler())],
        [MinMaxScaler(), make_column_transformer((MaxAbsScaler(), [1]), ("passthrough", [0]))],
    ],
    ids=str,
)
def test_preprocessing_of_numbers(steps):
    rows = np.round(X, 1).astype(np.float32)
    rows[3] = 0.0
    if isinstance(steps[0], SimpleImputer) and np.isnan(steps[0].missing_values):
        rows[::5, 1] = np.nan
    model = make_pipeline(*steps, LSSVMClassifier(kernel="rbf")).fit(rows.astype(np.float64), Y)
    outside = np.vstack([rows, 3.0 * rows[:5]])
    assert_agree(model, outside)
    assert_agree(model, outside, {name: outside[:, [j]] for j, name in enumerate("abcd")}, feature_names="abcd")


def table():
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(X.copy(), columns=["a", "b", "c", "d"])
    frame["colour"] = rng.choice(["red", "green", "blue"], len(X), p=[0.7, 0.2, 0.1])
    frame["size"] = rng.choice(["s", "m", "l"], len(X))
    frame["size"] = frame["size"].astype(object).where(rng.random(len(X)) > 0.2, np.nan)
    return frame


@pytest.mark.parametrize(
    "one_hot",
    [
        OneHotEncoder(handle_unknown="ignore"),
        OneHotEncoder(drop="first", handle_unknown="ignore"),
        OneHotEncoder(drop="if_binary"),
        OneHotEncoder(min_frequency=0.25, handle_unknown="infrequent_if_exist"),
    ],
    ids=str,
)
@pytest.mark.parametrize("imputed", [True, False])
@pytest.mark.filterwarnings("ignore:Found unknown categories")
def test_texts_are_inputs_of_their_own(one_hot, imputed):
    frame = table()
    words = [SimpleImputer(strategy="most_frequent"), one_hot] if imputed else [one_hot]
    columns = ColumnTransformer(
        [("numbers", MinMaxScaler(), ["a", "c"]), ("words", make_pipeline(*words), ["colour", "size"])],
        remainder="passthrough",
    )
    model = Pipeline([("columns", columns), ("classifier", LDMClassifier(kernel="rbf"))]).fit(frame, NAMES)
    if one_hot.handle_unknown != "error":
        frame.loc[0, "colour"] = "violet"
    inputs = {name: frame[[name]].to_numpy() for name in frame.columns}
    inputs = {name: np.where(pd.isna(v), "", v) if v.dtype == object else v for name, v in inputs.items()}
    assert_agree(model, frame, {name: v.astype(object) if v.dtype.kind in "OU" else v for name, v in inputs.items()})


def test_the_encoder_of_the_data_sets():
    frame = table().assign(flag=X[:, 0] > 0.5, town=[f"town {k % 60}" for k in range(len(X))])
    frame.loc[3, "a"] = np.nan
    model = make_pipeline(encoder(frame), LSSVMClassifier()).fit(frame, NAMES)
    frame.loc[5, "town"] = "unknown"
    inputs = {}
    for name in frame.columns:
        values = frame[[name]].to_numpy()
        texts = values.dtype.kind in "OU"
        inputs[name] = np.where(pd.isna(values), "", values).astype(object) if texts else values.astype(np.float32)
    assert_agree(model, frame, inputs)


def test_of_a_search_the_best_model_is_exported():
    search = GridSearchCV(make_pipeline(MinMaxScaler(), MAMClassifier()), {"mamclassifier__bias": ["mean", "zero"]})
    assert_agree(search.fit(X, Y), X)
    assert_agree(make_pipeline(MinMaxScaler(), LSSVMClassifierCV(Cs=[0.1, 10.0], cv=3)).fit(X, Y), X)
    assert_agree(ECOCClassifier(make_pipeline(MinMaxScaler(), LSSVMClassifier())).fit(X, Y), X)


def test_opsets():
    model = LDMClassifier(kernel="rbf").fit(X, Y)
    for opset in (13, 21):
        assert_agree(model, X, target_opset=opset)
        (found,) = [one.version for one in to_onnx(model, target_opset=opset).opset_import if one.domain == ""]
        assert found == opset


def test_refusals(monkeypatch):
    model = LSSVMClassifier().fit(X, Y)
    for options, message in [
        ({"dtype": "float16"}, "dtype must be 'float32' or 'float64', got 'float16'"),
        ({"target_opset": 9}, "target_opset must be from 13 to"),
        ({"feature_names": ["a", "b"]}, "feature_names must be 4 different names"),
    ]:
        with pytest.raises(ValueError, match=message):
            to_onnx(model, **options)
    for refused, message in [
        (RandomForestClassifier(2), "RandomForestClassifier cannot be exported"),
        (make_pipeline(SplineTransformer(), LSSVMClassifier()), "SplineTransformer cannot be exported"),
        (LSSVMClassifier(kernel=lambda a, b: a @ b.T), "LSSVMClassifier has a kernel that is a function"),
        (make_pipeline(FunctionTransformer(np.abs), LSSVMClassifier()), "FunctionTransformer cannot be exported"),
        (make_pipeline(Normalizer("max"), LSSVMClassifier()), r"Normalizer\(norm='max'\) cannot be exported"),
    ]:
        with pytest.raises(ValueError, match=message):
            to_onnx(refused.fit(X, Y))
    with pytest.raises(TypeError, match="expects a fitted classifier, got an object of str"):
        to_onnx("model")
    imports = builtins.__import__

    def without_onnx(name, *args, **kwargs):
        if name == "onnx":
            raise ImportError(name)
        return imports(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", without_onnx)
    with pytest.raises(ImportError, match=r"pip install 'margindist\[onnx\]'"):
        to_onnx(model)


def test_metadata_have_labels_and_columns():
    X, y = load_iris(return_X_y=True, as_frame=True)
    exported = to_onnx(LDMClassifier().fit(X, y))
    about = {prop.key: json.loads(prop.value) for prop in exported.metadata_props}
    assert about == {"classes": ["0", "1", "2"], "feature_names": list(X.columns)}
