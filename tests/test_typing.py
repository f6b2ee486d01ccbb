"""What a user's type checker says about a script with this library, and that nothing public is without types."""

import importlib
import inspect
import os
import re
from types import UnionType
from typing import Literal, Union, get_args, get_origin, get_type_hints

import pytest

from tests.test_common import every_classifier

SCRIPT = """\
import numpy as np

import margindist
from margindist import LDMClassifier, LDMClassifierCV, LSSVMClassifier, LSSVMClassifierCV, PUMMAClassifier, load_model
from margindist.datasets import Partitions, load, make_twonorm, read_file
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
reveal_type(PUMMAClassifier().partial_fit(X, y).coef_)
reveal_type(model.classes_)
reveal_type(LDMClassifier().fit(Partitions.from_npy("X.npy", "y.npy")))
reveal_type(LDMClassifierCV().fit(X, y))
reveal_type(LDMClassifierCV().fit(X, y).best_params_)
reveal_type(LSSVMClassifierCV().fit(X, y).best_estimator_)
path = LSSVMClassifier().path(X, y, [1.0, 2.0])
reveal_type(path.best_C)
reveal_type(path.loo_error)
reveal_type(load_model("file").predict(X))
reveal_type(margins(model, X, y))
reveal_type(margin_statistics(margins(model, X, y)))
reveal_type(read_file("flowers.csv", target="species"))
reveal_type(load("iris").feature_names)
reveal_type(make_twonorm(10, random_state=0))
LDMClassifier(kernel="rfb")  # type: ignore[arg-type]
LDMClassifier(solver="interior")  # type: ignore[arg-type]
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
    ARRAY,
    ARRAY,
    "margindist.estimators.ldm.LDMClassifier",
    "margindist.estimators.ldm.LDMClassifierCV",
    "dict[str, Any]",
    "margindist.estimators.lssvm.LSSVMClassifier",
    "float",
    ARRAY,
    ARRAY,
    ARRAY,
    "margindist.margins.statistics.MarginStatistics",
    "margindist.datasets.dataset.Dataset",
    "tuple[str, ...]",
    f"tuple[{ARRAY}, {ARRAY}]",
]
PUBLIC = ["", ".datasets", ".margins", ".compare", ".models", ".onnx", ".dask"]


def functions_of(name, member):
    """Yield a public function, or those of a public class that are ours, with their names."""
    if not inspect.isclass(member):
        yield name, member
        return
    for base in member.__mro__:
        for attribute, value in vars(base).items():
            function = getattr(value, "__func__", getattr(value, "fget", value))
            ours = base.__module__.startswith("margindist") and inspect.isfunction(function)
            if ours and (attribute == "__init__" or not attribute.startswith("_")):
                yield f"{base.__name__}.{attribute}", function


@pytest.mark.parametrize("module", PUBLIC)
def test_everything_public_has_types(module):
    """A call of a function without them is an error to ``mypy --strict``."""
    home = importlib.import_module(f"margindist{module}")
    functions = [pair for name in home.__all__ for pair in functions_of(name, getattr(home, name))]
    assert functions
    for name, function in functions:
        found = inspect.signature(function)
        bare = [key for key, each in found.parameters.items() if each.annotation is each.empty]
        assert set(bare) <= {"self", "cls"}, name
        assert name.endswith("__init__") or found.return_annotation is not found.empty, name


def _literals(annotation):
    """Return the values that an annotation lists."""
    if get_origin(annotation) is Literal:
        return set(get_args(annotation))
    if get_origin(annotation) in (Union, UnionType):
        return set().union(*map(_literals, get_args(annotation)))
    return set()


@every_classifier
def test_values_that_types_list_are_those_that_a_fit_takes(classifier):
    for name, annotation in get_type_hints(type(classifier).__init__).items():
        listed = _literals(annotation)
        if listed:
            requirement = classifier._requirements[name]
            assert all(map(requirement.test, listed)), name
            assert listed == set(re.findall(r"'([\w-]+)'", requirement.text)), name


def test_a_strict_script_knows_its_types(tmp_path):
    api = pytest.importorskip("mypy.api")
    script = tmp_path / "script.py"
    script.write_text(SCRIPT, encoding="utf-8")
    arguments = ["--strict", "--follow-imports=silent", "--cache-dir", os.devnull, str(script)]
    found, errors, _ = api.run(arguments)
    lines = [line for line in found.splitlines() if "Revealed type" in line]
    assert not errors and "error:" not in found, found
    revealed = [line.split('"')[1] for line in lines]
    revealed = [name.replace("builtins.", "").replace("numpy.ndarray[Any, Any]", ARRAY) for name in revealed]
    revealed = [re.sub(r"^Union\[(\w+), (.*)\]$", r"\1 | \2", name) for name in revealed]
    assert revealed == EXPECTED  # older versions of mypy and NumPy say the same at greater or lesser length
