"""Cells of the papers' experiments: repeatable, equal to plain scikit-learn, resumable; what reports say."""

import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import MappingProxyType

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.metrics import pairwise_distances
from sklearn.model_selection import GridSearchCV, StratifiedKFold
from sklearn.preprocessing import MinMaxScaler, minmax_scale
from sklearn.svm import SVC

from margindist import FMMClassifier, KOMDClassifier, LDMClassifier, LDMClassifierCV, MAMClassifier
from margindist.cli.app import run
from margindist.datasets import load
from margindist.estimators._search import SharedSearch
from margindist.methods import search
from margindist.runs.runner import CannotRun
from margindist.runs.store import Cell, Result, Store
from reproduction import figures, protocol
from reproduction.claims import disagreements, duel, verdicts
from reproduction.command import reproduce as command
from reproduction.data_pages import TABLES, data_page
from reproduction.declarations import experiments
from reproduction.findings import findings
from reproduction.protocol import evaluate, seeds_of, split_rows
from reproduction.report import html, index_blocks, markdown, page_blocks, write_reports
from reproduction.run import (
    estimates,
    overview,
    plan,
    quick_plan,
    repeat,
    reproduce,
    select,
)

ROOT = Path(__file__).parent.parent


def _few_rows(monkeypatch, n=90, scaled=False):
    """A data set with few rows under every name, so that cells take no time."""
    full = load("wdbc")
    rows = np.random.default_rng(0).permutation(len(full.y))[:n]
    X = full.X[rows, :6]
    small = replace(full, X=minmax_scale(X) if scaled else X, y=full.y[rows])
    monkeypatch.setattr(protocol, "_loaded", lambda name, data_dir: small)
    return small


# ---------------------------------------------------------------------- one cell


@pytest.mark.parametrize("method", ["svm", "ldm-c-over-m", "mdo", "kmomd"])
def test_a_cell_comes_out_the_same_twice(method):
    cell = Cell("ldm-table-2", "wdbc", method, 3)
    first, second = evaluate(cell), evaluate(cell)
    assert first.score == second.score
    assert first.parameters == second.parameters
    assert (first.seed, first.checksum) == (second.seed, second.checksum)


def test_a_cell_is_what_plain_scikit_learn_computes(monkeypatch):
    data = _few_rows(monkeypatch)
    experiment, cell = experiments()["ldm-table-3"], Cell("ldm-table-3", "wdbc", "svm", 0)
    seeds = seeds_of(experiment, cell)
    rows = np.random.default_rng(seeds.rows).permutation(90)
    train, test = rows[:45], rows[45:]
    scaler = MinMaxScaler().fit(data.X[train])
    X, X_test = scaler.transform(data.X[train]), scaler.transform(data.X[test])
    distance = pairwise_distances(X)[np.triu_indices(45, 1)].mean()
    grid = {"C": [10, 50, 100], "gamma": [1 / (2 * (2.0**k * distance) ** 2) for k in range(-2, 3)]}
    model = LDMClassifier(lambda1=0, lambda2=0, kernel="rbf", fit_intercept=False)
    folds = StratifiedKFold(5, shuffle=True, random_state=seeds.folds)
    expected = GridSearchCV(model, grid, cv=folds).fit(X, data.y[train])
    found = evaluate(cell)
    assert found.score == expected.score(X_test, data.y[test])
    assert found.parameters.keys() >= {"C", "gamma"}
    for name, value in expected.best_params_.items():
        assert found.parameters[name] == pytest.approx(value, rel=1e-12)
    assert found.detail["cv_score"] == pytest.approx(expected.best_score_, abs=1e-6)


def test_splits_are_shared_by_methods_tables_and_figures_and_differ_from_each_other():
    table, figure = experiments()["ldm-table-2"], experiments()["ldm-figure-1"]
    cells = [Cell("ldm-table-2", "vote", method, 1) for method in ("svm", "ldm")]
    assert (
        seeds_of(table, cells[0]) == seeds_of(table, cells[1]) == seeds_of(figure, Cell("ldm-figure-1", "vote", "x", 1))
    )
    assert seeds_of(table, cells[0]) != seeds_of(table, cells[0]._replace(split=2))
    assert seeds_of(table, cells[0]) != seeds_of(table, cells[0]._replace(dataset="house"))


def test_published_splits_come_first_and_drawn_ones_have_the_printed_sizes():
    table = experiments()["mamc-table-2"]
    line = table.dataset("heart")
    published = [(np.arange(170), np.arange(170, 270))]
    assert split_rows(table, line, 0, 270, published, 0) is published[0]
    train, test = split_rows(table, line, 1, 270, published, 0)
    assert (len(train), len(test)) == (170, 100)
    assert len(np.union1d(train, test)) == 270


def test_parameters_may_be_chosen_on_fewer_rows(monkeypatch):
    _few_rows(monkeypatch)
    cell = Cell("ldm-table-2", "wdbc", "svm", 0)
    assert "search_rows" not in evaluate(cell, search_rows=1000).detail
    assert evaluate(cell, search_rows=20).detail["search_rows"] == 20
    found = evaluate(Cell("ldm-table-2", "wdbc", "svm-c-over-m", 0), search_rows=20)
    assert found.parameters["C"] in [C / 45 for C in (10, 50, 100)]  # of all 45 rows, as in the folds


@pytest.mark.parametrize(
    ("experiment", "method", "chosen", "used"),
    [
        ("mcodm-table-2", "mcodm", {"lam": 16.0, "mu": 0.2, "theta": 0.8}, {"lam": 48.0, "mu": 0.2, "theta": 0.8}),
        ("mcodm-table-2", "ovasvm", {"C": 16.0}, {"C": 16.0}),
        ("ldm-table-2", "svm-c-over-m", {"C": 50 / 72}, {"C": 50 / 72}),
    ],
)
def test_what_is_chosen_on_few_rows_keeps_the_weight_of_a_row(experiment, method, chosen, used):
    few, X = np.zeros((24, 3)), np.zeros((72, 3))
    assert protocol._for_all_rows(experiments()[experiment].method(method), chosen, few, X) == pytest.approx(used)


def test_nothing_is_compiled_while_a_cell_is_timed(monkeypatch):
    X, y = load("wdbc").X[:60], load("wdbc").y[:60]
    fits = []

    class Chooser:
        folds = 2

        def __call__(self, method, X, y):
            fits.append(sp.issparse(X))

    monkeypatch.setattr(protocol, "_WARM", set())
    table = experiments()["pumma-table-1"]
    for rows in (X, X[:50], sp.csr_array(X)):
        parts = protocol.Parts(rows, y[: rows.shape[0]], rows[:0], y[:0], "", False)
        protocol._warm_up(table, table.method("pumma"), parts, Chooser())
    assert fits == [False, True]  # the code for sparse rows is another one


def test_what_cannot_run_says_why(monkeypatch, tmp_path):
    with pytest.raises(CannotRun, match=r"1,000 rows are more than the limit of 500"):
        evaluate(Cell("ldm-table-2", "german", "svm", 0), max_rows=500)
    with pytest.raises(CannotRun, match="linear kernel only"):
        evaluate(Cell("ldm-table-3", "wdbc", "mdo", 0))
    monkeypatch.setattr(protocol, "load", lambda name, data_dir: (_ for _ in ()).throw(protocol.DataError("not here.")))
    protocol._loaded.cache_clear()
    with Store(tmp_path / "results.sqlite") as store:
        summary = reproduce(
            select(["ldm-table-2"]), output=tmp_path, only=["sonar/svm"], splits=1, jobs=1, say=lambda text: None
        )
        assert summary.skipped == 1
        assert store.results()[0].error == "not here."
    monkeypatch.setattr(protocol, "_ABSENT", {})


def test_figures_measure_what_they_show(monkeypatch):
    _few_rows(monkeypatch)
    margins = evaluate(Cell("ldm-figure-1", "wdbc", "ldm", 0)).detail["quantiles"]
    assert len(margins) == 101
    assert margins == sorted(margins)
    curves = evaluate(Cell("ldm-figure-3", "wdbc", "ldm-c-over-m", 0)).detail["influence"]
    assert {name: len(curve["accuracy"]) for name, curve in curves.items()} == {"lambda1": 7, "lambda2": 7, "C": 3}
    timed = evaluate(Cell("mamc-table-3", "heart", "mamc-b", 90))
    assert timed.score == pytest.approx(
        timed.fit_seconds + timed.predict_seconds + timed.detail["search_seconds"], abs=1e-3
    )


def test_online_learners_reach_the_margin_of_the_hard_margin_machine(monkeypatch):
    _few_rows(monkeypatch, scaled=True)
    found = {m: evaluate(Cell("pumma-table-1", "ionosphere", m, 0)) for m in ("svm-light", "pumma", "romma")}
    best = found["svm-light"].detail["margin"]
    assert 0.985 * best <= found["pumma"].detail["margin"] <= best * (1 + 1e-4)
    assert 0.9 * best <= found["romma"].detail["margin"] <= best * (1 + 1e-4)


def test_a_figure_takes_the_choice_of_its_table(monkeypatch, tmp_path):
    _few_rows(monkeypatch)
    store = tmp_path / "results.sqlite"
    cell = Cell("ldm-table-2", "wdbc", "ldm", 0)
    with Store(store) as opened:
        opened.record(evaluate(cell))
    calls = []
    monkeypatch.setattr(protocol._Chooser, "_search", lambda *arguments: calls.append(1))
    figure = evaluate(Cell("ldm-figure-1", "wdbc", "ldm", 0), store=str(store))
    assert not calls
    with Store(store) as opened:
        assert figure.parameters == opened.result(cell).parameters


# ---------------------------------------------------------------------- searches that share work


@pytest.mark.parametrize(
    "model, grid",
    [
        (MAMClassifier(kernel="rbf"), {"gamma": [0.1, 1.0, 10.0], "slope": [0.2, 1.0, 2.0]}),
        (MAMClassifier(kernel="rbf", gamma=2.0), {"slope": [0.2, 1.0, 2.0]}),
        (MAMClassifier(kernel="rbf", bias="mean"), {"gamma": [0.1, 1.0, 10.0]}),
        (FMMClassifier(), {"step": [2.0**-8, 0.5, 1.0], "max_iter": [50, 100, 400]}),
        (
            FMMClassifier(kernel="rbf", fit_intercept=False),
            {"gamma": [0.3, 30.0], "step": [0.1, 1.0], "max_iter": [50, 200]},
        ),
        (FMMClassifier(kernel="rbf"), {"gamma": [0.3, 3.0], "step": [0.1, 1.0]}),
        (FMMClassifier(kernel="poly", max_iter=50), {"step": [0.1, 1.0]}),
        (FMMClassifier(max_iter=100), {"fit_intercept": [True, False]}),
        (MAMClassifier(kernel="rbf", gamma=2.0, class_weight={"B": 5.0}), {"slope": [0.2, 1.0]}),
        (MAMClassifier(kernel="rbf"), {"gamma": ["scale", 2.0]}),
        (SVC(kernel="poly"), {"gamma": [0.01, 5.0]}),
        (SVC(), {"gamma": [0.1, 5.0], "C": [0.1, 10.0]}),
        (KOMDClassifier(kernel="rbf"), {"gamma": [0.1, 5.0], "lam": [0.1, 0.01]}),
    ],
    ids=[
        "slope",
        "slope alone",
        "mean bias",
        "iterations",
        "kernel iterations",
        "kernel intercept",
        "other kernel",
        "other parameter",
        "class weights",
        "named width",
        "polynomial svc",
        "svc",
        "komd",
    ],
)
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_shared_searches_choose_as_grid_search_does(model, grid):
    full = load("wdbc")
    X, y = minmax_scale(full.X[:120, :8]), full.y[:120]
    folds = StratifiedKFold(5, shuffle=True, random_state=1)
    expected, found = GridSearchCV(model, grid, cv=folds).fit(X, y), SharedSearch(model, grid, folds).fit(X, y)
    np.testing.assert_allclose(
        found.cv_results_["mean_test_score"], expected.cv_results_["mean_test_score"], atol=1e-12
    )
    assert found.best_params_ == expected.best_params_
    assert found.best_score_ == pytest.approx(expected.best_score_, abs=1e-12)


@pytest.mark.parametrize(
    "model, grid, own",
    [
        (LDMClassifier(), {"C": [1.0, 10.0]}, LDMClassifierCV),
        (LDMClassifier(fit_intercept=False), {"C": [1.0, 10.0], "lambda1": [0.0, 1.0]}, LDMClassifierCV),
        (LDMClassifier(lambda1=0.0, lambda2=0.0), {"C": [1.0, 10.0]}, GridSearchCV),
        (LDMClassifier(solver="asgd", random_state=0, tol=0.9), {"C": [1.0, 10.0]}, GridSearchCV),
        (LDMClassifier(), {"tol": [1e-3, 1e-2]}, GridSearchCV),
        (SVC(), {"C": [1.0, 10.0]}, GridSearchCV),
    ],
    ids=["defaults", "two axes", "fixed values", "a solver of its own", "a grid of its own", "no search of its own"],
)
def test_a_search_of_our_own_serves_where_it_knows_every_parameter(model, grid, own):
    found = search(model, grid, seed=1)
    assert type(found) is own
    full = load("wdbc")
    X, y = minmax_scale(full.X[:120, :8]), full.y[:120]
    expected = GridSearchCV(model, grid, cv=StratifiedKFold(5, shuffle=True, random_state=1)).fit(X, y)
    assert found.fit(X, y).best_params_.items() >= expected.best_params_.items()
    assert found.best_estimator_.get_params() == expected.best_estimator_.get_params()


# ---------------------------------------------------------------------- plans


def test_a_plan_goes_split_by_split_from_small_to_large():
    cells = plan(select(["ldm-table-2"]), splits=2)
    assert [cell.split for cell in cells] == sorted(cell.split for cell in cells)
    assert cells[0].dataset == "promoters"
    assert cells[len(cells) // 2 - 1].dataset == "german"
    assert len(cells) == len(set(cells)) == 20 * 7 * 2


@pytest.mark.parametrize(
    "only, expected", [("vote", 7), ("ldm", 20), ("vote/ldm", 1), ("*/svm*", 40), ("v*/ldm*", 4), ("nothing", 0)]
)
def test_patterns_choose_lines_and_columns(only, expected):
    assert len(plan(select(["ldm-table-2"]), only=[only], splits=1)) == expected


def test_unknown_experiments_are_named():
    with pytest.raises(ValueError, match="there is no experiment 'nothing'; there are ldm-table-2"):
        select(["nothing"])
    with pytest.raises(ValueError, match=r"there is no experiment 'ldm-tabel-2'; did you mean ldm-table-2 or"):
        select(["ldm-tabel-2"])


def test_the_quick_plan_has_something_of_every_experiment(monkeypatch):
    monkeypatch.setattr("reproduction.run.here", lambda line, data_dir: line.catalogue == "wdbc")
    cells = quick_plan(select([]))
    assert {cell.experiment for cell in cells} == set(experiments())
    assert {cell.dataset for cell in cells if cell.experiment == "ldm-table-2"} == {"wdbc"}
    assert max(cell.split for cell in cells) == 1


def test_estimates_count_on_splits_taking_alike():
    cells = plan(select(["ldm-table-2"]), only=["vote/ldm", "vote/svm"], splits=10)
    with Store(":memory:") as store:
        for split in range(4):
            store.record(Result(Cell("ldm-table-2", "vote", "ldm", split), score=0.9, seconds=2.0))
        store.record(Result(Cell("ldm-table-2", "vote", "svm", 0), "skipped", error="too large"))
        (state,) = estimates(store, cells)
    assert (state.cells, state.done, state.skipped, state.unknown, state.seconds_left) == (20, 4, 1, 9, 12.0)


# ---------------------------------------------------------------------- reports


def _made_up(method_gain):
    """Results of four methods on three data sets and six splits; LDM is ahead by `method_gain`."""
    rng, results = np.random.default_rng(0), []
    base = {"vote": 0.93, "wdbc": 0.96, "german": 0.71}
    for line, mean in base.items():
        noise = rng.normal(0, 0.01, 6)
        for method, gain in {"svm": 0.0, "ldm": method_gain, "ldm-c-over-m": 0.02, "svm-c-over-m": 0.02}.items():
            for split in range(6):
                score = mean + gain + noise[split] + rng.normal(0, 0.001)
                results.append(Result(
                    Cell("ldm-table-2", line, method, split), score=score, seconds=1.0, versions={"python": "3"},
                ))  # fmt: skip
    results.append(Result(Cell("ldm-table-2", "sonar", "svm", 0), "skipped", error="sonar is not here."))
    results.append(Result(Cell("ldm-table-2", "vote", "mdo", 0), "failed", error="not finished within 1 s"))
    return results


def test_findings_are_what_a_hand_computes():
    found = findings(experiments()["ldm-table-2"], _made_up(0.02))
    entry = found.entries["vote", "ldm"]
    scores = [r.score for r in _made_up(0.02) if r.cell[1:3] == ("vote", "ldm")]
    assert entry.mean == pytest.approx(np.mean(scores))
    assert entry.std == pytest.approx(np.std(scores, ddof=1))
    assert entry.distance == pytest.approx((np.mean(scores) - 0.970) / 0.014)
    assert duel(found, "ldm", "svm") == (3, 0, 0)
    assert found.verdicts["vote", "ldm"] == "win"
    assert found.complete == ["vote", "wdbc", "german"]
    assert found.ranks["svm"] == 4.0
    assert {rival.method for rival in found.rivals} == {"svm", "ldm-c-over-m", "svm-c-over-m"}


def test_ranks_and_tests_use_the_splits_that_all_have():
    whole = _made_up(0.0)
    easy = next(r for r in whole if r.cell[1:] == ("vote", "svm", 0))
    results = [r for r in whole if r.cell[1:3] != ("vote", "svm") or r.cell.split < 3]
    results[results.index(easy)] = replace(easy, score=1.0)
    found = findings(experiments()["ldm-table-2"], results)
    common = [r.score for r in results if r.cell[1:3] == ("vote", "ldm") and r.cell.split < 3]
    assert found.means["vote", "ldm"] == pytest.approx(np.mean(common))
    assert found.entries["vote", "ldm"].mean != pytest.approx(np.mean(common))
    nothing = [r for r in whole if r.cell[1:3] != ("vote", "svm") or r.cell.split > 3]
    nothing = [r for r in nothing if r.cell[1:3] != ("vote", "ldm") or r.cell.split <= 3]
    assert findings(experiments()["ldm-table-2"], nothing).complete == ["wdbc", "german"]


def _curve(experiment, dataset, method, quantiles, length=1.0):
    detail = {"quantiles": list(quantiles), "length": length}
    return Result(Cell(experiment, dataset, method, 0), score=0.0, detail=detail)


def test_curves_that_differ_by_rounding_are_alike():
    base = np.linspace(-1.0, 1.0, 101)
    shifts = {"vote": 1e-4, "wdbc": 0.3, "german": -0.3}
    results = [_curve("ldm-figure-1", name, "svm", base) for name in shifts]
    results += [_curve("ldm-figure-1", name, "ldm", base + shift) for name, shift in shifts.items()]
    for said in verdicts(findings(experiments()["ldm-figure-1"], results)):
        assert said.holds == "no" and "on 1 of 3 data sets" in said.reason and "on 1 the two are alike" in said.reason


def test_margins_have_a_verdict_in_either_reading():
    base = np.linspace(0.0, 1.0, 101)
    results = [_curve("ldm-figure-1", "vote", "svm", base, length=3.0)]
    results += [_curve("ldm-figure-1", "vote", "ldm", base + 0.2, length=1.0)]
    as_printed, geometric = verdicts(findings(experiments()["ldm-figure-1"], results))
    assert as_printed.holds == "no" and "as in eq. 1" in as_printed.claim and "on 0 of 1" in as_printed.reason
    assert geometric.holds == "yes" and "over the length" in geometric.claim and "on 1 of 1" in geometric.reason


def _run(method, r, updates, converged):
    detail = {"history": {"n_updates": [updates], "seconds": [0.1], "margin": [1.0]}, "converged": converged}
    return Result(Cell("pumma-figure-3", f"threshold-r{r}", method, 0), score=1.0, detail=detail)


def test_runs_that_did_not_converge_are_lower_bounds():
    results = [_run("pumma-2", 1, 10, True), _run("romma", 1, 20, True), _run("alma-2", 1, 500, False)]
    figure = experiments()["pumma-figure-3"]
    romma, alma = verdicts(findings(figure, results))
    assert "takes 2 (r = 1) times the updates" in romma.reason
    assert "takes at least 50 (r = 1, 1 of 1 runs not converged) times" in alma.reason
    assert "1 of 1 cut off at the limit of passes" in markdown(page_blocks(findings(figure, results)))


def test_the_claims_on_times_are_held_against_each():
    seconds = {"mamc": 0.1, "mamc-b": 0.12, "mamc-bs": 0.6, "mamc-bsg": 0.3, "emamc": 3.0, "l1-svm": 4.0}
    results = [Result(Cell("mamc-table-3", "heart", method, 0), score=score) for method, score in seconds.items()]
    quick, groups, best, worst = verdicts(findings(experiments()["mamc-table-3"], results))
    assert quick.holds == "in part" and "6.0 times MAMC's time, MAMC_bsg no more than MAMC_bs" in quick.reason
    assert groups.holds == "in part"
    assert best.reason.endswith("MAMC_bs 0 (0), MAMC_bsg 0 (0), MAMC_b 0 (5), MAMC 1 (12), EMAMC 0 (0), L1 SVM 0 (0).")
    assert worst.holds == "no" and worst.claim == "EMAMC is most often the slowest"


def test_warnings_and_cells_that_did_not_run_are_said_once_each():
    results = [replace(r, detail={"warnings": ["ConvergenceWarning: so"]}) for r in _made_up(0.0)[:6]]
    table = experiments()["ldm-table-2"]
    for line in table.data:
        for method in table.methods:
            if line.key == "sonar":
                results.append(Result(Cell(table.id, "sonar", method.key, 0), "skipped", error="sonar is not here."))
            elif method.key == "mdo":
                results.append(Result(Cell(table.id, line.key, "mdo", 0), "skipped", error="linear only."))
    results.append(Result(Cell(table.id, "vote", "svm", 9), "failed", error="too long"))
    page = markdown(page_blocks(findings(table, results)))
    assert "- SVM: ConvergenceWarning in 6 of 6 cells." in page
    assert "- sonar: sonar is not here." in page
    assert "- some splits of vote with SVM: too long" in page
    assert "- MDO on " in page and ": linear only." in page


def test_verdicts_follow_the_results():
    ahead, alike = (verdicts(findings(experiments()["ldm-table-2"], _made_up(gain))) for gain in (0.02, 0.0))
    assert ahead[0].holds == "yes"
    assert alike[0].holds == "no"
    assert "0/3/0 wins, ties and losses against SVM (printed 12/8/0)" in alike[0].reason


def test_tests_need_enough_data_sets_and_splits():
    results = _made_up(0.02)
    three = findings(experiments()["ldm-table-2"], results)
    assert three.friedman is None and three.critical_difference is None
    assert all(np.isnan(rival.wilcoxon) for rival in three.rivals)
    twins = {"vote": "house", "wdbc": "heart", "german": "isolet"}
    results += [replace(r, cell=r.cell._replace(dataset=twins[r.cell.dataset])) for r in results if r.status == "done"]
    six = findings(experiments()["ldm-table-2"], results)
    assert six.friedman is not None and "Friedman" in markdown(page_blocks(six))
    assert not np.isnan(six.rivals[0].wilcoxon)
    two_splits = findings(experiments()["ldm-table-2"], [r for r in results if r.cell.split < 2])
    assert two_splits.friedman is None and not two_splits.verdicts


def test_everything_declared_that_changes_a_number_is_on_the_page():
    for experiment in experiments().values():
        page = markdown(page_blocks(findings(experiment, [])))
        said = [experiment.splits.note, experiment.bias, *experiment.remarks, *experiment.claims]
        said += [reading.text for reading in experiment.readings]
        said += [line.remark for line in experiment.data]
        said += [cell.remark for table in experiment.printed.values() for cell in table.values()]
        for method in experiment.methods:
            said += [method.note, *(() if method.unavailable else map("{0[0]}={0[1]}".format, method.fixed.items()))]
            said += [f"{axis.parameter} in {axis.values[0]:.4g}" for axis in method.grid if not method.unavailable]
        missing = [text for text in said if text not in page]
        assert not missing, (experiment.id, missing)


def test_how_many_cells_are_on_published_splits_is_said():
    cells = [Cell("mamc-table-2", "heart", "mamc", split) for split in range(4)]
    results = [Result(cell, score=0.8, detail={"published": True} if cell.split < 1 else {}) for cell in cells]
    page = markdown(page_blocks(findings(experiments()["mamc-table-2"], results)))
    assert "1 of them (25%) are on splits that come with the data" in page


def test_every_version_that_made_a_cell_is_named():
    results = [replace(r, versions={"margindist": f"0.{r.cell.split % 2}.0"}) for r in _made_up(0.0)]
    assert "margindist 0.0.0 and 0.1.0" in markdown(page_blocks(findings(experiments()["ldm-table-2"], results)))


def test_two_lines_of_a_figure_never_look_alike():
    for experiment in experiments().values():
        found = findings(experiment, [])
        looks = [(style["color"], style["linestyle"]) for style in figures._styles(found).values()]
        assert len(set(looks)) == len(looks), experiment.id
        if experiment.kind == "influence":  # a line for each data set
            assert len(set(figures.data_styles())) >= len(experiment.data)


def test_nothing_is_missing_in_silence():
    page = markdown(page_blocks(findings(experiments()["ldm-table-2"], _made_up(0.0))))
    assert "- vote: not run so far, of 30 splits SVM 24, MDO 29" in page
    assert "- heart: not run so far, of 30 splits SVM 30" in page


def test_the_papers_tables_of_data_sets_have_pages():
    pages = {name: markdown(data_page(name)) for name in TABLES}
    assert "| heart | 270 x 9, 2 | 270 x 13, 2 |" in pages["ldm-table-1"]
    assert "32 data sets" in pages["ldm-table-1"] and "22 data sets" in pages["mcodm-table-1"]
    assert "| sector | 9,619 x 55,197, 105 | – | No copy was found" in pages["mcodm-table-1"]


def _scores(experiment, dataset, means, n_splits=1, **detail):
    """Results of methods on a data set around these means, with noise that splits share."""
    noise = np.random.default_rng(0).normal(0.0, 0.01, n_splits) if n_splits > 1 else [0.0]
    return [
        Result(Cell(experiment, dataset, method, k), score=mean + noise[k] + 1e-4 * (k % 2), detail=detail)
        for method, mean in means.items()
        for k in range(n_splits)
    ]


def test_whether_gradients_or_margin_terms_make_the_wins_is_told():
    means = {"svm": 0.88, "svm-asgd": 0.90, "ldm-asgd": 0.90, "ldm-exact": 0.88}
    results = _scores("ldm-table-4", "farm-ads", means, n_splits=5)
    wins, terms, *_ = verdicts(findings(experiments()["ldm-table-4"], results))
    assert wins.holds == "yes" and "1/0/0 wins" in wins.reason
    assert terms.holds == "no" and "an SVM by the same gradients has 1/0/0" in terms.decides
    assert "LDM solved exactly 0/1/0" in terms.decides and "farm-ads 0.8" in terms.reason
    results += _scores("ldm-table-4", "w8a", {"svm": 0.99, "ldm-asgd": 0.98}, n_splits=5)
    assert verdicts(findings(experiments()["ldm-table-4"], results))[0].holds == "in part"  # not "never worse"


def test_the_claims_of_the_figures_are_held_against_the_results():
    classes = {"segment-2": 0.0, "segment-5": 0.05, "segment-7": 0.1}
    results = []
    for dataset, drop in classes.items():
        means = {"mcsvm": 0.98 - drop, "ovasvm": 0.97 - 2 * drop, "mcodm": 0.99 - drop / 2}
        results += _scores("mcodm-figure-1", dataset, means)
    (stable,) = verdicts(findings(experiments()["mcodm-figure-1"], results))
    assert stable.holds == "yes" and "mcODM loses 0.038, the others mcSVM 0.075, ovaSVM 0.150" in stable.reason
    spread = np.linspace(-0.2, 1.0, 101)
    results = _scores("mcodm-figure-2", "segment-7", {"mcsvm": 0.4}, quantiles=list(spread), negative=0.17)
    results += _scores("mcodm-figure-2", "segment-7", {"mcodm": 0.6}, quantiles=list(spread / 4 + 0.5), negative=0.0)
    (sharper,) = verdicts(findings(experiments()["mcodm-figure-2"], results))
    assert sharper.holds == "yes" and "mcODM 0.000 and 0.1" in sharper.reason
    results = _scores("mcodm-figure-3", "letter", {"mcsvm": 9.0, "ovasvm": 1.0, "ovosvm": 1.0, "mcodm": 0.2})
    (joint,) = verdicts(findings(experiments()["mcodm-figure-3"], results))
    assert joint.holds == "in part" and "ovaSVM 0.11 times mcSVM" in joint.reason
    results = _scores("ldm-figure-2", "skin", {"svm-liblinear": 4.0, "svm-asgd": 1.0, "ldm-asgd": 1.5})
    faster, near = verdicts(findings(experiments()["ldm-figure-2"], results))
    assert faster.holds == near.holds == "yes" and "LDM takes 1.5 times the SVM's time" in near.reason
    results = _scores("msvmav-figure-3", "wdbc", {"msvmav": 1.0, "svm": 0.1, "odm": 1.0})
    (comparable,) = verdicts(findings(experiments()["msvmav-figure-3"], results))
    assert comparable.holds == "in part" and "SVM 10, ODM 1" in comparable.reason


def test_the_rough_margin_of_pumma_is_held_against_svm_light():
    results = _scores("pumma-table-1", "ionosphere", {"svm-light": 1.0, "pumma": 3.0}, margin=0.1)
    results += _scores("pumma-table-1", "ionosphere", {"pumma-rough": 1.5}, margin=0.092)
    *_, rough = verdicts(findings(experiments()["pumma-table-1"], results))
    assert rough.holds == "yes" and "takes 1.5 times as long, and reaches 0.920 to 0.920" in rough.reason


def test_every_figure_and_table_has_verdicts():
    assert all(experiment.verdict for experiment in experiments().values())


def test_columns_far_from_the_print_are_named_with_the_likely_reason():
    far, near = (findings(experiments()["ldm-table-2"], _made_up(gain)) for gain in (-0.2, 0.03))
    assert any(said.startswith("LDM: 0 of 3 within one") and "smaller C" in said for said in disagreements(far))
    assert not any(said.startswith("LDM:") for said in disagreements(near))


def test_a_report_says_what_is_there_and_what_is_not():
    found = findings(experiments()["ldm-table-2"], _made_up(0.02))
    page = markdown(page_blocks(found))
    entry = found.entries["vote", "ldm"]
    assert f"{entry.mean:.3f} ± {entry.std:.3f}●<br>0.970 ± 0.014● ({entry.distance:+.1f})" in page
    for said in (
        "Student's paired t-test",
        "Nadeau and Bengio",
        "Wilcoxon",
        "sonar with SVM: sonar is not here.",
        "vote with MDO: not finished within 1 s",
        "python -m reproduction --cell ldm-table-2/",
        "average as printed, all data sets",
        "12/8/0",
    ):
        assert said in page, said
    assert "●" in html(page_blocks(found))
    summary = markdown(index_blocks([found], select(["ldm-table-4"])), ["ldm-table-2"])
    assert "Without a result so far: LDM Table 4" in summary
    assert "74 cells: 72 done, 1 could not run, 1 failed" in summary
    assert "(ldm-table-2.md)" in summary


def test_reports_of_every_kind_are_written_with_their_figures(monkeypatch, tmp_path):
    _few_rows(monkeypatch, scaled=True)
    names = {
        "ldm-table-2": ("wdbc", ("svm", "ldm", "mamc")),
        "ldm-figure-1": ("wdbc", ("svm", "ldm")),
        "ldm-figure-3": ("wdbc", ("ldm-c-over-m",)),
        "mamc-table-3": ("heart", ("mamc",)),
        "pumma-figure-3": ("threshold-r8", ("pumma-2", "romma")),
        "pumma-table-1": ("ionosphere", ("svm-light", "pumma")),
    }
    with Store(tmp_path / "results.sqlite") as store:
        for experiment, (line, methods) in names.items():
            for method in methods:
                store.record(evaluate(Cell(experiment, line, method, 0)))
    written = write_reports(tmp_path / "results.sqlite", select([]), tmp_path)
    pages = [*names, *TABLES, "index"]
    assert {path.name for path in written} == {f"{name}.{end}" for name in pages for end in ("md", "html")}
    figures = {path.stem for path in (tmp_path / "figures").iterdir()}
    assert figures >= {
        "ldm-figure-1",
        "ldm-figure-1-geometric",
        "ldm-figure-3",
        "mamc-table-3",
        "pumma-figure-3",
        "pumma-table-1",
        "ldm-table-2-print",
    }
    assert all("/tmp" not in path.read_text() for path in written)


# ---------------------------------------------------------------------- the command


def test_a_cell_is_repeated_beside_the_result_kept(tmp_path, capsys):
    store, cell = tmp_path / "results.sqlite", Cell("ldm-table-2", "wdbc", "svm", 0)
    with Store(store) as opened:
        opened.record(evaluate(cell))
    assert repeat(str(cell), store)
    with Store(store) as opened:
        opened.record(Result(cell, score=0.5))
    assert not repeat(str(cell), store)
    assert "not the same" in capsys.readouterr().out
    with pytest.raises(ValueError, match="a cell is experiment/data set/method/split"):
        repeat("ldm-table-2/vote", store)


def test_a_time_is_another_one_but_what_was_reached_is_not(tmp_path, monkeypatch, capsys):
    _few_rows(monkeypatch, scaled=True)
    cell, store = Cell("pumma-table-1", "ionosphere", "pumma", 0), tmp_path / "results.sqlite"
    result = evaluate(cell)
    with Store(store) as opened:
        opened.record(replace(result, score=99.0))
    assert repeat(str(cell), store)
    with Store(store) as opened:
        opened.record(replace(result, detail={**result.detail, "margin": 99.0}))
    assert not repeat(str(cell), store)


def test_beginning_anew_forgets_only_what_is_run_again(tmp_path):
    from click.testing import CliRunner

    call = partial(CliRunner().invoke, command)
    arguments = ["ldm-table-2", "--only", "wdbc/mamc", "--no-report", "--jobs", "1", "-o", str(tmp_path)]
    assert "3 cells done" in call([*arguments, "--splits", "3"]).output
    assert "1 cells done" in call([*arguments, "--splits", "1", "--no-resume"]).output
    assert len(_results(tmp_path / "results.sqlite")) == 3


def test_a_choice_made_on_few_rows_does_not_serve_one_on_all(monkeypatch, tmp_path):
    _few_rows(monkeypatch, scaled=True)
    store = tmp_path / "results.sqlite"
    with Store(store) as opened:
        opened.record(evaluate(Cell("ldm-table-2", "wdbc", "svm", 0), search_rows=30))
    assert "search_rows" in evaluate(Cell("ldm-figure-1", "wdbc", "svm", 0), store=str(store), search_rows=30).detail
    assert "search_rows" not in evaluate(Cell("ldm-figure-1", "wdbc", "svm", 0), store=str(store)).detail


def test_the_command_lists_runs_and_reports(tmp_path):
    from click.testing import CliRunner

    call = partial(CliRunner().invoke, command)
    listed = call(["--list", "-o", str(tmp_path)])
    assert listed.exit_code == 0
    assert all(name in listed.output for name in experiments())
    assert "0 s" not in listed.output and listed.output.splitlines()[-1].startswith("?: cells of which nothing")
    ran = call(["ldm-table-2", "--only", "wdbc/mamc", "--splits", "2", "--jobs", "1", "-o", str(tmp_path)])
    assert ran.exit_code == 0, ran.output
    assert "2 cells done, 0 failed" in ran.output
    again = call(["ldm-table-2", "--only", "wdbc/mamc", "--splits", "2", "--jobs", "1", "-o", str(tmp_path)])
    assert "0 cells done" in again.output
    assert call(["nonsense"]).exit_code == 2
    assert "2       0       0" in overview(
        select(["ldm-table-2"]), tmp_path / "results.sqlite", only=["wdbc/mamc"], splits=2
    )


def test_cells_run_on_a_dask_cluster(tmp_path):
    from click.testing import CliRunner

    distributed = pytest.importorskip("distributed")
    cells = ["ldm-table-2", "--only", "wdbc/mamc", "--splits", "3", "--no-report"]
    with distributed.LocalCluster(
        n_workers=1, threads_per_worker=2, processes=False, dashboard_address=None
    ) as cluster:
        ran = CliRunner().invoke(command, [*cells, "--dask", cluster.scheduler_address, "-o", str(tmp_path / "there")])
    assert ran.exit_code == 0 and "3 cells done, 0 failed" in ran.output, ran.output
    assert CliRunner().invoke(command, [*cells, "-o", str(tmp_path / "here")]).exit_code == 0
    there, here = (_results(tmp_path / place / "results.sqlite") for place in ("there", "here"))
    assert {cell: result.score for cell, result in there.items()} == {c: r.score for c, r in here.items()}


def test_an_interrupted_run_writes_its_reports_and_exits_with_130(tmp_path, monkeypatch):
    from click.testing import CliRunner

    _few_rows(monkeypatch)
    monkeypatch.setattr("reproduction.run.evaluate", _interrupted)
    ran = CliRunner().invoke(command, ["ldm-table-2", "--only", "wdbc/mamc", "--jobs", "1", "-o", str(tmp_path)])
    assert ran.exit_code == 130 and "stopped: interrupted" in ran.output
    assert (tmp_path / "index.html").exists()


def _interrupted(cell, **_):
    raise KeyboardInterrupt


@pytest.mark.parametrize(
    ("arguments", "what"),
    [
        (["ldm-table-2", "--only", "nothing"], "no data set or method matches --only nothing"),
        (["--cell", "ldm-table-2/nothing/ldm/0"], "no such data set, method or split"),
        (["--cell", "ldm-table-2/vote/ldm/999"], "no such data set, method or split"),
    ],
)
def test_wrong_usage(arguments, what, capsys):
    assert run(arguments, command, "python -m reproduction") == 2
    said = capsys.readouterr().err
    assert what in said and said.endswith("Try python -m reproduction --help.\n")


def test_a_cluster_that_is_not_there(tmp_path, monkeypatch):
    from click.testing import CliRunner

    pytest.importorskip("distributed")
    monkeypatch.setattr("reproduction.command._PATIENCE", 0.3)
    ran = CliRunner().invoke(command, ["--dask", "tcp://127.0.0.1:1", "-o", str(tmp_path)])
    assert ran.exit_code == 2 and "no Dask scheduler answers at tcp://127.0.0.1:1" in ran.output


@pytest.mark.skipif(os.name != "posix", reason="kills a process")
def test_a_killed_run_is_taken_up_where_it_ended(tmp_path):
    command = [
        sys.executable, "-m", "reproduction", "ldm-table-2", "--only", "wdbc/mamc",
        "--only", "wdbc/mdo", "--jobs", "1", "--no-report", "-o", str(tmp_path),
    ]  # fmt: skip
    store = tmp_path / "results.sqlite"
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, cwd=ROOT)
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and (not store.exists() or len(_results(store)) < 4):
        time.sleep(0.05)
    process.send_signal(signal.SIGKILL)
    process.wait()
    before = _results(store)
    assert 4 <= len(before) < 60
    subprocess.run([*command, "--splits", "12"], check=True, stdout=subprocess.DEVNULL, timeout=120, cwd=ROOT)
    after = _results(store)
    assert len(after) >= 24
    assert all(after[cell].finished == result.finished for cell, result in before.items())


def _results(store):
    with Store(store) as opened:
        return {result.cell: result for result in opened.results()}


def test_declared_experiments_can_be_given(monkeypatch):
    _few_rows(monkeypatch)
    table = experiments()["ldm-table-2"]
    changed = MappingProxyType({"mine": replace(table, id="mine", splits=replace(table.splits, train=0.8))})
    found = evaluate(Cell("mine", "wdbc", "mamc", 0), declared=changed)
    assert (found.detail["train"], found.detail["test"]) == (72, 18)
