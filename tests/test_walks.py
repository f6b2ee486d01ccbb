"""The walks in CONTRIBUTING.md: which files lead to the first fit, and through a fit."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from sklearn.base import clone
from sklearn.datasets import load_breast_cancer, load_iris
from sklearn.preprocessing import minmax_scale

from margindist import LDMClassifier, LDMClassifierCV, ODMClassifier

ROOT = Path(__file__).parent.parent
MOST_FILES = 17
IN_PASSING = ("margindist/dask.py", "margindist/spaces/partitions.py", "margindist/compilation.py")  # as it says there

# Prints every file of the package in which a function ran, imports apart, until the first estimator is fitted.
TRACED = """
import os, sys, threading
package = os.path.join(sys.argv[1], "margindist", "")
seen = []

def importing(frame):
    while frame is not None:
        if frame.f_code.co_name == "<module>" and frame.f_code.co_filename.startswith(package):
            return True
        frame = frame.f_back
    return False

def watch(frame, event, _):
    if event != "call":
        return
    name, file = frame.f_code.co_name, frame.f_code.co_filename
    if name == "fit" and (os.path.join("sklearn", "svm") in file or file.startswith(package + "estimators")):
        print(*seen, sep="\\n", flush=True)
        os._exit(0)
    outside = not file.startswith(package) or file.startswith(package + "estimators")
    if not outside and file not in seen and not importing(frame):
        seen.append(file)

from margindist.cli import main
from margindist.datasets import read_file
read_file("flowers.csv")  # what is imported and compiled on the way takes many times as long while it is watched
sys.setprofile(watch)
threading.setprofile(watch)
main(sys.argv[2:])
"""


def files_of(walk):
    """The files that the list below a sentence names."""
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    after = text[text.index(walk) :]
    steps = re.match(r"[^\n]*\n\n((?:\d+\. .*\n(?:    .*\n)*)+)", after)[1]
    return re.findall(r"^\d+\. `([^`]+)`", steps, re.MULTILINE)


def test_all_files_named_in_the_walks_exist():
    section = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8").split("## Walks")[1].split("\n## ")[0]
    named = re.findall(r"`(margindist/[a-z_/]+\.py)`", section)
    assert named and [name for name in named if not (ROOT / name).is_file()] == []


@pytest.mark.parametrize("method", ["mamc", "linearsvc"])
def test_a_comparison_goes_through_the_files_of_its_walk(tmp_path, method):
    pytest.importorskip("click")
    rows = [f"{k % 7},{k * k % 11},{'rose' if k % 3 else 'lily'}" for k in range(40)]
    (tmp_path / "flowers.csv").write_text("\n".join(["length,width,species", *rows]))
    command = ["compare", "flowers.csv", "--methods", method, "--jobs", "1"]
    done = subprocess.run(
        [sys.executable, "-c", TRACED, str(ROOT), *command], cwd=tmp_path, text=True, capture_output=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)}, timeout=300,
    )  # fmt: skip
    walk = files_of("`margindist compare flowers.csv`")
    assert len(set(walk)) == len(walk) <= MOST_FILES
    entered = {Path(file).relative_to(ROOT).as_posix() for file in done.stdout.split()}
    assert sorted(entered.difference(IN_PASSING)) == sorted(walk), done.stderr


def files_entered(estimator, X, y):
    """The files of the package in which a function runs during a fit, in the order of the first one."""
    package = ROOT / "margindist"
    seen = []

    def watch(frame, event, _):
        file = Path(frame.f_code.co_filename)
        if event == "call" and file not in seen and file.is_relative_to(package):
            seen.append(file)

    before = sys.getprofile()
    sys.setprofile(watch)
    try:
        estimator.fit(X, y)
    finally:
        sys.setprofile(before)
    return [file.relative_to(ROOT).as_posix() for file in seen]


@pytest.mark.parametrize(
    ("sentence", "estimator", "load", "until"),
    [
        ("`LDMClassifier().fit(X, y)`", LDMClassifier(), load_breast_cancer, None),
        ('`ODMClassifier(kernel="rbf").fit(X, y)`', ODMClassifier(kernel="rbf"), load_iris, None),
        (
            '`LDMClassifierCV(kernel="rbf").fit(X, y)`',
            LDMClassifierCV(Cs=[1.0], lambda1s=[1.0], lambda2s=[1.0], kernel="rbf"),
            load_breast_cancer,
            "margindist/solvers/_solution.py",
        ),
    ],
)
def test_a_fit_goes_through_the_files_of_its_walk_in_order(sentence, estimator, load, until):
    X, y = load(return_X_y=True)
    X = minmax_scale(X)
    clone(estimator).fit(X, y)  # without what runs once only: imports, compilation
    walk = files_of(sentence)
    entered = files_entered(estimator, X, y)
    if until is not None:  # a search ends with a fit, which has a walk of its own
        entered = entered[: entered.index(until) + 1]
    assert len(set(walk)) == len(walk)
    assert [file for file in entered if file not in IN_PASSING] == walk
