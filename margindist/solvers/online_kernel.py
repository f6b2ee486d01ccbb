r"""The online learners of :mod:`margindist.solvers.online` for p = 2 in the space of a kernel.

The vector is :math:`\theta = \sum_c a_c \phi(x_c)` over the stored examples, the rows that made a step and are not
forgotten. Rows are met in blocks. A block's scores come from one matrix product; within the block they are kept up to
date, because a step :math:`\theta \leftarrow \beta\theta + \alpha z` turns them into :math:`\beta` times themselves
plus :math:`\alpha` times one or two rows of the block's kernel values. So a row without a step costs nothing beyond
its share of the product, and a step costs the block's length. All two-class problems share the stored examples and
the kernel values.

The same holds for the linear kernel: with few rows, many passes are made sooner with the products of all rows at hand
than with the rows (:func:`run_linear`).
"""

import time
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from margindist.compilation import njit, overload
from margindist.solvers import online
from margindist.solvers.online import (
    ALMA,
    MICRA,
    MOST_PASSES,
    PUMMA,
    RECORD,
    REFRESH,
    ROMMA,
    Evidence,
    Run,
    augmented,
    entry,
    is_short,
    meet,
    new_track,
    next_due,
    record,
    repeat,
    set_bias,
    step,
)
from margindist.spaces.rows import BLAS, add_rows, inner_products, n_rows, n_stored, scores, squares

_VALUES = 1 << 26  # kernel values held at a time: 512 MB
_FEW_ROWS = 512  # rows up to which their products may outnumber their values: a step takes no longer with them
_REACH = 1e100  # scales of vectors are within it and its inverse
_MOST_CANCELS = (
    1e6  # a margin that is a smaller part of the products it is added up from is left to the rows themselves
)


class KernelState(NamedTuple):
    """Learners of all two-class problems between two rows."""

    X: Any  # stored examples; None for precomputed kernels
    numbers: np.ndarray  # their positions among all rows seen
    coef: np.ndarray  # one row per problem, one column per stored example
    owners: np.ndarray  # columns of the negative and the positive example of each problem's pair, -1 if not yet there
    pair: np.ndarray  # their squared lengths
    tracks: list  # one record per problem
    n_seen: int


def kernel_state(n_problems, constant):
    """Return the state of learners that have seen nothing."""
    return KernelState(
        None,
        np.zeros(0, dtype=np.int64),
        np.zeros((n_problems, 0)),
        np.full((n_problems, 2), -1),
        np.zeros((n_problems, 2)),
        [new_track(constant) for _ in range(n_problems)],
        0,
    )


def _pair_learns(method, gram, values, coef, owners, pair, track, scale, t, c, y, score, square):
    side = 1 if y > 0.0 else 0
    other = owners[1 - side]
    if other < 0:
        track.bias = y
    else:
        z_square = square + pair[1 - side] - 2.0 * gram[other, t] + 2.0 * method.soft
        alpha, beta, length, feasible = step(method, track, y * score + 1.0, z_square)
        if not feasible:
            return scale
        scale = _multiply(beta, scale, values, coef)
        amount = y * alpha / scale
        coef[c] += amount
        coef[other] -= amount
        mine, its = gram[c], gram[other]
        for k in range(len(values)):
            values[k] += amount * (mine[k] - its[k])
        track.mass = beta * track.mass + 2.0 * alpha
        track.square = length
        track.n_updates += 1
        track.bias = y - scale * (values[t] + method.soft * coef[c])
    owners[side] = c
    pair[side] = square
    return scale


def _single_learns(method, gram, values, coef, owners, pair, track, scale, t, c, y, score, square):
    x_norm = augmented(method, track, np.sqrt(max(0.0, square)))  # negative in an indefinite kernel
    alpha, beta, length, feasible = step(method, track, y * score, x_norm * x_norm)
    if not feasible:
        return scale
    scale = _multiply(beta, scale, values, coef)
    amount = y * alpha / scale
    coef[c] += amount
    mine = gram[c]
    for k in range(len(values)):
        values[k] += amount * mine[k]
    track.mass = beta * track.mass + alpha
    track.square = length
    track.n_updates += 1
    if method.lifted:
        track.lift = beta * track.lift + y * alpha * track.constant
        set_bias(method, track)
    return scale


@njit(cache=True, nogil=True)
def _multiply(beta, scale, values, coef):
    """Return the scale times β; one that gets out of scale goes into the vectors, and 1 is returned."""
    scale *= beta
    if 1.0 / _REACH < abs(scale) < _REACH:
        return scale
    _rescale(scale, values, coef)
    return 1.0


@njit(cache=True, nogil=True)
def _rescale(scale, values, coef):
    for k in range(len(coef)):
        coef[k] *= scale
    for k in range(len(values)):
        values[k] *= scale


_LEARNS = {PUMMA: _pair_learns, ROMMA: _single_learns, ALMA: _single_learns, MICRA: _single_learns}


def _learns(method, gram, values, coef, owners, pair, track, scale, t, c, y, score, square):
    """Make the method's step at row ``t`` of the block, which is column ``c``; return the new scale."""
    return _LEARNS[type(method)](method, gram, values, coef, owners, pair, track, scale, t, c, y, score, square)


@overload(_learns)
def _compiled_learns(method, gram, values, coef, owners, pair, track, scale, t, c, y, score, square):
    return _LEARNS[method.instance_class]


@njit(cache=True, nogil=True)
def _learn_block(method, gram, squares, offset, order, signs, values, coef, owners, pair, tracks):
    """Learn from the block's rows, which are the columns from ``offset`` on; return how many margins were too small.

    Scores and coefficients are those of θ/scale meanwhile, so that multiplying θ costs nothing.
    """
    track, scale = tracks[0], 1.0
    n_short = 0
    for t in order:
        c, y, square = offset + t, signs[t], squares[t]
        x_norm, shrink = meet(method, np.sqrt(max(0.0, square)), track)
        scale *= shrink
        score = scale * (values[t] + method.soft * coef[c]) + track.bias
        if is_short(method, track, y * score, x_norm):
            n_short += 1
            scale = _learns(method, gram, values, coef, owners, pair, track, scale, t, c, y, score, square)
    _rescale(scale, values, coef)
    return n_short


def learn(method, kernel, X, signs, state):
    """Learn from new rows in order, ``signs`` one row per problem; return the new state."""
    start, n = 0, X.shape[0]
    while start < n:
        room = len(state.numbers) + 256
        block = X[start : start + max(1, min(1024, _VALUES // 4 // room))]
        start += block.shape[0]
        state = _learn_new(method, kernel, block, signs[:, start - block.shape[0] : start], state)
    return state


def _learn_new(method, kernel, block, signs, state):
    stored, size = len(state.numbers), block.shape[0]
    gram = np.empty((stored + size, size))
    if stored:
        gram[:stored] = kernel(state.X, block)
    gram[stored:] = kernel(block, block)
    coef = np.hstack([state.coef, np.zeros((len(signs), size))])
    owners = state.owners.copy()
    squares, order = gram[stored:].diagonal().copy(), np.arange(size)
    for k, track in enumerate(state.tracks):
        values = coef[k] @ gram
        _learn_block(method, gram, squares, stored, order, signs[k], values, coef[k], owners[k], state.pair[k], track)
    used = _used(coef, owners)
    new = used[used >= stored] - stored
    X = block[new] if not stored else _stack(state.X, block, used[used < stored], new)
    numbers = np.concatenate([state.numbers, state.n_seen + np.arange(size)])[used]
    owners = np.where(owners >= 0, np.searchsorted(used, owners), -1)
    return KernelState(X, numbers, coef[:, used], owners, state.pair, state.tracks, state.n_seen + size)


def _used(coef, owners):
    """Return the columns that some problem still needs."""
    needed = coef.any(axis=0)
    needed[owners[owners >= 0]] = True
    return np.flatnonzero(needed)


def _stack(X, block, old, new):
    if len(new) == 0:
        return X if len(old) == X.shape[0] else X[old]
    pieces = [X[old], block[new]]
    return sp.vstack(pieces, format="csr") if sp.issparse(X) else np.vstack(pieces)


def run(method, kernel, X, signs, state, max_iter, orders):
    """Repeat passes until one finds no margin too small; return how each problem went, and the state.

    A pass that can make no step is the last one, and without a limit (None) one after which there is evidence that more
    are in vain. Measuring margins costs what a pass costs, so passes 1, 2, 4, ... and the last one are recorded.
    """
    m = X.shape[0]
    coef, owners = np.zeros((len(signs), m)), state.owners.copy()
    if m * m <= _VALUES or kernel.is_precomputed:
        gram = _values(kernel, X, np.arange(m), np.arange(m))
        squares = gram.diagonal().copy()
        learners = zip(signs, coef, owners, state.pair, state.tracks)
        learners = [_Products.new(method, gram, squares, *learner) for learner in learners]
        runs = [repeat(method, learner, entry(learner.tracks), max_iter, orders, growth=2.0) for learner in learners]
    else:
        runs = _run_in_blocks(method, kernel, X, signs, coef, owners, state, max_iter, orders)
    used = _used(coef, owners)
    stored = None if kernel.is_precomputed else X[used]
    owners = np.where(owners >= 0, np.searchsorted(used, owners), -1)
    return runs, KernelState(stored, used, coef[:, used], owners, state.pair, state.tracks, m)


def run_linear(method, rows, signs, state, max_iter, orders):
    r"""Do what :func:`margindist.solvers.online.run` does, in the end with the products of the rows where that pays.

    They are computed when passes have cost as much. From then on :math:`\theta = a\theta_0 + \sum_i c_i x_i`, where
    :math:`\theta_0` is what was learnt before: one more stored example, whose products with the rows are its scores.

    Products of rows of length up to R round a score by :math:`\epsilon R^2 \sum_i c_i`, while the margin is at most
    :math:`\|\theta\|^2 / \sum_i c_i` in the same unit. Badly scaled columns, or an offset, make their quotient
    :math:`(R \sum_i c_i / \|\theta\|)^2` large; the rows themselves lose no digits there, and have the last word.
    """
    m = n_rows(rows)
    if method.p != 2.0 or m * m > max(_FEW_ROWS**2, n_stored(rows)):
        return online.run(method, rows, signs, state, max_iter, orders)
    learner = _InTurn(online.Rows(method, rows, signs, state), -(-m // BLAS))
    result = repeat(method, learner, entry(state.track), max_iter, orders, growth=1.1)
    learner.end()
    return result, state._replace(soft_coefs=np.zeros(0))


class _InTurn:
    """A linear learner that passes over the rows a few times, then over their products while these keep the digits."""

    def __init__(self, by_rows, n_passes):
        self._by_rows, self._now, self._left = by_rows, by_rows, int(n_passes)
        self.signs = by_rows.signs
        self._largest = None  # squared length of a row

    def learn(self, some_orders):
        """Pass over the rows in these orders; return what ``online.learn_passes`` does."""
        n_passes, n_short, going_on = 0, 0, True
        while going_on and n_passes < len(some_orders):
            left = some_orders[n_passes:]
            if self._left > 0:
                done, n_short, going_on = self._by_rows.learn(left[: self._left])
                self._left -= done
            else:
                done, n_short, going_on = self._by_products(left)
            n_passes += done
        return n_passes, n_short, going_on

    def _by_products(self, some_orders):
        if self._now is self._by_rows:
            if self._cancels():
                self._left = MOST_PASSES
                return 0, 0, True
            self._now = _Products.of(self._by_rows)
        done, n_short, going_on = self._now.learn(some_orders)
        if self._cancels():
            self.end()
            self._now, self._left = self._by_rows, MOST_PASSES
            return done, max(n_short, 1), True  # that no margin is too small is for the rows to say
        return done, n_short, going_on

    def _cancels(self):
        """Tell whether margins are too small beside the products for digits to be left of them."""
        if self._largest is None:
            squares(self._by_rows.rows, lengths := np.empty(len(self._by_rows.signs)))
            self._largest = lengths.max()
        return _cancels(entry(self._by_rows.state.track), self._largest, _MOST_CANCELS)

    def lowest(self):
        """Return the smallest y(w·x + b) and the length of w, the constant column not counted."""
        return self._now.lowest()

    def overlap(self):
        """Tell whether it is proved that no weights separate the rows."""
        return self._by_rows.overlap()

    def end(self):
        """Bring the rows' learner up to date."""
        if self._now is not self._by_rows:
            self._now.give_back(self._by_rows)


# ---------------------------------------------------------------------- passes with all kernel values at hand


class _Products(NamedTuple):
    """A learner with the kernel values between all rows, behind those of rows with what is stored besides."""

    method: Any
    gram: np.ndarray  # one row per stored example, then one per row; one column per row
    squares: np.ndarray
    signs: np.ndarray
    coef: np.ndarray
    owners: np.ndarray
    pair: np.ndarray
    tracks: np.ndarray
    values: np.ndarray  # scores of the rows, brought along from pass to pass
    fresh: np.ndarray  # number of the step after which they were last added up
    most_cancels: float  # how much larger than a margin the products may be of which it is added up

    @classmethod
    def new(cls, method, gram, squares, signs, coef, owners, pair, tracks, most_cancels=np.inf):
        """Return a learner whose scores are added up."""
        fresh = tracks["n_updates"].copy()
        return cls(method, gram, squares, signs, coef, owners, pair, tracks, coef @ gram, fresh, most_cancels)

    @classmethod
    def of(cls, learner):
        """Take over a linear learner: what it learnt is one stored example."""
        method, rows, signs, state = learner.method, learner.rows, learner.signs, learner.state
        m, scale = len(signs), entry(state.track).scale
        gram = np.empty((m + 1, m))
        scores(rows, scale * state.v, gram[0])
        gram[1:] = inner_products(rows, np.arange(m), np.arange(m))
        coef = np.zeros(m + 1)
        coef[0] = 1.0
        if method.soft > 0.0:  # the coefficients of all rows are known, and needed
            coef[0], coef[1:] = 0.0, scale * state.soft_coefs
        owners = np.where(state.owners >= 0, state.owners + 1, -1)
        squares = gram[1:].diagonal().copy()
        return cls.new(method, gram, squares, signs, coef, owners, state.pair[0].copy(), state.track, _MOST_CANCELS)

    def give_back(self, learner):
        """Let the linear learner know what was learnt."""
        rows, state, track = learner.rows, learner.state, entry(self.tracks)
        own = self.coef[1:]
        state.v[:] = add_rows(rows, np.arange(len(own)), own, self.coef[0] * track.scale * state.v)
        track.scale = track.factor = 1.0
        track.soft_square = own @ own
        if self.method.soft > 0.0:
            state.soft_coefs[:] = own
        for side, owner in enumerate(self.owners):
            if owner >= 0:
                online.remember(rows, owner - 1, side, state)
                state.pair[:, side] = self.pair[side], self.coef[owner]

    def learn(self, some_orders):
        """Pass over the rows in these orders; return what ``online.learn_passes`` does."""
        method, gram, squares, signs, coef, owners, pair, tracks, values, fresh, most = self
        return _learn_passes(method, gram, squares, some_orders, signs, values, fresh, coef, owners, pair, tracks, most)

    def lowest(self):
        """Return the smallest y(w·x + b) and the length of w, the constant column not counted."""
        track, own = entry(self.tracks), self.coef[len(self.coef) - len(self.signs) :]
        margins = self.signs * (self.coef @ self.gram + track.bias + self.method.soft * own)
        return margins.min(), _length(track)

    def overlap(self):
        """Return False: of kernels, most of which separate any rows, no proof is asked."""
        return False


@njit(cache=True, nogil=True)
def _learn_passes(method, gram, squares, orders, signs, values, fresh, coef, owners, pair, tracks, most_cancels):
    """Pass over the rows in these orders, the scores brought along; return what ``online.learn_passes`` does.

    The scores are added up afresh now and then, as linear learners do with the norm. A pass after which too much
    cancels is the last one.
    """
    track, offset, largest = tracks[0], len(coef) - len(values), squares.max()
    n_short = 0
    for k in range(len(orders)):
        before = track.n_updates
        if before - fresh[0] >= max(REFRESH, len(values)):
            _add_up(gram, coef, values)
            fresh[0] = before
        n_short = _learn_block(method, gram, squares, offset, orders[k], signs, values, coef, owners, pair, tracks)
        if n_short == 0 or track.n_updates == before:
            return k + 1, n_short, False
        if _cancels(track, largest, most_cancels):
            return k + 1, n_short, True
    return len(orders), n_short, True


@njit(cache=True, nogil=True)
def _cancels(track, largest, most):
    return largest * track.mass * track.mass > most * track.square


@njit(cache=True, nogil=True)
def _add_up(gram, coef, values):
    """Fill in the scores of all rows."""
    values[:] = 0.0
    for c in range(len(coef)):
        if coef[c] != 0.0:
            for k in range(len(values)):
                values[k] += coef[c] * gram[c, k]


# ---------------------------------------------------------------------- passes in blocks, for more rows than that


def _run_in_blocks(method, kernel, X, signs, coef, owners, state, max_iter, orders):
    """Repeat passes of all problems, which share the kernel values; return how each went.

    The time is that of all of them together.
    """
    histories, seconds, due, active = [[] for _ in signs], 0.0, 1, np.arange(len(signs))
    converged = np.zeros(len(signs), dtype=bool)
    most = MOST_PASSES if max_iter is None else max_iter
    evidence = [Evidence(method, lambda: False) for _ in signs]
    before, start = _n_updates(state), time.thread_time()
    for n_iter, order in zip(range(1, most + 1), orders):
        n_short = _pass(method, kernel, X, order, signs, coef, owners, state, active)
        after = _n_updates(state)
        going_on = (n_short > 0) & (after > before) & (n_iter < most)
        before = after
        written = active if n_iter == due else active[~going_on[active]]
        if len(written) == 0:
            continue
        seconds += time.thread_time() - start  # without what is only measured
        for k, margins in zip(written, _margins(method, kernel, X, signs, coef, owners, state, written)):
            track = entry(state.tracks[k])
            histories[k].append(record(n_iter, seconds, margins.min(), _length(track), track))
            if n_iter == due and max_iter is None:
                going_on[k] &= not evidence[k].is_against(n_iter, histories[k][-1][-1], track)
        due = next_due(due, 2) if n_iter == due else due
        converged[active] = n_short[active] == 0
        active = active[going_on[active]]
        if len(active) == 0:
            break
        start = time.thread_time()
    return [Run(bool(done), np.array(history, RECORD)) for done, history in zip(converged, histories)]


def _length(track):
    """Return the length of w, the constant column not counted."""
    return np.sqrt(max(0.0, track.square - track.lift**2))


def _n_updates(state):
    return np.array([track["n_updates"][0] for track in state.tracks])  # a record would take longer than a short pass


def _margins(method, kernel, X, signs, coef, owners, state, which):
    """Return the margins of all rows, one row per problem."""
    used = _used(coef, owners)
    values = _scores(kernel, X, coef[np.ix_(which, used)], used)
    biases = np.array([entry(state.tracks[k]).bias for k in which])
    return signs[which] * (values + biases[:, None] + method.soft * coef[which])


def _values(kernel, X, left, right):
    """Return the kernel values between two lists of training rows."""
    if kernel.is_precomputed:
        return np.ascontiguousarray(X.toarray() if sp.issparse(X) else X, dtype=np.float64)
    return np.ascontiguousarray(kernel(X[left], X[right]))


def _pass(method, kernel, X, order, signs, coef, owners, state, active):
    """Make one pass for the problems that are still active."""
    n_short = np.zeros(len(signs), dtype=int)
    m, start = X.shape[0], 0
    while start < m:
        used = _used(coef, owners)
        block = order[start : start + max(1, min(1024, _VALUES // 2 // (len(used) + 1024)))]
        outside = np.setdiff1d(used, block, assume_unique=True)
        columns = np.concatenate([outside, block])
        place = np.full(m + 1, -1)
        place[columns] = np.arange(len(columns))
        part = _values(kernel, X, columns, block)
        squares = part[len(outside) :].diagonal().copy()
        for k in active:
            own, pair = coef[k, columns], place[owners[k]]
            n_short[k] += _learn_block(
                method, part, squares, len(outside), np.arange(len(block)), signs[k, block], own @ part, own, pair,
                state.pair[k], state.tracks[k],
            )  # fmt: skip
            coef[k, columns] = own
            owners[k] = np.where(pair >= 0, columns[pair], -1)
        start += len(block)
    return n_short


def _scores(kernel, X, coef, used):
    block = max(1, _VALUES // 4 // len(used))
    stored, parts = X[used], []
    for start in range(0, X.shape[0], block):
        parts.append(coef @ kernel(stored, X[start : start + block]))
    return np.hstack(parts)
