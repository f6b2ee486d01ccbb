"""Preconditioned conjugate gradients, for systems that are known by their products only."""

import numpy as np

__all__ = ["conjugate_gradients"]


def conjugate_gradients(product, residual, precondition, solution=None):
    """Yield ``(solution, residual, square, length)``, before the first step and after each, until the caller stops.

    Every user has a test of its own for when to stop, which is why this is a generator.

    Parameters
    ----------
    product : callable
        From a vector to the matrix, symmetric and positive definite, times the vector.
    residual : ndarray
        What ``solution`` lacks of the right side; changed in place.
    precondition : callable
        From a residual to roughly the inverse of the matrix times it, a new array.
    solution : ndarray, optional
        Where to start; changed in place. Zero if not given.

    Yields
    ------
    solution, residual : ndarray
        The same two arrays every time.
    square : float
        Squared length of the residual, as the preconditioner measures it.
    length : float
        By how much of the vector that was multiplied last the solution has changed; 0 before the first step.
    """
    if solution is None:
        solution = np.zeros_like(residual)
    direction = precondition(residual)
    square = np.vdot(residual, direction)
    length = 0.0
    while True:
        yield solution, residual, square, length
        image = product(direction)
        length = square / np.vdot(direction, image)
        solution += length * direction
        residual -= length * image
        scaled = precondition(residual)
        before = square
        square = np.vdot(residual, scaled)
        direction = scaled + (square / before) * direction
