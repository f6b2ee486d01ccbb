"""Probabilities: curves against scikit-learn's, model files that keep them safely, columns of predictions."""

import io
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import sklearn
from scipy.special import logit
from sklearn.calibration import CalibratedClassifierCV
from sklearn.datasets import load_iris, make_classification
from sklearn.frozen import FrozenEstimator
from sklearn.metrics import log_loss

from margindist import LSSVMClassifier
from margindist.cli.app import run
from margindist.compare import train
from margindist.compare.scoring import Scorer, sigmoid
from margindist.models import load_model, save_model

CURVES = ["sigmoid", "isotonic"]
if tuple(map(int, sklearn.__version__.split(".")[:2])) >= (1, 8):
    CURVES.append("temperature")


def test_the_sigmoid_is_the_likeliest_one():
    rng = np.random.default_rng(0)
    scores = 1e3 * rng.normal(size=400)
    positive = rng.random(400) < 1.0 / (1.0 + np.exp(-(0.002 * scores - 0.5)))
    offset, end = logit(sigmoid(scores, positive, np.array([0.0, 1e3])))
    slope = (end - offset) / 1e3
    n = positive.sum()
    target = np.where(positive, (n + 1) / (n + 2), 1 / (402 - n))

    def loss(slope, offset):
        z = slope * scores + offset
        return np.sum(np.logaddexp(0.0, z) - target * z)

    for a, b in ((1.001, 0.0), (0.999, 0.0), (1.0, 1e-3), (1.0, -1e-3)):
        assert loss(slope, offset) < loss(a * slope, offset + b)
    np.testing.assert_allclose(sigmoid(np.zeros(10), np.arange(10) < 5, np.zeros(1)), 0.5, atol=1e-6)
    one_class = sigmoid(np.arange(10.0), np.zeros(10, dtype=bool), np.arange(10.0))  # Platt's targets keep it finite
    np.testing.assert_allclose(one_class, 1.0 / 12.0, atol=1e-4)
    assert sigmoid(np.zeros(0), np.zeros(0, dtype=bool), np.zeros(2)).tolist() == [0.5, 0.5]
    separated = sigmoid(np.r_[-np.ones(20), np.ones(20)], np.arange(40) >= 20, np.array([-1.0, 1.0]))
    np.testing.assert_allclose(separated, [1.0 / 22.0, 21.0 / 22.0], atol=1e-4)


@pytest.mark.parametrize("classes", [2, 3])
def test_log_loss_of_scores_is_that_of_scikit_learns_calibration(classes):
    X, y = load_iris(return_X_y=True)
    X, y = X[y < classes] + np.random.default_rng(0).normal(size=(50 * classes, 4)), y[y < classes]
    model = LSSVMClassifier().fit(X, y)
    half = np.arange(len(y)) % 2 == 0  # of each class, as its rows are together
    losses = []
    for fitted in (half, ~half):
        theirs = CalibratedClassifierCV(FrozenEstimator(model), ensemble=False).fit(X[fitted], y[fitted])
        losses.append(log_loss(y[~fitted], theirs.predict_proba(X[~fitted])))
    assert Scorer("log_loss")(model, X, y) == pytest.approx(-np.mean(losses), rel=1e-3)


@pytest.mark.parametrize("method", CURVES)
def test_model_files_keep_probabilities_bit_for_bit(tmp_path, method):
    X, y = make_classification(120, 5, n_informative=3, n_classes=3, n_clusters_per_class=1, random_state=0)
    trained = train(X, y, method="lssvm-rbf", quick=True, calibrate=method)
    path = tmp_path / "m.model"
    save_model(trained.model, path)
    again = load_model(path)
    np.testing.assert_array_equal(again.predict_proba(X), trained.model.predict_proba(X))
    np.testing.assert_array_equal(again.predict(X), trained.model.predict(X))


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
    runtime = pytest.importorskip("onnxruntime")
    assert run(["export", "m.model", "-o", "m.onnx"]) == 0
    assert [output.name for output in runtime.InferenceSession("m.onnx").get_outputs()][2:] == ["probabilities"]


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
