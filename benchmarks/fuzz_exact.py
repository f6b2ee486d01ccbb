"""Objectives of few rows in exact rational arithmetic, and weights that refute a certificate if any do.

Rows, weights and parameters are floating point numbers, so they are fractions, and so is an objective of any weights:
what is computed here has no rounding error at all. A model that claims an objective v and a gap g claims that no
weights are better than v - g |v|, and that its own weights are not worse than the best ones by more than g |v|. Every
point is a witness, wherever it comes from: the weights of all variants, those of a generic solver, the model's own
weights a little longer or shorter, and what coordinate descent on the dual in long double makes of its multipliers.
"""

from fractions import Fraction
from typing import NamedTuple

import numpy as np

from benchmarks.fuzz_oracles import LONG, _eliminate

MOST_ROWS = 30
MOST_WIDE_ROWS = 110  # of wide sparse ones
MOST_VALUES = 30_000  # stored values of a problem that are multiplied one by one
SWEEPS = 100
NAMES = ("LDMClassifier", "ODMClassifier", "LSSVMClassifier")
STRETCHES = [Fraction(1), *(1 + sign * Fraction(1, 2**k) for k in range(8, 52, 4) for sign in (1, -1))]
UNTOLD = Fraction(1, 10**11)  # of the terms of an objective: an error of its value that the library does not count


def is_small(problem):
    """Tell whether a problem is computed exactly: linear, few rows, weights that are what the user gave."""
    if problem.kernel != "linear" or problem.parameters.get("class_weight") is not None:
        return False
    if problem.parameters.get("space") == "empirical":  # the weights there are not those of the columns
        return False
    n, d = problem.X.shape
    few = n <= MOST_ROWS or (n <= MOST_WIDE_ROWS and d > 100 * n)
    return few and np.count_nonzero(problem.X) <= MOST_VALUES


def fraction(number):
    """Return a floating point number, a long double too, as the fraction that it is."""
    whole, exponent = _whole(np.array([number]))
    return Fraction(whole[0]) * Fraction(2) ** exponent


def _whole(numbers):
    """Return whole numbers and an exponent of 2 that make floating point numbers of them."""
    mantissas, exponents = np.frexp(np.asarray(numbers, dtype=LONG))
    exponents = [int(exponent) - 64 for exponent in exponents]
    least = min(exponents, default=0)
    whole = [int(mantissa) for mantissa in np.ldexp(mantissas, 64)]
    return [number << (exponent - least) for number, exponent in zip(whole, exponents, strict=True)], least


class Seen(NamedTuple):
    """Weights as far as an objective sees them: their squared length, the constant's among it or not, and margins."""

    square: Fraction
    margins: list

    def times(self, stretch):
        """Return the same of weights that are so many times as long."""
        return Seen(stretch * stretch * self.square, [stretch * z for z in self.margins])


class Exact:
    """The objective of one two-class problem.

    Parameters
    ----------
    name : str
        Of the classifier.
    problem : fuzz_oracles.Problem
    signs : array
        Labels -1 and +1.
    """

    def __init__(self, name, problem, signs):
        self.name = name
        self.bias = bool(problem.bias) and name != "LSSVMClassifier"  # whose constant is free
        self.signs = [int(sign) for sign in signs]
        self.used = [np.flatnonzero(row) for row in problem.X]
        self.rows = [_whole(row[used]) for row, used in zip(problem.X, self.used, strict=True)]
        self.weights = [fraction(weight) for weight in problem.weights]
        self.total = sum(self.weights)
        numbers = {key: value for key, value in problem.parameters.items() if isinstance(value, (int, float))}
        self.parameters = {key: fraction(value) for key, value in numbers.items() if np.isfinite(value)}
        self.hard = problem.parameters.get("C") == np.inf
        relative = problem.parameters.get("lambda_scale") == "relative"
        self.unit = self.parameters["C"] * self.total if relative else Fraction(1)

    def see(self, coef, constant):
        """Return what is seen of weights."""
        w, exponent = _whole(coef)
        b = fraction(constant)
        margins = []
        for sign, used, (row, of_row) in zip(self.signs, self.used, self.rows, strict=True):
            product = sum(value * w[j] for j, value in zip(used, row, strict=True))
            margins.append(sign * (Fraction(product) * Fraction(2) ** (exponent + of_row) + b))
        square = Fraction(sum(value * value for value in w)) * Fraction(4) ** exponent
        return Seen(square + self.bias * b * b, margins)

    def value(self, seen):
        """Return the objective and the sum of its terms' sizes; a hard margin lengthens weights, or has no value."""
        if self.hard:
            least = min(seen.margins)
            if least <= 0:
                return None, None
            seen = seen.times(max(Fraction(1), 1 / least))
        terms = [seen.square / 2, *getattr(self, f"_{self.name}")(seen.margins)]
        return sum(terms), sum(abs(term) for term in terms)

    def _LDMClassifier(self, margins):
        p = self.parameters
        hinge = 0 if self.hard else p["C"] * self._sum(max(Fraction(0), 1 - z) for z in margins)
        mean = self._sum(margins) / self.total
        variance = self._sum(z * z for z in margins) / self.total - mean * mean
        return [hinge, 2 * self.unit * p["lambda1"] * variance, -self.unit * p["lambda2"] * mean]

    def _ODMClassifier(self, margins):
        p = self.parameters
        price = p["lam"] / (self.total * (1 - p["theta"]) ** 2)
        short = self._sum(max(Fraction(0), 1 - p["theta"] - z) ** 2 for z in margins)
        beyond = self._sum(max(Fraction(0), z - 1 - p["theta"]) ** 2 for z in margins)
        return [price * short, price * p["mu"] * beyond]

    def _LSSVMClassifier(self, margins):
        return [self.parameters["C"] / 2 * self._sum((1 - z) ** 2 for z in margins)]

    def _sum(self, values):
        return sum(weight * value for weight, value in zip(self.weights, values, strict=True))


def best_found(exact, points):
    """Return the least objective among weights, and those a little longer or shorter; None if there is none."""
    seen = [exact.see(*point) for point in points]
    values = [exact.value(each.times(stretch))[0] for each in seen for stretch in STRETCHES]
    return min((value for value in values if value is not None), default=None)


def from_multipliers(problem, signs, beta):
    """Return weights and constant of LDM that dual coordinate descent in long double makes of some multipliers.

    With signed rows Z (the constant column among them), V = 4 λ1 (diag(s)/M − ss'/M²) and c = β + λ2 s/M, the weights
    of a dual point are w = Z'γ with (I + V ZZ')γ = c.
    """
    p = problem.parameters
    constant = np.full((len(problem.X), int(problem.bias)), LONG(1))
    Z = signs[:, None] * np.hstack([problem.rows, constant])
    share = problem.weights / problem.weights.sum()
    unit = LONG(p["C"]) * problem.weights.sum() if p.get("lambda_scale") == "relative" else LONG(1)
    V = 4 * LONG(p["lambda1"]) * unit * (np.diag(share) - np.outer(share, share))
    G = Z @ Z.T
    inverse = np.eye(len(G), dtype=LONG)
    if V.any():
        inverse = _inverse(inverse + V @ G)
    if inverse is None:
        return None
    H = G @ inverse
    pull = LONG(p["lambda2"]) * unit * share
    upper = LONG(p["C"]) * problem.weights
    beta = np.clip(beta.astype(LONG), 0, upper)
    slopes = H @ (beta + pull) - 1
    for _ in range(SWEEPS):
        for i in range(len(beta)):
            if H[i, i] <= 0:
                continue
            moved = np.clip(beta[i] - slopes[i] / H[i, i], 0, upper[i]) - beta[i]
            beta[i] += moved
            slopes += moved * H[:, i]
    w = Z.T @ (inverse @ (beta + pull))
    return (w[:-1], w[-1]) if problem.bias else (w, LONG(0))


def _inverse(A):
    columns = [_eliminate(A, unit) for unit in np.eye(len(A), dtype=LONG)]
    return None if any(column is None for column in columns) else np.column_stack(columns)
