"""What a user's type checker says about a script with this library."""

import pytest

api = pytest.importorskip("mypy.api")

SCRIPT = """\
import numpy as np

import margindist
from margindist import LDMClassifier, LDMClassifierCV, PUMMAClassifier, load_model
from margindist.datasets import load, make_twonorm, read_file
from margindist.margins import margin_statistics, margins

X, y = np.zeros((4, 2)), np.array([0, 1, 0, 1])
model = LDMClassifier(C=1.0).fit(X, y)
reveal_type(model)
reveal_type(model.predict(X))
reveal_type(model.decision_function(X))
reveal_type(model.score(X, y))
reveal_type(model.coef_)
reveal_type(model.duality_gap_)
reveal_type(model.partial_fit(X, y))
reveal_type(PUMMAClassifier().partial_fit(X, y))
reveal_type(LDMClassifierCV().fit(X, y))
reveal_type(LDMClassifierCV().fit(X, y).best_params_)
reveal_type(load_model("file").predict(X))
reveal_type(margins(model, X, y))
reveal_type(margin_statistics(margins(model, X, y)))
reveal_type(read_file("flowers.csv", target="species"))
reveal_type(load("iris").feature_names)
reveal_type(make_twonorm(10, random_state=0))
"""
ARRAY = "numpy.ndarray[tuple[Any, ...], numpy.dtype[Any]]"
EXPECTED = [
    "margindist.estimators.ldm.LDMClassifier",
    ARRAY,
    ARRAY,
    "float",
    ARRAY,
    f"float | {ARRAY}",
    "margindist.estimators.ldm.LDMClassifier",
    "margindist.estimators.online.PUMMAClassifier",
    "margindist.estimators.ldm.LDMClassifierCV",
    "dict[str, Any]",
    ARRAY,
    ARRAY,
    "margindist.margins.statistics.MarginStatistics",
    "margindist.datasets.dataset.Dataset",
    "tuple[str, ...]",
    f"tuple[{ARRAY}, {ARRAY}]",
]


def test_a_strict_script_knows_its_types(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(SCRIPT, encoding="utf-8")
    arguments = ["--strict", "--follow-imports=silent", "--cache-dir", str(tmp_path / "cache"), str(script)]
    found, errors, _ = api.run(arguments)
    lines = [line for line in found.splitlines() if "Revealed type" in line]
    assert not errors and "error:" not in found, found
    assert [line.split('"')[1] for line in lines] == EXPECTED
