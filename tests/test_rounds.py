"""One solver for rows in one piece, in several, with threads: the same optimum, and the same bits where promised."""

import numpy as np
import pytest
import scipy.sparse as sp

from margindist import LDMClassifier, ODMClassifier
from margindist.objectives import LDM, ODM
from margindist.solvers import interior_point, newton
from margindist.solvers._solution import Options, Problem, certify
from margindist.spaces import partitions
from margindist.spaces.partitions import Encoder, Loaded, LocalPlace, PartitionedData, Piece
from margindist.spaces.rows import as_rows

FORMS = [np.asarray, np.float32, sp.csr_matrix]


def data(n_classes=2, m=600, seed=0):
    rng = np.random.default_rng(seed)
    X = np.round(rng.normal(size=(m, 6)), 2).astype(np.float32).astype(float)
    y = (X @ rng.normal(size=(6, n_classes)) + rng.normal(size=(m, n_classes))).argmax(axis=1)
    return X, y, rng.integers(1, 4, size=m).astype(float)


def edges(m, n_partitions, seed=0):
    """Cut rows in partitions of unequal sizes, the second one empty."""
    inner = np.sort(np.random.default_rng(seed).integers(0, m, n_partitions - 1))
    if n_partitions > 2:
        inner[1] = inner[0]
    return np.concatenate([[0], inner, [m]]).astype(int)


class InPieces(PartitionedData):
    """Rows in partitions, as the estimators take them."""

    feature_names = None

    def __init__(self, X, y, weights, n_partitions, spare_bytes=0):
        self.cuts, self.pieces, self.spare_bytes = edges(len(y), n_partitions), (X, y, weights), spare_bytes
        self.n_partitions, self.loads = n_partitions, 0

    def _piece(self, i):
        self.loads += 1
        some = slice(*self.cuts[i : i + 2])
        return Piece(*(None if entry is None else entry[some] for entry in self.pieces))

    def place(self, y=None, sample_weight=None, n_jobs=1):
        place = LocalPlace(Encoder(self._piece), self.n_partitions, n_jobs=n_jobs)
        place.spare_bytes = self.spare_bytes
        return place

    def map_rows(self, function):
        return np.concatenate([function(self._piece(i).X) for i in range(self.n_partitions) if np.diff(self.cuts)[i]])


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("n_classes", [2, 7])
def test_ldm_finds_the_same_optimum_in_any_number_of_partitions(form, n_classes):
    X, y, weights = data(n_classes)
    whole = LDMClassifier(C=3.0, lambda1=50.0, lambda2=20.0, tol=1e-7).fit(X, y, weights)
    for n_partitions in (1, 2, 5, 50):
        model = LDMClassifier(C=3.0, lambda1=50.0, lambda2=20.0, tol=1e-7)
        pieces = InPieces(form(X), y, weights, n_partitions)
        model.fit(pieces)
        assert model.objective_ == pytest.approx(whole.objective_, rel=1e-6)
        assert np.all(model.duality_gap_ <= 1e-7) and model.solver_ == "interior-point"
        assert np.array_equal(model.predict(pieces), whole.predict(X))
        np.testing.assert_allclose(model.coef_, whole.coef_, atol=1e-3)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("n_classes", [2, 7])
def test_odm_finds_the_same_optimum_in_any_number_of_partitions(form, n_classes):
    X, y, weights = data(n_classes)
    options = {"lam": 2.0**12, "tol": 1e-8, "multi_class": "ovr"}
    whole = ODMClassifier(**options).fit(X, y, weights)
    for n_partitions in (1, 2, 5, 50):
        pieces = InPieces(form(X), y, weights, n_partitions)
        model = ODMClassifier(**options).fit(pieces)
        assert model.objective_ == pytest.approx(whole.objective_, rel=1e-6)
        assert np.all(model.duality_gap_ <= 1e-8) and model.solver_ == "newton"
        assert np.array_equal(model.predict(pieces), whole.predict(X))
        np.testing.assert_allclose(model.coef_, whole.coef_, atol=1e-3)


@pytest.mark.parametrize("method", ["factor", "cg"])
def test_newton_directions_are_the_same_in_partitions(method, monkeypatch):
    X, y, weights = data()
    signs, objective, options = 2.0 * y - 1.0, ODM(500.0, 0.4, 0.2), Options(tol=1e-10)
    settings = newton.Settings(largest_factor=6000 if method == "factor" else 0)
    monkeypatch.setattr(newton, "SETTINGS", settings)
    whole = newton.solve(Problem(objective, as_rows(X), signs, weights), options)
    (found,) = newton.solve_in_place(place_of(X, signs, weights, 7), objective, [None], [options])
    assert found.objective == pytest.approx(whole.objective, rel=1e-9)
    assert np.abs(found.coef - whole.coef).max() < 1e-4
    proved = certify(Problem(objective, as_rows(X), signs, weights), whole.coef, whole.dual)
    assert proved.gap <= 1e-10


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("classifier", [LDMClassifier, ODMClassifier])
def test_threads_change_no_bit(classifier, form, monkeypatch):
    monkeypatch.setattr(partitions, "_FEWEST_ROWS", 50)
    monkeypatch.setattr(partitions, "_FEWEST_VALUES", 100)
    monkeypatch.setattr(interior_point, "SETTINGS", interior_point.Settings(sample_above=300))
    X, y, weights = data()
    one, two = (classifier(n_jobs=n, random_state=0).fit(form(X), y, weights) for n in (1, 2))
    assert np.array_equal(one.coef_, two.coef_) and np.array_equal(one.intercept_, two.intercept_)
    assert one.duality_gap_ == two.duality_gap_ and one.objective_ == two.objective_


def place_of(X, signs, weights, n_partitions, **options):
    cuts = edges(len(signs), n_partitions)

    def load(i):
        some = slice(*cuts[i : i + 2])
        return Loaded(as_rows(X[some]), signs[some], weights[some])

    return LocalPlace(load, n_partitions, **options)


@pytest.mark.parametrize("guess", ["cold", "sample", "warm"])
@pytest.mark.parametrize("C", [0.01, 1.0, 1000.0])
def test_a_guess_changes_the_way_but_not_the_optimum(C, guess, monkeypatch):
    above = 100 if guess == "sample" else 10**9
    monkeypatch.setattr(interior_point, "SETTINGS", interior_point.Settings(sample_above=above))
    X, y, weights = data(m=400)
    signs, objective, options = 2.0 * y - 1.0, LDM(C, 10.0, 5.0), Options(tol=1e-8)
    start = None
    if guess == "warm":
        start = interior_point.solve(Problem(objective, as_rows(X), signs, weights), Options(tol=1e-1))
    whole = interior_point.solve(Problem(objective, as_rows(X), signs, weights), options, start)
    place = place_of(X, signs, weights, 7)
    (found,) = interior_point.solve_in_place(place, objective, [None], [options], [start], with_dual=True)
    for each in (whole, found):
        assert each.gap <= 1e-8
        problem = Problem(objective, as_rows(X), signs, weights)
        again = certify(problem, each.coef, each.dual)  # arrays, and no sums over parts
        assert again.objective == pytest.approx(each.objective, rel=1e-12)
        assert again.gap == pytest.approx(each.gap, rel=1e-3, abs=1e-12)
    assert found.objective == pytest.approx(whole.objective, rel=1e-7)


def test_hard_margins_in_partitions(monkeypatch):
    X, y, weights = data(m=300)
    separable = np.column_stack([X, 3.0 * y])
    whole = LDMClassifier(np.inf, 1.0, 1.0, tol=1e-7).fit(separable, y, weights)
    model = LDMClassifier(np.inf, 1.0, 1.0, tol=1e-7).fit(InPieces(separable, y, weights, 6))
    assert model.objective_ == pytest.approx(whole.objective_, rel=1e-6)
    with pytest.raises(ValueError, match="not separable"):
        LDMClassifier(np.inf).fit(InPieces(np.ones((300, 1)), y, None, 4))


def test_a_copy_of_the_working_set_spares_reading(monkeypatch):
    monkeypatch.setattr(interior_point, "SETTINGS", interior_point.Settings(sample_above=300))
    X, y, _ = data(m=2000)
    loads, models = [], []
    for spare in (0, 10**9):
        pieces = InPieces(X, y, None, 4, spare)
        models.append(LDMClassifier(random_state=0).fit(pieces))
        loads.append(pieces.loads)
    assert np.array_equal(models[0].coef_, models[1].coef_)
    assert loads[1] < 0.5 * loads[0]


@pytest.mark.parametrize("move", [0.0, 1e-4, np.inf])
def test_rows_that_leave_or_join_move_the_residual_by_no_more_than_they_may(move, rng):
    m = 3000
    X = rng.normal(size=(m, 5)) + 1.0
    z = np.where(np.arange(m) < 1000, 1.0, 9.0) + 0.1 * rng.random(m)
    w = np.linalg.lstsq(X, z, rcond=None)[0]
    rows = as_rows(X)
    part = interior_point.HingePart(rows, np.ones(m), np.ones(m), LDM(1000.0, 0.0, 0.0))
    part.open(rows, None, np.inf, 1.0, 0.0)
    part.begin(rows, w, 1.0, 0.0)
    part._point = interior_point._centre(z, part._working.upper, np.ones(m))
    part._direction.z[:] = 0.0
    before = part.look(rows, 0.0, w, False, 0.0, 1.0)
    after = part.advance(rows, 0.0, True, move)
    moved = after["pull"] + after["pressure"] - before["pull"] - before["pressure"]
    assert after["inside"] == (1000 if move == np.inf else m)
    assert np.linalg.norm(moved) <= move * m

    part.open(rows, w, np.median(np.abs(X @ w - 1.0)), 1.0, 0.5)  # half of the rows outside, then on the other side
    part._point = interior_point._centre(z[part._which], part._working.upper, np.ones(len(part._which)))
    before = part.advance(rows, 0.0, False, 0.0)
    after = part.look(rows, 0.0, -w, False, move, 1.0)
    moved = after["pull"] + after["pressure"] - before["pull"] - before["pressure"]
    assert after["joined"] > 100
    assert np.linalg.norm(moved) <= max(move * m, 1e-5 * 1000.0 * np.linalg.norm(X, axis=1).sum())
    assert np.isfinite(after["rhs"]).all()


@pytest.mark.parametrize("C", [3.0, np.inf])
@pytest.mark.parametrize("form", [np.asarray, sp.csr_matrix])
@pytest.mark.parametrize("few", [True, False])
def test_a_step_leaves_what_the_solver_expects(few, form, C, rng):
    m, d, objective = 60, 4, LDM(C, 0.0, 0.0)
    X = rng.normal(size=(m, d)) + (2.0 if np.isinf(C) else 0.5)
    rows = as_rows(form(X))
    if hasattr(rows, "few"):
        rows = rows._replace(few=few)
    weights = rng.integers(1, 4, m).astype(float)
    part = interior_point.HingePart(rows, np.ones(m), weights, objective)
    Q, q, w = np.eye(d), rng.normal(size=d), rng.normal(size=d)
    part.open(rows, None, np.inf, 1.0, 0.0)
    now = part.begin(rows, w, 1.0, 0.0)
    residual, _, _ = interior_point._where(Q, q, w, now)

    system = now["gram"] + np.tril(now["gram"], -1).T + Q
    ahead = part.predict(rows, np.linalg.solve(system, now["rhs"] + residual))
    target = 0.1 * now["products"] / now["pairs"]
    dw = np.linalg.solve(system, residual + ahead["plain"] + target * ahead["aimed"])
    step = 0.9 * min(1.0, part.direct(rows, dw, target)["room_min"])
    assert step > 0.0
    after = part.advance(rows, step, False, 0.0)
    moved = w + step * dw
    found, _, _ = interior_point._where(Q, q, moved, after)
    np.testing.assert_allclose(found, (1.0 - step) * residual, atol=1e-8 * np.abs(residual).max())
    np.testing.assert_allclose(part._point.z, X @ moved, atol=1e-10)
    assert min(part._point.beta.min(), part._point.slack.min(), (part._working.upper - part._point.beta).min()) > 0.0
    assert part._point.xi.max() == 0.0 if np.isinf(C) else part._point.xi.min() > 0.0


def test_class_weights_and_an_intercept_count_in_partitions():
    X, y, weights = data()
    for options in ({"class_weight": "balanced"}, {"class_weight": {0: 3.0, 1: 0.5}}, {"fit_intercept": False}):
        whole = LDMClassifier(tol=1e-7, **options).fit(X, y, weights)
        model = LDMClassifier(tol=1e-7, **options).fit(InPieces(X, y, weights, 5))
        assert model.objective_ == pytest.approx(whole.objective_, rel=1e-6)


def test_solvers_that_walk_from_row_to_row_say_so():
    X, y, _ = data()
    with pytest.raises(TypeError, match="solver='coordinate-descent' needs rows in memory"):
        LDMClassifier(solver="coordinate-descent").fit(InPieces(X, y, None, 3))
    with pytest.raises(TypeError, match="outer='frozen'"):
        ODMClassifier(outer="frozen").fit(InPieces(X, np.arange(len(y)) % 3, None, 3))
    with pytest.raises(ValueError, match="columns in partitions needs about"):
        LDMClassifier(cache_size=1e-6).fit(InPieces(X, y, None, 3))
