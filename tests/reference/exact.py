"""Objectives, and what dual points prove of them, in exact rational arithmetic: slow, and never wrong by rounding."""

from fractions import Fraction

from margindist.objectives import LDM, ODM

ONE = Fraction(1)


def exactly(values):
    """The very numbers that an array holds."""
    return [Fraction(float(value)) for value in values]


class ExactProblem:
    """An objective on signed rows, all numbers as they are stored."""

    def __init__(self, objective, X, signs, weights):
        self.objective = objective
        self.rows = [[Fraction(float(sign)) * value for value in exactly(row)] for sign, row in zip(signs, X)]
        self.weights = exactly(weights)
        self.total = sum(self.weights)

    def margins(self, w):
        w = exactly(w)
        return [sum(value * weight for value, weight in zip(row, w)) for row in self.rows]

    def _mean(self, values):
        return sum(s * value for s, value in zip(self.weights, values)) / self.total

    def _variance(self, values):
        mean = self._mean(values)
        return self._mean([(value - mean) ** 2 for value in values])

    def _band(self):
        lam, mu, theta = exactly(self.objective)
        below = [lam * s / (self.total * (1 - theta) ** 2) for s in self.weights]
        return ONE - theta, ONE + theta, below, [mu * price for price in below]

    def value(self, w):
        """The objective; infinite (None) where a hard margin is not kept."""
        z, square = self.margins(w), sum(weight**2 for weight in exactly(w))
        if isinstance(self.objective, ODM):
            low, high, below, above = self._band()
            losses = [b * max(0, low - x) ** 2 + a * max(0, x - high) ** 2 for b, a, x in zip(below, above, z)]
            return square / 2 + sum(losses)
        lambda1, lambda2 = exactly(self.objective[1:])
        if self.objective.hard:
            hinge = None if min(z) < 1 else 0
        else:
            hinge = Fraction(self.objective.C) * sum(s * max(0, 1 - x) for s, x in zip(self.weights, z))
        return (
            hinge if hinge is None else square / 2 + 2 * lambda1 * self._variance(z) - lambda2 * self._mean(z) + hinge
        )

    def dual_value(self, beta, margins):
        """What multipliers prove that the minimum is at least; of LDM, with a dual point made at these margins."""
        beta = exactly(beta)
        if isinstance(self.objective, ODM):
            low, high, below, above = self._band()
            dual = beta
            sides = [(b, low) if a > 0 else (c, high) for a, b, c in zip(beta, below, above)]
            conjugate = sum(a * (a / (4 * price) - edge) for a, (price, edge) in zip(beta, sides))
        else:
            lambda1, lambda2 = exactly(self.objective[1:])
            if not self.objective.hard:
                upper = [Fraction(self.objective.C) * s for s in self.weights]
                beta = [min(b, u) for b, u in zip(beta, upper)]
            z = exactly(margins)
            mean = self._mean(z)
            dual = [b + s / self.total * (lambda2 - 4 * lambda1 * (x - mean)) for b, s, x in zip(beta, self.weights, z)]
            conjugate = 2 * lambda1 * self._variance(z) - sum(beta)
        combined = [sum(a * row[j] for a, row in zip(dual, self.rows)) for j in range(len(self.rows[0]))]
        return -sum(weight**2 for weight in combined) / 2 - conjugate


def exact_problem(problem, X):
    """The same for a problem of two classes on the rows X."""
    assert isinstance(problem.objective, LDM | ODM)
    return ExactProblem(problem.objective, X, problem.signs, problem.weights)
