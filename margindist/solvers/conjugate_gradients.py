"""Preconditioned conjugate gradients, for systems that are known by their products only."""

import numpy as np

__all__ = ["ConjugateGradients", "conjugate_gradients"]


class ConjugateGradients:
    """The recurrence itself, for a caller who has to fetch the products from elsewhere.

    Parameters
    ----------
    residual, precondition, solution
        As for :func:`conjugate_gradients`.
    """

    def __init__(self, residual, precondition, solution=None):
        self.residual = residual
        self.solution = np.zeros_like(residual) if solution is None else solution
        self.direction = precondition(residual)  # what to multiply next
        self.square = np.vdot(residual, self.direction)
        self.length = 0.0
        self._precondition = precondition

    def step(self, image):
        """Make a step, given the matrix times :attr:`direction`."""
        self.length = self.square / np.vdot(self.direction, image)
        self.solution += self.length * self.direction
        self.residual -= self.length * image
        scaled = self._precondition(self.residual)
        before = self.square
        self.square = np.vdot(self.residual, scaled)
        self.direction = scaled + (self.square / before) * self.direction


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
    state = ConjugateGradients(residual, precondition, solution)
    while True:
        yield state.solution, state.residual, state.square, state.length
        state.step(product(state.direction))
