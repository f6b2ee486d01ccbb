"""The printed numbers against the averages and counts that the papers print, and declarations that must be refused."""

import pickle
from dataclasses import replace

import pytest

from reproduction import claims
from reproduction.consistency import inconsistencies, significance
from reproduction.declarations import (
    Axis,
    DeclarationError,
    Printed,
    experiments,
    load_experiments,
)

TABLES = {  # lines and printed columns of each table
    "ldm-table-2": (20, 5),
    "ldm-table-3": (20, 5),
    "ldm-table-4": (12, 5),
    "mamc-table-2": (13, 6),
    "mamc-table-3": (13, 6),
    "pumma-table-1": (8, 4),
    "mcodm-table-2": (22, 5),
    "msvmav-table-1": (30, 7),
    "msvmav-table-2": (20, 7),
}
FIGURES = {
    *(f"{paper}-figure-{number}" for paper in ("ldm", "mcodm") for number in (1, 2, 3)),
    "msvmav-figure-1",  # Figure 2 too
    "msvmav-figure-3",
    "pumma-figure-3",
    "pumma-figure-4",
}


def column(table, method, measure=None):
    return [table.cell(data.key, method, measure) for data in table.data]


def test_every_table_and_figure_is_there():
    assert set(experiments()) == set(TABLES) | FIGURES
    for name, experiment in experiments().items():
        assert experiment.id == name and name.startswith(experiment.paper.key)
        assert bool(experiment.printed) == (name in TABLES)


def test_every_paper_has_a_main_claim_in_one_of_its_own_experiments():
    for experiment in experiments().values():
        assert experiment.paper.claim.endswith(".")
        assert experiments()[experiment.paper.main].paper == experiment.paper


@pytest.mark.parametrize("name", TABLES)
def test_shape_of_a_table(name):
    table = experiments()[name]
    lines, columns = TABLES[name]
    assert len(table.data) == lines
    assert sum(method.printed for method in table.methods) == columns
    for cells in table.printed.values():
        assert len(cells) == lines * columns


@pytest.mark.parametrize("name", ["ldm-table-2", "ldm-table-3", "ldm-table-4", "mamc-table-2"])
def test_printed_averages(name):
    table = experiments()[name]
    for method, printed in table.summary["average"].items():
        means = [cell.mean for cell in column(table, method) if cell.status == "number"]
        assert sum(means) / len(means) == pytest.approx(printed.mean, abs=1.01 * printed.resolution)


@pytest.mark.parametrize("name, method, counts", [
    ("ldm-table-2", "ldm", (12, 8, 0)),
    ("ldm-table-3", "ldm", (10, 10, 0)),
    ("ldm-table-4", "ldm-asgd", (6, 6, 0)),
])  # fmt: skip
def test_ldm_counts_against_svm_follow_from_marks(name, method, counts):
    table = experiments()[name]
    better = [cell.better for cell in column(table, method)]
    assert (better.count(1), better.count(0), better.count(-1)) == counts == table.summary["win-tie-loss"]["svm"]


@pytest.mark.parametrize("name", ["mcodm-table-2", "msvmav-table-1", "msvmav-table-2"])
def test_counts_follow_from_marks(name):
    table = experiments()[name]
    for method, counts in table.summary["win-tie-loss"].items():
        better = [cell.better for cell in column(table, method) if cell.better is not None]
        found = (better.count(-1), better.count(0), better.count(1))
        expected = (16, 3, 1) if (name, method) == ("msvmav-table-2", "mamc") else counts
        assert found == expected


def test_welch_counts_follow_from_means_and_deviations():
    """The printed counts of Welch's test are those of the rounded numbers but for comparisons on the edge."""
    table = experiments()["mamc-table-2"]
    for method, (wins, ties, losses) in table.summary["win-tie-loss"].items():
        bounds = [
            significance(table.cell(d.key, "mamc-bs"), table.cell(d.key, method), table.n_splits(d.key), "welch")
            for d in table.data
        ]
        assert wins + ties + losses == len(bounds)
        assert sum(low == 1 for low, _ in bounds) <= wins <= sum(high == 1 for _, high in bounds)
        assert sum(high == -1 for _, high in bounds) <= losses <= sum(low == -1 for low, _ in bounds)
        assert sum(low != high for low, high in bounds) <= 1


def test_bold_numbers_are_as_many_as_the_text_says():
    for name, method, best in (("ldm-table-2", "ldm", 13), ("ldm-table-3", "ldm", 15), ("ldm-table-4", "ldm-asgd", 8)):
        table = experiments()[name]
        assert sum(cell.bold for cell in column(table, method)) == table.summary["best"][method] == best


def test_inconsistencies_found():
    found = inconsistencies()
    expected = [
        ("mamc-table-2", "MAMC_bsg is best on 1 of 13 lines"),
        ("mamc-table-2", "MAMC is worst on 12 of 13 lines"),
        ("mamc-table-3", "MAMC_bsg is worst on 2 to 3"),
        ("mamc-table-3", "EMAMC is worst on 4 to 6 of 13 lines (ties counted or not), the paper says 7; some"),
        ("pumma-table-1", "on adult-1k PUMMA's margin 4.50 is 0.909 of the best"),
        ("pumma-table-1", "on adult-8k MICRA (189.13 s) is faster"),
        ("msvmav-table-1", "159 of 205 standard deviations are less than half"),
        ("msvmav-table-1", "on parkinsons the accuracy .7949±.0000● of MAMC"),
        ("msvmav-table-1", "SVM and LSSVM have the same mean and standard deviation"),
        ("msvmav-table-2", "the marks of MAMC give 16/3/1"),
        ("msvmav-table-2", "on hill-valley MAMC (.5402±.0320) is marked as no different"),
        ("msvmav-table-2", "92 of 140 standard deviations"),
    ]
    for start, part in expected:
        assert any(sentence.startswith(f"{start}: ") and part in sentence for sentence in found), part
    assert len(found) == len(expected)


def altered(name, dataset, method, **changes):
    """Return an experiment with one printed number changed."""
    table = experiments()[name]
    measure = next(iter(table.printed))
    cells = dict(table.printed[measure])
    cells[dataset, method] = replace(cells[dataset, method], **changes)
    return replace(table, printed={measure: cells})


@pytest.mark.parametrize("name, dataset, method, change, said", [
    ("ldm-table-3", "promoters", "ldm", {"mean": 0.81}, "have the average"),
    ("ldm-table-3", "planning-relax", "svm", {"mean": 0.0}, "the bold one is svm"),
    ("ldm-table-2", "austra", "mdo", {"better": 1}, "is marked as better"),
    ("ldm-table-2", "promoters", "ldm", {"better": 1}, "give 13/7/0 wins"),
    ("mcodm-table-2", "iris", "mcodm", {"mean": 0.5}, "average rank"),
])  # fmt: skip
def test_a_slip_is_found(name, dataset, method, change, said):
    assert not inconsistencies(experiments()[name])
    assert any(said in sentence for sentence in inconsistencies(altered(name, dataset, method, **change)))


def test_significance_is_bounded():
    def result(mean, std):
        return Printed("", "number", mean=mean, std=std, resolution=0.001)

    assert significance(result(0.9, 0.01), result(0.8, 0.01), 30, "paired-t") == (1, 1)
    assert significance(result(0.8, 0.01), result(0.9, 0.01), 30, "welch") == (-1, -1)
    assert significance(result(0.81, 0.05), result(0.80, 0.05), 30, "paired-t") == (0, 1)
    assert significance(result(0.81, 0.05), result(0.80, 0.05), 30, "welch") == (0, 0)
    assert significance(result(0.8, 0.01), Printed("N/A", "not run"), 30, "paired-t") == (-1, 1)


def test_methods_can_be_made():
    for experiment in experiments().values():
        for method in experiment.methods:
            known = method.make().get_params()
            assert set(method.fixed) <= set(known), (experiment.id, method.key)
            assert {axis.parameter for axis in method.grid} <= set(known), (experiment.id, method.key)
            for axis in method.grid:
                assert len(axis.resolve(n_samples=50, n_features=4, mean_distance=1.5)) == len(axis.values) > 1


def test_grids_of_the_papers():
    def size(name, method):
        found = 1
        for axis in experiments()[name].method(method).grid:
            found *= len(axis.values)
        return found

    assert size("ldm-table-2", "ldm") == 147 == size("ldm-table-2", "ldm-c-over-m")
    assert size("ldm-table-3", "ldm") == 735
    assert size("mamc-table-2", "mamc-bsg") == 16 * 21
    assert size("mcodm-table-2", "mcodm") == 6 * 4  # the paper's has 11 * 16, with the same ends
    assert experiments()["mcodm-table-2"].method("mcodm").grid[0].values[-1] == 2.0**20
    assert size("msvmav-table-1", "msvmav") == 121
    assert experiments()["mcodm-table-2"].method("ovasvm").grid[0].values[-1] == 2.0**20
    line = experiments()["mamc-table-2"].method("mamc-bs")
    assert line.search == "line" and [axis.parameter for axis in line.grid] == ["gamma", "slope"]
    assert sorted(1 / value for value in line.grid[1].values) == pytest.approx(sorted(line.grid[1].values))


def test_readings_of_the_printed_tables():
    for name in ("ldm-table-2", "ldm-table-3"):
        table = experiments()[name]
        for ours in ("ldm-c-over-m", "svm-c-over-m"):
            assert not table.method(ours).printed
            assert table.method(ours).grid[0] == Axis("C", (10, 50, 100), "1/m")
            assert table.cell("vote", ours) is None
    assert experiments()["ldm-table-3"].method("mdo").unavailable
    assert experiments()["mamc-table-2"].n_splits("splice") == 20
    assert experiments()["mamc-table-2"].n_splits("banana") == 100


def test_table_4_and_figure_2_of_ldm_are_about_algorithm_2():
    table, times = experiments()["ldm-table-4"], experiments()["ldm-figure-2"]
    assert table.method("ldm-asgd") == times.method("ldm-asgd")
    for name in ("ldm-asgd", "svm-asgd"):
        assert table.method(name).make().solver == times.method(name).make().solver == "asgd"
    assert table.method("svm-asgd").make().lambda1 == table.method("svm-asgd").make().lambda2 == 0.0
    assert table.method("svm").make().solver == table.method("ldm-exact").make().solver == "auto"
    assert table.cell("farm-ads", "ldm-asgd").mean == 0.890 and not table.method("ldm-exact").printed


def test_a_price_of_a_mean_has_its_unit_wherever_a_choice_moves():
    for experiment in experiments().values():
        for method in experiment.methods:
            units = {axis.parameter: axis.unit for axis in method.grid}
            means = {"ODMClassifier": {"lam"}, "LDMClassifier": {"lambda1", "lambda2"}}
            for name in means.get(method.estimator.rpartition(".")[2], set()) & set(units):
                assert units[name] == "mean", (experiment.id, method.key, name)


def test_known_impossibilities_stand_at_their_cells():
    everything = experiments()
    assert "cannot be" in everything["mcodm-table-2"].cell("connect-4", "mcodm").remark
    assert "sonar" in " ".join(everything["msvmav-table-1"].remarks_on("parkinsons"))
    assert "365/422" in " ".join(everything["msvmav-table-1"].remarks_on("kc1", "mamc"))
    assert "target" in everything["msvmav-table-2"].dataset("bibtex").remark
    assert "9 features" in everything["ldm-table-2"].dataset("heart").remark
    assert everything["ldm-table-2"].dataset("house").catalogue == everything["ldm-table-2"].dataset("vote").catalogue
    assert not everything["ldm-table-2"].remarks_on("sonar", "ldm")
    mamc = everything["msvmav-table-1"]
    assert all(bool(cell.remark) == (cell.std == 0) for cell in mamc.printed["accuracy"].values())
    for line, share in (("kc1", 365 / 422), ("vertebra", 47 / 62), ("parkinsons", 31 / 39)):
        cell = mamc.cell(line, "mamc")
        assert cell.std == 0 and cell.mean == round(share, 4)


def test_units_marks_and_missing_numbers():
    everything = experiments()
    assert everything["mamc-table-2"].cell("banana", "emamc").mean == 0.8913
    assert everything["pumma-table-1"].cell("adult-full", "svm-light", "margin").mean == 0.0083
    assert everything["pumma-table-1"].cell("adult-full", "svm-light", "seconds").mean == 5893.20
    lost = everything["mamc-table-3"].cell("banana", "l1-svm")
    assert (lost.status, lost.mean) == ("illegible", None)
    not_run = everything["msvmav-table-1"].cell("bank", "lssvm")
    assert (not_run.status, not_run.better) == ("not run", -1)
    assert everything["ldm-table-4"].cell("url", "kmomd").better is None
    vote = everything["ldm-table-2"].cell("vote", "ldm")
    assert (vote.mean, vote.std, vote.better, vote.bold, vote.resolution) == (0.970, 0.014, 1, True, 0.001)


def test_experiments_travel_to_other_processes():
    table = experiments()["ldm-table-2"]
    assert pickle.loads(pickle.dumps(table)) == table


RECIPES = {"svm": {"estimator": "sklearn.svm.SVC"}, "mdo": {"estimator": "margindist.MDOClassifier"}}
GOOD = """
[paper]
key = "p"
authors = "A"
title = "T"
venue = "V"
year = 2000
[data]
iris = {shape = [150, 4]}
[method.svm]
label = "SVM"
grid = {C = [1, 10]}
[[experiment]]
id = "p-table-1"
title = "Table 1"
kind = "accuracy"
measure = "accuracy"
data = ["iris"]
methods = {svm = "svm"}
splits = {kind = "random", number = 2, train = 0.5}
scaling = "unit"
bias = "none"
[experiment.printed.accuracy]
iris = ["0.95±0.01"]
"""


@pytest.mark.parametrize("old, new, said", [
    ("", "", None),
    ('bias = "none"', 'bais = "none"', "unknown key 'bais'"),
    ('title = "Table 1"\n', "", "missing 1 required positional argument: 'title'"),
    ('kind = "accuracy"', 'kind = "speed"', "kind must be one of accuracy, time"),
    ('kind = "random"', 'kind = "lucky"', "kind of splits must be one of"),
    ('data = ["iris"]', 'data = ["wine"]', "names 'wine', which is not declared"),
    ('data = ["iris"]\n', "", "'data' is missing"),
    ('{svm = "svm"}', '{svm = "lsvm"}', "refers to 'lsvm'"),
    ('label = "SVM"', 'label = "SVM"\nrecipe = "magic"', "'magic', which methods.toml lacks"),
    ('methods = {svm = "svm"}', 'methods = {svm = "mdo"}', "refers to 'mdo'"),
    ('label = "SVM"', 'label = "SVM"\nrecipe = "mdo"', "'svm' has the name of one recipe and is another, 'mdo'"),
    ("C = [1, 10]", 'C = {values = [1], unit = "1/k"}', "unit of 'C' must be one of"),
    ('iris = ["0.95±0.01"]', 'iris = ["0.95±0.01", "0.9±0.1"]', "2 printed numbers for 1 methods"),
    ('iris = ["0.95±0.01"]', 'wine = ["0.95±0.01"]', "names 'wine', which is not declared"),
    ('iris = ["0.95±0.01"]', 'iris = ["95 %"]', "expected a number such as"),
    ('iris = ["0.95±0.01"]', 'iris = ["?"]\n[experiment.summary]\naverage = {mdo = "0.9"}', "names 'mdo'"),
    ('iris = ["0.95±0.01"]', 'iris = ["?"]\n[experiment.summary]\nmedian = {svm = "0.9"}', "no known row"),
    ('iris = ["0.95±0.01"]', 'iris = ["?"]\n[experiment.summary]\nwin-tie-loss = {svm = "3-4"}', "look like 12/8/0"),
    ("[experiment.printed", '[[experiment.cell-remarks]]\nmethod = "svm"\n[experiment.printed', "'data' is missing"),
    ("[experiment.printed.accuracy]\niris", "[experiment.printed.accuracy]\n# iris", "no printed row for iris"),
])  # fmt: skip
def test_a_wrong_declaration_is_refused(old, new, said):
    assert old in GOOD
    text = GOOD.replace(old, new, 1)
    if said is None:
        assert list(load_experiments(text, RECIPES)) == ["p-table-1"]
    else:
        with pytest.raises(DeclarationError, match=said):
            load_experiments(text, RECIPES)


def test_an_id_serves_once():
    body = GOOD[GOOD.index("[[experiment]]") :]
    with pytest.raises(DeclarationError, match="declared twice"):
        load_experiments(GOOD + body, RECIPES)


def test_unknown_names_are_answered_with_the_known_ones():
    with pytest.raises(KeyError, match="there are svm"):
        experiments()["ldm-figure-1"].method("mcodm")
    with pytest.raises(KeyError, match="no data set 'mnist'"):
        experiments()["ldm-table-2"].dataset("mnist")


def test_every_verdict_names_a_rule_and_every_reason_a_method():
    for experiment in experiments().values():
        assert not experiment.verdict or experiment.verdict["rule"] in claims._RULES
        assert set(experiment.reasons) <= {method.key for method in experiment.methods}
    for paper in {experiment.paper.key: experiment.paper for experiment in experiments().values()}.values():
        of_paper = [one for one in experiments().values() if one.paper.key == paper.key]
        assert set(paper.reasons) <= {method.key for one in of_paper for method in one.methods}
