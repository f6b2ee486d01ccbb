"""Fits to rows in files: the optimum of the rows in memory, and one sentence for what goes wrong on the way."""

import os
import re
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from sklearn.base import clone
from sklearn.datasets import dump_svmlight_file
from sklearn.preprocessing import StandardScaler

from margindist import LDMClassifier, ODMClassifier
from margindist.cli.app import run
from margindist.datasets import Partitions
from margindist.models import load_model
from margindist.solvers import quasi_newton

pytest.importorskip("pyarrow")

ROOT = Path(__file__).parent.parent
MODELS = [
    LDMClassifier(C=0.3, lambda1=0.01, lambda2=0.005, lambda_scale="relative", tol=1e-7),
    LDMClassifier(C=1.0, lambda1=0.0, lambda2=0.0, tol=1e-7, fit_intercept=False, class_weight="balanced"),
    ODMClassifier(tol=1e-7, multi_class="ovr"),
]


def problem(n_classes, n_rows=700, n_columns=6):
    rng = np.random.default_rng(n_classes)
    X = rng.normal(size=(n_rows, n_columns)).round(4)
    scores = X @ rng.normal(size=(n_columns, n_classes)) + 0.8 * rng.normal(size=(n_rows, n_classes))
    return X, scores.argmax(axis=1) + 3, rng.integers(0, 3, n_rows).astype(float)


def in_files(folder, X, y, weights=None, step=150):
    """Return the rows by where they are."""
    np.save(folder / "X.npy", X)
    np.save(folder / "y.npy", y)
    table = pd.DataFrame(X, columns=[f"x{k}" for k in range(X.shape[1])]).assign(y=y)
    if weights is not None:
        table["w"] = weights
    (folder / "table").mkdir()
    table[:400].to_parquet(folder / "table" / "a.parquet", row_group_size=90)
    table[400:].to_parquet(folder / "table" / "b.parquet", row_group_size=90)
    made = {
        "arrays": Partitions.from_arrays(X, y, weights, rows_per_partition=step),
        "csr": Partitions.from_arrays(sp.csr_matrix(X), y, weights, rows_per_partition=step),
        "npy": Partitions.from_npy(folder / "X.npy", folder / "y.npy", weights, rows_per_partition=step),
        "parquet": Partitions.from_parquet(
            folder / "table", "y", weight=None if weights is None else "w", rows_per_partition=step
        ),
    }
    if weights is None:
        dump_svmlight_file(X, y, str(folder / "rows.svm"), zero_based=False)
        made["svmlight"] = Partitions.from_svmlight(folder / "rows.svm", rows_per_partition=step)
    return made


@pytest.mark.parametrize("model", MODELS, ids=["LDM", "SVM", "ODM"])
@pytest.mark.parametrize("n_classes, weighted", [(2, False), (2, True), (4, False)])
def test_the_optimum_is_that_of_the_rows_in_memory(tmp_path, model, n_classes, weighted):
    X, y, weights = problem(n_classes)
    weights = weights if weighted else None
    expected = clone(model).fit(X, y, weights)
    for name, rows in in_files(tmp_path, X, y, weights).items():
        found = clone(model).fit(rows)
        assert np.max(found.duality_gap_) <= model.tol, name
        np.testing.assert_allclose(found.objective_, expected.objective_, rtol=1e-6, err_msg=name)
        np.testing.assert_allclose(found.coef_, expected.coef_, atol=2e-3, err_msg=name)
        sure = np.abs(expected.decision_function(X)).reshape(len(y), -1).min(axis=1) > 1e-3
        assert np.array_equal(found.predict(X)[sure], expected.predict(X)[sure]), name
        assert np.array_equal(found.predict(rows), found.predict(X)), name
        assert found.score(rows) == pytest.approx(found.score(X, y, weights)), name
        assert list(found.classes_) == list(expected.classes_)


@pytest.mark.parametrize("weighted", [False, True])
def test_the_joint_problem_in_partitions(tmp_path, weighted):
    X, y, weights = problem(4)
    weights = weights if weighted else None
    model = ODMClassifier(tol=1e-8)
    expected = clone(model).fit(X, y, weights)
    sure = np.diff(np.sort(expected.decision_function(X), axis=1)[:, -2:], axis=1).ravel() > 1e-3
    places = in_files(tmp_path, X, y, weights)  # in five partitions each
    for parts in (1, 7):
        places[parts] = Partitions.from_arrays(X, y, weights, rows_per_partition=-(-len(y) // parts))
    for place, rows in places.items():
        found = clone(model).fit(rows)
        assert found.duality_gap_ <= model.tol
        assert found.objective_ == pytest.approx(expected.objective_, rel=1e-6)
        assert found.objective_history_[-1] == found.objective_ and found.stop_reason_ == "settled"
        assert np.array_equal(found.predict(X)[sure], expected.predict(X)[sure])
        if place in ("csr", 7):
            assert np.array_equal(clone(model).set_params(n_jobs=2).fit(rows).coef_, found.coef_)


@pytest.mark.parametrize(
    "model",
    [
        LDMClassifier(C=0.3, lambda1=2.0, kernel="rbf", n_components=12, tol=1e-7, random_state=0),
        ODMClassifier(
            kernel="poly", coef0=1.0, gamma=0.2, n_components=15, tol=1e-7, multi_class="ovr", random_state=0
        ),
        ODMClassifier(kernel="rbf", gamma="auto", n_components=12, tol=1e-7, fit_intercept=False, random_state=0),
    ],
)
def test_nystroem_features_are_made_in_the_partitions(tmp_path, model):
    """All rows are in the sample that landmarks are drawn from, so they are those of the rows in memory."""
    several = model.get_params().get("multi_class") == "ovr"
    X, y, weights = problem(3 if several else 2)
    weights += 1.0
    expected = clone(model).fit(X, y, weights)
    for name, parts in in_files(tmp_path, X, y, weights).items():
        found = clone(model).fit(parts)
        assert np.array_equal(found.support_, expected.support_), name
        assert found.certified_problem_ == "nystroem"
        assert np.allclose(found.objective_, expected.objective_, rtol=1e-6), name
        assert np.array_equal(found.predict(parts), expected.predict(X)), name
        assert np.array_equal(found.n_support_, expected.n_support_)
        assert np.isclose(found.score(parts), expected.score(X, y, weights))


def wide_problem(n_classes, n_rows=90, n_columns=5200):
    """Return rows like those of texts: more columns than a matrix of them could have."""
    rng = np.random.default_rng(n_classes)
    X = sp.random(n_rows, n_columns, 0.01, format="csr", rng=rng)
    scores = X @ rng.normal(size=(n_columns, n_classes)) + 0.5 * rng.normal(size=(n_rows, n_classes))
    return X, scores.argmax(axis=1)


@pytest.mark.parametrize(
    ("model", "n_classes"),
    [
        (LDMClassifier(C=1.0, lambda1=2.0, lambda2=1.0), 2),
        (LDMClassifier(C=np.inf, lambda1=0.0), 2),
        (LDMClassifier(C=0.1, fit_intercept=False, class_weight="balanced"), 3),
        (ODMClassifier(lam=2.0**8, multi_class="ovr"), 3),
        (ODMClassifier(lam=2.0**8), 3),
    ],
)
def test_many_columns_in_partitions(model, n_classes, monkeypatch):
    if isinstance(model, ODMClassifier):  # what does not fit into memory is a matter of squares of columns alone
        settings = quasi_newton.Settings(largest_factors=5 * 10**7 // 16)
        monkeypatch.setattr(quasi_newton, "SETTINGS", settings)
        X, y = wide_problem(n_classes, n_columns=1300)
    else:
        X, y = wide_problem(n_classes)
    expected = clone(model).set_params(tol=1e-7).fit(X, y)
    model = clone(model).set_params(tol=1e-5).fit(Partitions.from_arrays(X, y, rows_per_partition=30))
    assert model.solver_ == ("newton" if isinstance(model, ODMClassifier) else "augmented-lagrangian")
    assert np.max(model.duality_gap_) <= 1e-5
    assert np.allclose(model.objective_, expected.objective_, rtol=1e-5)
    two_threads = clone(model).set_params(n_jobs=2).fit(Partitions.from_arrays(X, y, rows_per_partition=30))
    assert np.array_equal(two_threads.coef_, model.coef_)


def test_landmarks_come_from_all_partitions(monkeypatch):
    monkeypatch.setattr("margindist.estimators._partitioned._SAMPLE_ROWS", 100)
    X, y, _ = problem(2, n_rows=4000)
    parts = Partitions.from_arrays(X, y, rows_per_partition=350)
    model = LDMClassifier(kernel="rbf", n_components=5, random_state=0).fit(parts)
    assert np.array_equal(model.support_vectors_, X[model.support_])
    assert len(np.unique(model.support_ // 350)) > 2
    again = LDMClassifier(kernel="rbf", n_components=5, random_state=0, n_jobs=2, cache_size=0.1).fit(parts)
    assert np.array_equal(again.dual_coef_, model.dual_coef_)  # features that are made anew in every sweep


def test_features_that_do_not_fit_into_memory_are_refused():
    X, y, _ = problem(2)
    model = LDMClassifier(kernel="rbf", n_components=100, cache_size=0.5)
    refused("make smaller partitions", Partitions.from_arrays(X, y), model)


def test_scaled_rows_make_a_pipeline_for_rows_as_they_are(tmp_path):
    X, y, _ = problem(2)
    X = 5.0 + 30.0 * X
    rows = in_files(tmp_path, X, y)["npy"].transformed(StandardScaler())
    model = rows.pipeline(LDMClassifier(tol=1e-6).fit(rows))
    expected = LDMClassifier(tol=1e-6).fit(StandardScaler().fit_transform(X), y)
    np.testing.assert_allclose(
        model.decision_function(X), expected.decision_function(StandardScaler().fit_transform(X)), atol=1e-3
    )


def test_names_of_columns_are_kept_and_compared(tmp_path):
    X, y, _ = problem(2)
    rows = in_files(tmp_path, X, y)["parquet"]
    model = LDMClassifier().fit(rows)
    assert list(model.feature_names_in_) == [*(f"x{k}" for k in range(6))]
    assert len(model.predict(pd.DataFrame(X, columns=model.feature_names_in_))) == len(y)
    others = Partitions.from_parquet(tmp_path / "table", "y", columns=["x1", "x0", "x2", "x3", "x4", "x5"])
    with pytest.raises(ValueError, match=r"expected the columns 'x0', 'x1'.* and 1 more, as in fit, got 'x1', 'x0'"):
        model.predict(others)


# ---------------------------------------------------------------------- what goes wrong


def refused(words, rows, model=None):
    """Return the sentence; the estimator is as it was."""
    model = LDMClassifier() if model is None else model
    before = dict(vars(model))
    with pytest.raises((ValueError, TypeError), match=words) as caught:
        model.fit(rows)
    assert vars(model) == before
    sentence = str(caught.value)
    assert "\n" not in sentence and re.search(r"[.!?]$", sentence), sentence
    return sentence


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_a_value_that_is_not_finite_is_named(tmp_path, value):
    X, y, _ = problem(2)
    X[523, 2] = value
    made = {
        "npy": Partitions.from_npy(_saved(tmp_path / "Z.npy", X), y, rows_per_partition=150),
        "parquet": Partitions.from_parquet(_table(tmp_path / "z.parquet", X, y), "y", rows_per_partition=150),
    }
    assert f"got {value} in row 73, column 2" in refused("Z.npy, rows 450 to 599: expected finite numbers", made["npy"])
    refused(r"z.parquet, row group 5: expected finite numbers", made["parquet"])
    if np.isnan(value):
        LDMClassifier().fit(made["parquet"].encoded())  # which puts the mean in its place


def _saved(path, X):
    np.save(path, X)
    return path


def _table(path, X, y):
    pd.DataFrame(X, columns=[f"x{k}" for k in range(X.shape[1])]).assign(y=y).to_parquet(path, row_group_size=100)
    return path


def test_a_label_of_one_partition_alone_is_a_class_like_any_other(tmp_path):
    X, y, _ = problem(2)
    y[610:613] = 7
    X[610:613] += 4.0
    model = LDMClassifier(tol=1e-6).fit(Partitions.from_arrays(X, y, rows_per_partition=100))
    assert model.classes_.tolist() == [3, 4, 7]
    np.testing.assert_allclose(model.objective_, LDMClassifier(tol=1e-6).fit(X, y).objective_, rtol=2e-6)


def test_labels_that_are_no_classes(tmp_path):
    X, y, _ = problem(2)
    refused("needs samples of at least 2 classes.*only one class: 3", Partitions.from_arrays(X, np.full(len(y), 3)))
    refused(
        "partition 6: expected a label for every row, got nan in row 50",
        Partitions.from_arrays(X, np.where(np.arange(len(y)) == 650, np.nan, y), rows_per_partition=100),
    )
    mixed = [y[:300], y[300:].astype(str)]
    refused("labels of one kind, got text in one partition", Partitions.from_arrays([X[:300], X[300:]], mixed))
    refused("there are no labels; name a target", Partitions.from_arrays(X))
    refused("Unknown label type|continuous", Partitions.from_arrays(X, X[:, 0]))
    refused("all sample weights are zero", Partitions.from_arrays(X, y, np.zeros(len(y))))
    refused("partition 3: expected finite sample weights, none negative", Partitions.from_arrays(
        X, y, np.where(np.arange(len(y)) == 350, -1.0, 1.0), rows_per_partition=100))  # fmt: skip


def test_text_and_kernels_are_refused(tmp_path):
    X, y, _ = problem(2)
    table = pd.DataFrame(X).rename(columns=str).assign(colour="red")
    refused("the column 'colour' is text; make numbers of it: rows.encoded()", Partitions.from_arrays(table, y))
    refused(
        "kernel='rbf' without n_components needs rows in memory",
        Partitions.from_arrays(X, y),
        LDMClassifier(kernel="rbf"),
    )
    refused("outer='frozen'", Partitions.from_arrays(X, np.arange(len(X)) % 3), ODMClassifier(outer="frozen"))
    refused("solver='dcd' needs rows in memory", Partitions.from_arrays(X, y), LDMClassifier(solver="dcd"))


@pytest.mark.parametrize("what", ["vanishes", "is shortened", "is replaced"])
@pytest.mark.parametrize("name", ["npy", "parquet", "svmlight"])
def test_a_file_that_changes_during_a_fit_is_named(tmp_path, name, what):
    X, y, _ = problem(2)
    rows = in_files(tmp_path, X, y)[name]
    file = tmp_path / {"npy": "X.npy", "parquet": "table/b.parquet", "svmlight": "rows.svm"}[name]
    loads = [0]
    read = rows._source.read

    def disturbed(i):
        loads[0] += 1
        if loads[0] == 3 * rows.n_partitions:  # in the third pass
            content = file.read_bytes()
            file.unlink()
            if what != "vanishes":
                file.write_bytes(content[: len(content) // 2] if what == "is shortened" else content)
        return read(i)

    rows._source.read = disturbed
    words = {"vanishes": "has vanished", "is shortened": "when it was first read and has", "is replaced": "has changed"}
    refused(f"{file.name}: the file .*{words[what]}", rows)


@pytest.fixture
def interruptible():
    """Python's own answer to Ctrl-C: the command line, which other tests call, has another."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("interruptible")
def test_an_interrupted_fit_ends_at_once_and_leaves_the_model_as_it_was(tmp_path):
    X, y, _ = problem(2, n_rows=3000)
    rows = Partitions.from_npy(_saved(tmp_path / "X.npy", X), y, rows_per_partition=100)
    model = LDMClassifier(tol=1e-9).fit(rows)
    before = dict(vars(model))
    read = rows._source.read

    def slow(i):
        time.sleep(0.05)
        return read(i)

    rows._source.read = slow
    threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGINT)).start()
    begun = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        model.fit(rows)
    assert time.monotonic() - begun < 10.0
    assert vars(model) == before


def test_progress_is_said_per_pass(tmp_path):
    X, y, _ = problem(2)
    said = []
    LDMClassifier().fit(in_files(tmp_path, X, y)["npy"].watched(said.append, seconds=0.0))
    assert re.fullmatch(r"pass 1: 1 of 5 parts read \(\d+ s\)", said[0])
    assert said[4].startswith("pass 1: 5 of 5") and said[5].startswith("pass 2: 1 of 5")


# ---------------------------------------------------------------------- the command line


def test_the_command_line_fits_files_in_parts(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    X, y, _ = problem(2)
    rows = in_files(tmp_path, X, y)
    cases = {
        "parquet": ["table", "--target", "y"],
        "npy": ["X.npy", "--labels", "y.npy"],
        "svmlight": ["rows.svm", "--memory", "2GB"],
    }
    for name, data in cases.items():
        assert run(["fit", *data, "--method", "ldm", "--quick", "-o", f"{name}.model"]) == 0, capsys.readouterr().err
        captured = capsys.readouterr()
        assert "Parameters were chosen on 700 of 700 rows." in captured.out
        assert "Partitions of 700 rows" in captured.err
        model = load_model(f"{name}.model")
        assert model.score(pd.DataFrame(X, columns=rows["parquet"].feature_names) if name == "parquet" else X, y) > 0.8
        predicted = ["predict", f"{name}.model", data[0], "--memory", "2GB", "-o", "p.csv"]
        assert run(predicted) == 0, capsys.readouterr().err
        assert len(pd.read_csv("p.csv")) == 700
        capsys.readouterr()


def test_a_disk_that_takes_no_more_leaves_no_model(tmp_path):
    """Files of this process may have 200 bytes: what was written beside the model's place is gone again."""
    X, y, _ = problem(2)
    in_files(tmp_path, X, y)
    settings = "'--set', 'C=1', '--set', 'lambda1=1', '--set', 'lambda2=1'"
    script = (
        "import resource, signal, sys; from margindist.cli.app import run; import margindist.models; "
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN); resource.setrlimit(resource.RLIMIT_FSIZE, (200, 200)); "
        f"sys.exit(run(['fit', 'table', '--target', 'y', {settings}, '-o', 'm.model']))"
    )
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 1, done.stderr
    assert re.search(r"m.model: .*file too large", done.stderr.splitlines()[-1], flags=re.IGNORECASE), done.stderr
    assert not list(tmp_path.glob("*m.model*"))
