"""The study of where margin terms help: its declaration, its cells, what is found in them, and its page."""

from types import SimpleNamespace

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.datasets import load_breast_cancer

from margindist.datasets import status
from margindist.runs.store import Cell, Result, Store
from reproduction import protocol
from reproduction import study as measuring
from reproduction.report import write_reports
from reproduction.run import evaluate, plan, repeat, reproduce, select, told_apart
from reproduction.study import LINEAR, RBF, study
from reproduction.study_findings import Findings, means_without_one, turning_sets


def points(method):
    return int(np.prod([len(axis.values) for axis in method.grid]))


@pytest.mark.parametrize("keys, budget", [(LINEAR, 18), (RBF, 72)])
def test_budgets_are_equal_but_for_what_has_no_price(keys, budget):
    methods = [study()["study-main"].method(key) for key in keys]
    assert {points(method) for method in methods if "fmm" not in method.key} == {budget}


def test_prices_span_as_many_decades_and_widths_go_in_steps_of_their_root():
    axes = [axis for key in RBF for axis in study()["study-main"].method(key).grid if len(axis.values) > 1]
    steps = {axis.parameter: np.diff(np.log10(axis.values)) for axis in axes}
    for parameter in ("C", "lam", "alpha"):
        assert steps[parameter] == pytest.approx(1.0)
    assert steps["gamma"] == pytest.approx(0.5, abs=1e-3)  # widths: far out, the kernel goes with their squares
    spans = {axis.parameter: np.log10(axis.values[-1] / axis.values[0]) for axis in axes}
    assert {round(spans[parameter], 9) for parameter in ("C", "lam", "alpha")} == {8.0}


def test_every_data_set_is_in_the_catalogue_or_bundled():
    known = {row.name for row in status(None)}
    lines = study()["study-main"].data
    assert all(line.catalogue in known or "sklearn" in line.generator for line in lines)
    assert len({line.catalogue for line in lines}) == len(lines)


def test_the_order_of_work_is_split_by_split():
    cells = plan(select(["study-main"]), only=["wdbc", "iris"])
    assert [cell.split for cell in cells] == sorted(cell.split for cell in cells)


def test_without_a_data_folder_there_are_few_splits(monkeypatch, tmp_path):
    monkeypatch.delenv("MARGINDIST_DATA", raising=False)
    protocol._states.cache_clear()
    lines = []
    asked = {"output": tmp_path, "only": ["iris/lssvm", "german/lssvm"], "jobs": 1, "say": lines.append}
    summary = reproduce(select(["study-main"]), **asked)
    assert (summary.done, summary.skipped) == (2, 0)  # nothing is planned for german, which is not there
    assert "iris" in lines[0] and "2 splits" in lines[0]
    assert reproduce(select(["study-main"]), splits=3, **asked).done == 1
    monkeypatch.setattr(measuring, "here", lambda line, data_dir: True)
    assert measuring.bundled_part(select(["study-main"])) is None
    protocol._states.cache_clear()


def test_only_tells_conditions_from_data_sets():
    ids, rest = told_apart(["study/noise-*", "wdbc/ldm*"])
    assert [experiment.id for experiment in select(ids)] == [f"study-noise-{share}" for share in (5, 10, 20, 30)]
    assert rest == ("wdbc/ldm*",)
    assert not any(experiment.id in study() for experiment in select([]))


# ---------------------------------------------------------------------- rows


def rows(condition, split=0):
    experiment, cell = study()[condition], Cell(condition, "wdbc", "svm", split)
    X, y = load_breast_cancer(return_X_y=True)
    marked = np.column_stack([X, np.arange(len(y))])
    parts = measuring._parts(experiment, marked, y, cell, measuring.seeds_of(experiment, cell))
    return parts, y


@pytest.mark.parametrize("split", [0, 1])
def test_training_and_test_part_share_no_row_and_keep_the_classes(split):
    parts, y = rows("study-main", split)
    assert not set(parts.X[:, -1]) & set(parts.X_test[:, -1])
    assert len(parts.y) == pytest.approx(200, abs=2)
    assert np.mean(parts.y) == pytest.approx(np.mean(y), abs=0.02)
    assert parts.X.mean(axis=0) == pytest.approx(0.0, abs=1e-9)


def test_conditions_change_the_training_part_and_not_the_test_part():
    usual, _ = rows("study-main")
    few, _ = rows("study-rows-50")
    unequal, _ = rows("study-classes-10")
    noisy, _ = rows("study-noise-20")
    assert len(few.y) == pytest.approx(50, abs=1)
    counts = np.bincount(unequal.y)
    assert max(counts) / min(counts) == pytest.approx(10, rel=0.06)
    assert np.sum(noisy.y != usual.y) == round(0.2 * len(usual.y))
    assert noisy.y_test.tolist() == usual.y_test.tolist()
    assert np.mean(few.y_test) == pytest.approx(np.mean(usual.y_test), abs=0.01)


def test_coordinates_keep_inner_products_and_distances():
    rng = np.random.default_rng(0)
    X, X_test = (sp.csr_matrix(rng.poisson(0.3, (n, 40)).astype(float)) for n in (7, 5))
    own, _, tested, _ = measuring._coordinates(X, X_test, np.zeros(7), np.zeros(5))
    assert own @ own.T == pytest.approx((X @ X.T).toarray())
    assert tested @ own.T == pytest.approx((X_test @ X.T).toarray())
    assert np.sum(tested**2, axis=1) == pytest.approx(np.asarray(X_test.multiply(X_test).sum(axis=1)).ravel())


# ---------------------------------------------------------------------- which point is chosen

GRID = {"C": (0.1, 1.0, 10.0, 100.0), "gamma": (3.0, 2.0, 1.0)}


def searched(*best):
    points = [{"C": C, "gamma": gamma} for C in GRID["C"] for gamma in GRID["gamma"]]
    scores = [0.9 if (point["C"], point["gamma"]) in best else 0.8 for point in points]
    return SimpleNamespace(cv_results_={"params": points, "mean_test_score": np.array(scores)}, best_score_=0.9)


def test_of_equally_good_points_the_middle_one_is_chosen():
    tied = measuring._equally_good(searched((0.1, 3.0), (1.0, 3.0), (10.0, 3.0)))
    assert measuring._middle(tied, GRID) == {"C": 1.0, "gamma": 3.0}
    backwards = {name: values[::-1] for name, values in GRID.items()}
    assert measuring._middle(tied, backwards) == {"C": 1.0, "gamma": 3.0}
    assert measuring._middle(measuring._equally_good(searched((100.0, 1.0))), GRID) == {"C": 100.0, "gamma": 1.0}


def test_a_choice_is_at_the_edge_if_no_inner_point_is_as_good():
    ends = measuring._equally_good(searched((0.1, 3.0), (100.0, 2.0)))
    assert [name for name, values in GRID.items() if measuring._at_the_edge(ends, name, values)] == ["C"]


def test_the_searches_own_grids_are_searched_as_they_search():
    assert [key for key, one in study().items() if one.settings.get("ties") == "first"] == ["study-searches"]


# ---------------------------------------------------------------------- cells, findings and the page


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    path = tmp_path_factory.mktemp("study") / "study.sqlite"
    rng = np.random.default_rng(0)
    with Store(path) as opened:
        for name in ("svm", "ldm", "lssvm", "svm-rbf"):
            opened.record(evaluate(Cell("study-main", "iris", name, 0)))
        for method in study()["study-defaults"].methods:
            detail = {"train": 75, "test": 75, "balanced": 0.9}
            opened.record(Result(Cell("study-defaults", "iris", method.key, 0), score=0.9, detail=detail))
        opened.record(evaluate(Cell("study-defaults", "iris", "odm-1-0.4-0.2", 0)))
        for dataset in ("wdbc", "german", "diabetes", "splice"):
            for name, mean in (("svm", 0.8), ("ldm", 0.83), ("svm-rbf", 0.85), ("ldm-rbf", 0.85), ("odm-rbf", 0.7)):
                detail = {"edge": [], "search_seconds": 0.1, "train": 200, "test": 284, "balanced": mean}
                score = mean + rng.normal(0, 1e-3)
                opened.record(Result(Cell("study-main", dataset, name, 0), score=score, detail=detail))
    return path


def test_a_cell_has_all_scores_and_comes_out_the_same(store):
    with Store(store) as opened:
        found = opened.result(Cell("study-main", "iris", "ldm", 0))
    assert found.score > 0.7
    assert {
        "balanced",
        "auc",
        "log_loss",
        "stability",
        "shifted",
        "rescaled",
        "edge",
        "cv_score",
    } <= found.detail.keys()
    assert repeat("study-main/iris/ldm/0", store, say=lambda line: None)


def test_differences_verdicts_and_what_they_hang_on(store):
    with Store(store) as opened:
        main = Findings(study()["study-main"], opened.results("study-main"))
    better, alike, worse = (
        main.contrast(*pair) for pair in (("ldm", "svm"), ("ldm-rbf", "svm-rbf"), ("odm-rbf", "svm-rbf"))
    )
    assert [len(contrast.differences) for contrast in (better, alike, worse)] == [5, 4, 4]
    assert worse.mean == pytest.approx(-0.15, abs=0.01)
    assert (alike.verdict, worse.verdict) == ("alike", "worse")
    assert better.low < better.mean < better.high
    least, most = means_without_one(worse)
    assert least <= worse.mean <= most
    one_sided = main.contrast("ldm", "svm")
    assert set(turning_sets(one_sided)) <= set(one_sided.differences)


def test_the_page_answers_first_and_says_what_is_missing(store, tmp_path):
    write_reports(store, list(study().values()), tmp_path)
    text = (tmp_path / "study.md").read_text()
    in_order = ["as far as this study can show", "| method |", "![", "## Condition by condition", "| condition |"]
    assert sorted(in_order, key=text.index) == in_order
    assert "of 10,500 cells" in text
    assert "nothing yet of SVM, squared hinge; ODM; " in text
    assert "python -m reproduction --cell study-" in text
    assert (tmp_path / "figures" / "study.svg").exists()
    assert not (tmp_path / "index.md").exists()
