"""The online learners as their papers write them: dense vectors, one row after the other, generic minimisers."""

import numpy as np
from scipy.optimize import minimize_scalar


def inverse_link(theta, p):
    norm = np.linalg.norm(theta, p)
    return np.zeros_like(theta) if norm == 0 else np.sign(theta) * np.abs(theta) ** (p - 1) / norm ** (p - 2)


def two_constraints(z, theta, p, target):
    """Return w and θ of the shortest w with w·z >= target and w·θ >= ‖θ‖_p², by a bounded scalar search."""
    alone = target / np.linalg.norm(z, p) ** 2 * z
    square = np.linalg.norm(theta, p) ** 2
    if inverse_link(alone, p) @ theta >= square:
        return inverse_link(alone, p), alone

    z_norm, theta_norm = np.linalg.norm(z, p), np.sqrt(square)

    def vector_and_ratio(tau):
        u = (1 - tau) * z / z_norm + tau * theta / theta_norm
        return u, ((1 - tau) * target / z_norm + tau * theta_norm) / np.linalg.norm(u, p)

    search = minimize_scalar(lambda tau: -vector_and_ratio(tau)[1], bounds=(0, 1), options={"xatol": 1e-13})
    u, ratio = vector_and_ratio(search.x)
    new = u * ratio / np.linalg.norm(u, p)
    return inverse_link(new, p), new


def pumma(X, y, p, delta):
    """Yield (w, b) after every row from the one on that completes the pair."""
    theta, w, b = np.zeros(X.shape[1]), np.zeros(X.shape[1]), 0.0
    pair = {}
    for x, label in zip(X, y):
        if len(pair) < 2:
            pair.setdefault(label, x)
            due = len(pair) == 2
        else:
            due = label * (w @ x + b) < 1 - delta
            if due:
                pair[label] = x
        if due:
            w, theta = two_constraints(pair[1] - pair[-1], theta, p, 2.0)
            b = -(w @ pair[1] + w @ pair[-1]) / 2
        if len(pair) == 2:
            yield w, b


def romma(X, y, short):
    """Yield w after every row."""
    w = np.zeros(X.shape[1])
    for x, label in zip(X, y):
        if label * (w @ x) < short or (short == 0 and label * (w @ x) <= 0):
            w, _ = two_constraints(label * x, w, 2, 1.0)
        yield w


def alma(X, y, p, alpha):
    """Yield w after every row (figure 1 of Gentile's paper)."""
    theta, k = np.zeros(X.shape[1]), 1
    w = theta
    for x, label in zip(X, y):
        x = x / np.linalg.norm(x, p)
        if label * (w @ x) <= (1 - alpha) * np.sqrt(8) / alpha * np.sqrt(p - 1) / np.sqrt(k):
            w = inverse_link(theta + np.sqrt(2) / (np.sqrt(p - 1) * np.sqrt(k)) * label * x, p)
            w = w / max(1.0, np.linalg.norm(w, p / (p - 1)))
            theta = inverse_link(w, p / (p - 1))
            k += 1
        yield w


def micra(X, y, eta, beta, epsilon, zeta):
    """Yield the unit vector after every row."""
    R = np.linalg.norm(X, axis=1).max()
    u, t = y[0] * X[0] / np.linalg.norm(X[0]), 1
    yield u
    for x, label in zip(X[1:], y[1:]):
        if label * (u @ x) <= beta * R / t**epsilon:
            u = u + eta / (R * t**zeta) * label * x
            u, t = u / np.linalg.norm(u), t + 1
        yield u


def micra_step_bound(margin, R, eta, beta, epsilon, zeta, horizon=3_000_000):
    """Return the last step before the inner product with the best unit vector would exceed 1 for good."""
    t = np.arange(1, horizon, dtype=float)
    rate = eta / (R * t**zeta)
    gain = rate * margin - (1 + rate * margin) * (rate * beta * R / t**epsilon + rate**2 * R**2 / 2)
    possible = np.flatnonzero(margin / R + np.cumsum(gain) <= 1)
    assert possible[-1] < horizon - 2
    return possible[-1] + 2
