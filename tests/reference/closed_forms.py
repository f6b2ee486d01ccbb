"""Slow and obvious versions of the closed forms."""

from itertools import pairwise

import numpy as np


def brute_force_bias(scores, signs, weights):
    """Try all thresholds between neighbouring distinct scores and beyond both ends; return the least errors and slack.

    Beyond an end the missing neighbour is one range of scores away (1 if all scores are equal).
    """
    values = np.unique(scores)
    reach = values[-1] - values[0] or max(1.0, abs(values[0]))
    ends = np.concatenate([[values[0] - reach], values, [values[-1] + reach]])
    best = (np.inf, np.inf)
    for u, v in pairwise(ends):
        bias, rho = -(u + v) / 2, (v - u) / 2
        slack = np.maximum(0.0, rho - signs * (scores + bias))
        wrong = signs * (scores + bias) < 0
        best = min(best, (weights[wrong].sum(), weights @ slack))
    return best


def errors_and_slack(bias, scores, signs, weights):
    """Return errors and slack of a bias, its margin being the distance to the nearest score."""
    shifted = scores + bias
    rho = np.abs(shifted).min()
    return weights[signs * shifted < 0].sum(), weights @ np.maximum(0.0, rho - signs * shifted)


def least_squares_system(K, signs, weights, C):
    """Solve Suykens' bordered system as it is printed; return the factors of the kernel values and the bias."""
    m = len(K)
    system = np.zeros((m + 1, m + 1))
    system[:m, :m] = K + np.diag(1 / (C * weights))
    system[:m, m] = system[m, :m] = 1.0
    solution = np.linalg.solve(system, np.append(signs, 0.0))
    return solution[:m], solution[m]
