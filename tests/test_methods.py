"""A classifier is declared once, also from outside the package."""

import numpy as np
import pytest
from sklearn.datasets import load_iris

from margindist import LSSVMClassifier, load_model, methods, save_model, to_onnx
from margindist.compare import compare
from margindist.margins import method_styles
from margindist.methods import BY_KEY, METHODS, Reach, register
from margindist.models import ModelFileError


class OutsideClassifier(LSSVMClassifier):
    """A classifier that the package does not know."""


def prices(shape, few):
    return {"C": (1.0, 100.0)}


def declare(kind=OutsideClassifier, **changed):
    given = {"key": "outside", "label": "Outside", "grid": prices, "linear": Reach(), "rbf": Reach(rows=4000)}
    return register(kind, **(given | changed))


@pytest.fixture
def outside():
    declared = declare()
    yield declared
    methods._remove(methods.OURS[declared.name])
    assert "outside" not in BY_KEY and declared.name not in {method.classifier.name for method in METHODS}


@pytest.fixture(scope="module")
def iris():
    return load_iris(return_X_y=True)


@pytest.mark.parametrize("n_jobs", [1, 2])
def test_a_registered_classifier_is_compared(outside, iris, n_jobs):
    found = compare(*iris, methods=["outside", "outside-rbf", "lssvm"], splits=2, repeats=1, quick=True, n_jobs=n_jobs)
    rows = {row.method: row for row in found.rows}
    assert rows["outside"].label == "Outside" and rows["outside-rbf"].label == "Outside (RBF)"
    assert rows["outside"].accuracy > 0.7 and not found.failures
    assert "Outside (RBF)" in found.to_html()
    imported, made = BY_KEY["outside-rbf"].code(0, {"C": 2.0})
    assert imported == f"from {__name__} import OutsideClassifier"
    assert made == "OutsideClassifier(kernel='rbf', C=2.0)"


@pytest.mark.parametrize("kernel", ["linear", "rbf"])
def test_a_registered_classifier_is_saved_and_exported(outside, iris, tmp_path, kernel):
    X, y = iris
    model = OutsideClassifier(kernel=kernel).fit(X, y)
    save_model(model, tmp_path / "model")
    again = load_model(tmp_path / "model")
    assert type(again) is OutsideClassifier
    np.testing.assert_array_equal(again.decision_function(X), model.decision_function(X))
    evaluator = pytest.importorskip("onnx.reference").ReferenceEvaluator
    label, scores = evaluator(to_onnx(model, dtype="float64")).run(None, {"X": X})
    np.testing.assert_allclose(scores, model.decision_function(X), atol=1e-9)
    np.testing.assert_array_equal(label, model.predict(X))


def test_only_registered_classes_are_stored_and_loaded(iris, tmp_path):
    model = OutsideClassifier().fit(*iris)
    with pytest.raises(ModelFileError, match="OutsideClassifier, which is not among the classes"):
        save_model(model, tmp_path / "model")
    declared = declare()
    save_model(model, tmp_path / "model")
    methods._remove(declared)
    with pytest.raises(ModelFileError, match="OutsideClassifier' is not among the classes a model file may hold"):
        load_model(tmp_path / "model")


def test_another_class_of_a_registered_name_is_not_stored(outside, iris, tmp_path):
    impostor = type("OutsideClassifier", (LSSVMClassifier,), {})
    with pytest.raises(ModelFileError, match="not among the classes"):
        save_model(impostor().fit(*iris), tmp_path / "model")


def test_registered_again_the_last_counts(outside):
    declare(label="Other", linear=None)
    assert "outside" not in BY_KEY
    assert BY_KEY["outside-rbf"].label == "Other (RBF)"


def test_names_of_others_cannot_be_taken(outside):
    with pytest.raises(ValueError, match="'ldm' is the name of another classifier"):
        declare(type("MineClassifier", (LSSVMClassifier,), {}), key="ldm")
    with pytest.raises(ValueError, match="'LDMClassifier' is the name of another classifier"):
        declare(type("LDMClassifier", (LSSVMClassifier,), {}), key="mine")


def test_a_style_of_its_own(outside):
    declare(style=("red", "long"))
    (style,) = method_styles(["Outside"])
    assert style.color == "#D55E00"


def test_the_three_maximal_average_margin_classifiers_have_their_names():
    made = {BY_KEY[key].label: BY_KEY[key].estimator(0) for key in ("mamc", "mamc-plain", "mamc-bs")}
    assert {label: (model.bias, model.slope) for label, model in made.items()} == {
        "MAMC_b": ("optimal", 1.0), "MAMC": ("mean", 1.0), "MAMC_bs": ("optimal", "cv"),
    }  # fmt: skip
