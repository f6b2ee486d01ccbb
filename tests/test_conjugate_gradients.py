"""Conjugate gradients."""

import numpy as np
import pytest

from margindist.solvers.conjugate_gradients import ConjugateGradients


@pytest.mark.parametrize("scaled", [False, True])
def test_the_residual_is_one_and_the_system_is_solved(scaled, rng):
    X = rng.normal(size=(30, 20)) * np.logspace(0, 2, 20)
    A, b = np.eye(20) + X.T @ X, rng.normal(size=20)
    scales = A.diagonal() if scaled else np.ones(20)
    gradients = ConjugateGradients(b.copy(), lambda residual: residual / scales)
    for _ in range(60):
        gradients.step(A @ gradients.direction)
        np.testing.assert_allclose(b - A @ gradients.solution, gradients.residual, atol=1e-8)
    np.testing.assert_allclose(A @ gradients.solution, b, atol=1e-6)
