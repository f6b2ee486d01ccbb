"""The fuzz of benchmarks/fuzz.py, in short: its oracles see what is wrong, and in some fits of all kinds nothing is."""

import json
from fractions import Fraction

import numpy as np
import pytest

import margindist
from benchmarks import fuzz
from benchmarks.fuzz_cases import SHARES, Case, Variant, draw
from benchmarks.fuzz_checks import Fit, run_case
from benchmarks.fuzz_exact import Exact, best_found, fraction, from_multipliers
from benchmarks.fuzz_oracles import LONG, Problem, _eliminate, ldm, lssvm, odm, points, reference


def kinds(fits):
    return {kind for fit in fits for kind, _ in fit.failures}


@pytest.fixture
def case():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((30, 3))
    y = (X[:, 0] + 0.5 * rng.standard_normal(30) > 0).astype(int)
    parameters = {"C": 1.0, "lambda1": 0.5, "lambda2": 0.5, "fit_intercept": True, "kernel": "linear"}
    variants = [Variant("auto", "dense", {"solver": "auto"}), Variant("block", "dense", {"solver": "block"})]
    return Case("LDMClassifier", X, y, None, parameters, variants, True, "")


def test_a_number_gives_the_same_case_again():
    first, second = draw(3, 14), draw(3, 14)
    assert first.name == second.name and first.parameters == second.parameters
    assert np.array_equal(first.X, second.X) and np.array_equal(first.y, second.y)


def test_every_classifier_has_its_share():
    assert set(SHARES) == {name for name in margindist.__all__ if "Classifier" in name}


def test_oracle_agrees_with_a_generic_solver(case):
    (fit, _) = run_case(case)
    problem = Problem(case.X, case.y, None, case.parameters)
    (signs,) = problem.signs()
    ours = ldm(problem, points(problem, fit.model)[0], signs)
    best = ldm(problem, reference(problem, "LDMClassifier", signs), signs)
    assert best.value <= ours.value <= best.value * (1 + 1.1e-4)
    assert float(ours.value) == pytest.approx(fit.model.objective_, rel=1e-12)


def test_elimination_in_long_double():
    rng = np.random.default_rng(0)
    A, x = rng.standard_normal((20, 20)).astype(LONG), rng.standard_normal(20).astype(LONG)
    assert np.abs(_eliminate(A, A @ x) - x).max() < 1e-15


@pytest.mark.parametrize("C", [2.0, np.inf])
def test_exact_arithmetic_agrees_with_long_double(C):
    rng = np.random.default_rng(0)
    X, signs = rng.standard_normal((8, 3)), np.where(np.arange(8) % 2, LONG(1), LONG(-1))
    X[:, 0] += 5.0 * signs.astype(float)
    parameters = {"C": C, "lambda1": 0.5, "lambda2": 2.0, "lam": 3.0, "mu": 0.3, "theta": 0.2, "fit_intercept": True}
    problem = Problem(X, signs, rng.uniform(0.5, 2.0, 8), parameters)
    coef, constant = LONG(0.7) * rng.standard_normal(3) + [1, 0, 0], LONG(0.3)
    model = margindist.LDMClassifier(**{key: parameters[key] for key in ("C", "lambda1", "lambda2")}).fit(X, signs)
    model.coef_, model.intercept_ = coef[None], np.array([constant])
    (point,) = points(problem, model)
    for name, objective in (("LDMClassifier", ldm), ("ODMClassifier", odm), ("LSSVMClassifier", lssvm)):
        if np.isinf(C) and name != "LDMClassifier":
            continue
        exact = Exact(name, problem, signs)
        value, size = exact.value(exact.see(coef, constant))
        assert float(value) == pytest.approx(float(objective(problem, point, signs).value), rel=1e-14)
        assert size >= abs(value)


def test_a_floating_point_number_is_the_fraction_that_it_is():
    assert fraction(0.1) == Fraction(0.1) and fraction(-3e-300) == Fraction(-3e-300) and fraction(0.0) == 0
    assert fraction(LONG(1) / 3) != Fraction(1 / 3) and abs(fraction(LONG(1) / 3) - Fraction(1, 3)) < Fraction(1, 2**63)


def test_multipliers_become_better_weights(case):
    (fit, _) = run_case(case)
    problem = Problem(case.X, case.y, None, case.parameters)
    (signs,) = problem.signs()
    exact = Exact("LDMClassifier", problem, signs)
    rough = best_found(exact, [(np.zeros(3), 0.0)])
    fine = best_found(exact, [from_multipliers(problem, signs, 0.3 * fit.model.multipliers_[0])])
    assert fit.model.objective_ * (1 - 1e-4) < fine < fit.model.objective_ * (1 + 1e-5) < rough


def test_weights_that_rounding_has_spoilt_are_seen(case, monkeypatch):
    """An error of the weights that long double's oracle takes for rounding is none in exact arithmetic."""
    pair = case._replace(X=case.X[:20] * 1e7, y=case.y[:20], parameters=case.parameters | {"C": 100.0, "tol": 1e-9})
    assert not kinds(run_case(pair))
    spoiled(monkeypatch, coef_=lambda value: value * (1 + 1e-6), duality_gap_=lambda value: 1e-14)
    assert "certificate" in kinds(run_case(pair))


@pytest.mark.parametrize("kind", ["large", "wide", "scaled"])
def test_cases_of_other_kinds(kind):
    case, again = draw(2, 7, kind=kind), draw(2, 7, kind=kind)
    assert np.array_equal(case.X, again.X) and case.parameters == again.parameters
    assert {"large": case.X.shape[0] > 100, "wide": case.X.shape[1] > 100 * case.X.shape[0], "scaled": True}[kind]
    name = f"{kind}:2:7"
    assert fuzz.records_of(*fuzz.named(name))[0]["case"] == name


def test_margin_terms_are_drawn_on_the_scale_of_the_hinge_loss():
    cases = [draw(4, index, "LDMClassifier", kind="scaled") for index in range(40)]
    relative = [case for case in cases if case.parameters.get("lambda_scale") == "relative"]
    assert 5 < len(relative) < 35
    assert any(case.parameters.get("lambda1") == 1.0 for case in relative)


def spoiled(monkeypatch, **changes):
    """Make every fit return a model with some of its attributes changed."""
    honest = margindist.LDMClassifier.fit

    def fit(self, *args, **kwargs):
        honest(self, *args, **kwargs)
        for name, change in changes.items():
            setattr(self, name, change(getattr(self, name)))
        return self

    monkeypatch.setattr(margindist.LDMClassifier, "fit", fit)


@pytest.mark.parametrize(
    ("changes", "kind"),
    [
        ({"objective_": lambda value: value * 1.001}, "value"),
        ({"coef_": lambda value: value * 1.1, "intercept_": lambda value: value * 1.1}, "value"),
        ({"duality_gap_": lambda value: 1.0}, "silent"),
        ({"coef_": lambda value: value * np.nan}, "nan"),
        ({"objective_": lambda value: value * 1.001, "duality_gap_": lambda value: 1e-6}, "certificate"),
    ],
)
def test_what_is_wrong_is_seen(case, monkeypatch, changes, kind):
    assert not kinds(run_case(case))
    spoiled(monkeypatch, **changes)
    assert kind in kinds(run_case(case))


@pytest.mark.parametrize("kernel", ["linear", "rbf"])
def test_a_false_certificate_of_the_nearest_hull_points_is_seen(case, monkeypatch, kernel):
    parameters = {"lam": 0.3, "kernel": kernel, "gamma": 0.5, "fit_intercept": True}
    nearest = case._replace(name="KOMDClassifier", parameters=parameters, variants=[Variant("default", "dense", {})])
    assert not kinds(run_case(nearest))
    honest = margindist.KOMDClassifier.fit

    def fit(self, *args, **kwargs):
        honest(self, *args, **kwargs)
        self.objective_ = 1.001 * self.objective_
        return self

    monkeypatch.setattr(margindist.KOMDClassifier, "fit", fit)
    assert "certificate" in kinds(run_case(nearest))


def test_errors_must_be_sentences_of_ours(case, monkeypatch):
    def fit(self, *args, **kwargs):
        raise IndexError("index 3 is out of bounds")

    monkeypatch.setattr(margindist.LDMClassifier, "fit", fit)
    assert kinds(run_case(case)) == {"message", "unsolved"}


def test_false_refusals_are_seen(case, monkeypatch):
    def fit(self, *args, **kwargs):
        raise ValueError("LDMClassifier: the training data are not separable.")

    y = (case.X[:, 0] > 0).astype(int)
    case.X[:, 0] += np.where(y, 1.0, -1.0)
    monkeypatch.setattr(margindist.LDMClassifier, "fit", fit)
    assert kinds(run_case(case._replace(y=y))) == {"refusal"}


def test_a_fit_without_end_is_stopped(case, monkeypatch):
    def fit(self, *args, **kwargs):
        while True:
            pass

    monkeypatch.setattr(margindist.LDMClassifier, "fit", fit)
    assert Fit(case, case.variants[0], limit=0.05).failures == [("time", "still running after 0.05 s")]


def test_rows_that_are_all_equal_have_no_variance():
    X = np.full((7, 3), 0.1)
    parameters = {"kernel": "rbf", "gamma": "scale"}
    assert Problem(X, np.arange(7) % 2, np.linspace(0.1, 3.0, 7), parameters).gamma() == 1.0


def test_slow_fits_are_repeated_before_they_count(monkeypatch):
    record = {"case": "0:0", "estimator": "LDMClassifier", "variant": "auto", "kernel": "linear", "shape": [10, 3, 2],
              "outcome": "solved"}  # fmt: skip
    records = [record | {"seconds": 0.001, "failures": []} for _ in range(20)]
    records += [record | {"seconds": 5.0, "failures": []}, record | {"seconds": 4.0, "failures": []}]
    times = iter([5.0, 0.002])
    monkeypatch.setattr(fuzz, "_repeat", lambda record, limit: next(times))
    fuzz.note_slow(records)
    assert [len(record["failures"]) for record in records] == [0] * 20 + [1, 0]


def test_every_fit_is_a_line_and_in_the_table(tmp_path):
    with open(tmp_path / "fits.jsonl", "w") as out:
        records = fuzz.run(seed=0, fits=5, only="MAM", out=out)
    lines = (tmp_path / "fits.jsonl").read_text().splitlines()
    assert [json.loads(line)["case"] for line in lines] == [record["case"] for record in records]
    assert len(records) >= 5
    assert f"| all | {len(records)} |" in fuzz.summary(records)


def test_some_fits_of_all_kinds_have_nothing_wrong():
    records = fuzz.run(seed=6, fits=40, kind="ordinary") + fuzz.run(seed=6, fits=12, kind="scaled")
    assert not [(record["case"], record["variant"], record["failures"]) for record in records if record["failures"]]


def test_oracle_knows_which_kernel_values_rounding_has_left_digits_of():
    rows, parameters = np.array([[3.0, 1.0], [-1.0, 3.0]]), {"kernel": "sigmoid", "coef0": -1.0}
    ordinary, huge = (Problem(scale * rows, np.arange(2), None, parameters) for scale in (0.1, 1e10 / 3.0))
    for problem in (ordinary, huge):
        problem.gram(gamma=1.0)
    eps = np.finfo(float).eps
    assert ordinary.gram_error(eps).max() < 1e-14
    assert huge.gram_error(eps)[0, 1] > 0.2  # the rows are orthogonal
    assert huge.gram_error(eps)[0, 0] == 0.0


ONCE_WRONG = [
    "1:53",  # huge kernel values: a bound that rounding had spoilt was borrowed for another solution
    "8:9:LDMClassifier",  # a hard margin in a polynomial kernel
    "101:95",  # a polynomial kernel of one row and of very different values: warnings of NumPy's
    "6:0",  # LS-SVM with an offset column: refinement diverged, and was kept
    "1015:2663",  # FMM with a clipped kernel: the length of the weights was known to five digits only
    "1015:974",  # coefficients of rows that cancel to eight digits: the oracle's own rounding, not the certificate's
    "20261119:927",  # LS-SVM with an indefinite kernel: the oracle took the saddle of its system for a reference
    "20261121:2243",  # a length that rounding has taken, and coefficients that were shortened by it
    "20261122:242",  # joint ODM: passes ended while they lowered the objective by much, where Newton steps got nowhere
    "20261122:1999",  # stochastic gradients: a bound more exact than the objective it was taken from
    "901118:168",  # LS-SVM with an offset column: weights were not what the rows' system said of them
    "1015:2655",  # a sigmoid of long, orthogonal rows: rounding of their inner products is all there is
]
ONCE_SLOW = [
    "6:64",  # bad column scales: augmented Lagrangian for 6 s where interior points take 10 ms
    "8:53:LDMClassifier",  # interior points with many columns and few rows
]


def run_again(case):
    return fuzz.records_of(*fuzz.named(case))


@pytest.mark.parametrize("case", ONCE_WRONG)
def test_what_was_wrong_once(case):
    assert not [record["failures"] for record in run_again(case) if record["failures"]]


@pytest.mark.parametrize("case", ONCE_SLOW)
def test_what_was_slow_once(case):
    run_again(case)  # compiles
    assert max(record["seconds"] for record in run_again(case)) < 0.7


def test_what_nobody_can_certify_ends_soon():
    case = draw(1013, 1010)  # a hard margin at 1e7 times the usual numbers
    fit = Fit(case, case.variants[0], 60.0)
    assert fit.warned
    assert fit.model.n_iter_ < 600


def test_points_of_a_search_that_share_too_little_are_fitted_one_by_one():
    assert not kinds(run_case(draw(1016, 172)))


def test_interior_points_begin_again_from_passes_where_their_own_start_fails():
    case = draw(21001, 1022)  # weights between 1e-6 and 1e6
    fit = Fit(case, case.variants[0], 60)
    assert fit.outcome == "solved"


def test_a_path_of_ridges_solves_what_steps_at_edges_did_not():
    case = draw(11001, 500)  # a price at which rows are all but forbidden to leave the band
    fit = Fit(case, case.variants[0], 60)
    assert fit.outcome == "solved" and np.max(fit.inner.n_iter_) < 60


def test_records_are_read_as_they_were_written(tmp_path):
    records = [{"case": "1:2", "estimator": "LDMClassifier", "variant": "auto", "failures": [["time", "1 s"]]}] * 2
    with open(tmp_path / "records.jsonl", "w") as out:
        fuzz._tell(records, out)
    assert fuzz.read(tmp_path / "records.jsonl") == records
