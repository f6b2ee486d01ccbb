"""Compiled code on demand: what a process imports, and that NumPy and compiled code do the same."""

import os
import pickle
import shutil
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp

from margindist import compilation
from margindist.compilation import Compiled, njit
from margindist.objectives import LDM, ODM
from margindist.solvers import _interior_sweeps, interior_point, newton
from margindist.solvers._solution import Options, Problem
from margindist.spaces.rows import (
    _scores,
    add_rows,
    all_compiled,
    are_few,
    as_rows,
    gram,
    gram_diagonal,
    gram_product,
    inner_products,
    scatter,
    scores,
    some_scores,
    squares,
    weighted_system,
)

ROOT = Path(__file__).parent.parent


@pytest.mark.parametrize("classifier", ["LDMClassifier", "ODMClassifier"])
def test_a_first_fit_of_few_dense_rows_does_not_wait_for_numba(classifier):
    program = (
        "import sys\n"
        "from sklearn.datasets import load_breast_cancer\n"
        "from sklearn.preprocessing import scale\n"
        f"from margindist import {classifier}\n"
        "X, y = load_breast_cancer(return_X_y=True)\n"
        f"assert {classifier}().fit(scale(X), y).score(scale(X), y) > 0.95\n"
        "assert 'numba' not in sys.modules\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], env={**os.environ, "PYTHONPATH": str(ROOT)}, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("form", [np.asarray, sp.csr_array])
def test_rows_that_processes_share_are_compiled_for_once(form, rng):
    """They are read-only, which Numba takes for another type."""
    X = rng.normal(size=(4, 3))
    found, compiled = np.empty((2, 4)), []
    for out, writeable in zip(found, (True, False)):
        rows = form(X.copy())
        for array in (rows,) if form is np.asarray else (rows.data, rows.indices, rows.indptr):
            array.flags.writeable = writeable
        with all_compiled():
            scores(as_rows(rows), np.ones(3), out)
        compiled.append(len(_scores.dispatcher.signatures))
    np.testing.assert_allclose(found[0], X.sum(axis=1))
    assert np.array_equal(*found) and compiled[0] == compiled[1]


def test_compiling_ahead_leaves_nothing_to_numpy(rng):
    X = rng.normal(size=(2, 2))
    with all_compiled():
        assert not are_few(as_rows(X))
    assert are_few(as_rows(X))


def test_thousands_of_rows_do_not_wait_for_compiled_code():
    for shape, few in {(50_000, 30): True, (20_000, 100): True, (100_000, 30): False}.items():
        assert are_few(as_rows(np.zeros(shape))) == few
    for shape, few in {(20_000, 30): True, (50_000, 30): False}.items():
        assert are_few(as_rows(np.zeros(shape, dtype=np.float32))) == few


def few_and_many(function, rows):
    """What a function of rows returns when NumPy handles them, and when compiled code does."""
    return [function(rows._replace(few=few)) for few in (True, False)]


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("fit_intercept", [False, True])
def test_numpy_and_compiled_code_sum_the_same(rng, fit_intercept, dtype):
    rows = as_rows(rng.normal(size=(40, 3)).astype(dtype), fit_intercept)
    w, d = rng.normal(size=3 + fit_intercept), 3 + fit_intercept
    which, scales = np.array([5, 3, 5, 20]), np.array([1.0, 0.0, 2.0, -1.0])
    most, most_scales = rng.permutation(40)[:30], rng.normal(size=30)
    everything, weights, first = np.arange(40), rng.random(40) + 0.1, rng.normal(size=40)

    def sums(rows):
        scores(rows, w, z := np.empty(40))
        squares(rows, lengths := np.empty(40))
        system = weighted_system(rows, everything, weights, first, -first)
        mean = weights @ rows.X / weights.sum()
        return [
            z,
            lengths,
            some_scores(rows, which, w, np.empty(4)),
            add_rows(rows, which, scales, np.ones(d)),
            some_scores(rows, most, w, np.empty(30)),
            add_rows(rows, most, most_scales, np.ones(d)),
            np.tril(gram(rows, which, np.abs(scales))),
            np.tril(scatter(rows, everything, weights, mean)),
            np.tril(system[0]),
            *system[1:],
        ]

    for few, many in zip(*few_and_many(sums, rows), strict=True):
        assert few.shape == many.shape
        np.testing.assert_allclose(few, many, rtol=1e-6 if dtype == np.float32 else 1e-12, atol=1e-6)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("fit_intercept", [False, True])
@pytest.mark.parametrize("density", [0.05, 0.9])
def test_sparse_rows_are_multiplied_as_dense_ones_are(rng, density, fit_intercept, dtype):
    X = np.where(rng.random((60, 30)) < density, rng.normal(size=(60, 30)), 0.0).astype(dtype)
    which, weights = rng.permutation(60)[:50], rng.random(50) + 0.1
    first, w = rng.normal(size=50), rng.normal(size=30 + fit_intercept)
    sparse, dense = (
        [
            np.tril(gram(rows, which, weights)),
            np.tril((system := weighted_system(rows, which, weights, first, -first))[0]),
            *system[1:],
            inner_products(rows, which, which[:7]),
            gram_diagonal(rows, which, weights),
            gram_product(rows, which, weights, w, np.ones(len(w))),
            some_scores(rows, which, w, np.empty(50)),
            add_rows(rows, which, first, np.ones(len(w))),
        ]
        for rows in (as_rows(sp.csr_array(X), fit_intercept), as_rows(X, fit_intercept))
    )
    for one, other in zip(sparse, dense, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-12 if dtype is np.float64 else 1e-6, atol=1e-6)


@pytest.mark.parametrize(
    ("solver", "objective"),
    [
        (interior_point, LDM(1.0, 2.0, 3.0)),
        (interior_point, LDM(np.inf, 0.5, 0.5)),
        (newton, ODM(100.0, 0.3, 0.1)),
    ],
)
def test_numpy_and_compiled_code_take_the_same_steps(rng, solver, objective):
    X = rng.normal(size=(80, 4))
    signs = np.where(X @ np.ones(4) > 0.0, 1.0, -1.0)
    weights = rng.integers(1, 3, 80).astype(float)
    few, many = few_and_many(
        lambda rows: solver.solve(Problem(objective, rows, signs, weights), Options(1e-10)), as_rows(X)
    )
    assert few.status == many.status
    assert few.n_iter == many.n_iter
    np.testing.assert_allclose(few.coef, many.coef, rtol=1e-6)
    np.testing.assert_allclose(few.objective, many.objective, rtol=1e-9)


def test_a_compiled_function_is_pickled_by_its_name():
    assert isinstance(_interior_sweeps._room, Compiled)
    assert pickle.loads(pickle.dumps(_interior_sweeps._room)) is _interior_sweeps._room


def test_threads_share_one_compiled_function():
    function = njit(nogil=True)(lambda x: x + 1)
    seen = []
    threads = [threading.Thread(target=lambda: seen.append(function.dispatcher)) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(seen) == 8 and len(set(map(id, seen))) == 1


def test_who_waits_at_a_prompt_is_told_once_what_for(monkeypatch, capsys):
    monkeypatch.setattr(sys, "ps1", ">>> ", raising=False)
    monkeypatch.setattr(compilation, "lacks_file", lambda dispatcher: True)
    compilation._announce.cache_clear()
    for shift in (1, 2):
        assert njit()(lambda x, shift=shift: x + shift).dispatcher is not None
    assert capsys.readouterr().err.count("compiling, once") == 1


COMPILES = """
import sys, warnings
import numpy as np
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    from margindist.kernels import Kernel
    X = np.arange(12.0).reshape(4, 3)
    values = Kernel("rbf", gamma=0.01)(X, X)
print(round(float(values.sum()), 6), *[warning.message for warning in caught], sep="\\n")
"""


def _compiles(root, **named):
    """Return what a new process prints that compiles the package in a folder, or finds it compiled."""
    environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1", "PYTHONPATH": str(root), **named}
    ended = subprocess.run(
        [sys.executable, "-c", COMPILES], capture_output=True, text=True, timeout=300, env=environment, cwd=root
    )
    assert ended.returncode == 0, ended.stderr
    return ended.stdout.splitlines()


def test_without_a_folder_for_compiled_code_it_says_so_once_and_goes_on(tmp_path):
    package = Path(compilation.__file__).parent
    shutil.copytree(package, tmp_path / "margindist", ignore=shutil.ignore_patterns("__pycache__"))
    for folder in [tmp_path / "margindist", *(tmp_path / "margindist").glob("*/")]:
        (folder / "__pycache__").touch()  # a file in its place, as root may write everywhere
    nowhere = os.devnull + "/home"
    printed = _compiles(tmp_path, HOME=nowhere, XDG_CACHE_HOME=nowhere, LOCALAPPDATA=nowhere, NUMBA_CACHE_DIR="")
    (expected,) = _compiles(package.parent, NUMBA_CACHE_DIR=str(tmp_path / "cache"))
    assert printed[0] == expected and len(printed) == 2, printed
    assert "every process compiles anew; set the environment variable NUMBA_CACHE_DIR" in printed[1]


@pytest.mark.parametrize(
    "damage", [lambda data: data[: len(data) // 2], lambda data: b"", lambda data: bytes(len(data))]
)
def test_compiled_code_of_which_a_part_was_written_is_compiled_anew(tmp_path, damage):
    root = Path(compilation.__file__).parent.parent
    expected = _compiles(root, NUMBA_CACHE_DIR=str(tmp_path))
    files = [path for path in tmp_path.rglob("*") if path.suffix in (".nbi", ".nbc")]
    assert len(files) >= 2
    for suffix in (".nbi", ".nbc"):
        for path in files:
            if path.suffix == suffix:
                path.write_bytes(damage(path.read_bytes()))
        assert _compiles(root, NUMBA_CACHE_DIR=str(tmp_path)) == expected
    assert all(path.stat().st_size > 0 and path.read_bytes().strip(b"\0") for path in files)
