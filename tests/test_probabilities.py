"""Probabilities: curves against scikit-learn's, model files that keep them safely, columns of predictions."""

import io
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from sklearn.calibration import CalibratedClassifierCV
from sklearn.datasets import load_iris, make_classification
from sklearn.metrics import log_loss
from sklearn.model_selection import StratifiedKFold

from margindist import LSSVMClassifier
from margindist.cli.app import run
from margindist.compare import train
from margindist.estimators.calibration import CalibratedClassifier, fit_sigmoid
from margindist.models import ModelFileError, load_model, save_model


@pytest.mark.parametrize("classes", [2, 3])
@pytest.mark.parametrize("method", ["sigmoid", "isotonic"])
def test_probabilities_are_those_of_scikit_learn(method, classes):
    X, y = load_iris(return_X_y=True)
    X, y = X[y < classes] + np.random.default_rng(0).normal(size=(50 * classes, 4)), y[y < classes]
    folds = StratifiedKFold(5)
    ours = CalibratedClassifier(LSSVMClassifier(), method, folds).fit(X, y)
    theirs = CalibratedClassifierCV(LSSVMClassifier(), method=method, cv=folds, ensemble=False).fit(X, y)
    np.testing.assert_allclose(ours.predict_proba(X), theirs.predict_proba(X), atol=2e-3)
    np.testing.assert_allclose(ours.predict_proba(X).sum(axis=1), 1.0)
    assert (ours.predict(X) == ours.classes_[ours.predict_proba(X).argmax(axis=1)]).all()


def test_the_sigmoid_is_the_likeliest_one():
    rng = np.random.default_rng(0)
    scores = 1e3 * rng.normal(size=400)
    positive = rng.random(400) < 1.0 / (1.0 + np.exp(-(0.002 * scores - 0.5)))
    slope, offset = fit_sigmoid(scores, positive)
    n = positive.sum()
    target = np.where(positive, (n + 1) / (n + 2), 1 / (402 - n))

    def loss(slope, offset):
        z = slope * scores + offset
        return np.sum(np.logaddexp(0.0, z) - target * z)

    for a, b in ((1.001, 0.0), (0.999, 0.0), (1.0, 1e-3), (1.0, -1e-3)):
        assert loss(slope, offset) < loss(a * slope, offset + b)
    assert fit_sigmoid(np.zeros(10), np.arange(10) < 5) == pytest.approx((0.0, 0.0), abs=1e-6)
    separated = fit_sigmoid(np.r_[-np.ones(20), np.ones(20)], np.arange(40) >= 20)  # Platt's targets keep it finite
    assert np.isfinite(separated).all() and separated[0] > 1.0


@pytest.mark.parametrize("method", ["sigmoid", "isotonic"])
def test_model_files_keep_probabilities_bit_for_bit(tmp_path, method):
    X, y = make_classification(120, 5, n_informative=3, n_classes=3, n_clusters_per_class=1, random_state=0)
    trained = train(X, y, method="lssvm-rbf", quick=True, calibrate=method)
    path = tmp_path / "m.model"
    save_model(trained.model, path)
    again = load_model(path)
    np.testing.assert_array_equal(again.predict_proba(X), trained.model.predict_proba(X))
    np.testing.assert_array_equal(again.predict(X), trained.model.predict(X))


def spoilt_sigmoid(model):
    model.sigmoid_ = np.full((1, 2), np.nan)


def both_curves(model):
    model.isotonic_ = [(np.array([0.0, 1.0]), np.array([0.0, 1.0]))]


def no_curve(model):
    model.sigmoid_ = None


def other_classes(model):
    model.classes_ = np.array([5, 6])


def falling_steps(model):
    model.sigmoid_, model.isotonic_ = None, [(np.array([1.0, 0.0]), np.array([0.0, 1.0]))]


def beyond_one(model):
    model.sigmoid_, model.isotonic_ = None, [(np.array([0.0, 1.0]), np.array([0.0, 2.0]))]


@pytest.mark.parametrize(
    "spoil", [spoilt_sigmoid, both_curves, no_curve, other_classes, falling_steps, beyond_one], ids=lambda f: f.__name__
)
def test_curves_that_cannot_be_are_refused(tmp_path, spoil):
    X, y = make_classification(60, 4, random_state=0)
    model = CalibratedClassifier(LSSVMClassifier()).fit(X, y)
    spoil(model)
    with pytest.raises(ModelFileError):  # when it is written, or at the latest when it is read
        save_model(model, tmp_path / "m.model")
        load_model(tmp_path / "m.model")


@pytest.fixture
def flowers(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    kind = np.arange(90) % 2
    frame = pd.DataFrame({
        "id": [f"{k:04d}" for k in range(90)],
        "width": kind + rng.normal(size=90),
        "colour": np.where(rng.random(90) < 0.5 + 0.4 * kind, "red", "blue"),
        "open": np.where(kind == 1, "True", "False"),
    })  # fmt: skip
    frame.to_csv("flowers.csv", index=False)
    return frame


def test_fit_calibrates_and_predict_writes_probabilities_and_kept_columns(flowers, capsys, monkeypatch):
    assert run(["fit", "flowers.csv", "--target", "open", "--method", "lssvm", "--quick", "--calibrate", "sigmoid",
                "--scoring", "roc_auc", "-o", "m.model"]) == 0  # fmt: skip
    said = capsys.readouterr().out
    assert (
        "Area under the ROC curve in the cross-validation that chose the parameters: 0." in said
        and "Probabilities by a sigmoid." in said
    )
    assert run(["predict", "m.model", "flowers.csv", "--keep", "id", "--keep", "width", "-o", "p.csv"]) == 0
    capsys.readouterr()
    found = pd.read_csv("p.csv", dtype={"id": str, "width": str})
    assert list(found) == ["id", "width", "prediction", "decision", "probability_False", "probability_True"]
    spelled = pd.read_csv("flowers.csv", dtype=str)
    assert found["id"].tolist() == spelled["id"].tolist() and found["width"].tolist() == spelled["width"].tolist()
    p = found[["probability_False", "probability_True"]].to_numpy()
    np.testing.assert_allclose(p.sum(axis=1), 1.0)
    truth = (flowers["open"] == "True").to_numpy()
    assert log_loss(truth, p) < 0.69 and ((p[:, 1] > 0.5) == found["prediction"]).all()
    assert run(["predict", "m.model", "flowers.csv", "--keep", "identity"]) == 1
    assert "there is no column 'identity' to keep; its columns are 'id', " in capsys.readouterr().err

    class Stdin:
        buffer = io.BytesIO(Path("flowers.csv").read_bytes())

    monkeypatch.setattr(sys, "stdin", Stdin)
    assert run(["predict", "m.model", "-", "-o", "q.csv", "--keep", "id"]) == 0
    pd.testing.assert_frame_equal(pd.read_csv("q.csv", dtype={"id": str}), found.drop(columns="width"))
    assert run(["export", "m.model", "-o", "m.onnx"]) == 1
    assert "--calibrate" in capsys.readouterr().err


SENTENCES = [
    ("open", {"True": "true", "False": " false"}, "90 rows have labels that differ from the model's in spelling "
     "only and count as equal: 'false' for 'False', 'true' for 'True'."),
    ("open", {"True": "1", "False": "0"}, "90 rows have labels that differ from the model's in spelling only "
     "and count as equal: '0' for 'False', '1' for 'True'."),
    ("open", {"True": "half"}, "45 rows have labels that the model does not know, 'half', which counts as wrong; it "
     "knows 'False', 'True'."),
    ("colour", {"red": "mauve"}, "rows have values in 'colour' that the model has never seen and ignores: "
     "'mauve'."),
    ("colour", {"red": "Red"}, "'Red'. Is it only spelled differently ('Red' for 'red')?"),
]  # fmt: skip


@pytest.mark.parametrize(("column", "spelling", "sentence"), SENTENCES, ids=["case", "flags", "unknown", "new", "Red"])
def test_what_the_model_has_not_seen_is_counted_and_said(flowers, capsys, column, spelling, sentence):
    assert run(["fit", "flowers.csv", "--target", "open", "--method", "mamc", "-o", "m.model"]) == 0
    assert run(["predict", "m.model", "flowers.csv", "-o", "p.csv"]) == 0
    plain = capsys.readouterr().out
    assert "have labels" not in plain and "have values" not in plain
    right = plain[plain.index("Accuracy on the 90 rows") :].splitlines()[0]
    flowers.assign(**{column: flowers[column].replace(spelling)}).to_csv("new.csv", index=False)
    assert run(["predict", "m.model", "new.csv", "-o", "p.csv"]) == 0
    said = capsys.readouterr().out
    assert sentence in said
    if "in spelling only" in sentence:
        assert right in said  # not 0.000
