"""The benchmark of solver="auto": its problems are drawn from a seed, and its fits end."""

import numpy as np
import pytest

import margindist
from benchmarks import bench_auto
from benchmarks._measure import TimeLimit, time_limit


def problem():
    X = np.random.default_rng(0).standard_normal((60, 3))
    return X, np.where(X[:, 0] + X[:, 1] ** 2 > 0.5, 1, -1)


def test_a_seed_gives_the_same_problems():
    for number in range(6):
        first, second = (bench_auto.draw(np.random.default_rng([5, number])) for _ in range(2))
        assert first[:3] == second[:3] and (first[3] != second[3]).sum() == 0
    assert bench_auto.draw(np.random.default_rng([6, 0]))[0] != bench_auto.draw(np.random.default_rng([5, 0]))[0]


def test_ratio_is_to_the_quickest_proved_solver(monkeypatch):
    model = margindist.LDMClassifier().fit(*problem())
    rough = margindist.LDMClassifier().fit(*problem())
    rough.duality_gap_ = 1.0
    seconds = {"auto": 0.3, "interior-point": 0.1, "coordinate-descent": 0.05, "block": 0.05, "newton": 0.1}

    def fitted(objective, solver, *_):
        return bench_auto.Ended(rough if seconds[solver] == 0.05 else model, "", seconds[solver])

    monkeypatch.setattr(bench_auto, "fitted", fitted)
    row = bench_auto.compare(np.random.default_rng([3, 0]))
    assert row["ratio"] == pytest.approx(3.0) and row["proved"] == "yes"
    seconds["auto"] = 0.05
    assert bench_auto.compare(np.random.default_rng([3, 0]))["proved"] == "no: it said nothing"


def test_refusals_and_fits_without_end_have_their_sentence(monkeypatch):
    X, y = problem()
    ended = bench_auto.fitted("LDM", "auto", {"C": float("inf"), "kernel": "linear"}, X, y, 10.0)
    assert not ended.is_proved and ended.said.startswith("refused: LDMClassifier")

    def fit(self, X, y):
        while True:
            pass

    monkeypatch.setattr(margindist.LDMClassifier, "fit", fit)
    assert bench_auto.fitted("LDM", "auto", {}, X, y, 0.05).said == "still running after 0.05 s"


def test_an_interrupt_in_compiled_code_is_the_limit():
    with pytest.raises(TimeLimit), time_limit(10.0):
        raise SystemError("returned a result with an exception set") from TimeLimit()
