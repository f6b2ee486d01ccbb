"""The ledger: no bound is false in exact arithmetic, whatever was claimed and however large the numbers are."""

import inspect
import types
from fractions import Fraction

import numpy as np
import pytest
import scipy.sparse as sp

from margindist import LDMClassifier, certificate, objectives
from margindist.certificate import Bounds, CertifiedPart, Ledger, certified, inseparable
from margindist.objectives import LDM
from margindist.solvers import coordinate_descent, interior_point
from margindist.solvers._solution import Options, Problem
from margindist.spaces.partitions import Loaded, LocalPlace, drive
from margindist.spaces.rows import as_rows, column_sizes
from tests.reference.exact import exact_problem


def random_case(seed, objectives=objectives):
    """A small problem with values of any size, at prices that make its margins matter or not."""
    rng = np.random.default_rng(seed)
    m, d = rng.integers(2, 9), rng.integers(1, 12)
    scale, C = 10.0 ** rng.uniform(-3, 7), 10.0 ** rng.uniform(-3, 6)
    X = scale * rng.uniform(-1.0, 1.0, (m, d)) * (rng.random((m, d)) < rng.choice([0.4, 1.0]))
    signs = rng.choice([-1.0, 1.0], m)
    weights = rng.choice([np.ones(m), rng.uniform(0.1, 3.0, m)])
    lambda1, lambda2 = C * m * rng.choice([[0.0, 0.0], [0.1, 0.3], [1.0, 0.0], [0.0, 0.9]])
    if rng.random() < 0.25:
        objective = objectives.ODM(C, rng.uniform(0.1, 1.0), rng.uniform(0.0, 0.9))
    else:
        objective = objectives.LDM(C, lambda1, lambda2)
    form = sp.csr_matrix(X) if rng.random() < 0.5 else X
    return Problem(objective, as_rows(form, fit_intercept=bool(rng.random() < 0.3)), signs, weights), X, rng


def dense(problem, X):
    return np.column_stack([X, np.ones(len(X))]) if problem.space.bias else X


def claims(problem, X, rng):
    """Weights and multipliers, from nearly optimal ones to none that fit."""
    d, upper = X.shape[1], problem.objective.upper(problem.weights)
    found = coordinate_descent.solve(problem, Options(tol=1e-9, max_iter=60))
    yield found.coef, found.dual
    yield found.coef * (1.0 + 1e-6 * rng.normal(size=d)), found.dual
    yield rng.normal(size=d) * np.abs(found.coef).max(), found.dual * rng.random(len(upper))
    if np.isfinite(upper).all():
        yield upper * problem.signs @ X, upper  # the dual point's own weights, as computed


def refuted(bounds, exact, w, beta, margins):
    """What is not so of some bounds: by the exact objective, and by the exact value of the dual point."""
    true = exact.value(bounds.coef)
    value, slack = Fraction(bounds.value), Fraction(bounds.error) + Fraction(1e-11) * abs(Fraction(bounds.value))
    least = exact.dual_value(beta, margins)
    return {
        "value": abs(true - value) > slack,
        "excess": np.array_equal(w, bounds.coef) and true - least > Fraction(bounds.excess),
        "lower": Fraction(bounds.lower) > true,
    }


@pytest.mark.parametrize("block", range(8))
def test_no_bound_is_false_in_exact_arithmetic(block):
    for seed in range(25 * block, 25 * block + 25):
        problem, X, rng = random_case(seed)
        X = dense(problem, X)
        exact, values, bounds = exact_problem(problem, X), [], []
        for w, beta in claims(problem, X, rng):
            ledger = Ledger(problem)
            found = ledger.bounds(w, beta)
            beta = problem.objective.multipliers(beta, ledger.z, problem.weights)
            assert not any(refuted(found, exact, w, beta, ledger.z).values()), seed
            values.append(exact.value(found.coef))
            bounds.append(found)
        for found, value in zip(bounds, values, strict=True):  # no weights are below what any claim proves
            assert min(values) >= Fraction(found.lower), seed
            assert value - min(values) <= Fraction(found.excess), seed


def test_bounds_are_sharp_where_rounding_does_not_matter():
    for seed in range(40):
        problem, X, _ = random_case(seed)
        X = dense(problem, X) / max(1e-300, np.abs(X).max())
        problem = problem._replace(space=as_rows(X), objective=LDM(1.0, 0.3, 0.2))
        found = interior_point.solve(problem, Options(tol=1e-10))
        assert found.gap <= 1e-10 and found.error == 0.0
        bounds = Ledger(problem).bounds(found.coef + 0.1, found.dual)
        exact = exact_problem(problem, X)
        least = exact.dual_value(found.dual, found_margins(problem, X, bounds.coef))
        assert bounds.excess == pytest.approx(float(exact.value(bounds.coef) - least), rel=1e-8)


def found_margins(problem, X, w):
    return problem.signs * (X @ w)


# ---------------------------------------------------------------------- what the default solver used to claim


@pytest.mark.parametrize(("scale", "C", "tol"), [(1e6, 100.0, 1e-4), (1e6, 1.0, 1e-4), (1e3, 1e4, 1e-6)])
@pytest.mark.parametrize("seed", range(3))
def test_sparse_rows_with_large_values_are_proved_and_the_proof_is_true(scale, C, tol, seed):
    rng = np.random.default_rng(seed)
    X = sp.random(60, 9000, 0.004, "csr", random_state=rng, data_rvs=lambda n: rng.uniform(-scale, scale, n))
    X, y = X[:, np.unique(X.indices)], rng.choice([-1.0, 1.0], 60)
    model = LDMClassifier(C, 0.0, 0.0, tol=tol, fit_intercept=False).fit(X, y)
    assert model.duality_gap_ <= tol
    exact = exact_problem(Problem(LDM(C, 0.0, 0.0), None, y, np.ones(60)), X.toarray())
    w = model.coef_[0]
    here = exact.value(w)
    for longer in 1.0 + 10.0 ** np.arange(-15.0, -8.0):
        assert here - exact.value(longer * w) <= Fraction(model.duality_gap_) * here
    assert float(here) == pytest.approx(model.objective_, rel=1e-9)


@pytest.mark.parametrize("solver", ["auto", "coordinate-descent", "interior-point"])
@pytest.mark.parametrize("rows", [[[1e7], [-1e7]], [[3e6, -7e6], [9e6, 1e6]]])
def test_two_long_rows_at_a_high_price(rows, solver):
    X, y = np.array(rows), np.array([1.0, -1.0])
    model = LDMClassifier(1e6, 0.0, 0.0, solver=solver, fit_intercept=False).fit(X, y)
    exact = exact_problem(Problem(LDM(1e6, 0.0, 0.0), None, y, np.ones(2)), X)
    here = exact.value(model.coef_[0])
    assert float(here) == pytest.approx(model.objective_, rel=1e-9)
    better = min(exact.value(longer * model.coef_[0]) for longer in 1.0 + 10.0 ** np.arange(-15.0, -3.0))
    assert here - better <= Fraction(model.duality_gap_) * here and model.duality_gap_ <= 1e-4


def test_a_hard_margin_is_kept_in_exact_arithmetic():
    for seed in range(40):
        rng = np.random.default_rng(seed)
        X = 10.0 ** rng.uniform(-3, 7) * rng.uniform(-1.0, 1.0, (5, 8))
        problem = Problem(LDM(np.inf, 0.0, 0.0), as_rows(X), rng.choice([-1.0, 1.0], 5), np.ones(5))
        found = interior_point.solve(problem, Options(tol=1e-6))
        exact = exact_problem(problem, X)
        assert np.isfinite(found.objective) and min(exact.margins(found.coef)) >= 1


# ---------------------------------------------------------------------- every term counts


def slow_bounds(problem, X, w, beta):
    """The formulas of the ledger's docstring, row after row, with a unit of rounding that can be seen."""
    objective, _, signs, weights = problem
    p, u = weights / weights.sum(), signs[:, None] * X
    z = u @ w
    e = slow_gamma(X.shape[1] + 6) * (np.abs(u) @ np.abs(w))
    c = z - p @ z
    a = beta + p * (objective.lambda2 - 4.0 * objective.lambda1 * c)
    sizes = beta + p * (objective.lambda2 + 4.0 * objective.lambda1 * (np.abs(c) + np.sqrt(p @ c**2)))
    astray = slow_gamma(len(p) + 64) * (sizes @ np.linalg.norm(u, axis=1)) + 2.0 * UNIT * np.linalg.norm(w)
    upper = objective.C * weights
    rows = [
        max((U - b) * max(0.0, 1.0 - x) + b * max(0.0, x - 1.0) for x in (margin - error, margin + error))
        for U, b, margin, error in zip(upper, beta, z, e)
    ]
    rows += list(2.0 * UNIT * upper * np.maximum(0.0, 1.0 - z + e))
    excess = 0.5 * (np.linalg.norm(w - u.T @ a) + astray) ** 2 + sum(rows) + 2.0 * objective.lambda1 * (p @ e**2)
    spread, off = np.sqrt(p @ c**2), np.sqrt(p @ e**2)
    hinge = upper @ (np.maximum(0.0, 1.0 - z + e) - np.maximum(0.0, 1.0 - z))
    error = hinge + objective.lambda2 * (p @ e) + 2.0 * objective.lambda1 * off * (2.0 * spread + off)
    value = 0.5 * (w @ w) + 2.0 * objective.lambda1 * (p @ c**2) - objective.lambda2 * (p @ z)
    return value + upper @ np.maximum(0.0, 1.0 - z), error, excess


UNIT = 1e-3  # of rounding, so large that no term of it is lost beside the others


def slow_gamma(n):
    return n * UNIT / (1.0 - n * UNIT)


def claims_of_every_kind():
    rng = np.random.default_rng(0)
    for objective in (LDM(1.0, 0.0, 0.0), LDM(1.0, 0.0, 3.0), LDM(2.0, 5.0, 0.0), LDM(0.5, 2.0, 4.0)):
        X, weights = rng.normal(0.3, 1.0, (6, 3)), rng.uniform(0.5, 2.0, 6)
        signs = rng.choice([-1.0, 1.0], 6)
        problem = Problem(objective, as_rows(X), signs, weights)
        yield problem, X, rng.normal(size=3), rng.random(6) * objective.C * weights


def differs(ledger_module, objective_module, monkeypatch):
    """Whether some bounds are not those of the slow formulas."""
    monkeypatch.setattr(ledger_module, "_UNIT", UNIT)
    monkeypatch.setattr(objective_module, "_UNIT", UNIT)
    for problem, X, w, beta in claims_of_every_kind():
        objective = objective_module.LDM(*problem.objective)
        ledger = ledger_module.Ledger(problem._replace(objective=objective))
        ledger._beta = beta
        mean_row, total = problem.weights @ (problem.signs[:, None] * X) / problem.weights.sum(), problem.weights.sum()
        sums = ledger.certify(ledger._rows, w, mean_row @ w, total, -np.inf)
        found = ledger_module.bounds_of(objective, w, sums, mean_row, total)
        if not np.allclose([found.value, found.error, found.excess], slow_bounds(problem, X, w, beta), rtol=1e-8):
            return True
    return False


def test_the_ledger_computes_what_its_docstring_says(monkeypatch):
    assert not differs(certificate, objectives, monkeypatch)


MUTANTS = {
    "certificate": [
        ("gamma(n_terms(rows) + _OF_A_MARGIN) * sizes", "0.0 * sizes"),
        ("size = sums[\"dual_size\"]", "size = 0.0"),
        ("size = size + objective.variance_weight", "size = size - objective.variance_weight"),
        ("mean_row, total)) + astray", "mean_row, total)) - astray"),
        ("(0.5 * apart**2 + sums[\"excess\"])", "0.5 * apart**2"),
        ("(0.5 * apart**2 + sums[\"excess\"])", "sums[\"excess\"]"),
        ("(0.5 * apart**2 + sums[\"excess\"])", "(sums[\"excess\"] - 0.5 * apart**2)"),
        ("* size + 2.0 * _UNIT * np.linalg.norm(w)", "* size"),
        ("residual = sums[\"dual\"] - w", "residual = sums[\"dual\"] + w"),
        ("objective.complementarity(beta, z, weights, errors)", "objective.complementarity(beta, z, weights)"),
        ("error = max(0.0, objective.error_of(sums)", "error = 0.0 * max(0.0, objective.error_of(sums)"),
    ],
    "objectives": [
        ("return worst.sum() + 2.0 * self.lambda1 * (weights @ errors**2) / weights.sum()", "return worst.sum()"),
        ("np.maximum(0.0, 1.0 - margins + errors)", "np.maximum(0.0, 1.0 - margins)"),
        ("+ self.lambda2 * sums[\"errors\"] / total + variance", "+ variance"),
        ("+ self.lambda2 * sums[\"errors\"] / total + variance", "+ self.lambda2 * sums[\"errors\"] / total"),
        ("off * (2.0 * spread + off)", "off * (2.0 * spread - off)"),
        ("beta + weights * ((self.lambda2 + 4.0 * self.lambda1 * np.abs(centred)) / total)", "beta"),
        ("(self.lambda2 - 4.0 * self.lambda1 * centred)", "(self.lambda2 + 4.0 * self.lambda1 * centred)"),
        ("worst += 2.0 * _UNIT * self.upper(weights)", "worst -= 2.0 * _UNIT * self.upper(weights)"),
        ("+ beta * np.maximum(0.0, -short)", ""),
        ("(self.C * weights - beta) * np.maximum(0.0, short) +", ""),
    ],
}  # fmt: skip


def mutated(module, old, new):
    source = inspect.getsource(module)
    assert old in source, old
    twin = types.ModuleType(module.__name__)
    twin.__file__ = module.__file__
    exec(compile(source.replace(old, new, 1), module.__file__, "exec"), vars(twin))
    return twin


@pytest.mark.parametrize(("home", "old", "new"), [(home, *pair) for home, pairs in MUTANTS.items() for pair in pairs])
def test_every_term_of_the_ledger_counts(home, old, new, monkeypatch):
    modules = {"certificate": certificate, "objectives": objectives}
    modules[home] = mutated(modules[home], old, new)
    assert differs(modules["certificate"], modules["objectives"], monkeypatch)


# ---------------------------------------------------------------------- bounds, and proofs that there is no margin


def test_bounds_take_a_higher_lower_bound_and_no_impossible_one():
    bounds = Bounds(np.ones(1), 10.0, 0.5, 4.0)
    assert (bounds.upper, bounds.lower) == pytest.approx((10.5, 5.5))
    assert bounds.gap == pytest.approx(0.5)
    assert bounds.with_lower(9.0).lower == pytest.approx(9.0)
    assert bounds.with_lower(5.0) is bounds and bounds.with_lower(11.0) is bounds
    assert bounds.with_lower(10.2).excess == 0.0
    far = Bounds(np.ones(1), 1.0, 0.0, 1.0).with_lower(1e-13)
    assert far.value * (1.0 - far.gap) <= 1e-13 * (1.0 + 1e-2)  # digits of the value hide no more than its own


def test_multipliers_that_overflow_prove_nothing():
    assert not inseparable(np.inf, np.zeros(2), np.ones(2))
    assert not inseparable(2.0, np.array([0.0, np.nan]), np.ones(2))
    assert inseparable(2.0, np.zeros(2), np.ones(2))


def test_a_small_column_is_no_rounding_of_a_large_one():
    assert not inseparable(2.0, np.array([0.0, 1e-10]), np.array([1.0, 1e-10]))
    assert inseparable(2.0, np.array([1e-10, 0.0]), np.array([1.0, 1e-10]))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_columns_have_the_same_sizes_in_any_form(dtype):
    rng = np.random.default_rng(0)
    X = np.where(rng.random((30, 5)) < 0.3, rng.standard_normal((30, 5)), 0.0).astype(dtype)
    X[:, 2] = 0.0
    expected = np.append(np.abs(X).max(axis=0), 1.0)
    for rows in (as_rows(X, True), as_rows(sp.csr_array(X), True)):
        np.testing.assert_array_equal(column_sizes(rows), expected)


@pytest.mark.parametrize("length", [0.01, 1.0, 1e3])
@pytest.mark.parametrize("objective", [LDM(np.inf, 0.0, 0.0), LDM(np.inf, 0.3, 7.0), LDM(np.inf, 2.0, 0.1)])
def test_a_hard_margin_is_certified_at_the_best_feasible_length(objective, length):
    rng = np.random.default_rng(0)
    X, weights = rng.normal((3.0, 0.0, 0.0), size=(20, 3)), rng.random(20) + 0.5
    w, signs = length * np.array([1.0, 0.1, -0.1]), np.ones(20)
    rows = as_rows(X)
    found = Ledger(Problem(objective, rows, signs, weights)).bounds(w, np.zeros(20))
    scales = np.linspace(1.0, 50.0, 10_001) / (X @ w).min()
    values = [objective.value(t**2 * (w @ w), np.maximum(t * (X @ w), 1.0), weights) for t in scales]
    assert found.value == pytest.approx(min(values), rel=1e-5)
    assert (X @ found.coef).min() >= 1.0 - 1e-12


class _Multiplied(CertifiedPart):
    """A part with given multipliers."""

    def __init__(self, rows, targets, weights, objective, beta):
        super().__init__(targets, weights, objective)
        self._beta = beta

    def _multipliers(self):
        return self._beta


@pytest.mark.parametrize("objective", [LDM(1.0, 0.0, 0.0), LDM(1.0, 0.3, 7.0)])
def test_the_certificate_of_shortened_weights_holds_in_one_piece_and_in_parts(objective):
    rng = np.random.default_rng(0)
    X, weights = rng.normal((0.5, 0.0, 0.0), size=(20, 3)), rng.random(20) + 0.5
    rows, signs = as_rows(X), np.ones(20)
    problem = Problem(objective, rows, signs, weights)
    best = interior_point.solve(problem, Options(tol=1e-9))
    at_zero, mean_row = objective.value(0.0, np.zeros(20), weights), weights @ X / weights.sum()
    for w in (1e6 * best.coef, -best.coef):
        found = Ledger(problem).bounds(w, best.dual)
        assert found.value <= at_zero
        assert found.lower <= best.objective <= found.value * (1.0 + 1e-9)
        place = LocalPlace(lambda i: Loaded(rows, signs, weights), 1)
        (in_parts,) = drive(
            place,
            _Multiplied,
            [(objective, best.dual)],
            lambda k, start, w=w: certified(objective, w, mean_row, weights.sum()),
        )
        np.testing.assert_allclose(in_parts.coef, found.coef, atol=1e-12)
        assert in_parts.value == pytest.approx(found.value, rel=1e-12)
        assert in_parts.gap == pytest.approx(found.gap, rel=1e-9)
