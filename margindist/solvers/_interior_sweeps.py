"""The interior point method's formulas for one row of the working set, and the sweeps that apply them to all.

A sweep is one pass over the rows: compiled code row by row or, of rows that are few, NumPy on all of them. What they
compute is derived in :mod:`margindist.solvers.interior_point`.
"""

from typing import NamedTuple

import numpy as np

from margindist.compilation import njit, overload
from margindist.spaces.rows import add_rows, are_few, row_add, row_dot, some_scores

__all__ = ["Point", "Residuals", "Room", "WorkingSet", "as_record", "direct", "linearise", "predict"]

_FLATTEST = 1e-200  # least curvature of a row: its root must not vanish


class Point(NamedTuple):
    """One entry per row of the working set; used for the iterate and for the direction it moves in."""

    z: np.ndarray  # margins
    beta: np.ndarray  # multipliers of z - 1 + xi >= 0
    slack: np.ndarray  # z - 1 + xi
    xi: np.ndarray  # shortfall; stays 0 with a hard margin


class Residuals(NamedTuple):
    """What the corrector's right side is made of, one entry per row of the working set."""

    rho: np.ndarray  # what the margins and multipliers ask for without a target
    aimed: np.ndarray  # and per target
    slack: np.ndarray  # what the products s beta lack without a target
    xi: np.ndarray  # and the products xi e


class WorkingSet(NamedTuple):
    """The working set; arrays have one entry per row of it."""

    rows: tuple
    which: np.ndarray
    signs: np.ndarray
    aims: np.ndarray  # what the products of a row aim at, in units of mu
    upper: np.ndarray  # C times the weights


# A formula below is that of one row in compiled code and, as ``py_func``, that of all rows in NumPy. A multiplier that
# rounding has put on its bound has no curvature, and divisions by zero have IEEE's results.
_QUIET = {"all": "ignore"}


def _either(condition, yes, no):
    return np.where(condition, yes, no)


@overload(_either)
def _compiled_either(condition, yes, no):
    return lambda condition, yes, no: yes if condition else no


@njit(cache=True, nogil=True, error_model="numpy")
def _curvature(beta, slack, xi, upper):
    return np.fmax(_FLATTEST, 1.0 / (slack / beta + xi / (upper - beta)))


@njit(cache=True, nogil=True, error_model="numpy")
def _predicted(z, beta, slack, xi, upper, weight, t, dz):
    """Return the predictor's direction in (beta, s, xi), and the corrector's residuals without and per target.

    A hard margin has no xi, and its multipliers no bound: what is priced is zero there.
    """
    e = upper - beta
    dbeta = t * (1.0 - z - dz)
    dslack = -slack - slack * dbeta / beta
    dxi = -xi + xi * dbeta / e
    rest_slack = -slack * beta - dslack * dbeta
    rest_xi = _either(xi > 0.0, -xi * e + dxi * dbeta, 0.0)
    aimed = weight / beta - _either(xi > 0.0, weight / e, 0.0)
    rho = rest_slack / beta - rest_xi / e - (z - 1.0 + xi - slack)
    return dbeta, dslack, dxi, rest_slack, rest_xi, aimed, rho


@njit(cache=True, nogil=True, error_model="numpy")
def _corrected(beta, slack, xi, upper, aim, dbeta, rest_slack, rest_xi):
    """Return the corrected direction in (s, xi), for a target times the row's weight."""
    dslack = (rest_slack + aim - slack * dbeta) / beta
    dxi = _either(xi > 0.0, (rest_xi + aim + xi * dbeta) / (upper - beta), 0.0)
    return dslack, dxi


@njit(cache=True, nogil=True)
def _room(value, change):
    return -value / change if change < 0.0 else np.inf


def _least_room(longest, *pairs):
    """Return the longest step along which no value changes its sign; values are positive, or stay zero (0/0 is nan)."""
    pace = max(np.fmax.reduce(-change / value, initial=1.0 / longest) for value, change in pairs)
    return 1.0 / pace


def linearise(working, point, t, first, second):
    """Fill the rows' curvature t, what they add to the predictor's right side, and their multipliers, signed.

    Return the hinge loss and its excess over what the multipliers account for (a hard margin has no loss), the largest
    shortfall, and the sums of the products s beta, and of all.
    """
    if not are_few(working.rows):
        return _linearise_rows(working, point, t, first, second)
    z, beta, slack, xi = point
    short = 1.0 - z
    with np.errstate(**_QUIET):
        t[:] = _curvature.py_func(beta, slack, xi, working.upper)
    first[:] = working.signs * t * short
    second[:] = working.signs * beta
    priced, bounded = xi > 0.0, np.isfinite(working.upper)
    loss = working.upper[bounded] @ np.maximum(short, 0.0)[bounded]
    slack_products = slack @ beta
    others = xi[priced] @ (working.upper - beta)[priced]
    return loss, loss - beta @ short, short.max(initial=0.0), slack_products, slack_products + others


@njit(cache=True, nogil=True)
def _linearise_rows(working, point, t, first, second):
    loss, total, worst, slack_products, others = 0.0, 0.0, 0.0, 0.0, 0.0
    for i in range(len(t)):
        beta, slack, xi, upper = point.beta[i], point.slack[i], point.xi[i], working.upper[i]
        short = 1.0 - point.z[i]
        total -= beta * short
        worst = max(worst, short)
        if short > 0.0 and upper < np.inf:
            loss += upper * short
        slack_products += slack * beta
        if xi > 0.0:
            others += xi * (upper - beta)
        t[i] = _curvature(beta, slack, xi, upper)
        first[i] = working.signs[i] * t[i] * short
        second[i] = working.signs[i] * beta
    return loss, loss + total, worst, slack_products, slack_products + others


class Room(NamedTuple):
    """How far a direction can be gone, and the products along it."""

    primal: float  # longest step along which slack and xi stay positive
    dual: float  # and along which multipliers stay within their bounds
    products: float  # now
    by_primal: float  # change per primal step,
    by_dual: float  # per dual step,
    by_both: float  # and per product of both


def as_record(room):
    """Return a room with the names by which records are reduced."""
    primal, dual, *sums = room
    return {"primal_min": primal, "dual_min": dual, **dict(zip(Room._fields[2:], sums, strict=True))}


def _room_of_few(point, upper, dbeta, dslack, dxi, longest):
    """Return the room of a direction, in NumPy."""
    _, beta, slack, xi = point
    e, priced = upper - beta, xi > 0.0
    with np.errstate(**_QUIET):
        primal = _least_room(longest, (slack, dslack), (xi, dxi))
        dual = _least_room(longest, (beta, dbeta), (e, -dbeta))
    xi, e, dxi, de = xi[priced], e[priced], dxi[priced], -dbeta[priced]
    by_primal = beta @ dslack + e @ dxi
    return Room(primal, dual, slack @ beta + xi @ e, by_primal, slack @ dbeta + xi @ de, dslack @ dbeta + dxi @ de)


@njit(cache=True, nogil=True)
def _add_room(room, beta, slack, xi, e, dbeta, dslack, dxi):
    """Take one row into the room of a direction, an array in the order of ``Room``."""
    room[0] = min(room[0], _room(slack, dslack), _room(xi, dxi))
    room[1] = min(room[1], _room(beta, dbeta), _room(e, -dbeta))
    room[2] += slack * beta
    room[3] += dslack * beta
    room[4] += slack * dbeta
    room[5] += dslack * dbeta
    if xi > 0.0:
        room[2] += xi * e
        room[3] += dxi * e
        room[4] -= xi * dbeta
        room[5] -= dxi * dbeta


def predict(working, dw, point, t, residuals, sums):
    """Fill the residuals that the predictor leaves; return its room.

    The same sweep adds up the corrector's right side: ``sums[0]`` plus the target times ``sums[1]``.
    """
    if not are_few(working.rows):
        room = np.zeros(len(Room._fields))
        room[:2] = 2.0
        _predict_rows(working, dw, point, t, residuals, sums, room)
        return room
    rho, aimed, rest_slack, rest_xi = residuals
    dz = working.signs * some_scores(working.rows, working.which, dw, np.empty(len(t)))
    with np.errstate(**_QUIET):
        dbeta, dslack, dxi, rest_slack[:], rest_xi[:], aimed[:], rho[:] = _predicted.py_func(
            *point, working.upper, working.aims, t, dz
        )
    for total, right in zip(sums, (rho, aimed), strict=True):
        add_rows(working.rows, working.which, working.signs * t * right, total)
    return _room_of_few(point, working.upper, dbeta, dslack, dxi, 1.0)


@njit(cache=True, nogil=True)
def _predict_rows(working, dw, point, t, residuals, sums, room):
    rho, aimed, rest_slack, rest_xi = residuals
    for i in range(len(t)):
        z, beta, slack, xi, upper = point.z[i], point.beta[i], point.slack[i], point.xi[i], working.upper[i]
        sign, row = working.signs[i], working.which[i]
        dbeta, dslack, dxi, rest_slack[i], rest_xi[i], aimed[i], rho[i] = _predicted(
            z, beta, slack, xi, upper, working.aims[i], t[i], sign * row_dot(working.rows, row, dw)
        )
        _add_room(room, beta, slack, xi, upper - beta, dbeta, dslack, dxi)
        row_add(working.rows, row, sign * t[i] * rho[i], sums[0])
        row_add(working.rows, row, sign * t[i] * aimed[i], sums[1])


def direct(working, dw, target, point, t, residuals, direction):
    """Fill the corrected direction from the residuals, whose place it takes; return how far it can be gone."""
    if not are_few(working.rows):
        return _direct_rows(working, dw, target, point, t, residuals, direction)
    _, beta, slack, xi = point
    upper, aims = working.upper, target * working.aims
    direction.z[:] = working.signs * some_scores(working.rows, working.which, dw, np.empty(len(t)))
    direction.beta[:] = t * (residuals.rho + target * residuals.aimed - direction.z)
    with np.errstate(**_QUIET):
        direction.slack[:], direction.xi[:] = _corrected.py_func(
            beta, slack, xi, upper, aims, direction.beta, residuals.slack, residuals.xi
        )
    room = _room_of_few(point, upper, direction.beta, direction.slack, direction.xi, 2.0)
    return min(room.primal, room.dual)


@njit(cache=True, nogil=True)
def _direct_rows(working, dw, target, point, t, residuals, direction):
    room = 2.0
    for i in range(len(t)):
        beta, slack, xi, upper = point.beta[i], point.slack[i], point.xi[i], working.upper[i]
        dz = working.signs[i] * row_dot(working.rows, working.which[i], dw)
        dbeta = t[i] * (residuals.rho[i] + target * residuals.aimed[i] - dz)
        dslack, dxi = _corrected(
            beta, slack, xi, upper, target * working.aims[i], dbeta, residuals.slack[i], residuals.xi[i]
        )
        direction.z[i], direction.beta[i], direction.slack[i], direction.xi[i] = dz, dbeta, dslack, dxi
        room = min(room, _room(slack, dslack), _room(xi, dxi), _room(beta, dbeta), _room(upper - beta, -dbeta))
    return room
