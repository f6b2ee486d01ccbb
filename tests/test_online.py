"""Online learners: single steps, whole runs against slow versions, theorems, streams, errors."""

import itertools
import math
import pickle
import warnings

import cvxpy as cp
import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.base import clone
from sklearn.datasets import load_iris, make_classification
from sklearn.exceptions import ConvergenceWarning, NotFittedError
from sklearn.metrics.pairwise import linear_kernel
from sklearn.preprocessing import minmax_scale
from sklearn.utils.estimator_checks import parametrize_with_checks

from margindist import ALMAClassifier, MICRAClassifier, PUMMAClassifier, ROMMAClassifier
from margindist.datasets import make_threshold
from margindist.margins import first_reaching, update_bound
from margindist.solvers import online, online_kernel
from margindist.spaces.rows import as_rows
from tests.reference import online as reference

P_100 = 2 * np.log(100)
LEARNERS = [
    PUMMAClassifier(random_state=0),
    PUMMAClassifier(p=3.5, random_state=0),
    PUMMAClassifier(soft_margin=0.5, random_state=0),
    ROMMAClassifier(random_state=0),
    ROMMAClassifier(aggressive=False, fit_intercept=False, random_state=0),
    ROMMAClassifier(soft_margin=0.5, intercept_scaling=1.0, random_state=0),
    ALMAClassifier(alpha=0.5, random_state=0),
    ALMAClassifier(p=3.5, alpha=0.5, random_state=0),
    ALMAClassifier(alpha=0.5, soft_margin=0.5, random_state=0),
    MICRAClassifier(random_state=0),
    MICRAClassifier(soft_margin=0.5, fit_intercept=False, random_state=0),
]
every_learner = pytest.mark.parametrize("learner", LEARNERS, ids=repr)
hard_or_soft_plane = [learner for learner in LEARNERS if getattr(learner, "p", 2.0) == 2.0]


def separable(seed, n_samples=40, n_features=5, gap=0.2, bias=0.3, zeros=0.3):
    """Draw rows, some entries zero, that a hyperplane with bias separates; both labels occur, longest row first."""
    rng = np.random.default_rng(seed)
    w = rng.normal(size=n_features)
    w /= np.linalg.norm(w)
    X = rng.normal(size=(20 * n_samples, n_features)) * (rng.random((20 * n_samples, n_features)) > zeros)
    score = X @ w + bias
    X, score = X[np.abs(score) > gap][:n_samples], score[np.abs(score) > gap][:n_samples]
    order = np.argsort(-np.linalg.norm(X, axis=1), kind="stable")[:1]
    order = np.concatenate([order, np.setdiff1d(np.arange(len(X)), order)])
    y = np.where(score[order] > 0, 1, -1)
    y[np.argmin(score[order])], y[np.argmax(score[order])] = -1, 1
    return X[order], y


def best_margin(X, y, p, with_bias=True):
    """Return the largest p-norm margin by a conic solver."""
    w, b = cp.Variable(X.shape[1]), cp.Variable()
    norm = cp.norm2(w) if p == 2 else cp.pnorm(w, p / (p - 1))
    constraints = [cp.multiply(y, X @ w + (b if with_bias else 0)) >= 1]
    cp.Problem(cp.Minimize(norm), constraints).solve(solver=cp.CLARABEL)
    return 1 / norm.value


def fit(learner, X, y):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return learner.fit(X, y)


def copy_of(learner, **parameters):
    return type(learner)(**{**learner.get_params(), **parameters})


# ---------------------------------------------------------------------- single steps


@pytest.mark.parametrize("p", [1.5, 2.0, 3.0, P_100])
@pytest.mark.parametrize("seed", range(4))
def test_step_solves_the_two_constraint_problem(p, seed):
    rng = np.random.default_rng(seed)
    z, theta = rng.normal(size=6), rng.normal(size=6)
    z *= 0.5 / abs(z).max()
    v = reference.inverse_link(theta, p)
    square = np.linalg.norm(theta, p) ** 2
    z -= max(0.0, v @ z - 1.0) * theta / square
    w = cp.Variable(6)
    norm = cp.norm2(w) if p == 2 else cp.pnorm(w, p / (p - 1))
    cp.Problem(cp.Minimize(norm), [w @ z >= 2, w @ theta >= square]).solve(solver=cp.CLARABEL)
    if p == 2:
        alpha, beta, length, feasible = online.two_constraints(theta @ z, z @ z, square, 2.0)
    else:
        alpha, beta, length, feasible = online.two_constraints_p(z, theta, 0.0, p, 2.0)
    assert feasible
    np.testing.assert_allclose(np.sqrt(length), norm.value, rtol=1e-5)
    np.testing.assert_allclose(reference.inverse_link(alpha * z + beta * theta, p), w.value, rtol=1e-2, atol=2e-3)


def test_newton_agrees_with_a_generic_minimiser(rng):
    worst = 0.0
    for case in range(3000):
        p = rng.choice([2.5, 3.0, 5.0, P_100, 27.6])
        d = rng.integers(2, 12)
        theta = rng.normal(size=d) * 10.0 ** rng.integers(-3, 4)
        z = rng.normal(size=d) * 10.0 ** rng.integers(-3, 4)
        if case % 3 == 0:  # nearly parallel, in either direction
            z = theta * rng.choice([-1.0, 1.0]) * rng.random() + 1e-4 * z * np.linalg.norm(theta) / np.linalg.norm(z)
        if case % 2 == 0:  # zeros in one, the other or both
            z[rng.random(d) < 0.4] = 0.0
            theta[rng.random(d) < 0.4] = 0.0
        v = reference.inverse_link(theta, p)
        if not z.any() or v @ z >= 2.0:
            continue
        square = np.linalg.norm(theta, p) ** 2
        inside = rng.random(d) < 0.7
        inside |= z != 0.0
        rest = np.linalg.norm(theta[~inside], p) if not inside.all() else 0.0
        alpha, beta, length, feasible = online.two_constraints_p(z[inside], theta[inside], rest, p, 2.0)
        if not feasible:
            continue
        w = reference.inverse_link(alpha * z + beta * theta, p)
        expected, _ = reference.two_constraints(z, theta, p, 2.0)
        assert np.isfinite(w).all() and alpha > 0.0 and beta >= 0.0
        scale = np.linalg.norm(w, p / (p - 1)) * np.linalg.norm(z, p)
        assert w @ z >= 2.0 - 1e-9 * scale
        assert w @ theta >= square - 1e-9 * np.sqrt(length * square)
        q_norm, generic = np.sqrt(length), np.linalg.norm(expected, p / (p - 1))
        # Both are dual values, so the larger is the better; the generic one loses digits where the maximum is sharp.
        assert q_norm >= generic * (1 - 1e-10)
        worst = max(worst, q_norm / generic - 1)
    assert worst < 1e-5


@pytest.mark.parametrize("p", [2.0, 5.0])
def test_opposite_vectors_have_no_solution(p):
    theta = np.array([1.0, -2.0, 0.5])
    if p == 2.0:
        *_, feasible = online.two_constraints(-(theta @ theta), theta @ theta, theta @ theta, 2.0)
    else:
        *_, feasible = online.two_constraints_p(-theta, theta, 0.0, p, 2.0)
    assert not feasible


# ---------------------------------------------------------------------- whole passes against slow versions


def row_by_row(method, X, y, constant=0.0):
    """Yield the state after every row."""
    state = online.linear_state(method, X.shape[1], constant)
    for i in range(len(y)):
        rows = as_rows(X[i : i + 1])
        signs = y[i : i + 1].astype(float)
        online.learn_passes(method, rows, np.zeros((1, 1), int), signs, online.norms_of(method, rows), state)
        yield state


@pytest.mark.parametrize("p", [1.5, 2.0, 3.0, P_100])
def test_pumma_follows_the_paper(p):
    X, y = separable(0, n_samples=60, n_features=8)
    expected = list(reference.pumma(X, y, p, 0.1))
    states = row_by_row(online.PUMMA(p, 0.1, 0.0), X, y)
    trace = [(online.weights(state), state.track[0].bias) for state in states][-len(expected) :]
    for (w, b), (w_expected, b_expected) in zip(trace, expected):
        np.testing.assert_allclose(w, w_expected, rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(b, b_expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("short", [0.0, 0.9])
def test_romma_follows_the_paper(short):
    X, y = separable(1, n_samples=60)
    lifted = np.column_stack([X, np.full(len(X), 1.5)])
    trace = row_by_row(online.ROMMA(short, 0.0, True), X, y, constant=1.5)
    for state, w in zip(trace, reference.romma(lifted, y, short)):
        np.testing.assert_allclose(online.weights(state), w[:-1], rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(state.track[0].bias, 1.5 * w[-1], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("p", [2.0, 4.0, P_100])
def test_alma_follows_the_paper(p):
    X, y = separable(2, n_samples=60)
    lifted = np.column_stack([X, np.full(len(X), 1.5)])
    trace = row_by_row(online.ALMA(p, 0.5, np.sqrt(8) / 0.5, np.sqrt(2), 0.0, True), X, y, constant=1.5)
    for state, w in zip(trace, reference.alma(lifted, y, p, 0.5)):
        np.testing.assert_allclose(online.weights(state), w[:-1], rtol=1e-7, atol=1e-10)
        np.testing.assert_allclose(state.track[0].bias, 1.5 * w[-1], rtol=1e-7, atol=1e-10)


def test_micra_follows_the_paper():
    X, y = separable(3, n_samples=60)
    trace = row_by_row(online.MICRA(1.0, 0.3, 0.4, 0.6, 0.0, False), X, y)
    for state, u in zip(trace, reference.micra(X, y, 1.0, 0.3, 0.4, 0.6)):
        np.testing.assert_allclose(online.weights(state), u, rtol=1e-9, atol=1e-12)


def test_pumma_is_romma_on_difference_vectors():
    X, y = separable(4, n_samples=80)
    romma, pair, steps = online.linear_state(online.ROMMA(0.95, 0.0, False), X.shape[1]), {}, 0
    for i, state in enumerate(row_by_row(online.PUMMA(2.0, 0.1, 0.0), X, y)):
        if state.track[0].n_updates > steps or len(pair) < 2:
            pair[y[i]] = X[i] if state.track[0].n_updates > steps else pair.get(y[i], X[i])
        if state.track[0].n_updates > steps:
            steps = state.track[0].n_updates
            rows = as_rows(np.ascontiguousarray((pair[1] - pair[-1])[None] / 2))
            method = online.ROMMA(0.95, 0.0, False)
            norms = online.norms_of(method, rows)
            n_short = online.learn_passes(method, rows, np.zeros((1, 1), int), np.ones(1), norms, romma)[1]
            assert n_short == 1
        np.testing.assert_allclose(online.weights(romma), online.weights(state), rtol=1e-9, atol=1e-12)
    assert steps > 5


def test_first_rows_of_one_class():
    X, y = separable(5)
    negatives = X[y == -1]
    model = PUMMAClassifier().partial_fit(negatives[:3], [-1] * 3, classes=[-1, 1])
    assert model.n_updates_ == 0 and (model.predict(X) == -1).all()
    positive = X[y == 1][:1]
    model.partial_fit(positive, [1])
    z = positive[0] - negatives[0]
    np.testing.assert_allclose(model.coef_[0], 2 * z / (z @ z))
    np.testing.assert_allclose(model.decision_function(np.vstack([positive, negatives[:1]])), [1.0, -1.0])


# ---------------------------------------------------------------------- theorems


@settings(max_examples=12, deadline=None)
@given(seed=st.integers(0, 10**6), p=st.sampled_from([2.0, 3.0, 6.0]), delta=st.sampled_from([0.05, 0.3, 1.0]))
def test_pumma_reaches_its_share_within_its_bound(seed, p, delta):
    X, y = separable(seed, n_samples=25, gap=0.3)
    model = PUMMAClassifier(p=p, delta=delta, max_iter=20000).fit(X, y)
    best = best_margin(X, y, p)
    assert model.converged_
    assert model.margin_ >= (1 - delta) * best * (1 - 1e-5)
    assert 1 - delta - 1e-6 <= model.margin_share_ <= model.margin_ / best * (1 + 1e-5)
    assert model.n_updates_ <= update_bound(best, np.linalg.norm(X, p, axis=1).max(), delta, p) * (1 + 1e-6)
    scores = y * model.decision_function(X)
    np.testing.assert_allclose(model.margin_, scores.min() / np.linalg.norm(model.coef_[0], p / (p - 1)))


@settings(max_examples=15, deadline=None)
@given(seed=st.integers(0, 10**6), p=st.sampled_from([2.0, 3.0, P_100]), soft=st.booleans())
def test_pumma_never_gets_shorter(seed, p, soft):
    X, y = separable(seed)
    squares = [s.track[0].square for s in row_by_row(online.PUMMA(p, 0.1, 0.7 if soft and p == 2.0 else 0.0), X, y)]
    assert (np.diff(squares) >= -1e-12 * np.array(squares[1:])).all()


@settings(max_examples=8, deadline=None)
@given(seed=st.integers(0, 10**6), delta=st.sampled_from([0.1, 0.5]))
def test_romma_reaches_its_share_within_its_bound(seed, delta):
    X, y = separable(seed, n_samples=25, gap=0.3)
    R = np.linalg.norm(X, axis=1).max()
    lifted = np.column_stack([X, np.full(len(X), R)])
    best = best_margin(lifted, y, 2, with_bias=False)
    model = ROMMAClassifier(delta=delta, max_iter=20000, shuffle=False).fit(X, y)
    w = np.append(model.coef_[0], model.intercept_[0] / R)
    assert (y * (lifted @ w)).min() / np.linalg.norm(w) >= (1 - delta) * best * (1 - 1e-6)
    assert 1 - delta - 1e-6 <= model.margin_share_
    assert (
        model.n_updates_ <= 2 * R**2 / (delta * best) ** 2
    )  # the longest row comes first, so R is right from the start


@settings(max_examples=6, deadline=None)
@given(seed=st.integers(0, 10**6), order=st.randoms(use_true_random=False))
def test_growing_constant_keeps_rommas_guarantee(seed, order):
    X, y = separable(seed, n_samples=25, gap=0.3)
    rows = sorted(range(len(X)), key=lambda i: np.linalg.norm(X[i]))  # the worst order: the constant grows at every row
    X, y = X[rows], y[rows]
    R = np.linalg.norm(X, axis=1).max()
    lifted = np.column_stack([X, np.full(len(X), R)])
    model = ROMMAClassifier(delta=0.2, max_iter=20000, shuffle=False).fit(X, y)
    w = np.append(model.coef_[0], model.intercept_[0] / R)
    best = best_margin(lifted, y, 2, with_bias=False)
    assert (y * (lifted @ w)).min() / np.linalg.norm(w) >= 0.8 * best * (1 - 1e-6)


@settings(max_examples=8, deadline=None)
@given(seed=st.integers(0, 10**6), p=st.sampled_from([2.0, 4.0]), alpha=st.sampled_from([0.3, 0.7]))
def test_alma_reaches_its_share_within_its_bound(seed, p, alpha):
    X, y = separable(seed, n_samples=25, gap=0.3)
    R = np.linalg.norm(X, p, axis=1).max()
    unit = np.column_stack([X, np.full(len(X), R)])
    unit /= np.linalg.norm(unit, p, axis=1)[:, None]
    best = best_margin(unit, y, p, with_bias=False)
    model = ALMAClassifier(p=p, alpha=alpha, intercept_scaling=R, max_iter=50000).fit(X, y)
    w = np.append(model.coef_[0], model.intercept_[0] / R)
    assert model.converged_
    assert (y * (unit @ w)).min() / np.linalg.norm(w, p / (p - 1)) >= (1 - alpha) * best * (1 - 1e-5)
    assert model.n_updates_ <= 2 * (p - 1) / best**2 * (2 / alpha - 1) ** 2 + 8 / alpha - 4


@pytest.mark.parametrize("alpha", [0.05, 0.3, 1.0])
@pytest.mark.parametrize("p", [2.0, P_100])
@pytest.mark.parametrize("margin", [0.1, 0.3, 1.0])
def test_almas_bound_follows_from_its_progress(alpha, p, margin):
    growth, progress, n_steps = 8 / alpha - 6, 0.0, 0
    while progress <= 1.0:
        n_steps += 1
        progress = (progress + math.sqrt(2 / ((p - 1) * n_steps)) * margin) / math.sqrt(1 + growth / n_steps)
    bound = 2 * (p - 1) / margin**2 * (2 / alpha - 1) ** 2 + 8 / alpha - 4
    assert n_steps - 1 <= bound
    assert math.sqrt(8) / alpha * math.sqrt((p - 1) / (bound + 1)) >= margin


@pytest.mark.parametrize("p", [2.0, 3.5])
def test_pumma_does_not_notice_a_translation(p):
    X, y = separable(6, n_samples=60)
    plain, moved = (PUMMAClassifier(p=p, random_state=0).fit(rows, y) for rows in (X, X + 30.0))
    assert plain.n_updates_ == moved.n_updates_ > 10
    np.testing.assert_allclose(moved.coef_, plain.coef_, rtol=1e-6, atol=1e-8)
    romma, far = (ROMMAClassifier(random_state=0).fit(rows, y) for rows in (X, X + 3.0))
    assert far.n_updates_ > 2 * romma.n_updates_


@settings(max_examples=6, deadline=None)
@given(seed=st.integers(0, 10**6), beta=st.sampled_from([0.2, 1.0]), zeta=st.sampled_from([0.3, 0.6]))
def test_micra_ends_within_its_bound(seed, beta, zeta):
    X, y = separable(seed, n_samples=25, gap=0.4, bias=0.0)
    R = np.linalg.norm(X, axis=1).max()
    best = best_margin(X, y, 2, with_bias=False)
    model = MICRAClassifier(eta=0.5, beta=beta, epsilon=0.6, zeta=zeta, fit_intercept=False, max_iter=10**6).fit(X, y)
    bound = reference.micra_step_bound(best, R, 0.5, beta, 0.6, zeta)
    assert model.n_updates_ <= bound
    assert model.margin_ >= beta * R / bound**0.6
    assert model.margin_share_ <= model.margin_ / best * (1 + 1e-6)


@pytest.mark.parametrize("learner", hard_or_soft_plane, ids=repr)
def test_soft_margin_is_a_column_a_sample(learner):
    if learner.soft_margin == 0.0:
        learner = copy_of(learner, soft_margin=0.5)
    X, y = separable(7, n_samples=30)
    X, y = np.vstack([X, X[:4]]), np.concatenate([y, -y[:4]])  # four contradictions
    constant = {"intercept_scaling": 1.0} if hasattr(learner, "intercept_scaling") else {}
    learner = copy_of(learner, max_iter=2000, **constant)
    wide = np.hstack([X, np.sqrt(learner.soft_margin) * np.eye(len(X))])
    soft, hard = fit(learner, X, y), fit(copy_of(learner, soft_margin=0.0), wide, y)
    assert soft.n_updates_ == hard.n_updates_
    np.testing.assert_allclose(soft.coef_[0], hard.coef_[0, : X.shape[1]], rtol=1e-6, atol=1e-9)
    np.testing.assert_allclose(soft.intercept_, hard.intercept_, rtol=1e-6, atol=1e-9)
    np.testing.assert_allclose([soft.margin_, soft.margin_share_], [hard.margin_, hard.margin_share_], rtol=1e-6)


# ---------------------------------------------------------------------- one model, however the rows come


def close(model, other, X, rtol=1e-8):
    values = model.decision_function(X)
    np.testing.assert_allclose(other.decision_function(X), values, rtol=rtol, atol=rtol * np.abs(values).max())


@every_learner
@pytest.mark.parametrize("n_classes", [2, 3])
def test_chunks_make_the_same_model_as_one_pass(learner, n_classes):
    X, y = load_iris(return_X_y=True)
    rng = np.random.default_rng(0)
    rows = rng.permutation(np.flatnonzero(y < n_classes))
    X, y = X[rows], np.array(["setosa", "versicolor", "virginica"])[y[rows]]
    whole = fit(copy_of(learner, max_iter=1, shuffle=False), X, y)
    single, chunks = copy_of(learner), copy_of(learner)
    for i in range(len(y)):
        single.partial_fit(X[i : i + 1], y[i : i + 1], classes=np.unique(y))
    for part in np.array_split(np.arange(len(y)), 7):
        chunks.partial_fit(sp.csr_array(X[part]), y[part].tolist(), classes=np.unique(y).tolist())
    for other in (single, chunks):
        close(whole, other, X)
        np.testing.assert_array_equal(other.n_updates_, whole.n_updates_)


@pytest.mark.parametrize("learner", hard_or_soft_plane, ids=repr)
@pytest.mark.parametrize("values", [1 << 26, 1 << 12], ids=["one block", "blocks"])
def test_linear_kernel_is_the_linear_model(learner, values, monkeypatch):
    monkeypatch.setattr(online_kernel, "_VALUES", values)
    X, y = load_iris(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(y))
    X, y = X[order], y[order]
    plain = copy_of(learner, max_iter=5)
    kernel = copy_of(learner, max_iter=5, kernel=linear_kernel)
    fit(plain, X, y), fit(kernel, X, y)
    close(plain, kernel, X, 1e-7)
    np.testing.assert_array_equal(kernel.n_updates_, plain.n_updates_)
    np.testing.assert_allclose(kernel.margin_, plain.margin_, rtol=1e-6, atol=1e-10)
    np.testing.assert_allclose(kernel.margin_share_, plain.margin_share_, rtol=1e-6, atol=1e-10)
    given_matrix = fit(copy_of(kernel, kernel="precomputed"), X @ X.T, y)
    np.testing.assert_allclose(given_matrix.decision_function(X @ X.T), kernel.decision_function(X), rtol=1e-7)
    plain.partial_fit(X[:20], y[:20])
    kernel.partial_fit(X[:20], y[:20])
    close(plain, kernel, X, 1e-7)


def test_kernel_stream_stores_only_what_it_uses():
    X, y = make_classification(400, n_features=6, random_state=0)
    whole = fit(PUMMAClassifier(kernel="rbf", soft_margin=0.1, max_iter=1, shuffle=False), X, y)
    stream = PUMMAClassifier(kernel="rbf", soft_margin=0.1)
    for part in np.array_split(np.arange(400), 9):
        stream.partial_fit(X[part], y[part], classes=[0, 1])
    close(whole, stream, X)
    np.testing.assert_array_equal(stream.support_, whole.support_)
    np.testing.assert_array_equal(X[stream.support_], stream.support_vectors_)
    assert len(stream.support_) < 400 and stream.dual_coef_.any(axis=0).all()


@pytest.mark.parametrize("learner", [LEARNERS[0], LEARNERS[1], LEARNERS[3], LEARNERS[7], LEARNERS[9]], ids=repr)
def test_single_precision_rows_are_taken_as_they_are(learner):
    X, y = separable(8)
    double = fit(copy_of(learner, max_iter=2), X.astype(np.float32).astype(float), y)
    single = fit(copy_of(learner, max_iter=2), X.astype(np.float32), y)
    np.testing.assert_allclose(single.coef_, double.coef_, rtol=1e-6)


@pytest.mark.parametrize("p", [2.0, "auto"])
def test_scale_of_the_features_does_not_matter(p):
    X, y = separable(9)
    model = PUMMAClassifier(p=p, random_state=0).fit(X, y)
    for factor in (1e-60, 1e60):
        other = PUMMAClassifier(p=p, random_state=0).fit(X * factor, y)
        assert other.n_updates_ == model.n_updates_
        np.testing.assert_allclose(other.coef_ * factor, model.coef_, rtol=1e-6)


def test_millions_of_features():
    rng = np.random.default_rng(0)
    d, n = 2_000_000, 60
    columns = rng.integers(0, d, size=(n, 20))
    y = np.where(rng.random(n) < 0.5, -1, 1)
    columns[:, 0] = np.where(y > 0, 17, 18)
    X = sp.csr_matrix((np.ones(n * 20), (np.repeat(np.arange(n), 20), columns.ravel())), shape=(n, d))
    X.sum_duplicates()
    model = PUMMAClassifier(p="auto", delta=0.05).fit(X, y)
    assert model.converged_ and np.isfinite(model.coef_).all()
    assert model.margin_share_ >= 0.95 - 1e-9
    assert set(np.argsort(-np.abs(model.coef_[0]))[:2]) == {17, 18}  # the two features that matter


@every_learner
def test_overlapping_classes_end_in_one_warning_and_finite_numbers(learner):
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(60, 2)), rng.integers(0, 3, 60)
    with pytest.warns(ConvergenceWarning, match="set soft_margin") as caught:
        model = copy_of(learner, max_iter=3).fit(X, y)
    assert len(caught) == 1 and not model.converged_ and model.n_iter_ == 3
    assert np.isfinite(model.coef_).all() and np.isfinite(model.intercept_).all() and np.isfinite(model.margin_).all()


@pytest.mark.parametrize("classifier", [PUMMAClassifier, ROMMAClassifier, ALMAClassifier, MICRAClassifier])
@pytest.mark.parametrize("n_classes", [2, 3])
def test_stored_rows_are_counted_by_class(classifier, n_classes):
    X, y = load_iris(return_X_y=True)
    order = np.random.default_rng(0).permutation(np.flatnonzero(y < n_classes))
    X, y = X[order], y[order]
    model = classifier(kernel="rbf", gamma=0.5, soft_margin=1.0, max_iter=20, random_state=0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        assert np.array_equal(model.fit(X, y).n_support_, np.bincount(y[model.support_], minlength=n_classes))
    model = clone(model)
    for start in range(0, len(y), 17):
        part = slice(start, start + 17)
        model.partial_fit(X[part], y[part], classes=np.arange(n_classes))
        assert np.array_equal(model.n_support_, np.bincount(y[model.support_], minlength=n_classes))
    assert model.n_support_.dtype == np.int32


def test_norm_stays_right_over_many_steps():
    X, y = load_iris(return_X_y=True)
    method = online.PUMMA(2.0, 0.01, 1.0)
    state = online.linear_state(method, 4, n_samples=len(y))
    signs = np.where(y == 1, 1.0, -1.0)
    while state.track[0].n_updates < 4000:
        online.learn_passes(method, as_rows(X), np.arange(len(y))[None], signs, np.empty(0), state)
    track = state.track[0]
    coefs = track.scale * state.soft_coefs
    np.testing.assert_allclose(track.soft_square, coefs @ coefs, rtol=1e-9)
    np.testing.assert_allclose(track.square, np.sum(online.weights(state) ** 2) + coefs @ coefs, rtol=1e-9)
    np.testing.assert_allclose(online.weights(state), coefs @ X, rtol=1e-6)
    np.testing.assert_allclose(track.mass, np.abs(coefs).sum(), rtol=1e-6)


@pytest.mark.parametrize("kernel", ["linear", "rbf"])
@pytest.mark.parametrize("learner", [PUMMAClassifier(soft_margin=0.5), ROMMAClassifier(soft_margin=0.5)], ids=repr)
def test_history_is_what_shorter_fits_end_with(learner, kernel):
    X, y = load_iris(return_X_y=True)
    model = fit(copy_of(learner, kernel=kernel, delta=0.05, max_iter=100, shuffle=False), X, y == 1)
    history = model.history_
    assert history["n_iter"][-1] == model.n_iter_ > 30 and history["n_updates"][-1] == model.n_updates_
    assert (history["margin"][-1], history["share"][-1]) == (model.margin_, model.margin_share_)
    assert (np.diff(history["seconds"]) >= 0.0).all() and (np.diff(history["n_iter"]) > 0).all()
    steps = [1, 2, 4, 8, 16] if kernel == "rbf" else [*range(1, 21), 22, 24]
    np.testing.assert_array_equal(history["n_iter"][: len(steps)], steps)
    for row in history[[1, 3]]:
        shorter = fit(copy_of(model, max_iter=int(row["n_iter"])), X, y == 1)
        assert (shorter.n_updates_, shorter.margin_) == (row["n_updates"], row["margin"])


@pytest.mark.parametrize("kernel", ["linear", "rbf"])
def test_history_of_every_class(kernel):
    X, y = load_iris(return_X_y=True)
    model = PUMMAClassifier(kernel=kernel, soft_margin=1.0, max_iter=1000).fit(X, y)
    assert [history["n_updates"][-1] for history in model.history_] == list(model.n_updates_)
    assert max(history["n_iter"][-1] for history in model.history_) == model.n_iter_
    np.testing.assert_array_equal([history["margin"][-1] for history in model.history_], model.margin_)


def test_first_reaching():
    rows = [(1, 10, 0.1, -1.0, -0.5), (2, 15, 0.2, 0.5, 0.4), (3, 17, 0.3, 0.4, 0.3), (4, 20, 0.4, 0.8, 0.7)]
    found = first_reaching(np.array(rows, online.RECORD), [-2.0, 0.45, 0.5, 0.6, 0.9])
    np.testing.assert_array_equal(found["n_updates"], [10, 15, 15, 20, np.nan])
    np.testing.assert_array_equal(found["margin"], [-1.0, 0.5, 0.5, 0.8, np.nan])


# ---------------------------------------------------------------------- what comes in


@parametrize_with_checks(
    [
        PUMMAClassifier(max_iter=100),
        PUMMAClassifier(p="auto", max_iter=100),
        ROMMAClassifier(max_iter=100),
        PUMMAClassifier(kernel="rbf", max_iter=100),
    ]
)
def test_scikit_learn_checks_of_hard_margins(estimator, check):
    check(estimator)


@pytest.mark.parametrize(
    ("learner", "message"),
    [
        (PUMMAClassifier(p=1), "PUMMAClassifier: p must be 'auto' or a number above 1, got 1"),
        (PUMMAClassifier(delta=-0.1), r"delta must be in \[0, 1\], got -0.1"),
        (ALMAClassifier(p=1.5), "ALMAClassifier: p must be 'auto' or a number that is at least 2, got 1.5"),
        (PUMMAClassifier(p=3, soft_margin=1.0), "soft_margin needs p=2, got p=3"),
        (PUMMAClassifier(p=3, kernel="rbf"), "kernels need p=2, got p=3"),
        (ROMMAClassifier(soft_margin=-1), "soft_margin must be a number that is not negative, got -1"),
        (ROMMAClassifier(intercept_scaling=0), "intercept_scaling must be 'auto' or a positive number, got 0"),
        (ALMAClassifier(B=0), "B must be None or a positive number, got 0"),
        (MICRAClassifier(zeta=2), r"zeta must be in \(0, 1\], got 2"),
    ],
)
@pytest.mark.parametrize("way", ["fit", "partial_fit"])
def test_parameters_are_checked(learner, message, way):
    X, y = separable(0)
    with pytest.raises(ValueError, match=message):
        learner.fit(X, y) if way == "fit" else learner.partial_fit(X, y, classes=[-1, 1])


def test_small_batches_are_checked_too():
    X, y = separable(0)
    model = PUMMAClassifier()
    with pytest.raises(ValueError, match="the first call of partial_fit needs classes"):
        model.partial_fit(X, y)
    model.partial_fit(X, y, classes=[-1, 1])
    for bad in (np.nan, np.inf):
        row = X[:1].copy()
        row[0, 2] = bad
        for form in (np.asarray, sp.csr_matrix, sp.csr_array):
            with pytest.raises(ValueError, match=r"NaN|infinity"):
                model.partial_fit(form(row), y[:1])
    with pytest.raises(ValueError, match="features"):
        model.partial_fit(X[:1, :3], y[:1])
    with pytest.raises(ValueError, match="inconsistent"):
        model.partial_fit(X[:1], y[:2])
    with pytest.raises(ValueError, match=r"y has the labels .*5.*, which are not among the classes"):
        model.partial_fit(X[:1], np.array([5]))
    with pytest.raises(ValueError, match="not the same as on last call"):
        model.partial_fit(X[:1], y[:1], classes=[-1, 2])
    with pytest.raises(ValueError, match="Expected 2D array"):
        model.partial_fit(X[0], y[:1])
    with pytest.raises(ValueError, match="delta must be"):
        model.set_params(delta=7).partial_fit(X[:1], y[:1])
    with pytest.raises(ValueError, match="cannot change between calls"):
        model.set_params(delta=0.1, soft_margin=2.0).partial_fit(X[:1], y[:1])


def test_labels_may_be_numbers_of_another_kind():
    X, y = separable(0)
    model = PUMMAClassifier().partial_fit(X[:5], y[:5], classes=[-1, 1])
    assert model._quick_batch(X[:1], y[:1].astype(float), None) is not None
    other = PUMMAClassifier().partial_fit(X[:5], y[:5], classes=[-1, 1])
    close(model.partial_fit(X, y.astype(float)), other.partial_fit(X, y), X)
    for label in (0.5, np.nan):
        with pytest.raises(ValueError, match=r"label|NaN"):
            model.partial_fit(X[:1], np.array([label]))


def test_streams_refuse_what_needs_all_rows():
    X, y = separable(0)
    with pytest.raises(ValueError, match="gamma='scale' looks at all rows"):
        PUMMAClassifier(kernel="rbf", gamma="scale").partial_fit(X, y, classes=[-1, 1])
    with pytest.raises(ValueError, match="kernel='precomputed' works with fit only"):
        PUMMAClassifier(kernel="precomputed").partial_fit(X @ X.T, y, classes=[-1, 1])


@pytest.mark.parametrize("kernel", ["linear", "rbf"])
def test_learning_goes_on_after_fit_and_pickling(kernel):
    X, y = separable(0)
    model = fit(PUMMAClassifier(kernel=kernel, soft_margin=1.0), X[:30], y[:30])
    copy = pickle.loads(pickle.dumps(model))
    model.partial_fit(X[30:], y[30:])
    copy.partial_fit(sp.csr_matrix(X[30:]), y[30:]) if kernel == "linear" else copy.partial_fit(X[30:], y[30:])
    close(model, copy, X)
    assert model.set_params(delta=0.5).partial_fit(X[:1], y[:1]) is model


def test_attributes_belong_to_the_kind_of_model():
    X, y = separable(0)
    model = PUMMAClassifier()
    assert not hasattr(model, "coef_") and not hasattr(model, "intercept_")
    assert hasattr(fit(model, X, y), "coef_")
    assert not hasattr(fit(model.set_params(kernel="rbf"), X, y), "coef_")


def test_soft_margin_classifies_overlapping_classes_well():
    X, y = load_iris(return_X_y=True)
    X = minmax_scale(X)
    for learner in (PUMMAClassifier, ROMMAClassifier, ALMAClassifier, MICRAClassifier):
        model = learner(soft_margin=1.0, random_state=0).fit(X, y)
        assert model.converged_ and model.score(X, y) > 0.9


# ---------------------------------------------------------------------- the paper's data


@pytest.mark.parametrize("r", [1, 4, 8, 16])
def test_threshold_data(r):
    X, y = make_threshold(2000, r=r, random_state=1)
    again, labels = make_threshold(2000, r=r, random_state=1)
    np.testing.assert_array_equal(X, again)
    np.testing.assert_array_equal(y, labels)
    assert X.shape == (2000, 100) and set(np.unique(X)) == {-1.0, 1.0} and 0.45 < (y > 0).mean() < 0.55
    relevant = np.argsort(-(y @ X))[:16]
    np.testing.assert_array_equal(y > 0, (X[:, relevant] > 0).sum(axis=1) >= r)


def test_threshold_data_checks_its_numbers():
    with pytest.raises(ValueError, match="1 <= r <= k <= n_features"):
        make_threshold(r=17, k=16)


def test_p_norms_find_few_relevant_features_faster():
    X, y = make_threshold(400, r=4, random_state=0)
    plain, bent = PUMMAClassifier(max_iter=5000).fit(X, y), PUMMAClassifier(p="auto", max_iter=5000).fit(X, y)
    assert bent.converged_ and plain.converged_
    share = [np.sort(np.abs(m.coef_[0]))[-16:].sum() / np.abs(m.coef_[0]).sum() for m in (plain, bent)]
    assert share[1] > share[0]


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_a_step_of_micra_that_would_end_at_zero_is_not_made():
    X, y = [[1.0, 0.0], [-1.0, 0.0], [0.0, 1.0]], [1, 1, 0]
    model = MICRAClassifier(fit_intercept=False).fit(X, y)
    assert np.isfinite(model.coef_).all()
    assert np.linalg.norm(model.coef_) == pytest.approx(1.0)


def test_a_refused_first_piece_leaves_nothing_behind():
    model = PUMMAClassifier(kernel="rbf", gamma="scale")
    with pytest.raises(ValueError, match="gamma='scale' looks at all rows"):
        model.partial_fit(np.eye(4), [0, 1, 0, 1], classes=[0, 1])
    with pytest.raises(NotFittedError):
        model.predict(np.eye(4))


def test_a_fit_to_kernel_values_cannot_go_on_with_rows():
    K = np.eye(4)
    model = PUMMAClassifier(kernel="precomputed").fit(K, [0, 1, 0, 1])
    for rows in (K, K[:2]):
        with pytest.raises(ValueError, match="partial_fit needs the rows themselves"):
            model.partial_fit(rows, [0, 1, 0, 1][: len(rows)])


@pytest.mark.parametrize("learner", [PUMMAClassifier, ROMMAClassifier, ALMAClassifier, MICRAClassifier])
def test_the_advice_names_parameters_that_there_are(learner):
    X, y = np.array([[0.0], [1.0], [2.0], [3.0]]), [0, 1, 0, 1]
    with pytest.warns(ConvergenceWarning, match="set soft_margin") as caught:
        learner(max_iter=2).fit(X, y)
    assert ("p=2" in str(caught[0].message)) == ("p" in learner().get_params())


# ---------------------------------------------------------------------- the order of the rows

ALL_FOUR = (PUMMAClassifier, ROMMAClassifier, ALMAClassifier, MICRAClassifier)


def overlapping(seed=0, n_samples=300):
    """Draw two overlapping classes far from the origin, sorted by class; two thirds of the rows are of the first."""
    rng = np.random.default_rng(seed)
    y = np.sort(rng.permutation(n_samples) % 3 == 0).astype(int)
    X = rng.normal(size=(n_samples, 5)) + 5.0
    X[:, 0] += 3.0 * y
    return X, y


@pytest.mark.parametrize("kernel", ["linear", "rbf"])
@pytest.mark.parametrize("learner", ALL_FOUR)
def test_rows_sorted_by_class_are_learnt_as_well_as_any(learner, kernel):
    X, y = overlapping()
    fresh, truth = overlapping(seed=1)
    mixed = np.random.default_rng(2).permutation(len(y))
    model = learner(kernel=kernel, soft_margin=0.1, max_iter=20, random_state=0)
    as_given = fit(copy_of(model, shuffle=False), X, y).score(fresh, truth)
    in_order = fit(copy_of(model), X, y).score(fresh, truth)
    in_disorder = fit(copy_of(model), X[mixed], y[mixed]).score(fresh, truth)
    assert min(in_order, in_disorder) > 0.85 > (truth == 0).mean()
    assert abs(in_order - in_disorder) < 0.1
    assert as_given < 0.8  # what shuffling is for


@pytest.mark.parametrize("kernel", ["linear", "rbf"])
@pytest.mark.parametrize("learner", ALL_FOUR)
def test_random_state_decides_the_orders(learner, kernel):
    X, y = overlapping()
    model = learner(kernel=kernel, soft_margin=1.0, max_iter=3)
    first, again, other = (fit(copy_of(model, random_state=seed), X, y) for seed in (0, 0, 1))
    np.testing.assert_array_equal(again.decision_function(X), first.decision_function(X))
    assert (other.decision_function(X) != first.decision_function(X)).any()


@pytest.mark.parametrize("learner", ALL_FOUR)
def test_shuffled_passes_are_passes_over_permuted_rows(learner):
    X, y = overlapping(n_samples=60)
    seed = int(np.random.default_rng(0).integers(2**63))
    passes = zip(range(3), online.Orders(len(y), seed))
    rows = np.concatenate([order.copy() for _, order in passes])
    shuffled = fit(learner(max_iter=3, random_state=0), X, y)
    close(shuffled, learner().partial_fit(X[rows], y[rows], classes=[0, 1]), X)
    assert (np.sort(rows.reshape(3, -1)) == np.arange(len(y))).all()


@pytest.mark.parametrize("learner", hard_or_soft_plane, ids=repr)
def test_products_of_the_rows_make_the_same_steps(learner, monkeypatch):
    X, y = overlapping(n_samples=60)
    more, labels = overlapping(seed=1, n_samples=20)
    models = [copy_of(learner, max_iter=40, random_state=0) for _ in range(2)]
    fit(models[0], X, y)
    monkeypatch.setattr(online_kernel, "_FEW_ROWS", 0)
    fit(models[1], X, y)
    for _ in range(2):  # as fitted, and after going on from there
        close(*models, X, 1e-7)
        assert models[0].n_updates_ == models[1].n_updates_
        for model in models:
            model.partial_fit(more, labels)


@pytest.mark.parametrize("values", [1 << 26, 1 << 12], ids=["one block", "blocks"])
def test_support_names_rows_as_given_when_shuffled(values, monkeypatch):
    monkeypatch.setattr(online_kernel, "_VALUES", values)
    X, y = overlapping(n_samples=60)
    model = fit(PUMMAClassifier(kernel="rbf", soft_margin=1.0, random_state=0), X, y)
    np.testing.assert_array_equal(X[model.support_], model.support_vectors_)
    signs = np.where(y[model.support_] == 1, 1.0, -1.0)
    assert model.converged_ and (model.dual_coef_[0] * signs >= 0.0).all()


@pytest.mark.parametrize("learner", ALL_FOUR)
def test_defaults_converge_on_ordinary_data(learner):
    X, y = load_iris(return_X_y=True)
    model = learner(soft_margin=1.0, random_state=0).fit(X, y)
    assert model.converged_ and model.score(X, y) > 0.9


def test_alma_leaves_the_most_frequent_class():
    X, y = overlapping()
    model = fit(ALMAClassifier(max_iter=100, random_state=0), X + 10.0, y)
    assert model.score(X + 10.0, y) > 0.85
    thresholds = [(1 - alpha) * np.sqrt(8) / alpha / 0.05 for alpha in (0.1, 0.5)]
    np.testing.assert_allclose(np.square(thresholds), [259_200, 3_200], rtol=1e-6)  # the steps named in the notes


def test_the_warning_says_how_far_the_fit_came():
    X, y = overlapping()
    with pytest.warns(ConvergenceWarning, match=r"7 passes \(max_iter=7\)") as caught:
        model = ROMMAClassifier(max_iter=7, random_state=0).fit(X, y)
    message = str(caught[0].message)
    assert f"{model.n_updates_} steps" in message and f"margin_ is {model.margin_:.3g}" in message


@pytest.mark.parametrize("kernel", ["linear", linear_kernel])
@pytest.mark.parametrize("learner", [ALMAClassifier, MICRAClassifier])
def test_passes_that_promise_nothing_end(learner, kernel):
    X, y = overlapping(n_samples=60)
    with pytest.warns(ConvergenceWarning, match=r"passes \((more promised nothing|no weights separate the classes)\)"):
        model = learner(kernel=kernel, random_state=0).fit(X, y)
    assert not model.converged_ and model.n_iter_ in (128, 256, 512)
    told = fit(learner(kernel=kernel, random_state=0, max_iter=600), X, y)
    assert told.n_iter_ == 600  # a number is a number
    ends = [run.history_[-1] for run in (model, told)]
    bound, later = (end["margin"] / end["share"] * np.sqrt(end["n_updates"]) for end in ends)
    assert later < 1.5 * bound  # nothing was in sight


@pytest.mark.parametrize("form", [np.asarray, sp.csr_array])
@pytest.mark.parametrize("learner", [PUMMAClassifier, ROMMAClassifier, ALMAClassifier, MICRAClassifier])
def test_a_proof_that_no_weights_separate_the_rows_ends_passes(learner, form):
    rng = np.random.default_rng(0)
    X = rng.standard_normal((60, 300))  # fewer rows than columns: but for the first they are separable
    y = np.arange(60) % 2
    X[0] = (X[1] + X[3]) / 2.0  # between two of the other class
    model = learner(random_state=0)
    with pytest.warns(ConvergenceWarning, match=r"128 passes \(no weights separate the classes\) .* Set soft_margin"):
        model.fit(form(X), y)
    assert model.n_iter_ == 128
    assert fit(learner(random_state=0), X[1:], y[1:]).converged_


def test_small_margins_take_their_passes():
    X, y = separable(3, n_samples=60, gap=0.01)
    model = ALMAClassifier(random_state=0).fit(X, y)
    assert model.converged_ and model.n_iter_ > 512


@pytest.mark.parametrize("kernel", ["linear", linear_kernel])
def test_a_pass_without_a_possible_step_is_the_last(kernel):
    X, y = np.array([[0.0], [1.0], [1.0], [2.0]]), [0, 0, 1, 1]  # two equal rows of different classes
    with pytest.warns(ConvergenceWarning, match="set soft_margin"):
        model = PUMMAClassifier(kernel=kernel, random_state=0).fit(X, y)
    assert model.n_iter_ < 100 and not model.converged_


@pytest.mark.parametrize("p", [2.0, 5.0])
@pytest.mark.parametrize("learner", ALL_FOUR)
@pytest.mark.parametrize("factor", [1e-300, 1e-150, 1e-76, 1e-60])
def test_tiny_rows_of_a_stream_do_no_harm(learner, p, factor):
    X, y = separable(10)
    model = learner(**({"p": p} if "p" in learner().get_params() else {}))
    fresh = copy_of(model).partial_fit(X, y, classes=[-1, 1])
    model.partial_fit(factor * X, y, classes=[-1, 1])
    assert np.isfinite(model.coef_).all() and np.isfinite(model.intercept_).all()
    for _ in range(50):
        model.partial_fit(X, y)
    assert np.isfinite(model.coef_).all() and np.isfinite(model.decision_function(X)).all()
    assert model.score(X, y) >= fresh.score(X, y) - 0.1


def test_huge_rows_take_the_long_way_through_the_checks():
    X, y = separable(10)
    model = PUMMAClassifier().partial_fit(X, y, classes=[-1, 1])
    assert model._quick_batch(X, y, None) is not None
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert model._quick_batch(1e80 * X, y, None) is None
        assert model._quick_batch((1e30 * X).astype(np.float32), y, None) is None


@pytest.mark.parametrize("learner", [ROMMAClassifier, ALMAClassifier, MICRAClassifier])
def test_rows_of_negative_length_in_an_indefinite_kernel_are_passed_over(learner, rng):
    X, y = 0.1 * rng.standard_normal((30, 3)), rng.integers(0, 3, 30)
    model = learner(kernel="sigmoid", coef0=-1.0, soft_margin=1.0, max_iter=20).fit(X, y)
    assert np.isfinite(model.dual_coef_).all() and np.isfinite(model.decision_function(X)).all()


@pytest.mark.parametrize("exponent", [0.0, 1.0, 2.0, 7.0, 8.0, 32.0, 33.0, 0.5, 2.7, -1.0])
def test_powers_by_products(exponent):
    for base in (1e-9, 0.3, 1.0, 1.7, 1e8):
        assert online._power(base, exponent) == pytest.approx(base**exponent, rel=1e-14)


@every_learner
def test_many_passes_in_one_call_are_the_same_as_one_by_one(learner, monkeypatch):
    X, y = separable(3, gap=0.02)
    many = clone(learner).fit(X, y)
    monkeypatch.setattr(online, "_ORDERS", 1)
    one = clone(learner).fit(X, y)
    assert many.n_iter_ == one.n_iter_ > 2
    assert many.n_updates_ == one.n_updates_
    np.testing.assert_array_equal(many.coef_, one.coef_)


def test_products_that_lose_digits_are_left_for_the_rows(monkeypatch, rng):
    X, y = rng.standard_normal((100, 120)) * 10.0 ** rng.uniform(-1, 1, 120), rng.integers(0, 2, 100)
    X[:, 0] += 1e6  # an offset that PUMMA does not see, unless it takes differences of squares
    model = PUMMAClassifier(soft_margin=3.0, random_state=0)
    found, sparse = clone(model).fit(X, y), clone(model).fit(sp.csr_array(X), y)
    monkeypatch.setattr(online_kernel, "run_linear", online.run)
    by_rows = model.fit(X, y)
    assert found.n_updates_ == sparse.n_updates_ == by_rows.n_updates_
    for other in (found, sparse):
        np.testing.assert_allclose(other.coef_, by_rows.coef_, atol=1e-7 * np.abs(by_rows.coef_).max())


@pytest.mark.parametrize(("beta", "scale"), [(0.5, 4.0), (1e-60, 1e-60), (1e60, 1e60), (0.0, 3.0)])
def test_a_scale_out_of_reach_goes_into_the_vectors(beta, scale):
    values, coef = np.array([1.0, -2.0]), np.array([3.0, 0.0, 5.0])
    kept = online_kernel._multiply(beta, scale, values, coef)
    assert kept == (2.0 if beta == 0.5 else 1.0)
    np.testing.assert_allclose(kept * values, beta * scale * np.array([1.0, -2.0]), rtol=1e-14)
    np.testing.assert_allclose(kept * coef, beta * scale * np.array([3.0, 0.0, 5.0]), rtol=1e-14)


@pytest.mark.parametrize("seed", [None, 3])
def test_orders_are_the_same_for_every_problem_kept_or_not(seed, monkeypatch):
    kept = online.Orders(7, seed)
    first = list(itertools.islice(kept, 5))
    monkeypatch.setattr(online, "_KEPT_ORDERS", 2 * 7)
    few = online.Orders(7, seed)
    for again in (kept, few, few):
        for order, other in zip(first, again):
            np.testing.assert_array_equal(order, other)
    assert np.array_equal(first[0], first[1]) == (seed is None)


@pytest.mark.parametrize("p", [1.3, 1.7])
def test_norms_below_two_reach_the_promised_margin(p):
    X, y = separable(0, n_samples=60, n_features=4)
    w, b, margin = cp.Variable(4), cp.Variable(), cp.Variable()
    constraints = [cp.multiply(y, X @ w + b) >= margin, cp.pnorm(w, p / (p - 1)) <= 1]
    cp.Problem(cp.Maximize(margin), constraints).solve(solver=cp.CLARABEL)
    model = PUMMAClassifier(p=p, delta=0.05, shuffle=False).fit(X, y)
    assert model.converged_ and 0.95 * margin.value <= model.margin_ <= (1 + 1e-6) * margin.value


def test_no_part_of_the_margin_given_up():
    X, y = separable(0, n_samples=60, n_features=4)
    few, many = (PUMMAClassifier(delta=0.0, max_iter=n, shuffle=False) for n in (20, 2000))
    with pytest.warns(ConvergenceWarning):
        few.fit(X, y)
    with pytest.warns(ConvergenceWarning):
        many.fit(X, y)
    assert few.margin_share_ < many.margin_share_ and many.margin_share_ > 0.99
