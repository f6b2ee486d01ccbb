"""Conjugate gradients, and the shortest residual on their way."""

import numpy as np
import pytest

from margindist.solvers.conjugate_gradients import ConjugateGradients, ShortestResidual


@pytest.fixture
def system(rng):
    X = rng.normal(size=(30, 20)) * np.logspace(0, 2, 20)
    return np.eye(20) + X.T @ X, rng.normal(size=20)


@pytest.mark.parametrize("scaled", [False, True])
def test_the_shortest_residual_is_one_and_never_longer(system, scaled):
    A, b = system
    scales = A.diagonal() if scaled else np.ones(20)
    gradients = ConjugateGradients(b.copy(), lambda residual: residual / scales)
    shortest = ShortestResidual(gradients)
    before = shortest.half_square
    for _ in range(60):
        gradients.step(A @ gradients.direction)
        shortest.follow()
        residual = b - A @ shortest.solution
        assert shortest.half_square == pytest.approx(0.5 * (residual @ residual), rel=1e-6, abs=1e-12)
        assert shortest.half_square <= min(before, 0.5 * (gradients.residual @ gradients.residual)) * (1.0 + 1e-12)
        lower = b @ shortest.solution - 0.5 * (shortest.solution @ A @ shortest.solution)
        assert shortest.promise(-b) == pytest.approx(lower, rel=1e-6)
        before = shortest.half_square
    np.testing.assert_allclose(A @ shortest.solution, b, atol=1e-6)


def test_without_a_preconditioner_it_is_the_least_of_all_that_the_products_could_make(system):
    A, b = system
    gradients = ConjugateGradients(b.copy(), np.copy)
    shortest = ShortestResidual(gradients)
    powers = [b / np.linalg.norm(b)]
    for _ in range(5):
        gradients.step(A @ gradients.direction)
        shortest.follow()
        images = A @ np.column_stack(powers)
        best = np.linalg.lstsq(images, b)[0]
        assert 2.0 * shortest.half_square == pytest.approx(np.sum((b - images @ best) ** 2), rel=1e-6)
        basis, _ = np.linalg.qr(np.column_stack([*powers, images[:, -1]]))
        powers = list(basis.T)


def test_a_residual_of_zero_stays():
    gradients = ConjugateGradients(np.array([2.0, 0.0]), np.copy)
    shortest = ShortestResidual(gradients)
    gradients.step(gradients.direction)
    shortest.follow()
    shortest.follow()
    assert shortest.half_square == 0.0
    np.testing.assert_array_equal(shortest.solution, [2.0, 0.0])
