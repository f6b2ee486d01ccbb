"""The driver and its table: who has a try at what, in which order, and what is kept."""

import numpy as np
import pytest
import scipy.sparse as sp

from margindist import LDMClassifier, solve
from margindist.objectives import LDM
from margindist.solvers import coordinate_descent, interior_point
from margindist.solvers._solution import Options, Problem, Status
from margindist.spaces.rows import as_rows


def case(m, d, C=1.0, lambda1=0.0, asked="auto", form=np.asarray, max_iter=None, max_bytes=2e9):
    rng = np.random.default_rng(0)
    X = rng.random((m, d))
    signs = np.where(X @ rng.normal(size=d) + 0.2 * rng.normal(size=m) > 0.0, 1.0, -1.0)
    problem = Problem(LDM(C, lambda1, 0.0), as_rows(form(X)), signs, np.ones(m))
    return solve.Case(problem, Options(1e-4, max_iter), asked, max_bytes)


def engines(*args, **named):
    return [row.engine for row in solve.plan(case(*args, **named))]


@pytest.fixture
def small(monkeypatch):
    """Settings with which small problems have many columns."""
    monkeypatch.setattr(solve, "SETTINGS", solve.Settings(few_columns=10, most_columns=30, few_operations=0.0))


def test_few_columns_are_left_to_interior_points():
    assert engines(300, 5)[0] == "interior-point"
    assert engines(30, 1200)[0] == "interior-point"  # in the span of few rows


@pytest.mark.parametrize("form", [np.asarray, sp.csr_array])
def test_what_follows_passes_over_rows_of_many_columns(small, form):
    assert engines(400, 20, form=form)[:2] == ["coordinate-descent", "interior-point"]
    assert engines(100, 300, form=form)[:3] == ["coordinate-descent", "augmented-lagrangian", "block"]
    assert "block" not in engines(100, 300, form=form, max_bytes=1e4)
    model = LDMClassifier(1e4, 0.0, 0.0).fit(form(case(400, 20).rows.X), case(400, 20).problem.signs)
    assert model.solver_ == "coordinate-descent" and model.duality_gap_ <= model.tol


def test_who_is_asked_begins_and_the_papers_algorithms_stay_alone():
    assert engines(300, 5, asked="coordinate-descent")[0] == "coordinate-descent"
    assert engines(300, 5, asked="block").count("block") == 1
    assert engines(300, 5, asked="dcd") == ["dcd"]
    assert engines(30, 5, C=np.inf, asked="asgd") == ["refutation", "asgd"]
    assert engines(30, 5, C=np.inf, asked="block")[:2] == ["separation", "block"]
    assert "separation" not in engines(30, 5, C=np.inf, max_iter=3)[:1]


def test_best_weights_and_best_bound_are_kept_whoever_finds_them(monkeypatch):
    asked = case(200, 4, lambda1=3.0)
    best = interior_point.solve(asked.problem, Options(1e-9))
    low = best._replace(gap=0.5, status=Status.STALLED, n_iter=2)
    bound = best._replace(coef=2.0 * best.coef, objective=2.0 * best.objective, status=Status.STALLED, n_iter=3)
    bound = bound._replace(gap=(bound.objective - best.objective) / bound.objective)
    monkeypatch.setattr(solve, "PLAN", (solve.Row("first"), solve.Row("second"), solve.Row("never")))
    monkeypatch.setattr(
        solve, "ENGINES", {"first": lambda *_: low, "second": lambda *_: bound, "never": lambda *_: pytest.fail()}
    )
    found = solve.solve(asked)
    assert found.status is Status.OPTIMAL and found.n_iter == 5
    assert found.coef is low.coef and found.gap <= 1e-9


def test_an_engine_that_loses_all_digits_is_skipped(monkeypatch):
    asked = case(200, 4)

    def lost(*_):
        raise FloatingPointError("no digits")

    monkeypatch.setattr(solve, "PLAN", (solve.Row("lost"), solve.Row("interior-point")))
    monkeypatch.setitem(solve.ENGINES, "lost", lost)
    assert solve.solve(asked).status is Status.OPTIMAL
    monkeypatch.setattr(solve, "PLAN", (solve.Row("lost"),))
    with pytest.raises(FloatingPointError, match="no digits"):
        solve.solve(asked)


def test_nobody_is_called_where_rounding_leaves_nothing_to_prove(monkeypatch):
    asked = case(200, 4)
    rough = interior_point.solve(asked.problem, Options(1e-2))._replace(gap=0.1, rounding=1e-3, status=Status.STALLED)
    monkeypatch.setattr(solve, "PLAN", (solve.Row("rough"), solve.Row("never")))
    monkeypatch.setattr(solve, "ENGINES", {"rough": lambda *_: rough, "never": lambda *_: pytest.fail()})
    assert solve.solve(asked).gap == 0.1


@pytest.mark.parametrize(
    "settings", [solve.Settings, solve.Costs, interior_point.Settings, coordinate_descent.Settings]
)
def test_settings_are_few(settings):
    assert len(settings._fields) <= 12


@pytest.mark.parametrize("lambda2", [0.0, 0.3, 0.9])
@pytest.mark.parametrize("C", [1.0, 100.0, 1e4])
def test_interior_points_begin_at_the_scale_of_the_margins(C, lambda2):
    asked = case(400, 12, C).problem
    found = interior_point.solve(asked._replace(objective=LDM(C, 0.0, lambda2 * C * 400)), Options(1e-6))
    assert found.status is Status.OPTIMAL and found.n_iter <= 25
