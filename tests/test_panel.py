"""The panel of benchmarks/panel.py: its own numbers agree with a model's, and what is worse is reported."""

import csv

import numpy as np
import pytest

import margindist
from benchmarks import panel
from benchmarks.panel_formulas import measured
from benchmarks.panel_problems import Problem, problems, rows_of, weights_of
from benchmarks.panel_references import reference
from benchmarks.panel_worker import record_of

PANEL = {problem.name: problem for problem in problems()}
CERTIFIED = ("LDMClassifier", "ODMClassifier", "LSSVMClassifier", "KOMDClassifier")
TINY = [
    problem for problem in PANEL.values() if problem.quick and problem.group in ("tiny", "odm classes", "mdo", "fmm")
]
PROBLEM = Problem("made up", "a class", "LDMClassifier", ("dense", 6, 2), {})
RECORD = {"value": [1.0], "gap": [1e-5], "objective": [1.0], "tol": 1e-4, "exact": True, "seconds": 2.0,
          "n_iter": 3, "warned": ""}  # fmt: skip


def test_every_classifier_has_problems():
    classifiers = {name for name in margindist.__all__ if "Classifier" in name}
    assert {problem.estimator for problem in PANEL.values()} == classifiers


def test_data_are_the_same_every_time_and_others_with_another_seed():
    for data in {problem.data for problem in PANEL.values() if problem.quick}:
        X, y = rows_of(data, 0)
        rows_of.cache_clear()
        again, labels = rows_of(data, 0)
        assert (again != X).sum() == 0 and np.array_equal(y, labels) and len(np.unique(y)) > 1
    drawn, _ = rows_of(("dense", 6, 2), 1)
    assert not np.array_equal(drawn, rows_of(("dense", 6, 2), 0)[0])
    assert problems(1)[0].parameters["C"] != problems(0)[0].parameters["C"]


@pytest.mark.parametrize("problem", TINY[::3], ids=lambda problem: problem.name)
def test_values_are_those_that_models_have(problem):
    record = record_of(problem, 0, 60.0)
    X, y = rows_of(problem.data, 0)
    model = getattr(margindist, problem.estimator)(**problem.parameters).fit(X, y, weights_of(problem, len(y), 0))
    if problem.estimator in CERTIFIED or problem.estimator == "MDOClassifier":
        assert record["value"] == pytest.approx(np.ravel(model.objective_), rel=1e-6)
    if problem.estimator in CERTIFIED:
        assert panel.is_proved(record)
        assert record["gap"] == pytest.approx(np.ravel(model.duality_gap_))
    if problem.estimator == "FMMClassifier":
        assert -record["value"][0] == pytest.approx(model.margin_)


def test_weights_count():
    X, y = rows_of(("dense", 12, 40), 0)
    times = np.arange(12) % 3 + 1.0
    model = margindist.LDMClassifier(C=1.0, lambda1=0.1, lambda_scale="relative").fit(X, y, sample_weight=times)
    repeated = np.repeat(np.arange(12), times.astype(int))
    weighted = measured("LDMClassifier", model, X, y, times)
    assert weighted == pytest.approx(measured("LDMClassifier", model, X[repeated], y[repeated], None))
    assert weighted[0] == pytest.approx(model.objective_)


@pytest.mark.parametrize(
    ("change", "kinds"),
    [
        ({"gap": [1e-2]}, ["lost"]),
        ({"value": [1.001]}, ["worse", "refuted"]),
        ({"objective": [1.0 + 5e-5], "value": [1.0 + 1e-5]}, ["refuted"]),
        ({"objective": [1.0 - 1.1e-5], "gap": [0.0]}, ["refuted"]),
        ({"seconds": 3.5}, ["slower"]),
    ],
)
def test_what_is_worse_is_reported(change, kinds):
    assert panel.judge([(PROBLEM, RECORD, RECORD)]).is_clean
    verdict = panel.judge([(PROBLEM, RECORD, RECORD | change)])
    every = ("lost", "won", "worse", "better", "refuted", "slower", "ended")
    assert [name for name in every if getattr(verdict, name)] == kinds
    assert not verdict.is_clean
    assert "made up" in "\n".join(panel.describe(verdict, [(PROBLEM, RECORD, RECORD | change)]))


def test_errors_and_fits_without_end_are_reported():
    for record in ({"error": "ValueError: no", "seconds": 0.0}, {"stopped": True, "seconds": 12.0}):
        assert not panel.judge([(PROBLEM, RECORD, record)]).is_clean
        assert panel.judge([(PROBLEM, record, RECORD)]).is_clean


def test_a_better_version_is_clean():
    better = RECORD | {"value": [0.9], "objective": [0.9], "seconds": 0.5}
    unproved = RECORD | {"gap": [0.5]}
    verdict = panel.judge([(PROBLEM, unproved, better)])
    assert verdict.is_clean and len(verdict.won) == len(verdict.better) == 1
    assert verdict.ratios == {"a class": [(0.25, "made up")]}


def test_gaps_without_objectives_of_their_own_claim_no_bound():
    """A joint problem of several classes ends in a local minimum, a search has a score for its value."""
    other = RECORD | {"objective": [], "value": [5.0], "gap": [0.0]}
    assert panel.judge([(PROBLEM, other, other)], {"made up": [0.9]}).is_clean


def test_values_that_others_have_reached_refute_a_certificate():
    assert panel.judge([(PROBLEM, RECORD, RECORD)], {"made up": [0.9]}).refuted


@pytest.mark.parametrize("estimator", ["LDMClassifier", "ODMClassifier", "LSSVMClassifier"])
def test_a_generic_solver_reaches_what_is_claimed(estimator):
    pytest.importorskip("clarabel")
    own = [problem for problem in TINY if problem.estimator == estimator and "bundled" not in problem.name]
    for problem in own[::4]:
        record, reached = record_of(problem, 0, 60.0), reference(problem)
        assert reached == pytest.approx(record["value"], rel=2e-3)
        assert not panel.judge([(problem, record, record)], {problem.name: reached}).refuted
        below = [value - 0.01 * abs(value) for value in reached]
        assert panel.judge([(problem, record, record)], {problem.name: below}).refuted


def test_a_worker_answers_by_name_and_survives_its_end(tmp_path):
    (tmp_path / "margindist").symlink_to(panel.ROOT / "margindist")
    worker = panel.Worker(panel.Version("here", tmp_path), 0, 60.0)
    name = TINY[0].name
    try:
        first = worker.ask(name)
        worker.end()
        assert worker.ask(name)["value"] == first["value"]
        assert "KeyError" in worker.ask("nobody's problem")["error"]
    finally:
        worker.end()


def test_quick_fits_are_timed_together(monkeypatch):
    """Where processor time is counted in steps of 4 ms, most quick fits take no time, and some take a step."""
    from benchmarks import panel_worker

    honest, calls = panel_worker.fit, []

    def fit(*args):
        model, said, _, compiled = honest(*args)
        calls.append(len(calls))
        return model, said, 0.004 * (len(calls) % 4 == 0), compiled

    monkeypatch.setattr(panel_worker, "fit", fit)
    assert record_of(TINY[0], 0, 60.0)["seconds"] == pytest.approx(0.001, rel=0.1)


def test_results_are_kept_and_read_again(monkeypatch, tmp_path):
    monkeypatch.setattr(panel, "RESULTS", tmp_path / "panel.json")
    stored = panel.read_results()
    panel.keep(stored, "abc", {"made up": RECORD | {"value": [1.0 / 3.0]}})
    panel.keep(stored, "def", {"made up": RECORD})
    again = panel.read_results()
    assert list(again["problems"]["made up"]) == ["abc", "def"]
    assert again["problems"]["made up"]["abc"]["value"] == [0.333333333333]
    assert again == stored


def test_rounding_in_the_file_refutes_nothing(monkeypatch, tmp_path):
    monkeypatch.setattr(panel, "RESULTS", tmp_path / "panel.json")
    gap = 6.6644e-5
    record = RECORD | {"gap": [gap], "value": [1.0 - gap]}  # as good as the bound allows
    panel.keep(panel.read_results(), "abc", {"made up": record})
    kept = panel.read_results()["problems"]["made up"]["abc"]
    assert panel.judge([(PROBLEM, kept, kept)]).is_clean


def test_a_mechanism_has_one_row(monkeypatch, tmp_path):
    monkeypatch.setattr(panel, "MECHANISMS", tmp_path / "mechanisms.csv")
    slower = panel.judge([(PROBLEM, RECORD, RECORD | {"seconds": 2.6})])
    same = panel.judge([(PROBLEM, RECORD, RECORD)])
    for name, verdict in (("corrector", slower), ("start", same), ("corrector", same)):
        panel.keep_row(panel.mechanism_row(name, 40, verdict, 1))
    assert panel.mechanism_row("corrector", 40, slower, 1)["verdict"] == "stays"
    with panel.MECHANISMS.open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [(row["mechanism"], row["verdict"]) for row in rows] == [("start", "goes"), ("corrector", "goes")]


def test_the_table_of_mechanisms_has_what_is_made():
    row = panel.mechanism_row("made up", 1, panel.judge([(PROBLEM, RECORD, RECORD)]), 1)
    with panel.MECHANISMS.open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert rows and list(rows[0]) == list(row)
    assert {each["verdict"] for each in rows} <= {"stays", "goes"}


def test_lines_of_code_are_neither_comments_nor_docstrings():
    source = (
        b'"""Head."""\n\n# why\nx = (\n    1,\n)\n\n\ndef f():\n    """Doc.\n\n    More.\n    """\n    return "text"\n'
    )
    assert panel._code_lines(source) == 5


def test_stored_results_are_those_of_the_panel():
    stored = panel.read_results()
    assert stored["revisions"]
    assert set(stored["problems"]) <= set(PANEL)
