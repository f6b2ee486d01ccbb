"""Comparisons: the table against naive versions, plans that do not mix, reports that say what is stored."""

import json
import re
import shutil
import subprocess
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from scipy.stats import t
from sklearn.calibration import CalibratedClassifierCV
from sklearn.datasets import load_iris, make_classification
from sklearn.dummy import DummyClassifier
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import (
    accuracy_score,
    average_precision_score,
    balanced_accuracy_score,
    confusion_matrix,
    f1_score,
    log_loss,
    roc_auc_score,
)
from sklearn.model_selection import GridSearchCV, RepeatedStratifiedKFold, StratifiedKFold
from sklearn.preprocessing import MinMaxScaler, label_binarize
from sklearn.svm import LinearSVC

from margindist.compare import Comparison, Plan, compare, train
from margindist.compare.data import Columns, find_data, prepare, suspicions
from margindist.compare.nested import Evaluate
from margindist.compare.plan import Pilot, Protocol, make_plan
from margindist.compare.records import About, CellDetail, Margins, PartMargins
from margindist.compare.report import by_class, code, repeat_code, worth_of_more_rows
from margindist.compare.scoring import LABELS, Scorer, measures
from margindist.compare.splits import inner_splits
from margindist.datasets import Dataset
from margindist.methods import ASKED_ONLY, BASELINES, BY_KEY, METHODS, SECONDS_PER_SPLIT, Reach, Shape, choose
from margindist.runs.statistics import corrected_resampled_t, holm
from margindist.runs.store import Cell, Result, Store

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
HOSTILE = '</script><script>document.title="owned"</script><b>"x" & \'y\''


@pytest.fixture(scope="module")
def data():
    return make_classification(90, 6, n_informative=3, flip_y=0.15, random_state=0)


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    return tmp_path_factory.mktemp("compare") / "results.sqlite"


@pytest.fixture(scope="module")
def comparison(data, store):
    return compare(*data, methods=["lssvm", "mamc-rbf"], splits=3, repeats=2, seed=3, quick=True, store=store)


def scores(comparison):
    return {(r.cell.method, r.cell.split): (r.score, r.parameters, r.detail) for r in comparison.results}


def test_scores_are_those_of_a_naive_nested_cross_validation(comparison, data):
    X, y = data
    splits = RepeatedStratifiedKFold(n_splits=3, n_repeats=2, random_state=3).split(X, y)
    found = scores(comparison)
    for split, (train_rows, test_rows) in enumerate(splits):
        scaler = MinMaxScaler().fit(X[train_rows])
        inner = StratifiedKFold(3, shuffle=True, random_state=3 + split)
        search = GridSearchCV(
            LinearSVC(dual="auto", random_state=3), {"C": comparison.plan.grids["linearsvc"]["C"]}, cv=inner
        )
        search.fit(scaler.transform(X[train_rows]), y[train_rows])
        score, parameters, detail = found["linearsvc", split]
        assert parameters == search.best_params_
        predicted = search.predict(scaler.transform(X[test_rows]))
        assert score == np.mean(predicted == y[test_rows])
        assert detail.scores["balanced_accuracy"] == pytest.approx(balanced_accuracy_score(y[test_rows], predicted))
        z = np.where(y == 1, 1, -1) * search.decision_function(scaler.transform(X))
        rms = np.sqrt(np.mean(z[train_rows] ** 2))
        assert detail.margins.test.statistics["mean"] == pytest.approx(np.mean(z[test_rows]) / rms)
        assert detail.margins.test.distance == pytest.approx(
            np.mean(z[test_rows]) / np.linalg.norm(search.best_estimator_.coef_)
        )


def test_the_table_is_ranked_and_tested(comparison):
    rows = comparison.rows
    assert [row.rank for row in rows] == [1, 2, 3, 4, 5]
    assert [row.accuracy for row in rows] == sorted((row.accuracy for row in rows), reverse=True)
    by_method = {row.method: [r.score for r in comparison.results if r.cell.method == row.method] for row in rows}
    best = by_method[rows[0].method]
    p = [corrected_resampled_t(by_method[row.method], best, test_share=1 / 3).p_value for row in rows[1:]]
    np.testing.assert_allclose([row.to_best.p_value for row in rows[1:]], holm(p))
    assert rows[0].to_best is None
    for row in rows[1:]:
        first, second = np.array(by_method[row.method]), np.array(best)
        half = t.ppf(0.975, 5) * np.sqrt((1 / 6 + (1 / 3) / (2 / 3)) * np.var(first - second, ddof=1))
        assert row.to_best.mean == pytest.approx(np.mean(first - second))
        assert (row.to_best.low, row.to_best.high) == pytest.approx((row.to_best.mean - half, row.to_best.mean + half))
    machine = next(row for row in rows if row.method in ("linearsvc", "svc"))  # the better one
    assert comparison.reference == machine.method and machine.to_svm is None
    for row in rows:
        if row is not machine:
            assert row.to_svm.mean == pytest.approx(row.score - machine.score)
    text = str(comparison)
    assert repr(comparison) == text
    assert all(row.label in text for row in rows) and len(text.splitlines()) == 7
    assert "(the most frequent class)" in text


def test_results_survive_the_store_exactly_and_resuming_computes_nothing(comparison, data, store):
    again = Comparison.from_store(store)
    assert again.rows == comparison.rows and again.answer() == comparison.answer()
    assert again.to_html() == comparison.to_html()
    said = []
    resumed = compare(
        *data, methods=["lssvm", "mamc-rbf"], splits=3, repeats=2, seed=3, quick=True, store=store, resume=True,
        say=said.append,
    )  # fmt: skip
    assert resumed.rows == comparison.rows  # the times too: nothing was computed again
    assert said == [*resumed.about.encoding, "Resuming: 30 of 30 results are already there."]


def test_other_plans_and_changed_data_do_not_mix(data, tmp_path):
    X, y = data
    path = tmp_path / "results.sqlite"
    settings = {"methods": ["mamc"], "splits": 2, "repeats": 1, "quick": True, "store": path, "resume": True}
    said = []
    first = compare(X, y, **settings)
    other = compare(X, y, **settings, seed=1, say=said.append)
    changed = compare(X + np.eye(*X.shape), y, **settings, seed=1, say=said.append)
    assert len({c.plan.experiment for c in (first, other, changed)}) == 3
    said = [line for line in said if line.startswith("Not resumed")]
    assert said[0] == "Not resumed: the plan has changed (seed), so everything is computed anew."
    assert re.match(r"Not resumed: the content of your data has changed \(checksum \w{8} then, \w{8} now\)", said[1])
    said.clear()
    empty = {**settings, "store": tmp_path / "empty.sqlite"}
    compare(X, y, **empty, time_budget=1e-6)
    compare(X, y, **empty, say=said.append)
    assert "There is nothing to resume yet, so this starts from the beginning." in said
    said.clear()
    compare(X, y, **{**settings, "resume": False}, say=said.append)
    assert (
        "8 results of the same comparison are computed anew; the old ones are in results.sqlite.old. With --resume "
        "they would have been kept."
    ) in said
    with Store(tmp_path / "results.sqlite.old") as old:
        assert len(old.results(first.plan.experiment)) == 8


def made(scores_by_method, splits=5, failed=(), unconverged=(), left_out=None, reserve=(), seconds=None):
    """A comparison with the given scores."""
    grids = {key: {} for key in [*scores_by_method, *reserve]}
    plan = Plan("made", "0" * 64, grids, splits, 1, 3, 0, reserve)
    part = PartMargins({"mean": 1.0, "variance": 0.1}, ())
    results = []
    for key, values in scores_by_method.items():
        for k, score in enumerate(values):
            detail = CellDetail(
                scores={"accuracy": score, "balanced_accuracy": 0.5},
                converged=(key, k) not in unconverged,
                margins=Margins(1.0, part, part),
                confusion=[[6, 0], [1, 3]],
            )
            cell = Cell(plan.experiment, "made", key, k)
            time = (seconds or {}).get(key, 0.1)
            results.append(Result(cell, score=score, fit_seconds=time, predict_seconds=0.1, detail=detail))
    results += [Result(Cell(plan.experiment, "made", key, k), "failed", error="no good") for key, k in failed]
    return Comparison(plan, About({"a": 6, "b": 4}, left_out or {}), results)


JITTER = np.array([0.0, 0.004, -0.004, 0.002, -0.002])


def test_the_first_sentence_says_what_to_use_and_why():
    clear = made({"ldm": 0.95 + JITTER, "linearsvc": 0.70 - JITTER, "svc": 0.6 + JITTER[::-1]}).answer()
    assert clear[0] == (
        "Use LDM (large margin distribution machine): it has the highest accuracy, and every other method that ran is "
        "significantly worse; expected accuracy: 0.950 ± 0.003."
    )
    assert "most frequent class would give 0.600" in clear[1]
    assert clear[2].startswith("Against the better support vector machine, LinearSVC, LDM differs by +0.250 [+0.2")
    assert clear[2].endswith("significantly better.")
    unclear = made({"ldm": 0.801 + 10 * JITTER, "linearsvc": 0.80 - 9 * JITTER}).answer()
    assert unclear[0].startswith("Use LDM") and "none of them much faster" in unclear[0]
    assert unclear[2].endswith("no clear difference.")
    quick = made({"ldm": 0.801 + 10 * JITTER, "linearsvc": 0.80 - 9 * JITTER}, seconds={"linearsvc": 0.01}).answer()
    assert quick[0].startswith(
        "Use LinearSVC: the fastest of 2 methods that cannot be told apart; expected accuracy: 0.8"
    )
    assert quick[1].startswith(
        "LDM (large margin distribution machine) has the highest accuracy, 0.801; LinearSVC differs"
    )
    assert "instead of 100 ms" in quick[1] and not any("Against" in sentence for sentence in quick)
    poor = made({"ldm": 0.603 + JITTER / 4, "svc": 0.6 + JITTER}).answer()
    assert poor[0].startswith("Use LDM") and "most frequent class would give 0.600." in poor[1]
    assert made({"ldm": []}).answer() == ["Nothing is finished yet, so there is nothing to compare."]
    few = made({"ldm": [0.5, 0.8], "svc": [0.4, 0.7]})  # the same difference twice proves nothing
    assert "2 splits are too few to tell whether differences are real (take 5 or more)" in few.answer()[0]
    assert "Not compared" not in " ".join(few.answer())
    assert [row.to_best and row.to_best.p_value for row in few.rows] == [None, None]


def test_a_useless_method_is_never_advised_and_nothing_is_minus_zero():
    noisy = np.array([0.3, -0.3, 0.25, -0.25, 0.0])
    useless = made({"linearsvc": 0.62 + noisy, "mamc": 0.6 - noisy}, seconds={"mamc": 1e-4})
    assert useless.rows[1].below_baseline and useless.rows[1].to_best.verdict == "tie"
    assert useless.answer()[0] == (
        "Use none of these yet: LinearSVC is the best with accuracy 0.620 ± 0.276, and not clearly better than always "
        "naming the most frequent class, 0.600."
    )
    chance = made({"linearsvc": 0.9 + noisy / 10, "mamc": 0.89 - 1.5 * noisy}, seconds={"mamc": 1e-4})
    assert chance.rows[1].to_best.verdict == "tie" and not chance.rows[1].above_baseline
    assert chance.answer()[0].startswith("Use LinearSVC")
    far = made({"linearsvc": 0.9 + noisy / 10, "mamc": 0.85 - 2 * noisy / 10}, seconds={"mamc": 1e-4})
    assert far.rows[1].to_best.verdict == "tie"  # not significantly worse, but too far for an advice
    assert far.answer()[0].startswith("Use LinearSVC")
    none = made({"linearsvc": 0.59 + JITTER, "mamc": 0.58 + JITTER})
    assert none.answer()[0] == "Use none of these: no method is better than always naming the most frequent class."
    equal = made({"linearsvc": 0.9 + JITTER, "ldm": 0.8998 + JITTER[::-1], "svc": 0.8997 + JITTER})
    assert "-0.000" not in " ".join(equal.answer()) + str(equal) and "+0.000" not in str(equal)


def test_one_missing_cell_costs_no_other_p_value():
    keys = ["ldm", "odm", "linearsvc", "svc", "lssvm"]
    scores = {key: 0.9 - 0.03 * k + JITTER for k, key in enumerate(keys)}
    scores["svc"] = scores["svc"][:4]
    comparison = made(scores)
    assert {row.method: row.to_best is not None and row.to_best.p_value is not None for row in comparison.rows} == {
        "ldm": False, "odm": True, "linearsvc": True, "svc": False, "lssvm": True
    }  # fmt: skip
    assert [row.splits for row in comparison.rows] == [4] * 5


def test_a_method_that_failed_on_hard_splits_is_not_the_best():
    hard = [0.9, 0.91, 0.89, 0.9, 0.9, 0.91, 0.89, 0.7, 0.71, 0.69]
    easy = [score - 0.05 + 0.001 * k for k, score in enumerate(hard[:7])]
    part = made({"mamc": easy, "linearsvc": hard}, splits=10, failed=[("mamc", k) for k in (7, 8, 9)])
    assert [row.method for row in part.rows] == ["linearsvc", "mamc"]
    assert part.rows[1].accuracy > part.rows[0].accuracy
    said = part.answer()
    assert said[0].startswith("Use LinearSVC: it has the highest accuracy, and every other method that ran is signif")
    assert said[1] == "It is the best of the methods that finished every split."
    better = made({"mamc": [s + 0.05 for s in hard[:7]], "linearsvc": hard}, splits=10, failed=[("mamc", 9)])
    assert better.rows[1].to_best.verdict == "win" and better.choice.method == "linearsvc"


def test_labels_are_as_many_as_rows_and_are_classes(data):
    X, y = data
    with pytest.raises(ValueError, match=f"each of the {len(X)} rows of X, got 10 labels"):
        compare(X, y[:10])
    with pytest.raises(ValueError, match="looks continuous"):
        compare(X, np.linspace(0.0, 1.0, len(X)))


def test_less_than_the_most_frequent_class_is_said_to_be_so():
    assert "would give 0.600: that is more." in " ".join(made({"ldm": 0.25 + JITTER, "svc": 0.2 + JITTER}).answer())


def test_names_with_a_dot_are_looked_up_in_the_catalogue(tmp_path, monkeypatch):
    monkeypatch.setenv("MARGINDIST_DATA", str(tmp_path))
    with pytest.raises(ValueError, match=r"rcv1\.binary"):
        compare("rcv1.binary")
    with pytest.raises(ValueError, match="there is no such file"):
        compare("flowers.csv")


def test_an_unfinished_comparison_compares_the_splits_that_all_have():
    partial = made({"ldm": [0.9, 0.8, 0.1], "svc": [0.7, 0.6], "odm": [0.7]}, failed=[("odm", 1)])
    assert [(row.rank, row.method, row.splits) for row in partial.rows] == [
        (1, "ldm", 2), (2, "svc", 2), (3, "odm", 1)
    ]  # fmt: skip
    assert partial.rows[0].accuracy == pytest.approx(0.85)
    warned = partial.results[0].detail._replace(warnings=["ConvergenceWarning: not yet"])
    partial.results[0] = replace(partial.results[0], detail=warned)
    assert partial.warnings["LDM"].endswith(
        "splits, at chosen parameters or while searching: ConvergenceWarning: not yet"
    )
    assert partial.failures == {"ODM": "failed in 1 of 5 splits: no good"}


def test_a_time_budget_gives_what_is_done(data):
    comparison = compare(*data, methods=["mamc"], splits=3, repeats=40, quick=True, time_budget=1.5)
    assert comparison.stopped == "the time budget is spent"
    assert comparison.finished < comparison.total
    assert len({row.splits for row in comparison.rows}) <= 1  # the same splits for all


@pytest.mark.parametrize("method", METHODS, ids=lambda method: method.key)
@pytest.mark.parametrize("few", [True, False])
def test_grids_fit_their_estimators(method, few):
    shape = Shape(600, 30, 2, False, 1.3)
    grid = method.grid(shape, few)
    estimator = method.estimator(0)
    assert set(grid) <= set(estimator.get_params())
    if method.landmarks is None:
        assert method.kernel == (getattr(estimator, "kernel", "linear") == "rbf")
    imported, made_by = method.code(7, {name: values[0] for name, values in grid.items()})
    namespace = {}
    exec(f"{imported}\nmade = {made_by}", namespace)
    first = {name: values[0] for name, values in grid.items()}
    assert str(namespace["made"]) == str(method.estimator(7, **first))


def test_methods_are_chosen_by_measured_cost_and_the_reason_is_said():
    small = choose(None, Shape(500, 10, 2, False, 1.0), cost=lambda method: pytest.fail("no pilot is needed"))
    assert {method.key for method in small.methods} == {method.key for method in METHODS if method.default}
    assert not small.reserve and not {"svr", "fmm", "romma"} & {method.key for method in small.methods}
    assert [method.reach.cost for method in small.methods] == sorted(method.reach.cost for method in small.methods)
    seconds = {"svc": 500.0, "ldm-rbf": 5000.0}
    large = choose(None, Shape(300_000, 10, 2, False, 1.0), cost=lambda method: seconds.get(method.key, 1.0))
    keys = {method.key for method in large.methods}
    assert "lssvm-rbf" in keys and not {"svc", "ldm-rbf"} & keys
    assert "svc" in {m.key for m in large.reserve} and "ldm-rbf" not in {m.key for m in large.reserve}
    assert large.left_out["SVC (RBF)"].startswith("too slow here by a pilot fit: methods run that take up to 60 s")
    assert "ldm-nystroem" in keys and "300 Nystroem features" in large.left_out["LDM (RBF)"]
    assert not any(key.endswith("-nystroem") for key in {method.key for method in small.methods})
    seconds["ldm-nystroem"] = 100.0
    slower = choose(None, Shape(300_000, 10, 2, False, 1.0), cost=lambda method: seconds.get(method.key, 1.0))
    assert {"ldm-nystroem", "svc"} == {method.key for method in slower.reserve}
    slow = choose(None, Shape(300_000, 10, 2, False, 1.0), cost=lambda method: 5000.0)
    assert len(set(slow.left_out.values())) == 2  # one sentence for all that are too slow, one for the others
    named = choose(["LDM", " odm "], Shape(500, 10, 2, False, 1.0))
    assert {method.key for method in named.methods} == {"ldm", "odm", *BASELINES} and not named.reserve
    exact = {method.key for method in METHODS if method.landmarks is None}
    assert {m.key for m in choose(["all"], Shape(500, 10, 2, False, 1.0)).methods} == exact
    with pytest.raises(ValueError, match=r"there is no method 'nonsense'; there are .*ldm-rbf"):
        choose(["nonsense"], Shape(500, 10, 2, False, 1.0))
    with pytest.raises(ValueError, match=r"there is no method 'ldmrbf'; did you mean ldm-rbf or "):
        choose(["ldmrbf"], Shape(500, 10, 2, False, 1.0))


def vowels(rows=990, classes=11):
    """Data of the shape of vowel: many classes, few rows of each, in clusters that a line does not separate."""
    rng = np.random.default_rng(0)
    centres = rng.normal(size=(4 * classes, 10))
    which = np.arange(rows) % (4 * classes)
    return centres[which] + 0.35 * rng.normal(size=(rows, 10)), which % classes


def test_no_kernel_method_is_left_out_of_a_set_of_the_shape_of_vowel(monkeypatch):
    kernels = ["svc", "lssvm-rbf", "ldm-rbf", "mamc-rbf"]  # the others take longer to compile than to run
    monkeypatch.setattr("margindist.methods.METHODS", [BY_KEY[key] for key in kernels])
    found = prepared(*vowels())
    said = []
    plan, about = make_plan(found, Protocol(repeats=1, quick=True), say=said.append)
    assert set(plan.grids) == set(kernels) and not plan.reserve and not about.left_out
    assert said == ["Some methods may be slow on data of this size; pilot fits to some of the rows show how slow."]
    assert 0.0 < about.costs["ldm-rbf"] < SECONDS_PER_SPLIT and "svc" not in about.costs
    again = {**about.costs, "ldm-rbf": 1e5}
    plan, about = make_plan(found, Protocol(repeats=1, quick=True), costs=again)  # known from before
    assert "ldm-rbf" not in plan.grids and list(about.left_out) == ["LDM (RBF)"]


def test_a_pilot_of_landmarks_begins_where_all_of_them_are_there(monkeypatch):
    asked = []
    monkeypatch.setattr(Pilot, "_seconds", lambda pilot, method, size: asked.append(size) or 1.0)
    X = np.zeros((9000, 2))
    pilot = Pilot(Dataset("rows", X, np.arange(9000) % 2), Shape(9000, 2, 2, False, 1.0), True, 3, 0)
    assert pilot(BY_KEY["ldm-nystroem"]) == 15.0 and asked[-1] == 600  # linear in the rows from there
    assert pilot(BY_KEY["ldm-rbf"]) == 45.0**2 and asked[-1] == 200


def test_methods_of_the_kind_of_the_best_one_run_too(tmp_path, monkeypatch):
    few = ("lssvm-rbf", "linearsvc", "svc", "fmm-rbf", "romma")
    monkeypatch.setattr("margindist.methods.METHODS", [method for method in METHODS if method.key in few])
    slow = replace(BY_KEY["lssvm-rbf"].classifier, rbf=Reach(rows=1))
    slowed = [method for method in METHODS if method.key in few and method.key != "lssvm-rbf"]
    monkeypatch.setattr("margindist.methods.METHODS", [*slowed, *slow.methods()[1:]])
    monkeypatch.setattr("margindist.compare.plan.Pilot.__call__", lambda pilot, method: 100.0)
    X, y = vowels(120, 3)
    said = []
    comparison = compare(X, y, splits=2, repeats=1, quick=True, store=tmp_path / "r.sqlite", say=said.append)
    assert comparison.rows[0].kernel and "LS-SVM (RBF)" in {row.label for row in comparison.rows}
    assert any(line.endswith("so more methods of its kind run too: LS-SVM (RBF).") for line in said)
    assert comparison.finished == comparison.total == 6
    assert Comparison.from_store(tmp_path / "r.sqlite").answer() == comparison.answer()
    assert "ROMMA, FMM (RBF): only when asked for (--methods all)." in said
    assert "Not compared: ROMMA, FMM (RBF): only when asked for" in comparison.to_html()


def test_the_verdict_names_methods_that_the_run_did_not_reach():
    assert (
        made({"ldm": [0.9], "svc": [], "odm": []}).answer()[-1] == "Not finished, so not compared: SVC (RBF) and ODM."
    )
    failed = made({"ldm": [0.9], "svc": []}, failed=[("svc", 0)])
    assert not any("Not finished" in sentence for sentence in failed.answer())


def test_methods_that_begin_last_take_no_splits_from_the_others():
    scores = {"ldm": 0.95 + JITTER, "linearsvc": 0.7 - JITTER, "romma": [0.9, 0.9]}
    comparison = made(scores, reserve=["romma"])
    assert [row.splits for row in comparison.rows] == [5, 5]
    said = comparison.answer()
    assert "every other method that ran is significantly worse" in said[0]
    assert said[-1] == "Not finished, so not compared: ROMMA."
    whole = made({**scores, "romma": 0.9 + JITTER}, reserve=["romma"])
    assert [row.method for row in whole.rows] == ["ldm", "romma", "linearsvc"] and not whole.unfinished


def test_the_most_frequent_class_is_counted_on_the_test_parts_of_the_table():
    comparison = made({"ldm": [0.6, 0.6], "mamc": [0.5, 0.7], "svc": [0.61, 0.61]})
    confusions = [[[5, 0], [5, 0]], [[7, 0], [3, 0]]]
    comparison.results = [
        replace(result, detail=result.detail._replace(confusion=confusions[result.cell.split]))
        for result in comparison.results
    ]
    again = Comparison(comparison.plan, comparison.about, comparison.results)
    assert again.baseline == pytest.approx(0.6)
    assert [row.method for row in again.rows if row.below_baseline] == ["ldm", "mamc"]  # as good is no better
    about = comparison.about._replace(classes={"a": 60, "b": 40})
    first = [result for result in comparison.results if result.cell.split == 0]
    assert Comparison(comparison.plan, about, first).baseline == 0.5  # of that part, not of all rows


def test_the_verdict_names_rivals_of_the_same_kind_that_were_left_out():
    left_out = {"LDM (RBF)": "a split would take about 3 h", "ODM": "a split would take 2 h", "FMM": ASKED_ONLY}
    said = made({"svc": 0.95 + JITTER, "linearsvc": 0.6 - JITTER}, left_out=left_out).answer()
    assert "every other method that ran is significantly worse" in said[0]
    assert said[-2:] == ["Not compared, though of the same kind as SVC (RBF): LDM (RBF).", "Also not compared: ODM."]


def test_what_did_not_converge_has_no_rank_and_is_never_the_best():
    comparison = made(
        {"pumma": 0.95 + JITTER, "ldm": 0.9 + JITTER, "linearsvc": 0.5 - JITTER}, unconverged=[("pumma", 2)]
    )
    assert [(row.rank, row.method) for row in comparison.rows] == [(1, "ldm"), (2, "linearsvc"), (None, "pumma")]
    assert comparison.rows[2].remarks == ["not converged in 1 of 5 splits"]
    assert comparison.rows[1].remarks == ["no better than the most frequent class"]
    said = comparison.answer()
    assert said[0].startswith("Use LDM ") and said[1] == "It is the best of the methods that converged on every split."
    assert "PUMMA, which did not converge on some splits and has no rank, had 0.950." in said
    text = str(comparison)
    assert "not converged in 1 of 5 splits" in text and "no better than the most frequent class" in text
    lines = [line.split()[0:2] for line in text.splitlines()]
    assert lines[2] == ["(the", "most"]  # between what is better and what is worse
    frame = comparison.to_frame()
    assert frame.index.isna().tolist() == [False, False, True]
    none = made({"pumma": 0.9 + JITTER}, unconverged=[("pumma", 0)])
    assert none.answer()[0] == "Use none of these: no method converged on every split, so none is ranked."


def test_a_fit_that_does_not_converge_is_stored_as_such(data):
    comparison = compare(*data, methods=["pumma"], splits=2, repeats=1, quick=True)
    stored = {result.cell.method: result.detail.converged for result in comparison.results}
    assert stored["pumma"] is True
    register_impatient = {"max_iter": 1, "soft_margin": 10.0}
    X, y = data
    evaluate = Evaluate(replace(comparison.plan, grids={"pumma": {}}), prepared(X, y))
    evaluate.methods["pumma"] = BY_KEY["pumma"]._replace(
        classifier=replace(BY_KEY["pumma"].classifier, fixed=register_impatient)
    )
    with pytest.warns(ConvergenceWarning):
        assert evaluate(Cell("e", "d", "pumma", 0)).detail["converged"] is False


@pytest.mark.parametrize("scoring", list(LABELS))
def test_every_score_is_that_of_scikit_learn_in_search_and_ranking(data, scoring):
    X, y = data
    y = np.where(y == 1, "rare", "usual")
    keep = (y == "usual") | (np.arange(len(y)) % 2 == 0)
    X, y = X[keep], y[keep]
    comparison = compare(X, y, methods=["mamc"], splits=2, repeats=1, quick=True, scoring=scoring)
    assert comparison.plan.positive == "rare" and comparison.plan.scoring == scoring
    result = next(r for r in comparison.results if r.cell == Cell(r.cell.experiment, "your data", "logistic", 0))
    train_rows, test_rows = comparison.plan.parts(y)[0]
    scaler = MinMaxScaler().fit(X[train_rows])
    model = LogisticRegression(max_iter=1000, random_state=0, C=result.parameters["C"])
    model.fit(scaler.transform(X[train_rows]), y[train_rows])
    rows, truth = scaler.transform(X[test_rows]), y[test_rows]
    margin = -model.decision_function(rows)  # of the rare class, which comes first
    if scoring == "log_loss":
        folds = StratifiedKFold(comparison.plan.folds)
        theirs = CalibratedClassifierCV(model, method="sigmoid", cv=folds, ensemble=False)
        p = theirs.fit(scaler.transform(X[train_rows]), y[train_rows]).predict_proba(rows)
        assert -result.score == pytest.approx(log_loss(truth, p), abs=2e-3)
        assert "lowest log-loss after calibration" in comparison.answer()[0]
    else:
        expected = {
            "accuracy": accuracy_score(truth, model.predict(rows)),
            "balanced_accuracy": balanced_accuracy_score(truth, model.predict(rows)),
            "f1_macro": f1_score(truth, model.predict(rows), average="macro"),
            "roc_auc": roc_auc_score(truth == "rare", margin),
            "average_precision": average_precision_score(truth == "rare", margin),
        }
        assert result.score == pytest.approx(expected[scoring])
        assert {name: result.detail.scores[name] for name in expected} == pytest.approx(expected)
    dummy = DummyClassifier(strategy="prior").fit(X, y)
    always = []
    for _, part in comparison.plan.parts(y):
        truths, named = y[part], dummy.predict(X[part])
        always.append({
            "accuracy": accuracy_score(truths, named),
            "balanced_accuracy": 0.5,
            "f1_macro": f1_score(truths, named, average="macro", zero_division=0.0),
            "roc_auc": 0.5,
            "average_precision": np.mean(truths == "rare"),
            "log_loss": -log_loss(truths, dummy.predict_proba(X[part])),
        })  # fmt: skip
    assert comparison.baseline == pytest.approx(np.mean([scores[scoring] for scores in always]))
    inner = Scorer(scoring, "rare")
    if scoring not in ("log_loss", "accuracy"):
        assert inner(model, rows, truth) == pytest.approx(expected[scoring])
    assert repeat_code(comparison).count("scoring=") == (scoring != "accuracy")
    assert LABELS[scoring] in comparison.to_html()


def test_scores_of_several_classes_are_means_over_them():
    X, y = load_iris(return_X_y=True)
    model = LogisticRegression(max_iter=1000).fit(X[::2], y[::2])
    values = model.decision_function(X)
    found = measures(y, model.predict(X), values, model.classes_, None)
    truth = label_binarize(y, classes=model.classes_)
    assert found["roc_auc"] == pytest.approx(roc_auc_score(truth, values, average="macro"))
    assert found["average_precision"] == pytest.approx(average_precision_score(truth, values, average="macro"))
    assert -1.0 < Scorer("log_loss")(model, X, y) < 0.0


def test_unequal_classes_are_pointed_out_with_the_option(data):
    X, y = data
    keep = (y == 0) | (np.arange(len(y)) % 5 == 0)
    said = []
    compare(X[keep], y[keep], methods=["mamc"], splits=2, repeats=1, quick=True, say=said.append)
    (note,) = [line for line in said if "times as many rows" in line]
    assert note.startswith("The class '0' has ") and "--scoring balanced_accuracy" in note
    said.clear()
    compare(
        X[keep],
        y[keep],
        methods=["mamc"],
        splits=2,
        repeats=1,
        quick=True,
        scoring="balanced_accuracy",
        say=said.append,
    )
    assert not [line for line in said if "times as many rows" in line]
    with pytest.raises(ValueError, match=r"scoring must be one of accuracy, balanced_accuracy, .*got 'auc'"):
        compare(X, y, scoring="auc")


def test_a_store_of_an_earlier_version_is_refused_or_computed_anew(data, tmp_path):
    path = tmp_path / "old.sqlite"
    settings = {"methods": ["mamc"], "splits": 2, "repeats": 1, "quick": True, "store": path, "resume": True}
    compare(*data, **settings)
    with Store(path) as store:
        note = store.note("compare")
        del note["format"]
        store.note("compare", note)
    with pytest.raises(ValueError, match="holds a comparison of an earlier margindist; run it again with this one"):
        Comparison.from_store(path)
    said = []
    compare(*data, **settings, say=said.append)
    assert "Not resumed: the results kept are of an earlier margindist, so everything is computed anew." in said


def test_classes_too_small_for_nested_cross_validation_are_refused_or_noted(data):
    X, y = data
    with pytest.raises(ValueError, match="the class '7' of 'y' has 3 rows of 90, and nested cross-validation needs 4"):
        compare(X, np.r_[[7] * 3, y[3:]])
    with pytest.raises(ValueError, match="at least two classes in y, got only 0"):
        compare(X, np.zeros(90))
    with pytest.raises(ValueError, match="features without labels"):
        compare(X)
    few = compare(X, np.r_[[7] * 4, y[4:]], methods=["mamc"], repeats=1, quick=True)
    assert few.plan.splits == 4 and few.plan.folds == 3
    assert "The class '7' has only 4 rows, so there are 4 splits instead of 5." in few.about.notes
    assert all(result.status == "done" for result in few.results)


def prepared(X, y):
    return prepare((Dataset("made", X, y), {"kind": "arrays"}), Columns())


def mixed_table(rng):
    y = rng.integers(0, 3, 75)
    frame = pd.DataFrame({
        HOSTILE: y + rng.normal(size=75),
        "colour": np.array(["red", "green", "blue"])[(y + (rng.random(75) < 0.3)) % 3],
        "size": rng.normal(size=75),
    })  # fmt: skip
    frame.loc[::7, "size"] = np.nan
    frame.loc[3::11, "colour"] = None
    frame["kind"] = np.array(["a", HOSTILE, "c"])[y]
    return frame


def test_a_table_with_categories_missing_values_and_hostile_names(tmp_path, monkeypatch, rng):
    monkeypatch.chdir(tmp_path)
    mixed_table(rng).to_csv("mixed.csv", index=False)
    comparison = compare("mixed.csv", target="kind", methods=["lssvm", "msvmav"], splits=2, repeats=1, quick=True)
    assert not comparison.failures
    assert comparison.about.numbers == {
        "rows": 75, "columns": 3, "encoded": 5, "sparse": False, "categorical": 1, "missing": 18
    }  # fmt: skip
    page = comparison.to_html(f"margindist compare {HOSTILE}")
    assert HOSTILE not in page and page.count("<script>") == page.count("</script>") == 1
    namespace = {}
    exec(code(comparison), namespace)
    assert namespace["model"].score(namespace["data"].X, namespace["data"].y) > 0.6
    exec(repeat_code(comparison).replace("n_jobs=-1", "n_jobs=1"), namespace)
    assert scores(namespace["comparison"]) == scores(comparison)
    json.loads(json.dumps(comparison.as_dict(), allow_nan=False))


def test_sparse_data_and_names_of_the_catalogue(data, capsys):
    X, y = data
    sparse = compare(sp.csr_array(np.maximum(X, 0)), y, methods=["ldm"], splits=2, repeats=1, quick=True)
    assert not sparse.failures and sparse.about.numbers["sparse"]
    assert "(sparse)" in sparse.to_html()
    iris = compare("iris", methods=["mamc"], splits=3, repeats=1, quick=True)
    for row in iris.rows:
        namespace = {}
        exec(code(iris, row.method), namespace)
        printed = float(capsys.readouterr().out)
        assert printed == pytest.approx(row.accuracy, abs=0.05)
    assert next(row for row in iris.rows if row.method == "svc").geometric_margin is None  # one against one


def test_training_chooses_and_fits():
    X, y = load_iris(return_X_y=True)
    trained = train(X, y, method="lssvm", quick=True)
    assert trained.model.score(X, y) > 0.7 and set(trained.parameters) == {"C"}
    given = train(X, y, method="ldm", parameters={"C": 2.0, "lambda1": 0.0, "lambda2": 0.0})
    assert given.inner_score is None and given.model[-1].C == 2.0
    with pytest.raises(ValueError, match="a threshold divides two classes, and your data has 3"):
        train(X, y, method="mamc", threshold="balanced_accuracy")
    with pytest.raises(ValueError, match="there is no method 'svm'"):
        train(X, y, method="svm")


@pytest.mark.filterwarnings("ignore:n_components")
def test_a_kernel_is_stood_for_by_nystroem_features():
    X, y = make_classification(150, 5, n_informative=3, random_state=0)
    comparison = compare(X, y, methods=["ldm-nystroem"], splits=2, repeats=1, quick=True)
    row = next(row for row in comparison.rows if row.method == "ldm-nystroem")
    assert row.label == "LDM (Nystroem)" and row.kernel and row.geometric_margin > 0.0 and not comparison.failures
    namespace = {"X": X, "y": y}
    exec(code(comparison, "ldm-nystroem"), namespace)
    assert abs(namespace["model"].score(X, y) - row.score) < 0.2


def test_a_function_may_be_the_score(data):
    X, y = data

    def recall_of_ones(model, X, y):
        return float(np.mean(model.predict(X)[y == 1] == 1))

    comparison = compare(X, y, methods=["mamc"], splits=2, repeats=1, quick=True, scoring=recall_of_ones)
    result = next(r for r in comparison.results if r.cell.method == "mamc" and r.cell.split == 0)
    assert result.score == result.detail.confusion[1][1] / sum(result.detail.confusion[1])
    assert "the highest recall_of_ones" in comparison.answer()[0] and "recall_of_ones" in str(comparison)
    assert "most frequent" not in str(comparison) and "recall_of_ones" in comparison.to_html()
    json.loads(json.dumps(comparison.as_dict(), allow_nan=False))


def test_a_notebook_shows_the_answer_and_the_table(comparison):
    page = comparison._repr_html_()
    assert page.startswith("<p><b>Use ") and all(row.label in page for row in comparison.rows)


def test_dates_of_a_frame_are_those_of_a_file(tmp_path):
    rng = np.random.default_rng(0)
    days = pd.date_range("2023-12-20", periods=60, freq="13h")
    frame = pd.DataFrame({"seen": days, "x": rng.normal(size=60), "kind": np.where(rng.random(60) < 0.5, "a", "b")})
    frame.to_csv(tmp_path / "dates.csv", index=False)
    from_file, _ = find_data(tmp_path / "dates.csv", target="kind")
    from_frame, _ = find_data(frame, target="kind")
    assert from_frame.feature_names == from_file.feature_names and "seen (hour)" in from_frame.feature_names
    np.testing.assert_allclose(np.asarray(from_frame.X), np.asarray(from_file.X))
    assert find_data(frame.assign(seen=days.tz_localize("UTC")), target="kind")[0].feature_names
    said = suspicions(prepare((from_frame, {}), Columns()))
    assert "made of 'seen' count in every distance of methods with a kernel" in " ".join(said)
    assert prepare((from_frame, {}), Columns(drop=("seen",))).dataset.feature_names == ("x",)


# ---------------------------------------------------------------------- rows that belong together, columns that tell


def persons(n_persons=24, rows=6):
    """Rows of persons, whose class shows in nothing but who they are."""
    rng = np.random.default_rng(0)
    person = np.repeat(np.arange(n_persons), rows)
    frame = pd.DataFrame(rng.normal(size=(n_persons, 3))[person] + 0.01 * rng.normal(size=(len(person), 3)))
    frame.columns = ["a", "b", "c"]
    frame["patient_id"] = [f"p{k}" for k in person]
    frame["day"] = np.arange(len(frame)) % 97
    frame["ill"] = np.where(rng.permutation(np.arange(n_persons) % 2)[person] == 1, "yes", "no")
    return frame


def test_groups_stay_together_in_outer_and_inner_splits():
    frame = persons()
    settings = {"target": "ill", "methods": ["mamc-rbf"], "splits": 3, "repeats": 2, "quick": True}
    apart = compare(frame, groups="patient_id", **settings)
    assert apart.plan.divided == "groups" and "patient_id" not in apart.about.features
    data = prepare(find_data(frame, target="ill"), Columns(groups="patient_id"))
    parts = apart.plan.parts(data.dataset.y, data.blocks)
    assert len(parts) == 6 and sorted(np.concatenate([test for _, test in parts[:3]])) == list(range(len(frame)))
    for train_rows, test_rows in parts:
        assert not set(frame.patient_id[train_rows]) & set(frame.patient_id[test_rows])
        for chosen, left in inner_splits(data.dataset.y[train_rows], data.blocks.of(train_rows), 3, 0):
            assert not set(data.blocks.values[train_rows][chosen]) & set(data.blocks.values[train_rows][left])
    mixed = compare(frame, drop=["patient_id"], **settings)
    best = {row.method: row.score for row in mixed.rows}
    assert best["svc"] > 0.9 > {row.method: row.score for row in apart.rows}["svc"] + 0.2
    assert "groups='patient_id'" in repeat_code(apart) and "keep groups together" in apart.to_html()
    assert any("'patient_id' has 24 values in 144 rows" in note for note in compare(frame, **settings).about.notes)


def test_test_rows_come_later_by_time():
    frame = persons()
    comparison = compare(frame, target="ill", time="day", drop=["patient_id"], methods=["mamc"], splits=4, quick=True)
    assert (comparison.plan.splits, comparison.plan.repeats, comparison.plan.divided) == (4, 1, "time")
    data = prepare(find_data(frame, target="ill"), Columns(time="day"))
    parts = comparison.plan.parts(data.dataset.y, data.blocks)
    assert len(parts) == 4 and len({len(test_rows) for _, test_rows in parts}) <= 4
    for train_rows, test_rows in parts:
        assert frame.day[train_rows].max() < frame.day[test_rows].min()
    assert comparison.rows and not comparison.failures and "day" not in comparison.about.features
    late = frame.assign(ill=np.where(frame.day > 60, "late", "early"))
    with pytest.raises(
        ValueError, match="divided by time, the training part of split 1 has no row of the class 'late'"
    ):
        compare(late, target="ill", time="day")
    with pytest.raises(ValueError, match="choose one of them"):
        compare(frame, target="ill", time="day", groups="patient_id")


def test_columns_are_left_out_by_name_and_misspelt_ones_are_named():
    frame = persons()
    few = compare(frame, target="ill", only=["a", "b"], methods=["mamc"], splits=2, repeats=1, quick=True)
    assert few.about.features == ["a", "b"] and "2 of 5 columns are used, as asked for." in few.about.notes
    with pytest.raises(ValueError, match="there is no column 'patient' to use; did you mean patient_id"):
        compare(frame, target="ill", drop=["patient"])
    with pytest.raises(ValueError, match="there is no column 'il'; did you mean ill"):
        compare(frame, target="il")
    with pytest.raises(ValueError, match="no column is left"):
        compare(frame, target="ill", drop=["a", "b", "c", "day", "patient_id"])


def test_what_is_too_good_to_be_true_is_said():
    rng = np.random.default_rng(0)
    y = rng.integers(0, 3, 200)
    frame = pd.DataFrame({"x": rng.normal(size=200), "code": np.array(["u", "v", "w"])[y], "score": (y + 1) % 3 / 7})
    said = suspicions(prepared(frame.astype({"code": "category"}), y))
    assert [note.split("'")[1] for note in said] == ["code", "score"] and all("--drop" in note for note in said)
    assert not suspicions(prepared(rng.normal(size=(200, 3)), y))
    assert not suspicions(prepared(*load_iris(return_X_y=True)))
    twice = np.repeat(rng.normal(size=(50, 3)), 2, axis=0)
    assert suspicions(prepared(twice, y[:100]))[0].startswith("50 of 100 rows repeat others")
    days = pd.DataFrame({"seen (days since 1970)": 10.0 * y + rng.normal(0.0, 3.0, 200), "x": rng.normal(size=200)})
    *_, note = suspicions(prepared(days, y))
    assert note.startswith("The classes follow 'seen'") and "--time 'seen'" in note


def test_a_threshold_is_chosen_by_a_score():
    X, y = make_classification(600, 5, weights=[0.9], flip_y=0.1, random_state=0)
    labels = np.where(y == 1, "alarm", "usual")
    plain, tuned = (train(X, labels, method="lssvm", quick=True, threshold=how).model for how in (None, "f1"))
    f1 = [f1_score(labels, model.predict(X), pos_label="alarm") for model in (plain, tuned)]
    assert f1[1] > f1[0] + 0.05
    balanced = train(X, labels, method="lssvm", quick=True, threshold="balanced_accuracy").model
    assert balanced_accuracy_score(labels, balanced.predict(X)) > balanced_accuracy_score(labels, plain.predict(X))
    with pytest.raises(ValueError, match="choose one"):
        train(X, labels, method="lssvm", threshold="f1", calibrate="sigmoid")


# ---------------------------------------------------------------------- the closer look


def test_the_closer_look_is_what_a_naive_one_sees(comparison, data):
    X, y = data
    assert len(comparison.looks) == 3 * len(comparison.looked_at) and len(comparison.looked_at) == 2
    key = comparison.looked_at[0]
    look = next(look for look in comparison.looks if look.cell.method == key and look.cell.split == 0)
    train_rows, test_rows = comparison.plan.parts(y)[0]
    scaler = MinMaxScaler().fit(X[train_rows])
    model = BY_KEY[key].estimator(3, **look.parameters).fit(scaler.transform(X[train_rows]), y[train_rows])
    result = next(r for r in comparison.results if r.cell.method == key and r.cell.split == 0)
    predicted = model.predict(scaler.transform(X[test_rows]))
    assert result.detail.confusion == confusion_matrix(y[test_rows], predicted).tolist()
    sizes = [size for size, _ in look.detail.learning]
    assert sizes == sorted(sizes) and sizes[-1] == len(train_rows)
    assert look.detail.learning[-1][1] == pytest.approx(result.score)
    rows, claimed, true = np.array(look.detail.calibration)
    assert rows.sum() == len(test_rows) and true.sum() == np.sum(y[test_rows].astype(str) == comparison.plan.positive)
    assert (claimed <= rows + 1e-9).all()
    assert set(look.detail.importance) == {f"column {k}" for k in range(6)}
    assert max(look.detail.importance.values()) > 0.0
    assert look.detail.roc[-1] == 1.0 and look.detail.precision[0] <= 1.0
    assert np.diff(look.detail.roc).min() >= 0.0


def test_precision_and_recall_are_those_of_the_summed_confusions(comparison):
    results = comparison.done["linearsvc"]
    classes, shares, confusions, lines = by_class(results, comparison.about.classes)
    counts = np.sum([r.detail.confusion for r in results], axis=0)
    assert counts.sum() == 90 * 2  # every row once per repeat
    np.testing.assert_allclose(np.sum(shares, axis=1), 1.0)
    for k, (name, rows, precision, recall, f1) in enumerate(lines):
        assert (name, rows) == (classes[k], comparison.about.classes[classes[k]])
        assert precision == pytest.approx(counts[k, k] / counts[:, k].sum())
        assert recall == pytest.approx(counts[k, k] / counts[k].sum())
        assert f1 == pytest.approx(2 * precision * recall / (precision + recall))
    assert {(really, taken) for really, taken, _ in confusions} == {("0", "1"), ("1", "0")}


def test_the_report_shows_answer_then_pictures_then_tables(comparison):
    page = comparison.to_html()
    order = [page.index(text) for text in (
        'class="answer"', "Time against accuracy", "Is more data worth it?", "The columns that matter to",
        "Confusion matrix of", "ROC of", "Precision and recall of", "Predicted probabilities",
        "The methods, best first", "(the most frequent class)", "Class by class",
    )]  # fmt: skip
    assert order == sorted(order)
    assert worth_of_more_rows(comparison) in page.replace("&#43;", "+").replace("&#39;", "'")


def test_a_report_without_a_closer_look_says_so(comparison):
    bare = Comparison(comparison.plan, comparison.about, comparison.results, "interrupted")
    page = bare.to_html()
    assert "was not reached; run the same command with" in page and "ROC of" not in page


# ---------------------------------------------------------------------- the report in a browser


def browser(page, tmp_path, *arguments):
    file = tmp_path / "page.html"
    file.write_text(page, encoding="utf-8")
    command = [CHROMIUM, "--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={tmp_path / 'profile'}",
               "--enable-logging=stderr", "--virtual-time-budget=2000", *arguments, file.as_uri()]  # fmt: skip
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


CLICK = """
<script>
const column = name => [...document.querySelectorAll("table.sortable thead")][0].querySelectorAll("th")[name];
const fit = [...document.querySelectorAll("table.sortable thead")[0].querySelectorAll("th")]
  .findIndex(head => head.textContent === "fit");
const names = () => [...document.querySelectorAll("table.sortable tbody")][0].querySelectorAll("tr > th");
const texts = () => [...names()].map(cell => cell.textContent);
const log = [];
for (const name of [1, 1, fit]) { column(name).querySelector("button").click(); log.push(texts().join("|")); }
log.push(column(fit).getAttribute("aria-sort"), document.documentElement.scrollWidth <= innerWidth);
log.push(performance.getEntriesByType("resource").length);
document.title = log.join(";");
</script>
"""


@pytest.mark.skipif(CHROMIUM is None, reason="no Chromium")
def test_the_report_sorts_and_fits_a_narrow_window_without_errors_or_requests(comparison, tmp_path):
    page = comparison.to_html().replace("</body>", f"{CLICK}</body>")
    done = browser(page, tmp_path, "--window-size=390,900", "--dump-dom")
    assert "CONSOLE" not in done.stderr, done.stderr
    title = re.search(r"<title>(.*?)</title>", done.stdout, flags=re.S).group(1)
    up, down, by_time, direction, fits, requests = title.split(";")
    last = "(the most frequent class)"  # whatever the order
    assert [order.split("|")[-1] for order in (up, down, by_time)] == [last] * 3
    up, down, by_time = (order.removesuffix(f"|{last}") for order in (up, down, by_time))
    labels = [row.label for row in comparison.rows]
    assert up.split("|") == sorted(labels, key=str.lower)
    assert down.split("|") == sorted(labels, key=str.lower, reverse=True)
    assert by_time.split("|") == [row.label for row in sorted(comparison.rows, key=lambda row: row.fit_seconds)]
    assert (direction, fits, requests) == ("ascending", "true", "0")


def test_the_report_needs_nothing_from_outside(comparison):
    page = comparison.to_html("margindist compare x")
    assert not re.findall(r"""(?:src|href)=(?!"#)|@import|url\((?!#)|https?://""", page)
    assert "prefers-color-scheme: dark" in page and "@media print" in page
    for row in comparison.rows:
        assert row.label in page and f"{row.accuracy:.3f}" in page
    for text in ("margindist compare x", comparison.plan.checksum, "seed 3", "scikit-learn"):
        assert text in page


def test_a_report_of_nothing_is_a_report(store):
    with Store(":memory:") as empty:
        assert empty.results() == []
    comparison = Comparison.from_store(store)
    nothing = Comparison(comparison.plan, comparison.about, [], "interrupted")
    assert "Nothing is finished yet" in nothing.to_html() and "0 of 30" in nothing.to_html()


def test_settings_that_could_not_be_fitted_leave_no_hole_in_the_report(store):
    comparison = Comparison.from_store(store)
    for result in comparison.results:
        if result.cell.method == "linearsvc":
            result.detail.influence.scores[0] = None
    assert "LinearSVC: score by C" in comparison.to_html()
    for result in comparison.results:
        result.detail.influence.scores[:] = [None for _ in result.detail.influence.scores]
    assert "score by" not in comparison.to_html()
