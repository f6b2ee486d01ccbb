r"""Online large-margin learners: one row at a time, an exact step whenever its margin is too small.

All four methods keep a dual vector :math:`\theta = \sum_i c_i y_i \tilde x_i`, :math:`c_i \ge 0`, and predict with

.. math:: w = f^{-1}(\theta), \qquad f^{-1}(\theta)_j = \mathrm{sign}(\theta_j)|\theta_j|^{p-1} / \|\theta\|_p^{p-2} ,

so that :math:`\|w\|_q = \|\theta\|_p`, :math:`1/p + 1/q = 1` (Ishibashi, Hatano & Takeda 2008, Lemma 3). Every step
has the form :math:`\theta \leftarrow \beta\theta + \alpha z`, and the methods differ only in when they step and in
:math:`\alpha, \beta, z`.

**PUMMA** keeps one example of each class, :math:`z = x^+ - x^-`, and takes the shortest ``w`` with
:math:`w \cdot z \ge 2` and :math:`w \cdot \theta \ge \|\theta\|_p^2`; the bias puts the hyperplane halfway between
the two examples. **ROMMA** does the same with :math:`z = y\tilde x` and 1 in place of 2. **ALMA** adds a multiple of
the normalised row and projects on the unit ball; **MICRA** adds a multiple of the row to a vector of unit length. For
these three :math:`\tilde x = (x, R)`, which makes the bias a weight like the others.

**The two-constraint problem.** If ``z`` alone, :math:`w = f^{-1}(\alpha z)` with :math:`\alpha = T/\|z\|_p^2`, meets
the second constraint it is the solution. Otherwise both hold with equality. For p = 2 that is a linear system (eq.
15). Otherwise let :math:`\hat z, \hat\theta` have unit p-norm and :math:`u(\tau) = (1-\tau)\hat z + \tau\hat\theta`.
Minimising the dual objective :math:`\tfrac12\|\alpha z + \beta\theta\|_p^2 - T\alpha - \|\theta\|_p^2\beta` over the
length of the vector leaves one variable,

.. math:: \max_{0 \le \tau \le 1} \frac{(1-\tau) T/\|z\|_p + \tau\|\theta\|_p}{\|u(\tau)\|_p} ,

linear over convex, hence with a single maximum, whose derivative has opposite signs at 0 and 1: Newton's method kept
inside a shrinking bracket finds it from anywhere.

**What a step costs.** :math:`\theta = s\,v` with a scalar ``s``: multiplying by :math:`\beta` touches ``s`` alone,
adding ``z`` only the columns where ``z`` is not zero. The same holds for p > 2, because all of :math:`\|u(\tau)\|_p`
outside those columns is :math:`\tau` times a known number: a Newton iteration takes as many powers as ``z`` has
non-zeros. Only when ``v`` gets out of scale (or a step forgets :math:`\theta`) is every column touched.

**Soft margin.** For p = 2 every sample may carry a column of its own with value :math:`\sqrt\lambda`, which adds
:math:`\lambda` to the inner product of a sample with itself. Its weight follows from the sample's coefficient
:math:`c_i`; a stream, which never sees a sample twice, needs only the sum of their squares.

**The certificate.** :math:`\|\theta\|_p / \sum_i c_i` bounds from above the p-norm margin that any classifier of the
method's kind can have on the rows seen: it is the length of a convex combination of the :math:`y_i\tilde x_i`.

**No end in sight.** Where no classifier separates the rows, passes would never end, and their bound tells: after k
steps it has fallen to about :math:`R\sqrt{c/k}`, as the methods' theorems say, and goes on falling. Where there is a
margin, the bound stays above it, so that :math:`\sqrt k` times the bound grows. :class:`Evidence` looks at both, and
before it lets passes go on, it asks for a proof: whether any weights separate the rows does not depend on the method.
"""

import itertools
import time
from typing import NamedTuple

import numpy as np

from margindist.compilation import njit, overload
from margindist.objectives import LDM
from margindist.solvers import separation
from margindist.solvers._solution import Options, Problem, Status
from margindist.spaces.rows import n_columns, n_rows, row_add, row_dot, row_scatter, scores, squares

_LIMIT = 1e14  # of ‖w‖²‖z‖²: a margin below 1e-7 of the rows' distances counts as none
_TINY = 1e-150  # squared length below which a row, or the distance between two, counts as zero: no quotient overflows
_PARALLEL = 1e-14  # squared sine below which z points against theta: no classifier separates the rows
_WHOLE_EXPONENT = 32  # up to which powers are products
MOST_PASSES = 10_000  # where nobody set a limit
_FIRST_LOOK = 128  # passes of a hard margin before which there is no evidence that more are in vain
_FIRST_SOFT_LOOK = 1024  # the same of a soft margin, which all rows have, however small
_LAST_LOOK, _LAST_SOFT_LOOK = 1024, 2048  # passes after which all margins have to have been positive once
_LOOK_BACK = 4  # evidence compares with the time when there were so many times fewer
_IN_SIGHT = 1.05  # factor by which √k times the bound grows meanwhile where there is a margin in sight
_ORDERS = 1 << 16  # row numbers held at a time, in the orders of several passes
_KEPT_ORDERS = 1 << 22  # row numbers kept for the next problem: 32 MB
REFRESH = 1000  # steps, or columns if more, after which the norm is summed afresh


class PUMMA(NamedTuple):
    """P-norm utilizing maximum margin algorithm: step when the margin is below ``1 - delta``."""

    p: float
    delta: float
    soft: float


class ROMMA(NamedTuple):
    """Relaxed online maximum margin algorithm: step when the margin is below ``short`` or not positive."""

    short: float  # 1 - delta for the aggressive variant, 0 for the plain one
    soft: float
    lifted: bool  # whether rows carry a constant column
    p: float = 2.0


class ALMA(NamedTuple):
    """Approximate large margin algorithm: the k-th step has length C/√((p-1)k), the threshold is (1-α)B√((p-1)/k)."""

    p: float
    alpha: float
    B: float
    C: float
    soft: float
    lifted: bool


class MICRA(NamedTuple):
    """Mistake-controlled rules: rate η/t^ζ and threshold β/t^ε, in units of 1/R and R, R the longest row."""

    eta: float
    beta: float
    epsilon: float
    zeta: float
    soft: float
    lifted: bool
    p: float = 2.0


# What a learner remembers besides its vectors, whatever the representation.
TRACK = np.dtype(
    [
        ("square", np.float64),  # ‖θ‖_p², which is ‖w‖_q²
        ("mass", np.float64),  # Σ c_i
        ("bias", np.float64),  # the intercept
        ("lift", np.float64),  # θ in the constant column
        ("constant", np.float64),  # value of the constant column, 0 before the first row
        ("grows", np.bool_),  # whether the constant follows the longest row
        ("radius", np.float64),  # p-norm of the longest row, constant column excluded
        ("soft_square", np.float64),  # Σ c_i², the soft margin's part of ‖θ‖² over λ
        ("n_updates", np.int64),
        ("scale", np.float64),  # θ = scale * v
        ("factor", np.float64),  # w = factor * link
    ],
    align=True,
)


class LinearState(NamedTuple):
    """A linear learner between two rows."""

    v: np.ndarray  # θ / scale
    link: np.ndarray  # sign(v)|v|^(p-1); v itself if p = 2
    kept: np.ndarray  # one or three examples as dense vectors
    columns: np.ndarray  # where each of them is not zero
    counts: np.ndarray  # in how many places
    slots: np.ndarray  # which of them is the negative one, the positive one, the free one; -1 if not yet there
    owners: np.ndarray  # row numbers of the two examples of a pair, -1 if unknown
    pair: np.ndarray  # squared norms (first row) and coefficients (second row) of the pair
    soft_coefs: np.ndarray  # coefficient of every row over scale; empty in a stream
    track: np.ndarray  # one record of TRACK


def new_track(constant):
    """Return the record of a learner that has seen nothing; a ``constant`` of None follows the longest row."""
    track = np.zeros(1, np.dtype((np.record, TRACK)))  # an ordinary array: not every format of files knows others
    track["scale"] = 1.0
    track["factor"] = 1.0
    track["grows"] = constant is None
    track["constant"] = 0.0 if constant is None else constant
    return track


def entry(track):
    """Return the record with its fields as attributes, also if it comes from a file."""
    return track.view(np.recarray)[0]


def linear_state(method, n_features, constant=0.0, n_samples=0):
    """Return the state of a linear learner that has seen nothing.

    ``constant`` is the value of the constant column (None: the p-norm of the longest row so far). ``n_samples`` makes
    room for the soft margin's coefficients, so that rows may be seen again under the same numbers.
    """
    n_kept = 3 if isinstance(method, PUMMA) else 1
    v = np.zeros(n_features)
    return LinearState(
        v,
        v if method.p == 2.0 else np.zeros(n_features),
        np.zeros((n_kept, n_features)),
        np.zeros((n_kept, n_features), dtype=np.int32),
        np.zeros(n_kept, dtype=np.int64),
        np.array([-1, -1, 0]),
        np.array([-1, -1]),
        np.zeros((2, 2)),
        np.zeros(n_samples if method.soft > 0 else 0),
        new_track(constant),
    )


# ---------------------------------------------------------------------- the two-constraint problem


@njit(cache=True, nogil=True)
def two_constraints(inner, z_square, square, target):
    """Return α, β and ‖w‖² of the shortest w = αz + βθ with w·z ≥ target and w·θ ≥ ‖θ‖², and whether there is one.

    ``inner`` is θ·z and below the target; for p = 2.
    """
    if z_square < _TINY:
        return 0.0, 1.0, square, False
    if target * inner >= square * z_square:
        alpha, beta = target / z_square, 0.0
    else:
        determinant = square * z_square - inner * inner
        if determinant <= _PARALLEL * square * z_square:
            return 0.0, 1.0, square, False
        alpha = square * (target - inner) / determinant
        beta = (square * z_square - target * inner) / determinant
    length = target * alpha + beta * square
    return alpha, beta, length, length * z_square < _LIMIT


@njit(cache=True, nogil=True)
def _power(base, exponent):
    """Return the power of a number that is not negative; small whole exponents by products, which are much faster."""
    n = int(exponent)
    if n != exponent or not 0 <= n <= _WHOLE_EXPONENT:
        return base**exponent
    power = 1.0
    while n > 0:
        if n % 2 == 1:
            power *= base
        base *= base
        n //= 2
    return power


@njit(cache=True, nogil=True)
def _slope(z, theta, rest, p, tau, c_z, c_theta):
    """Return derivative (but for a positive factor) and second derivative of the dual along τ, and ‖u(τ)‖_p."""
    top = tau * rest
    for k in range(len(z)):
        top = max(top, abs((1.0 - tau) * z[k] + tau * theta[k]))
    if top == 0.0:
        return 0.0, 0.0, 0.0
    power, by_z, by_theta, curvature = 0.0, 0.0, 0.0, 0.0
    for k in range(len(z)):
        u = ((1.0 - tau) * z[k] + tau * theta[k]) / top
        if u != 0.0:
            bent = _power(abs(u), p - 2.0)
            power += bent * u * u
            by_z += bent * u * z[k]
            by_theta += bent * u * theta[k]
            curvature += bent * (theta[k] - z[k]) * (c_theta * z[k] - c_z * theta[k])
    if rest > 0.0 and tau > 0.0:
        u = tau * rest / top
        bent = _power(u, p - 2.0)
        power += bent * u * u
        by_theta += bent * u * rest
        curvature -= bent * c_z * rest * rest
    return c_theta * by_z - c_z * by_theta, (p - 1.0) * curvature / top, top * power ** (1.0 / p)


@njit(cache=True, nogil=True)
def two_constraints_p(z, theta, rest, p, target):
    """Return α, β and ‖w‖_q² as :func:`two_constraints` does, for p > 1.

    ``z`` and ``theta`` are given on the columns where z is not zero; ``rest`` is θ's p-norm on the others.
    """
    z_norm = p_norm(z, 0.0, p)
    theta_norm = p_norm(theta, rest, p)
    if z_norm**2 < _TINY:
        return 0.0, 1.0, theta_norm**2, False
    z = z / z_norm
    c_z = target / z_norm
    if theta_norm > 0.0:
        theta = theta / theta_norm
        rest = rest / theta_norm
    tau = 0.0
    slope, curvature, size = _slope(z, theta, rest, p, tau, c_z, theta_norm)
    if slope > 0.0:
        # The slope changes its sign between 0 and 1. Newton's steps are taken while they stay in between and shrink to
        # half of the move before last; otherwise the interval is halved.
        low, high = 0.0, 1.0
        tau = 0.5
        last, move = 1.0, 0.5
        while True:
            slope, curvature, size = _slope(z, theta, rest, p, tau, c_z, theta_norm)
            if slope > 0.0:
                low = tau
            else:
                high = tau
            newton = -slope / curvature if curvature < 0.0 else 1.0
            trusted = low <= tau + newton <= high and abs(newton) <= 0.5 * abs(last)
            last = move
            move = newton if trusted else 0.5 * (low + high) - tau
            if abs(move) <= 4e-16 * tau:
                break
            tau += move
    if size * size <= _PARALLEL:
        return 0.0, 1.0, theta_norm**2, False
    length = (c_z * (1.0 - tau) + theta_norm * tau) / size
    alpha = length / size * (1.0 - tau) / z_norm
    beta = length / size * tau / theta_norm if tau > 0.0 else 0.0
    return alpha, beta, length**2, (length * z_norm) ** 2 < _LIMIT


@njit(cache=True, nogil=True)
def p_norm(values, rest, p):
    """Return the p-norm of ``values`` and one more number, without overflow."""
    top = abs(rest)
    for k in range(len(values)):
        top = max(top, abs(values[k]))
    if top == 0.0:
        return 0.0
    power = _power(abs(rest) / top, p)
    for k in range(len(values)):
        power += _power(abs(values[k]) / top, p)
    return top * power ** (1.0 / p)


# ---------------------------------------------------------------------- when a method steps, and how far if p = 2


@njit(cache=True, nogil=True)
def augmented(method, track, norm):
    """Return the p-norm of a row, constant and soft-margin columns included."""
    if method.p == 2.0:
        return np.sqrt(norm * norm + track.constant * track.constant + method.soft)
    top = max(norm, track.constant)
    return top * ((norm / top) ** method.p + (track.constant / top) ** method.p) ** (1.0 / method.p) if top else 0.0


@njit(cache=True, nogil=True)
def longest(method, track):
    """Return the p-norm of the longest row, all its columns included."""
    if method.p == 2.0:
        return augmented(method, track, track.radius)
    return (track.radius**method.p + track.constant**method.p + method.soft) ** (1.0 / method.p)


def _pumma_short(method, track, margin, x_norm):
    return margin < 1.0 - method.delta or (margin == 0.0 and track.square == 0.0)


def _romma_short(method, track, margin, x_norm):
    return margin <= 0.0 if method.short == 0.0 else margin < method.short


def _alma_short(method, track, margin, x_norm):
    k = track.n_updates + 1.0
    return margin <= (1.0 - method.alpha) * method.B * np.sqrt((method.p - 1.0) / k) * x_norm


def _micra_short(method, track, margin, x_norm):
    if track.n_updates == 0:
        return True
    threshold = method.beta * longest(method, track) / float(track.n_updates) ** method.epsilon
    return margin <= threshold * np.sqrt(track.square)


def _pumma_step(method, track, inner, z_square):
    return two_constraints(inner, z_square, track.square, 2.0)


def _romma_step(method, track, inner, z_square):
    return two_constraints(inner, z_square, track.square, 1.0)


def _alma_step(method, track, inner, z_square):
    if z_square < _TINY:
        return 0.0, 1.0, track.square, False
    rate = method.C / np.sqrt((track.n_updates + 1.0) * z_square)
    square = track.square + 2.0 * rate * inner + rate * rate * z_square
    shrink = 1.0 / np.sqrt(max(1.0, square))
    return shrink * rate, shrink, min(1.0, square), square > 0.0


def _micra_step(method, track, inner, z_square):
    if z_square < _TINY:
        return 0.0, 1.0, track.square, False
    if track.n_updates == 0:
        return 1.0 / np.sqrt(z_square), 0.0, 1.0, True
    size = np.sqrt(track.square)
    rate = method.eta / (longest(method, track) * float(track.n_updates) ** method.zeta)
    square = 1.0 + 2.0 * rate * inner / size + rate * rate * z_square
    if square <= _PARALLEL:  # the step ends at zero, which has no direction; what is left is rounding
        return 0.0, 1.0, track.square, False
    return rate / np.sqrt(square), 1.0 / (size * np.sqrt(square)), 1.0, True


def _romma_regrown(method, square, grown):
    # Every classifier that separates the rows keeps to the half-space w·θ ≥ ‖θ‖², written with the new constant; the
    # shortest vector in it is the new θ.
    return square / grown


def _alma_regrown(method, square, grown):
    return 1.0 / np.sqrt(max(1.0, grown))


def _micra_regrown(method, square, grown):
    return 1.0 / np.sqrt(grown)


_SHORT = {PUMMA: _pumma_short, ROMMA: _romma_short, ALMA: _alma_short, MICRA: _micra_short}
_STEP = {PUMMA: _pumma_step, ROMMA: _romma_step, ALMA: _alma_step, MICRA: _micra_step}
_REGROWN = {ROMMA: _romma_regrown, ALMA: _alma_regrown, MICRA: _micra_regrown}


def is_short(method, track, margin, x_norm):
    """Return whether the method steps at a row of this margin and p-norm."""
    return _SHORT[type(method)](method, track, margin, x_norm)


def step(method, track, inner, z_square):
    """Return α and β of the step θ ← βθ + αz, the new ‖θ‖² and whether there is such a step; for p = 2."""
    return _STEP[type(method)](method, track, inner, z_square)


def regrown(method, square, grown):
    """Return the number that θ is multiplied by when a longer constant column makes its square ``grown``."""
    return _REGROWN[type(method)](method, square, grown)


@overload(is_short)
def _compiled_is_short(method, track, margin, x_norm):
    return _SHORT[method.instance_class]


@overload(step)
def _compiled_step(method, track, inner, z_square):
    return _STEP[method.instance_class]


@overload(regrown)
def _compiled_regrown(method, square, grown):
    return _REGROWN[method.instance_class]


@njit(cache=True, nogil=True)
def lengthen(method, track, radius):
    """Take note of a row longer than all before; return what θ's other columns must be multiplied by."""
    track.radius = radius
    if not (method.lifted and track.grows):
        return 1.0
    shrink = 1.0
    if track.lift != 0.0:
        lift = track.lift * radius / track.constant
        half = 0.5 * method.p
        size = np.sqrt(max(track.square, lift * lift))
        power = (track.square / size**2) ** half + (abs(lift) / size) ** method.p - (abs(track.lift) / size) ** method.p
        grown = (size * power ** (1.0 / method.p)) ** 2
        shrink = regrown(method, track.square, grown)
        track.square = shrink * shrink * grown
        track.lift = shrink * lift
        track.mass *= shrink
        track.soft_square *= shrink * shrink
    track.constant = radius
    set_bias(method, track)
    return shrink


@njit(cache=True, nogil=True)
def set_bias(method, track):
    """Set the intercept from the weight of the constant column."""
    size = np.sqrt(track.square)
    bent = abs(track.lift / size) ** (method.p - 2.0) if method.p != 2.0 and size > 0.0 else 1.0
    track.bias = bent * track.lift * track.constant


# ---------------------------------------------------------------------- linear learners
# Compiled functions take a state's arrays one by one: counting the references to those of a tuple, at each call, would
# take ten times as long as a step along a short row.


@njit(cache=True, nogil=True, forceinline=True)
def _keep(rows, i, slot, kept, columns, counts):
    values, places = kept[slot], columns[slot]
    for k in range(counts[slot]):
        values[places[k]] = 0.0
    counts[slot] = row_scatter(rows, i, values, places)


@njit(cache=True, nogil=True)
def remember(rows, i, side, state):
    """Make row ``i`` the negative (0) or positive (1) example of the pair."""
    slot = state.slots[side]
    if slot < 0:  # none so far: it takes the free slot, and the next one becomes free
        slot = state.slots[2]
        state.slots[side], state.slots[2] = slot, slot + 1
    _keep(rows, i, slot, state.kept, state.columns, state.counts)
    state.owners[side] = i


@njit(cache=True, nogil=True)
def _bend(v, p):
    return np.sign(v) * _power(abs(v), p - 1.0)


@njit(cache=True, nogil=True, forceinline=True)
def _multiply(method, beta, square, v, link, soft_coefs, track):
    """Multiply θ by β, on the way to a vector of the given squared norm."""
    reach = 1e50 if method.p == 2.0 else 1e100 ** (1.0 / method.p)  # powers of v stay within 1e-100 and 1e100
    size = np.sqrt(square)
    if beta > 0.0 and size < reach * track.scale * beta and size * reach > track.scale * beta:
        track.scale *= beta
    else:
        _write_out(method, track.scale * beta / size, v, link, soft_coefs)
        track.scale = size
    track.square = square


@njit(cache=True, nogil=True)
def _write_out(method, ratio, v, link, soft_coefs):
    for j in range(len(v)):
        v[j] *= ratio
        if method.p != 2.0:
            link[j] = _bend(v[j], method.p)
    for i in range(len(soft_coefs)):
        soft_coefs[i] *= ratio


@njit(cache=True, nogil=True, forceinline=True)
def _add(slot, amount, v, kept, columns, counts, track):
    amount /= track.scale
    for k in range(counts[slot]):
        j = columns[slot, k]
        v[j] += amount * kept[slot, j]


@njit(cache=True, nogil=True, forceinline=True)
def _relink(slot, p, v, link, columns, counts):
    for k in range(counts[slot]):
        j = columns[slot, k]
        link[j] = _bend(v[j], p)


@njit(cache=True, nogil=True, forceinline=True)
def _settle(method, v, track):
    """Count the step, sum the norm afresh now and then, and set the factor between link and w."""
    track.n_updates += 1
    if track.n_updates % max(REFRESH, len(v)) == 0:
        track.square = _square(method, v, track)
    set_factor(method, track)


@njit(cache=True, nogil=True)
def _square(method, v, track):
    """Return the square of θ's norm."""
    if method.p != 2.0:
        return (track.scale * p_norm(v, track.lift / track.scale, method.p)) ** 2
    total = 0.0
    for j in range(len(v)):
        total += v[j] * v[j]
    return track.scale**2 * total + track.lift**2 + method.soft * track.soft_square


@njit(cache=True, nogil=True, forceinline=True)
def set_factor(method, track):
    """Set the number that turns the link vector into w."""
    track.factor = track.scale
    if method.p != 2.0:
        track.factor *= (track.scale / np.sqrt(track.square)) ** (method.p - 2.0)


def _pumma_stride(method, y, inner, z_square, v, kept, columns, counts, slots, track):
    other, free = slots[0 if y > 0.0 else 1], slots[2]
    z = np.empty(counts[free] + counts[other])
    theta = np.empty(len(z))
    size = np.sqrt(track.square)
    n, power = 0, 0.0
    for slot in (free, other):
        for k in range(counts[slot]):
            j = columns[slot, k]
            if slot == free or kept[free, j] == 0.0:
                z[n] = y * (kept[free, j] - kept[other, j])
                theta[n] = track.scale * v[j]
                if theta[n] != 0.0:
                    power += _power(abs(theta[n]) / size, method.p)
                n += 1
    rest = size * max(0.0, 1.0 - power) ** (1.0 / method.p) if n < len(v) else 0.0
    return two_constraints_p(z[:n], theta[:n], rest, method.p, 2.0)


def _alma_stride(method, y, inner, z_square, v, kept, columns, counts, slots, track):
    if z_square < _TINY:
        return step(method, track, inner, z_square)
    x_norm = np.sqrt(z_square)
    rate = method.C / (np.sqrt((method.p - 1.0) * (track.n_updates + 1.0)) * x_norm)
    size = max(np.sqrt(track.square), rate * x_norm)
    before, after = 0.0, 0.0
    for k in range(counts[0]):
        j = columns[0, k]
        theta = track.scale * v[j]
        before += _power(abs(theta) / size, method.p)
        after += _power(abs(theta + rate * y * kept[0, j]) / size, method.p)
    if method.lifted:
        before += (abs(track.lift) / size) ** method.p
        after += (abs(track.lift + rate * y * track.constant) / size) ** method.p
    rest = max(0.0, (np.sqrt(track.square) / size) ** method.p - before)
    square = (size * (rest + after) ** (1.0 / method.p)) ** 2
    shrink = 1.0 / np.sqrt(max(1.0, square))
    return shrink * rate, shrink, min(1.0, square), square > 0.0


def _plain_stride(method, y, inner, z_square, v, kept, columns, counts, slots, track):
    return step(method, track, inner, z_square)


_STRIDE = {PUMMA: _pumma_stride, ROMMA: _plain_stride, ALMA: _alma_stride, MICRA: _plain_stride}


def stride(method, y, inner, z_square, v, kept, columns, counts, slots, track):
    """Return the same four numbers as :func:`step`, for p > 2; ``z_square`` is the square of the p-norm of z."""
    return _STRIDE[type(method)](method, y, inner, z_square, v, kept, columns, counts, slots, track)


@overload(stride)
def _compiled_stride(method, y, inner, z_square, v, kept, columns, counts, slots, track):
    return _STRIDE[method.instance_class]


def _learn_pair(
    method, rows, i, y, score, x_norm, v, link, kept, columns, counts, slots, owners, pair, soft_coefs, track
):
    side = 1 if y > 0.0 else 0
    other, free = slots[1 - side], slots[2]
    _keep(rows, i, free, kept, columns, counts)
    square, cross = 0.0, 0.0
    for k in range(counts[free]):
        j = columns[free, k]
        square += kept[free, j] ** 2
        if other >= 0:
            cross += kept[free, j] * kept[other, j]
    if other < 0:
        track.bias = y
    else:
        # Before the step the other example has margin 1 (or w is zero and the bias speaks for it), so that w·z =
        # y·score + 1.
        z_square = square + pair[0, 1 - side] - 2.0 * cross + 2.0 * method.soft
        inner = y * score + 1.0
        if method.p == 2.0:
            alpha, beta, length, feasible = step(method, track, inner, z_square)
        else:
            alpha, beta, length, feasible = stride(method, y, inner, z_square, v, kept, columns, counts, slots, track)
        if not feasible:
            return
        _multiply(method, beta, length, v, link, soft_coefs, track)
        _add(free, y * alpha, v, kept, columns, counts, track)
        _add(other, -y * alpha, v, kept, columns, counts, track)
        track.mass = beta * track.mass + 2.0 * alpha
        if method.p != 2.0:
            _relink(free, method.p, v, link, columns, counts)
            _relink(other, method.p, v, link, columns, counts)
        if method.soft > 0.0:
            _soften_pair(i, side, beta, y * alpha, owners, pair, soft_coefs, track)
        _settle(method, v, track)
        if method.p == 2.0:
            value = beta * (score - track.bias) + y * alpha * (square - cross + method.soft)
        else:
            value = 0.0
            for k in range(counts[free]):
                value += kept[free, columns[free, k]] * link[columns[free, k]]
            value *= track.factor
        track.bias = y - value
    own = slots[side]
    slots[side] = free
    slots[2] = free + 1 if own < 0 else own  # the example that was replaced leaves its slot to the next
    owners[side] = i
    pair[0, side] = square


@njit(cache=True, nogil=True, forceinline=True)
def _soften_pair(i, side, beta, amount, owners, pair, soft_coefs, track):
    """Update the soft margin's coefficients after θ was multiplied by β, and their sum of squares."""
    mine = track.scale * soft_coefs[i] if len(soft_coefs) > 0 else 0.0
    its = beta * pair[1, 1 - side]
    track.soft_square = beta**2 * track.soft_square + 2.0 * amount * (mine - its) + 2.0 * amount**2
    pair[1, side], pair[1, 1 - side] = mine + amount, its - amount
    if len(soft_coefs) > 0:
        soft_coefs[i] += amount / track.scale
        soft_coefs[owners[1 - side]] -= amount / track.scale


def _learn_single(
    method, rows, i, y, score, x_norm, v, link, kept, columns, counts, slots, owners, pair, soft_coefs, track
):
    inner, z_square = y * score, x_norm * x_norm
    if method.p == 2.0:
        alpha, beta, length, feasible = step(method, track, inner, z_square)
    else:
        _keep(rows, i, 0, kept, columns, counts)
        alpha, beta, length, feasible = stride(method, y, inner, z_square, v, kept, columns, counts, slots, track)
    if not feasible:
        return
    _multiply(method, beta, length, v, link, soft_coefs, track)
    if method.p == 2.0:
        row_add(rows, i, y * alpha / track.scale, v)
    else:
        _add(0, y * alpha, v, kept, columns, counts, track)
        _relink(0, method.p, v, link, columns, counts)
    track.mass = beta * track.mass + alpha
    if method.lifted:
        track.lift = beta * track.lift + y * alpha * track.constant
    if method.soft > 0.0:
        mine = track.scale * soft_coefs[i] if len(soft_coefs) > 0 else 0.0
        track.soft_square = beta**2 * track.soft_square + 2.0 * y * alpha * mine + alpha**2
        if len(soft_coefs) > 0:
            soft_coefs[i] += y * alpha / track.scale
    _settle(method, v, track)
    set_bias(method, track)


def _pair_meets(method, norm, track):
    return 0.0, 1.0


def _single_meets(method, norm, track):
    shrink = lengthen(method, track, norm) if norm > track.radius else 1.0
    return augmented(method, track, norm), shrink


_LEARN = {PUMMA: _learn_pair, ROMMA: _learn_single, ALMA: _learn_single, MICRA: _learn_single}
_MEET = {PUMMA: _pair_meets, ROMMA: _single_meets, ALMA: _single_meets, MICRA: _single_meets}


def _learn(method, rows, i, y, score, x_norm, v, link, kept, columns, counts, slots, owners, pair, soft_coefs, track):
    """Make the method's step at row ``i``."""
    state = v, link, kept, columns, counts, slots, owners, pair, soft_coefs, track
    _LEARN[type(method)](method, rows, i, y, score, x_norm, *state)


def meet(method, norm, track):
    """Return the augmented norm of a row for a method that asks for it, and what θ is multiplied by.

    That is not 1 where the row is longer than all before, and the constant column grows with it.
    """
    return _MEET[type(method)](method, norm, track)


@overload(_learn, jit_options={"forceinline": True})
def _compiled_learn(
    method, rows, i, y, score, x_norm, v, link, kept, columns, counts, slots, owners, pair, soft_coefs, track
):
    return _LEARN[method.instance_class]


@overload(meet, jit_options={"forceinline": True})
def _compiled_meet(method, norm, track):
    return _MEET[method.instance_class]


@njit(cache=True, nogil=True)
def learn_passes(method, rows, orders, signs, norms, state):
    """Pass over the rows in these orders, until a pass finds no margin too small or can make no step.

    Returns how many passes there were, at how many rows the margin was too small in the last one, and whether there is
    any use in going on. Many short passes in one call cost far less than as many calls.
    """
    v, link, kept, columns, counts, slots, owners, pair, soft_coefs, tracks = state
    track = tracks[0]
    n_short = 0
    for k in range(len(orders)):
        n_updates, n_short = track.n_updates, 0
        for i in orders[k]:
            y = signs[i]
            x_norm, shrink = meet(method, norms[i], track)
            if shrink != 1.0:
                _multiply(method, shrink, track.square, v, link, soft_coefs, track)
                set_factor(method, track)
            score = track.factor * row_dot(rows, i, link) + track.bias
            if len(soft_coefs) > 0:
                score += method.soft * track.scale * soft_coefs[i]
            if is_short(method, track, y * score, x_norm):
                n_short += 1
                _learn(
                    method, rows, i, y, score, x_norm,
                    v, link, kept, columns, counts, slots, owners, pair, soft_coefs, track,
                )  # fmt: skip
        if n_short == 0 or track.n_updates == n_updates:
            return k + 1, n_short, False
    return len(orders), n_short, True


@njit(cache=True, nogil=True)
def all_below(values, limit):
    """Return whether all values are smaller than ``limit`` in size, and none is NaN."""
    n_below = 0
    for value in values:
        n_below += abs(value) < limit
    return n_below == len(values)


def norms_of(method, rows):
    """Return the p-norms of the rows' features; zeros for PUMMA, which does not ask for them."""
    out = np.zeros(n_rows(rows))
    if isinstance(method, PUMMA):
        return out
    if method.p == 2.0:
        squares(rows, out)
        return np.sqrt(out, out=out)
    return _p_norms(rows, method.p, np.zeros(n_columns(rows)), np.zeros(n_columns(rows), dtype=np.int32), out)


@njit(cache=True, nogil=True)
def _p_norms(rows, p, values, columns, out):
    for i in range(len(out)):
        n = row_scatter(rows, i, values, columns)
        out[i] = p_norm(values[columns[:n]], 0.0, p)
        values[columns[:n]] = 0.0
    return out


def weights(state):
    """Return w without the constant column's weight."""
    return state.link * entry(state.track).factor


def _margins(method, rows, signs, state):
    out = np.empty(len(signs))
    scores(rows, weights(state), out)
    track = entry(state.track)
    if len(state.soft_coefs):
        out += method.soft * track.scale * state.soft_coefs
    return signs * (out + track.bias)


# What is written down about a pass.
RECORD = np.dtype(
    [
        ("n_iter", np.int64),  # passes so far
        ("n_updates", np.int64),  # steps so far
        ("seconds", np.float64),  # processor time of the passes so far, measuring margins not counted
        ("margin", np.float64),  # smallest distance to the hyperplane in p-norm, the constant column not counted
        ("share", np.float64),  # at least which part of the best margin, in the space the method works in, that is
    ]
)


class Run(NamedTuple):
    """How repeated passes over the same rows went."""

    converged: bool  # a pass found no margin too small
    history: np.ndarray  # of RECORD; the last one is the end
    overlap: bool = False  # the passes ended because no weights separate the rows, which is proved


def next_due(due, growth):
    """Return the number of the pass that is recorded after pass ``due``."""
    return max(due + 1, int(growth * due))


class Orders:
    """The order of the rows in each pass: a new permutation every time, or without a seed the one given.

    Two-class problems pass over the same rows in the same orders; those of the first passes are drawn once.
    """

    def __init__(self, n_samples, seed=None):
        self._n_samples, self._seed = n_samples, seed
        self._first, self._source, self._most = [], self._draw(), _KEPT_ORDERS // n_samples

    def __iter__(self):
        for k in range(self._most):
            if k == len(self._first):
                self._first.append(next(self._source))
            yield self._first[k]
        yield from itertools.islice(self._draw(), self._most, None)

    def _draw(self):
        order = np.arange(self._n_samples)
        generator = None if self._seed is None else np.random.default_rng(self._seed)
        while True:
            if generator is not None:
                order = order.copy()
                generator.shuffle(order)
            yield order


class Evidence:
    """Whether passes that nobody limited lead anywhere; it is looked at after 1, 2, 4, ... of them.

    They do if all margins were positive once. Otherwise √k times the bound has to grow, and a time comes when even
    that is not enough. ``overlaps()`` tells whether it is proved that margins cannot all be positive.
    """

    def __init__(self, method, overlaps):
        self.hard = method.soft == 0.0
        self.first, self.last = (_FIRST_LOOK, _LAST_LOOK) if self.hard else (_FIRST_SOFT_LOOK, _LAST_SOFT_LOOK)
        self.separated, self.overlap, self.bounds = False, False, {}
        self._overlaps = overlaps

    def is_against(self, n_iter, share, track):
        """Take note of the end of a pass; tell whether more of them are in vain."""
        self.separated |= share > 0.0
        self.bounds[n_iter] = np.sqrt(track.square * track.n_updates) / track.mass if track.mass > 0.0 else np.inf
        if self.separated or n_iter < self.first:
            return False
        if self.hard and n_iter == self.first:
            self.overlap = self._overlaps()
        grows = self.bounds[n_iter] > _IN_SIGHT * self.bounds[n_iter // _LOOK_BACK]
        return self.overlap or not grows or n_iter >= self.last


def is_power_of_two(number):
    """Tell whether a positive whole number is 1, 2, 4, ..."""
    return number & (number - 1) == 0


def next_power_of_two(number):
    """Return the least of 1, 2, 4, ... above a whole number that is not negative."""
    return 1 << number.bit_length()


def run(method, rows, signs, state, max_iter, orders, growth=1.1):
    """Repeat passes until one finds no margin too small; return how it went and the state for later rows."""
    learner = Rows(method, rows, signs, state)
    result = repeat(method, learner, entry(state.track), max_iter, orders, growth)
    return result, state._replace(soft_coefs=np.zeros(0))


class Rows:
    """A learner with the rows that it passes over."""

    def __init__(self, method, rows, signs, state):
        self.method, self.rows, self.signs, self.state = method, rows, signs, state
        self._norms = norms_of(method, rows)

    def learn(self, some_orders):
        """Pass over the rows in these orders; return what :func:`learn_passes` does."""
        return learn_passes(self.method, self.rows, some_orders, self.signs, self._norms, self.state)

    def lowest(self):
        """Return the smallest y(w·x + b) and the q-norm of w, the constant column not counted."""
        method, state = self.method, self.state
        w_norm = p_norm(weights(state), 0.0, method.p / (method.p - 1.0))
        w_norm = np.hypot(w_norm, np.sqrt(method.soft * entry(state.track).soft_square))
        return _margins(method, self.rows, self.signs, state).min(), w_norm

    def overlap(self):
        """Tell whether it is proved that no weights separate the rows; False where the proof would take too long."""
        rows = self.rows._replace(bias=1.0 if getattr(self.method, "lifted", True) else 0.0)
        if not separation.affordable(rows):
            return False
        try:
            hard_margin = Problem(LDM(np.inf, 0.0, 0.0), rows, self.signs, np.ones(len(self.signs)))
            return separation.solve(hard_margin, Options(tol=1.0)).status is Status.INFEASIBLE
        except (ArithmeticError, np.linalg.LinAlgError):
            return False


def repeat(method, learner, track, max_iter, orders, growth):
    """Repeat passes until one finds no margin too small; return how it went.

    The learner's ``learn(orders)`` does what :func:`learn_passes` does, ``lowest()`` returns the smallest y(w·x + b)
    and the length of w, ``overlap()`` whether it is proved that margins cannot all be positive. A pass that finds a
    margin too small but can make no step would be repeated for ever, so it ends the run too; without a limit (None), so
    does :class:`Evidence` that more are in vain. Passes whose numbers grow by the factor ``growth`` are recorded, so
    that the records of a long run cost next to nothing.
    """
    n_samples = len(learner.signs)
    order_of_pass = iter(orders)
    history, seconds, n_iter, due = [], 0.0, 0, 1
    most, evidence = (max_iter, None) if max_iter is not None else (MOST_PASSES, Evidence(method, learner.overlap))
    longest_run = max(1, _ORDERS // n_samples)
    going_on = True
    while going_on:
        until = min(due, most) if evidence is None else min(due, most, next_power_of_two(n_iter))
        n_passes = min(until - n_iter, longest_run)
        some_orders = np.array([next(order_of_pass) for _ in range(n_passes)])
        start = time.thread_time()
        n_passes, n_short, going_on = learner.learn(some_orders)
        seconds += time.thread_time() - start
        n_iter += n_passes
        going_on = going_on and n_iter < most
        look = going_on and evidence is not None and is_power_of_two(n_iter)
        if not (n_iter == due or look or not going_on):
            continue
        now = record(n_iter, seconds, *learner.lowest(), track)
        if look:
            going_on = not evidence.is_against(n_iter, now[-1], track)
        if n_iter == due or not going_on:
            history.append(now)
        if n_iter == due:
            due = next_due(due, growth)
    return Run(n_short == 0, np.array(history, RECORD), evidence is not None and evidence.overlap)


def record(n_iter, seconds, lowest, w_norm, track):
    """Turn the smallest margin into a distance and a share of the best, and return them with what led there."""
    margin, share = (lowest / w_norm, lowest * track.mass / track.square) if w_norm > 0.0 else (0.0, 0.0)
    return n_iter, int(track.n_updates), seconds, float(margin), float(share)
