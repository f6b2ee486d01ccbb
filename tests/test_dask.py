"""Dask collections against a real cluster of processes: the same results as from memory, whatever happens to it."""

import multiprocessing
import os
import pickle
import signal
import threading
import time

import joblib
import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.base import clone
from sklearn.datasets import make_classification

from margindist import LDMClassifier, LDMClassifierCV, ODMClassifier, PUMMAClassifier
from margindist.dask import DaskPartitions, as_partitions, is_dask, persist
from margindist.spaces.cluster import ClusterError, ClusterPlace, runs
from margindist.spaces.partitions import Encoding, Round, drive

dask = pytest.importorskip("dask")
distributed = pytest.importorskip("distributed")
da = pytest.importorskip("dask.array")
dd = pytest.importorskip("dask.dataframe")
pd = pytest.importorskip("pandas")

_LENGTHS = (70, 0, 131, 1, 98)  # of chunks: unequal, and one empty


@pytest.fixture(scope="module")
def cluster():
    settings = {"distributed.worker.multiprocessing-method": "forkserver", "distributed.comm.timeouts.connect": "60s"}
    with dask.config.set(settings):
        _import_before_forking()
    with (
        dask.config.set(settings),
        distributed.LocalCluster(
            n_workers=3, threads_per_worker=1, processes=True, dashboard_address=None, memory_limit=0, silence_logs=50
        ) as made,
    ):
        yield made


def _import_before_forking():
    """Have workers start with everything imported: three of them would do it at the same time."""
    from distributed import utils

    if hasattr(utils, "get_mp_context"):
        utils.get_mp_context()  # sets its own list when first called
    names = ["distributed", "dask.array", "dask.dataframe", "margindist.estimators.ldm", "margindist.estimators.odm"]
    multiprocessing.get_context("forkserver").set_forkserver_preload(names)


@pytest.fixture
def client(cluster):
    with distributed.Client(cluster, timeout=60) as connected:
        connected.wait_for_workers(3, timeout=60)
        yield connected


@pytest.fixture(scope="module")
def problem():
    X, y = make_classification(300, 8, n_informative=5, n_classes=3, random_state=0)
    return X, np.array(["ash", "beech", "oak"])[y]


def _chunked(X, lengths=_LENGTHS):
    return da.from_array(X, chunks=(lengths, *((n,) for n in X.shape[1:])))


def _frame(X, y, n_partitions):
    frame = pd.DataFrame(X, columns=[f"x{j}" for j in range(X.shape[1])])
    whole = dd.from_pandas(frame.assign(label=y), npartitions=n_partitions)
    return whole[list(frame.columns)], whole["label"], frame


# ---------------------------------------------------------------------- prediction


@pytest.mark.parametrize("n_classes", [2, 3])
def test_predictions_of_collections_are_lazy_and_equal_those_of_arrays(client, problem, n_classes):
    X, y = problem
    y = y if n_classes == 3 else np.where(y == "oak", "oak", "other")
    model = LDMClassifier().fit(X, y)
    labels, scores = model.predict(X), model.decision_function(X)
    for rows in (_chunked(X), _chunked(X).map_blocks(sp.csr_matrix)):
        lazy = model.decision_function(rows)
        assert isinstance(lazy, da.Array) and lazy.shape == scores.shape
        assert model.predict(rows).dtype == labels.dtype
        np.testing.assert_allclose(lazy.compute(), scores, rtol=1e-12, atol=1e-12)
        np.testing.assert_array_equal(model.predict(rows).compute(), labels)
        assert model.score(rows, _chunked(y)) == pytest.approx(model.score(X, y), abs=1e-15)
    rows, answers, frame = _frame(X, y, 4)
    named = LDMClassifier().fit(frame, y)
    np.testing.assert_array_equal(named.predict(rows).compute(), labels)
    np.testing.assert_allclose(named.decision_function(rows).compute(), scores, rtol=1e-12, atol=1e-12)
    weights = dd.from_pandas(pd.Series(np.arange(300.0)), npartitions=4)
    assert named.score(rows, answers, weights) == pytest.approx(model.score(X, y, np.arange(300.0)), abs=1e-15)


def test_lists_of_delayed_partitions_and_of_futures(client, problem):
    X, y = problem
    model = LDMClassifier().fit(X, y)
    delayed = [dask.delayed(X[:100]), dask.delayed(X[100:])]
    np.testing.assert_array_equal(np.concatenate(dask.compute(*model.predict(delayed))), model.predict(X))
    futures = client.scatter([X[:100], X[100:]])
    answers = client.scatter([y[:100], y[100:]])
    assert model.score(futures, answers) == pytest.approx(model.score(X, y), abs=1e-15)


def test_a_row_is_predicted_without_a_cluster(problem):
    X, y = problem
    model = LDMClassifier().fit(X, y)
    with dask.config.set(scheduler="synchronous"):
        np.testing.assert_array_equal(model.predict(_chunked(X)).compute(), model.predict(X))


# ---------------------------------------------------------------------- fits


def _problem_of(n_classes, rng):
    X = rng.random((600, 6))
    scores = X @ rng.normal(size=(6, n_classes)) + 0.3 * rng.normal(size=(600, n_classes))
    return X, np.array([f"class {k}" for k in range(n_classes)])[(scores - scores.mean(axis=0)).argmax(axis=1)]


@pytest.mark.parametrize(
    ("make", "n_classes", "lengths", "kind", "weighted"),
    [
        (LDMClassifier, 2, (600,), "dense", True),
        (LDMClassifier, 2, (200, 0, 1, 399), "CSR", True),
        (LDMClassifier, 2, (12,) * 50, "dense", False),
        (LDMClassifier, 7, (200, 150, 250), "CSR", False),
        (LDMClassifier, 7, (150,) * 4, "frame", False),
        (ODMClassifier, 2, (200, 0, 1, 399), "dense", True),
        (ODMClassifier, 2, (12,) * 50, "CSR", False),
        (ODMClassifier, 3, (200, 0, 1, 399), "CSR", True),
        (ODMClassifier, 7, (150,) * 4, "dense", False),
    ],
)
def test_a_fit_on_a_cluster_finds_the_optimum_in_memory(client, rng, make, n_classes, lengths, kind, weighted):
    X, y = _problem_of(n_classes, rng)
    weights = rng.integers(0, 3, 600).astype(float) if weighted else None
    model = make(tol=1e-7, random_state=0)
    expected = clone(model).fit(X, y, weights)
    if kind == "frame":
        rows, labels, X = _frame(X, y, len(lengths))
    else:
        rows, labels = _chunked(X, lengths), _chunked(y, lengths)
    if kind == "CSR":
        rows = rows.map_blocks(sp.csr_matrix)
    fitted = model.fit(rows, labels, None if weights is None else _chunked(weights, lengths))
    assert np.max(fitted.duality_gap_) <= fitted.tol
    np.testing.assert_allclose(fitted.objective_, expected.objective_, rtol=1e-6)
    sure = slice(None)
    if make is ODMClassifier and n_classes > 2:  # the minimum of the joint problem has rows at which two classes tie
        sure = np.ptp(np.sort(expected.decision_function(X), axis=1)[:, -2:], axis=1) > 1e-3
    np.testing.assert_array_equal(fitted.predict(X)[sure], expected.predict(np.asarray(X))[sure])
    assert fitted.coef_.shape == expected.coef_.shape and type(fitted.coef_) is np.ndarray
    if kind == "frame":
        assert list(fitted.feature_names_in_) == list(X.columns)
        assert fitted.score(rows, labels) == pytest.approx(expected.score(np.asarray(X), y), abs=1e-15)


@pytest.mark.parametrize("make", [LDMClassifier, ODMClassifier])
def test_fits_have_the_same_bits_for_one_two_and_three_workers(client, rng, make):
    X, y = _problem_of(2, rng)
    addresses = sorted(client.nthreads())
    found = set()
    for n_workers in (1, 2, 3):
        rows, labels = (_scattered(client, values, 7, addresses[:n_workers]) for values in (X, y))
        found.add(make(random_state=0).fit(rows, labels).coef_.tobytes())
    found.add(
        make(random_state=0).fit(*persist(*(_chunked(v, (86, 86, 86, 86, 86, 85, 85)) for v in (X, y)))).coef_.tobytes()
    )
    assert len(found) == 1


def test_nystroem_features_are_made_on_the_workers(client, rng):
    X, y = _problem_of(2, rng)
    model = LDMClassifier(kernel="rbf", n_components=20, tol=1e-7, random_state=0)
    expected = clone(model).fit(X, y)
    lengths = (200, 0, 1, 399)
    fitted = model.fit(_chunked(X, lengths), _chunked(y, lengths))
    assert fitted.objective_ == pytest.approx(expected.objective_, rel=1e-6)
    np.testing.assert_array_equal(fitted.support_, expected.support_)
    np.testing.assert_array_equal(fitted.predict(_chunked(X, lengths)).compute(), expected.predict(X))


def test_many_columns_on_a_cluster(client, rng):
    X = rng.random((200, 6000)) * (rng.random((200, 6000)) < 0.01)
    y = (X @ rng.normal(size=6000) > 0).astype(int)
    expected = LDMClassifier(tol=1e-7).fit(sp.csr_matrix(X), y)
    rows = _chunked(X, (90, 0, 110)).map_blocks(sp.csr_matrix)
    fitted = LDMClassifier(tol=1e-5).fit(rows, _chunked(y, (90, 0, 110)))
    assert fitted.solver_ == "augmented-lagrangian" and fitted.duality_gap_ <= 1e-5
    assert fitted.objective_ == pytest.approx(expected.objective_, rel=1e-5)


def test_a_fitted_model_pickles_without_a_client(client, rng):
    X, y = _problem_of(2, rng)
    model = LDMClassifier().fit(DaskPartitions(_chunked(X, (300, 300)), client=client), _chunked(y, (300, 300)))
    stored = pickle.dumps(model)
    client.close()
    np.testing.assert_array_equal(pickle.loads(stored).predict(X), model.predict(X))


def test_classes_may_be_given(client, rng):
    X, y = _problem_of(2, rng)
    lengths = (300, 300)
    known = DaskPartitions(_chunked(X, lengths), classes=["class 0", "class 1", "class 9"])
    model = LDMClassifier().fit(known, _chunked(y, lengths))
    assert model.classes_.tolist() == ["class 0", "class 1", "class 9"]
    assert set(model.predict(X)) <= {"class 0", "class 1"}
    few = DaskPartitions(_chunked(X, lengths), classes=["class 0", "class 2"])
    _raises("expected labels among the classes given, got .'class 1'. in y too", model.fit, few, _chunked(y, lengths))
    one = DaskPartitions(_chunked(X, lengths))
    _raises("y contains only one class", model.fit, one, _chunked(np.full(600, "a"), lengths))


@pytest.mark.skipif(os.name != "posix", reason="kills a process")
@pytest.mark.parametrize("persisted", [False, True])
@pytest.mark.parametrize("moment", ["survey", "first rounds", "last rounds"])
def test_a_worker_that_dies_during_a_fit(client, rng, moment, persisted, monkeypatch):
    X, y = _problem_of(2, rng)
    collections = [_chunked(values, (150, 150, 150, 150)) for values in (X, y)]
    if persisted:  # the scheduler, which has the arrays in its graph, computes them again
        collections = [collection.persist() for collection in collections]
    at = {"survey": 0, "first rounds": 3, "last rounds": 25}[moment]
    run, calls = ClusterPlace.run, []

    def run_and_kill(place, requests):
        if len(calls) == at:
            address = sorted(place._shares)[0]
            (process,) = client.run(os.getpid, workers=[address]).values()
            os.kill(process, signal.SIGKILL)
        calls.append(place)
        return run(place, requests)

    monkeypatch.setattr(ClusterPlace, "run", run_and_kill)
    model = LDMClassifier(tol=1e-7, random_state=0)
    expected = clone(model).fit(X, y)
    model.fit(*collections)
    assert len(calls) > at and 1 <= calls[-1]._n_losses <= 2  # the scheduler may not know yet when shares open anew
    assert model.duality_gap_ <= 1e-7
    assert model.objective_ == pytest.approx(expected.objective_, rel=1e-6)
    np.testing.assert_array_equal(model.predict(X), expected.predict(X))


@pytest.mark.skipif(os.name != "posix", reason="kills a process")
def test_rows_that_nobody_can_compute_again(client, rng, monkeypatch):
    X, y = _problem_of(2, rng)
    address = sorted(client.nthreads())[0]
    rows, labels = (_scattered(client, values, 2, [address]) for values in (X, y))
    run = ClusterPlace.run

    def kill_and_run(place, requests):
        (process,) = client.run(os.getpid, workers=[address]).values()
        os.kill(process, signal.SIGKILL)
        return run(place, requests)

    monkeypatch.setattr(ClusterPlace, "run", kill_and_run)
    _raises(
        "but some were scattered, or their graph is forgotten", LDMClassifier().fit, rows, labels, error=ClusterError
    )


def test_a_client_that_closes_during_a_fit(client, rng, monkeypatch):
    X, y = _problem_of(2, rng)
    run = ClusterPlace.run

    def close_and_run(place, requests):
        client.close()
        return run(place, requests)

    monkeypatch.setattr(ClusterPlace, "run", close_and_run)
    fitted = LDMClassifier().fit(X, y)
    before = fitted.coef_
    sentence = "expected a Dask client that stays open during the fit, but it is clos"
    _raises(sentence, fitted.fit, _chunked(X, (600,)), _chunked(y, (600,)), error=ClusterError)
    assert fitted.coef_ is before


def test_choices_that_need_rows_in_memory(client, problem):
    X, y = problem
    for model in (LDMClassifier(kernel="rbf"), LDMClassifier(solver="dcd"), LDMClassifierCV()):
        _raises("needs rows in memory", model.fit, _chunked(X), _chunked(y), error=TypeError)


def test_searches_and_comparisons_run_on_a_cluster_through_joblib(client, problem):
    X, y = problem
    search = LDMClassifierCV(Cs=[0.1, 1.0], lambda1s=[0.1], lambda2s=[0.1], cv=3)
    here = clone(search).fit(X, y)
    with joblib.parallel_config(backend="dask"):
        there = clone(search).fit(X, y)
    assert there.best_params_ == here.best_params_ and there.best_score_ == here.best_score_
    np.testing.assert_array_equal(there.predict(X), here.predict(X))


# ---------------------------------------------------------------------- bad input


def _raises(sentence, call, *args, error=ValueError):
    with pytest.raises(error, match=sentence):
        call(*args)


def test_collections_that_are_no_tables_of_numbers_are_refused_before_anything_is_computed(problem):
    X, y = problem
    model = LDMClassifier().fit(X, y)
    rows, labels, _ = _frame(X, y, 3)
    _raises(r"got 2 chunks side by side; use X.rechunk\(\{1: -1\}\)", model.predict, da.ones((8, 8), chunks=(4, 4)))
    _raises("X has 5 features, but LDMClassifier is expecting 8", model.predict, da.ones((8, 5), chunks=(4, 5)))
    _raises("got a Dask array of 1 dimensions", model.predict, da.ones(8, chunks=4))
    _raises("expected X of numbers, got a Dask array of <U", model.predict, _chunked(X).astype(str))
    _raises("got 'label' .*; encode them", model.predict, rows.assign(label=labels))
    _raises("got a Dask Series", model.predict, labels, error=TypeError)
    _raises("needs rows in memory, got Array", PUMMAClassifier().fit, _chunked(X), _chunked(y), error=TypeError)
    _raises("expected a Dask array or dataframe", DaskPartitions, X, error=TypeError)


def test_labels_and_weights_must_lie_beside_the_rows(client, problem):
    X, y = problem
    rows, labels, score = _chunked(X), _chunked(y), LDMClassifier().fit(X, y).score
    _raises("y as a Dask collection with the chunks of X, got ndarray", score, rows, y, error=TypeError)
    _raises("sample_weight as a Dask collection", score, rows, labels, np.ones(300), error=TypeError)
    _raises(r"y in 5 partitions like X, got 3; use y.rechunk\(\(X.chunks", score, rows, labels.rechunk(100))
    shifted = da.ones(300, chunks=((71, 0, 130, 1, 98),))
    _raises("sample_weight with the chunks of X, got 71 instead of 70 .* partition 0", score, rows, labels, shifted)
    _raises("y with one dimension, got a Dask Array of 2", score, rows, labels[:, None])
    frame_rows, frame_labels, _ = _frame(X, y, 3)
    _raises("y in 3 partitions like X, got 2", score, frame_rows, frame_labels.repartition(npartitions=2))
    other = frame_labels.repartition(divisions=(0, 50, 250, 299))
    _raises("y with the divisions of X", score, frame_rows, other)
    unknown = [dask.delayed(part) for part in (y[:70], y[:0], y[:1], y[:1], y[:98])]  # lengths that nobody knows before
    _raises("partition 2: expected one of the labels per row, got shape .1,. for 131", score, rows, unknown)


def test_values_that_are_not_finite_are_named_with_their_partition(client, problem):
    X, y = problem
    broken = X.copy()
    broken[80, 3] = np.nan
    score = LDMClassifier().fit(X, y).score
    _raises("partition 2: expected finite numbers, got nan in row 10, column 3", score, _chunked(broken), _chunked(y))


def test_partitions_with_fewer_columns_are_refused(client, problem):
    X, y = problem
    parts = [dask.delayed(X[:100]), dask.delayed(X[100:, :3])]
    words = f"the same number of columns in all partitions, got from 3 to {X.shape[1]}"
    _raises(words, LDMClassifier().fit, parts, [dask.delayed(y[:100]), dask.delayed(y[100:])])


def test_a_client_that_is_closed_asynchronous_or_of_another_version(client, problem, monkeypatch):
    X, y = problem
    rows, labels, model = _chunked(X), _chunked(y), LDMClassifier().fit(X, y)
    found = client.get_versions(packages=["margindist"])
    next(iter(found["workers"].values()))["packages"]["margindist"] = "0.0.1"
    with monkeypatch.context() as changed:
        changed.setattr(client, "get_versions", lambda **_: found)
        _raises("on all Dask workers, as here, but tcp.* has 0.0.1; install", model.score, rows, labels)
    with monkeypatch.context() as changed:
        changed.setattr(type(client), "asynchronous", True)
        _raises("expected a synchronous Dask client", model.score, rows, labels)
    client.close()
    _raises("expected an open Dask client, but it is closed", model.score, DaskPartitions(rows, client=client), labels)


def test_no_client_at_all(problem):
    X, y = problem
    model = LDMClassifier().fit(X, y)
    _raises("expected a Dask client for rows in a Dask collection, found none", model.score, _chunked(X), _chunked(y))


def test_what_is_not_dask_is_left_alone():
    X = np.ones((2, 2))
    assert as_partitions(X) is None
    assert not any(map(is_dask, (X, X.tolist(), [], pd.DataFrame(X), sp.csr_matrix(X))))


# ---------------------------------------------------------------------- the place


class _Moments:
    """A part with state: gradient descent on squares, and the process that it lives in."""

    def __init__(self, rows, targets, weights):
        self.signs = 2.0 * (targets == 0) - 1.0
        self.weights = weights
        self.visits = 0

    def gradient(self, rows, w, pause):
        time.sleep(pause)
        self.visits += 1
        residual = rows.X @ w - self.signs
        return {"gradient": rows.X.T @ (self.weights * residual), "visits_min": self.visits, "processes": [os.getpid()]}


def _descend(pause=0.0, seen=None):
    def begin(k, start):
        w = np.zeros(8) if start is None else start
        for _ in range(20):
            found = yield Round("gradient", (w, pause), w)
            w = w - 1e-3 * found["gradient"]
            if seen is not None:
                seen.append(found)
        return w

    return begin


def _scattered(client, values, n_partitions, addresses):
    """Return futures of partitions that lie on the workers in turn."""
    parts = np.array_split(values, n_partitions)
    return [client.scatter(part, workers=[addresses[i % len(addresses)]], hash=False) for i, part in enumerate(parts)]


def _opened(rows, y, labels=None, timeout=60):
    place = DaskPartitions(rows, timeout=timeout).place(_chunked(y) if labels is None else labels)
    place.encode(Encoding(np.unique(y), np.ones(3), False))
    return place


def test_runs_of_neighbours_end_at_subtrees():
    assert runs(4, {"b": 1, "a": 1}) == ["a", "a", "b", "b"]
    assert runs(6, {"a": 1, "b": 2}) == ["a", "a", "b", "b", "b", "b"]
    assert runs(2, {"a": 1, "b": 1, "c": 1})[0] == "a"
    assert runs(50, {"a": 1, "b": 1}).count("a") == 24


@pytest.mark.parametrize("n_partitions", [1, 7, 50])
def test_the_same_bits_for_one_two_and_three_workers(client, problem, n_partitions):
    X, y = problem
    addresses = sorted(client.nthreads())
    found, processes = set(), []
    for n_workers in (1, 2, 3):
        rows = _scattered(client, X, n_partitions, addresses[:n_workers])
        place = _opened(rows, y, _scattered(client, y, n_partitions, addresses))
        seen = []
        found.add(drive(place, _Moments, [()], _descend(seen=seen))[0].tobytes())
        processes.append(len(set(seen[-1]["processes"])))
        place.close()
    assert len(found) == 1
    assert n_partitions == 1 or processes == [1, 2, 3]


def test_data_stay_where_they_are(client, problem):
    X, y = problem
    address = sorted(client.nthreads())[1]
    rows = client.persist(_chunked(X), workers=[address])
    place = _opened(rows, y)
    drive(place, _Moments, [()], _descend())
    holders = client.who_has(rows)
    assert set(map(tuple, holders.values())) == {(address,)}
    assert list(place._shares) == [address]
    place.close()


@pytest.mark.skipif(os.name != "posix", reason="kills a process")
def test_rows_and_state_of_a_dead_worker_are_made_anew(client, problem):
    X, y = problem
    seen, place = [], _opened(_chunked(X), y)

    def kill():
        while len(seen) < 8:
            time.sleep(0.01)
        os.kill(seen[-1]["processes"][0], signal.SIGKILL)

    killer = threading.Thread(target=kill)
    killer.start()
    w = drive(place, _Moments, [()], _descend(0.05, seen))[0]
    killer.join()
    place.close()
    assert 20 < len(seen) <= 40  # begun again, from the last weights
    expected = drive(undisturbed := _opened(_chunked(X), y), _Moments, [()], _descend())[0]
    undisturbed.close()
    assert np.linalg.norm(w) > np.linalg.norm(expected)  # more steps from zero on lead further


def test_a_client_that_closes_and_a_worker_that_does_not_answer(client, problem):
    X, y = problem
    place = _opened(_chunked(X), y)
    place._timeout = 0.6  # enough for no round below, while making the place may take longer on a busy machine
    with pytest.raises(ClusterError, match=r"waited 0.6 seconds for a worker's answer.*margindist.timeout"):
        drive(place, _Moments, [()], _descend(2.0))
    place = _opened(_chunked(X), y)
    threading.Timer(0.3, client.close).start()
    with pytest.raises(ClusterError, match="expected a Dask client that stays open during the fit, but it is clos"):
        drive(place, _Moments, [()], _descend(0.1))
    place.close()
