r"""Proximal method of multipliers with Newton's method, for one convex round of the multi-class machine.

A round (:mod:`margindist.solvers.multiclass`) is ½‖W‖² + Σ_i ℓ_i(W'x_i) with row losses that are piecewise quadratic,
but have kinks where several rivals tie. With multipliers v̄_i of the last step and widths ρ_i > 0, the losses are
replaced by their Moreau envelopes around W'x_i − ρ_i v̄_i:

    min_W  ½‖W‖² + Σ_i e_i(W'x_i − ρ_i v̄_i),     ∇ = W − Σ_i x_i v_i',     v_i = the block step with A = ρ_i

which has a continuous, piecewise linear slope: semismooth Newton steps with a line search solve it, and its v_i are the
next multipliers. The Hessian is I + Σ_i x_i x_i' ⊗ J_i where, with n classes lowered to the common level, mean over
them 1_a/n, s = ρ/E if β > 0 (else 0), and D, E of the block step,

    J = (I_a − 1_a 1_a'/n)/ρ  +  n/(ρ + nD) q q'  +  (1/E) p p',    q = (1 − s) e_y + s e_r − 1_a/n,    p = e_y − e_r

(without e_r under the frozen rule; the last term only if β > 0). A small one is formed and factorised: where most rows
bend in two classes only, that takes less time than some conjugate gradients would. Where rows are few, it is the
identity plus few outer products: J_i = Σ_j b_ij b_ij' with one b for each lowered class and one for β > 0, and

    (I + Σ_ij (x_i x_i') ⊗ (b_ij b_ij'))⁻¹ G  =  G − Σ_ij y_ij x_i b_ij',    (I + S) y = [b_ij'G'x_i],
    S_ij,i'j' = (x_i·x_i')(b_ij·b_i'j')

needs a system of their number only, whatever the number of columns (Woodbury). Otherwise conjugate gradients are the
way, whose products cost O(nnz k), so that nothing is limited. They are preconditioned by the diagonal blocks
I + Σ_i J_ll x_i x_i', one per class, factorised and kept as long as they serve (of some rows only, where many),
or by the diagonal where there are many columns. All J_i nearly vanish on vectors that are equal in all classes, which
the blocks do not know: the mean over the classes is taken out, and has a matrix of its own.

The certificate at W with these multipliers is ½‖W − Σ x_i v_i'‖² plus the Fenchel-Young sum of the rows.
"""

import numpy as np
from scipy.linalg import LinAlgError, cho_factor
from scipy.linalg.lapack import dposv, dpotri, dpotrs

from margindist.compilation import assign, njit
from margindist.solvers._class_blocks import (
    at_zero,
    block_step,
    certify,
    is_done,
    relative_to,
    spread,
)
from margindist.solvers.conjugate_gradients import conjugate_gradients
from margindist.spaces.rows import gram, matrix, n_columns, n_rows, row_scatter

_FIRST_WIDTH = 1e-2  # first width, relative to a row's squared length, where prices are so high that it would be less
_LEAST_WIDTH = 1e-3  # the same of a row that has many times the price of others
_NARROW = 0.3  # factor of the widths
_SLOW = 0.2  # they are narrowed where a step does not reduce the gap to this part
_STALLED = 150  # steps in which neither the gap was halved nor the value fell by a twentieth: more would not help
_FEWEST = 20  # fewer such steps are enough, but not fewer than this,
_STALLED_WORK = 3000  # where they took as long as so many passes over the rows: those, too, could be made instead
_HEAVIEST = 3.0  # rows that a row counts for at most: weights need not be counts
_MOST_TRIALS = 40  # of a step's length
_MOST_VAIN = 12  # searches of a round that find no step: then it is all rounding
_FORCING = 0.1  # how far conjugate gradients reduce the residual
_MOST_PRODUCTS = 300  # of them in a system
_VAIN_PRODUCTS = 40  # of them without halving the least residual: rounding has the upper hand
_WHOLE = 600  # columns times classes up to which the Hessian may be formed
_MODERATE = 6000  # columns times classes up to which Newton steps go first whatever the number of rows
_COMPILED, _SCATTERED = 2.0, 10.0  # cost of an operation in outer products of rows, beside one in products of BLAS
_FEW_ROWS = 2000  # rows up to which their products with each other are kept
_FEW_BENDS = 2000  # outer products up to which their system may be formed
_CALLS = 3e5  # operations that take as long as the calls around a product do
_FIRST_PRODUCTS = 10  # either is, if that costs less than the products of the last system; of the first, so many
_FEW_COLUMNS = 300  # columns up to which the factors are inverted
_WORN = 3  # products more than with fresh factors that make them worn
_LARGEST_FACTORS = 5 * 10**7  # entries of all factors
_ROWS_PER_COLUMN = 5  # rows per column that a factor is made of, at most
_LARGEST_SCORES = 2 * 10**7  # rows times classes


def is_possible(rows, n_classes):
    """Tell whether the scores of all rows can be held."""
    return n_rows(rows) * n_classes <= _LARGEST_SCORES


def is_best(rows, losses):
    """Tell whether the method should go first.

    Fewer rows than columns are often settled by some passes over them, and of many columns a Newton step costs more
    than that. A weight of two is two rows.
    """
    few_columns = n_columns(rows) <= max(row_counts(losses).sum(), _MODERATE / losses.n_classes)
    return few_columns and is_favourable(rows, losses.n_classes)


def takes_products(rows, n_classes):
    """Tell whether no system is ever formed, of the columns and classes or of the rows."""
    return n_columns(rows) * n_classes > _WHOLE and n_rows(rows) > _FEW_ROWS


def is_favourable(rows, n_classes):
    """Tell whether, besides, the systems can be preconditioned by factors."""
    return is_possible(rows, n_classes) and (n_classes + 1) * n_columns(rows) ** 2 <= _LARGEST_FACTORS


def row_counts(losses):
    """Return for how many rows each one counts: its weight, within limits, so that a weight of two is two rows."""
    return np.clip(losses.prices * (losses.total / losses.prices.sum()), 1.0, _HEAVIEST)


def first_widths(losses, prices, long):
    """Return the widths to begin with, from the sums, over all rows, of the prices and of prices times squares.

    As many rows as a row counts for have its width together, but for rows that outweigh many others: without any width
    to speak of, those keep their kinks, at which Newton steps stop.
    """
    mean_square, typical = long / prices, 0.5 * losses.total / prices
    scale = max(_FIRST_WIDTH * mean_square, min(typical, mean_square) or typical)
    return np.maximum(scale / typical * 0.5 / losses.prices, _LEAST_WIDTH * mean_square)


class ProximalNewton:
    """The method for rows and losses; remembers widths and factors from round to round."""

    def __init__(self, rows, losses):
        self.rows, self.losses, self.X = rows, losses, matrix(rows)
        self.width = first_widths(losses, losses.prices.sum(), losses.prices @ losses.squares)
        self.favourable = is_favourable(rows, losses.n_classes)
        self.counts = row_counts(losses)
        self.pass_cost = 4.0 * self.counts.sum() * self.X.shape[1] * losses.n_classes
        self.spent = 0.0  # on the last step, in operations
        self.preconditioner = (_ClassFactors if self.favourable else _Diagonal)(rows, self.X)
        self.products, self.products_of_rows, self.outer = _FIRST_PRODUCTS, None, None
        self.stalled = False  # whether the last round got nowhere

    def run(self, blocks, weights, bound, tol, max_iter):
        """Solve a round from these blocks and weights (changed).

        Returns blocks, number of steps, the round's value, the true objective and the relative gap. A round that gets
        nowhere ends before either limit, and ``stalled`` says so.
        """
        losses, X, k = self.losses, self.X, self.losses.n_classes
        W = weights[:, :k].copy()
        blocks = spread(blocks, k - 1)
        ahead = blocks._replace(**{
            name: getattr(blocks, name).copy() for name in ("length", "classes", "zeta", "beta")
        })  # fmt: skip
        U, V = X @ W, np.empty((len(blocks.beta), k))
        n_iter, vain, last, nothing = 0, 0, np.inf, at_zero(losses, blocks)
        progress, self.stalled = _Progress(), False
        while True:
            _proximal(losses, blocks, self.width, U, ahead, V)
            while True:
                n_iter += 1
                G = W - X.T @ V
                value, true, gap = relative_to(W, *certify(losses, ahead, 0, U))
                rest = 0.5 * np.vdot(G, G) / value
                done = is_done(value, nothing, rest + gap, bound, tol) or n_iter >= max_iter
                if done or rest <= 0.1 * gap:
                    break
                self.stalled = done = progress.has_ended(value, rest + gap, self.spent / self.pass_cost)
                if done:
                    break
                dW = self._direction(ahead, G)
                if not np.vdot(G, dW) < 0.0:  # all rounding
                    dW = -G
                step, U = self._search(blocks, W, U, dW, ahead, V)
                if step == 0.0:  # as near as rounding lets the envelope's minimum be found
                    vain += 1
                    self.stalled = done = vain == _MOST_VAIN
                    break
                W += step * dW
            blocks, ahead = ahead, blocks
            if done:  # scores were added up step by step: what is certified are those of W itself
                weights[:, :k] = W
                value, true, gap = relative_to(W, *certify(losses, blocks, 0, X @ W))
                return blocks, n_iter, value, true, max(0.0, 0.5 * np.vdot(G, G) / value + gap)
            if gap > _SLOW * last:
                self.width = _NARROW * self.width
            last = gap

    def _search(self, blocks, W, U, dW, ahead, V):
        """Return a step along dW where the slope has fallen below half its first value, and the scores there.

        ``ahead`` and V hold what the scores U lead to, and afterwards what those there do. Where no step is found, be
        it ever so short, the slope is all rounding: then the step is zero, for any other would lead astray.
        """
        dU = self.X @ dW
        linear, square = np.vdot(W, dW), np.vdot(dW, dW)
        first = np.vdot(V, dU) - linear
        low, high, t = 0.0, np.inf, 1.0
        for _ in range(_MOST_TRIALS):
            there = U + t * dU
            _proximal(self.losses, blocks, self.width, there, ahead, V)
            now = linear + t * square - np.vdot(V, dU)
            if abs(now) <= 0.5 * first:
                return t, there
            low, high = (t, high) if now < 0.0 else (low, t)
            t = 0.5 * (low + high) if np.isfinite(high) else 2.0 * t
        _proximal(self.losses, blocks, self.width, U, ahead, V)
        return 0.0, U

    def _direction(self, blocks, G):
        """Return the Newton step against the gradient G."""
        active = np.flatnonzero((blocks.length > 0) | (blocks.beta > 0.0))
        if not len(active):
            return -G
        direct = self._direct_way(blocks, active, G.shape)
        step = None if direct is None else direct(blocks, active, G)
        if step is not None:
            return step
        losses, width, X = self.losses, self.width, self.X
        if 2 * len(active) < len(width):
            losses = losses.of_rows(active)
            blocks = blocks._replace(**{
                name: getattr(blocks, name)[active] for name in ("begin", "length", "beta", "rival")
            })  # fmt: skip
            width, X = width[active], X[active]
        else:
            active = np.arange(len(width))
        return self._by_products(losses, blocks, width, X, active, G)

    def _direct_way(self, blocks, active, shape):
        """Return the cheaper direct way to solve the system, or None if conjugate gradients will cost less.

        Rows count by their weights, so that a weight of two takes the same steps as the row twice.
        """
        d, k = shape
        weights = self.counts[active]
        classes = blocks.length[active] + 2
        bends = blocks.length[active] + (blocks.beta[active] > 0.0)
        product = 4 * (weights.sum() + (d if self.favourable else 0)) * d * k + _CALLS
        costs = {None: self.products * product}
        if self.preconditioner.worn:
            costs[None] += k * d * d * (min(weights.sum(), self.preconditioner.most_rows) + d / 3)
        if d * k <= _WHOLE:
            outer = self._outer_products()[active]
            costs[self._by_factor] = 0.25 * (weights @ (classes * (classes + 1) * outer)) + (d * k) ** 3 / 3
        if n_rows(self.rows) <= _FEW_ROWS and bends.sum() <= _FEW_BENDS:
            costs[self._by_bends] = (weights @ bends) ** 3 / 3 + k * (weights @ bends) ** 2
        cheapest = min(costs, key=costs.get)
        self.spent = costs[cheapest]
        return cheapest

    def _outer_products(self):
        """Return what the product of each row with itself costs; where most values are zero, only the others count."""
        if self.outer is None:
            d = n_columns(self.rows)
            if hasattr(self.X, "indptr"):
                stored = np.diff(self.X.indptr)
            else:
                stored = np.count_nonzero(self.X, axis=1)
            self.outer = np.where(2 * stored <= d, _SCATTERED * stored.astype(np.float64) ** 2, _COMPILED * d * d)
        return self.outer

    def _by_factor(self, blocks, active, G):
        """The same from the Hessian itself; None where rounding has made that indefinite."""
        d, k = G.shape
        packed = np.zeros((k * (k + 1) // 2, d * (d + 1) // 2))
        _add_curvature(self.rows, self.losses, blocks, self.width, active, d, packed)
        H = _unpack(packed, np.empty((d * k, d * k)), d, k)
        _, step, failed = dposv(H.T, -G.T.ravel(), lower=0, overwrite_a=1, overwrite_b=1)
        return None if failed else step.reshape(k, d).T.copy()

    def _by_bends(self, blocks, active, G):
        """The same from the products of the rows with each other; None where rounding has made them indefinite."""
        if self.products_of_rows is None:
            products = self.X @ self.X.T
            self.products_of_rows = products.toarray() if hasattr(products, "toarray") else products
        number = int(np.sum(blocks.length[active] + (blocks.beta[active] > 0.0)))
        owner, bends = np.empty(number, np.int64), np.zeros((number, G.shape[1]))
        _split_curvature(self.losses, blocks, self.width, active, owner, bends)
        S = bends @ bends.T
        _weigh(S, self.products_of_rows, owner)
        right = np.einsum("jl,jl->j", bends, (self.X @ G)[owner])
        _, y, failed = dposv(S.T, right, lower=0, overwrite_a=1, overwrite_b=1)
        if failed:
            return None
        V = np.zeros((self.X.shape[0], G.shape[1]))
        np.add.at(V, owner, y[:, None] * bends)
        return self.X.T @ V - G

    def _by_products(self, losses, blocks, width, X, active, G):
        """The same by conjugate gradients, of the rows that are active."""
        try:
            apply = self.preconditioner.prepare(losses, blocks, width, active)
        except LinAlgError:  # rounding has made a factor's matrix indefinite
            self.preconditioner = _Diagonal(self.rows, self.X)
            apply = self.preconditioner.prepare(losses, blocks, width, active)
        image = np.empty((len(active), G.shape[1]))

        def product(P):
            return P + X.T @ _bend(losses, blocks, width, X @ P, image)

        least, improved_at = np.inf, 0
        for products, (dW, _, square, _) in enumerate(conjugate_gradients(product, -G, apply)):
            if products == 0:
                enough = _FORCING**2 * square
            if square <= 0.25 * least:
                least, improved_at = square, products
            if not square > enough or products >= min(_MOST_PRODUCTS, improved_at + _VAIN_PRODUCTS):
                self.spent *= max(1.0, products / max(1, self.products))  # more of them than were expected
                self.products = products
                self.preconditioner.note(products)
                return dW


class _Progress:
    """How long ago a round last made progress."""

    def __init__(self):
        self.value, self.gap, self.steps, self.work = np.inf, np.inf, 0, 0.0

    def has_ended(self, value, gap, work):
        """Take note of a step and of its work, in passes; tell whether there was no progress for too long."""
        self.steps += 1
        self.work += work
        if gap <= 0.5 * self.gap or value <= 0.95 * self.value:
            self.steps, self.work = 0, 0.0
            self.gap = min(self.gap, gap)
            self.value = min(self.value, value)
        return self.steps >= _STALLED or (self.steps >= _FEWEST and self.work >= _STALLED_WORK)


class _Diagonal:
    """The diagonal of the Hessian."""

    worn = False  # it costs next to nothing

    def __init__(self, rows, X):
        self.squared = X.power(2) if hasattr(X, "power") else X**2

    def prepare(self, losses, blocks, width, active):
        """Return what is applied to residuals."""
        diagonal = 1.0 + self.squared[active].T @ bend_diagonal(losses, blocks, width)[0]
        return lambda R: R / diagonal

    def note(self, products):
        """Take note of how many products a system took."""


class _ClassFactors:
    """A factor for each class, and one for the mean over the classes."""

    def __init__(self, rows, X):
        self.rows, self.factors, self.fresh, self.worn = rows, None, 0, True
        self.most_rows = max(2000, _ROWS_PER_COLUMN * X.shape[1])

    def prepare(self, losses, blocks, width, active):
        """Return what is applied to residuals; made new where the last one was worn."""
        if self.worn:
            diagonal, means = bend_diagonal(losses, blocks, width)
            bends = [*diagonal.T, means] if means.any() else diagonal.T
            factors = [self._factor(active, bend) for bend in bends]
            few = len(factors[0]) <= _FEW_COLUMNS
            self.factors, self.fresh = _inverses(factors) if few else factors, -1
        return lambda R: apply_factors(self.factors, R)

    def note(self, products):
        """Take note of how many products a system took."""
        if self.fresh < 0:
            self.fresh = products
        self.worn = products > self.fresh + _WORN

    def _factor(self, active, bend):
        used = np.flatnonzero(bend)
        stride = -(-len(used) // self.most_rows) if len(used) else 1
        used = used[::stride]
        H = gram(self.rows, active[used], stride * bend[used])
        H.flat[:: len(H) + 1] += 1.0
        return cho_factor(H, lower=True, overwrite_a=True, check_finite=False)[0]


def _inverses(factors):
    """Return the inverses of all matrices, one array: their products take a fraction of the time that factors do."""
    lower = np.array([np.tril(dpotri(factor, lower=1)[0]) for factor in factors])
    return lower + np.tril(lower, -1).transpose(0, 2, 1)


def apply_factors(factors, R):
    """Solve the systems of all classes, after the mean over them is taken out, which may have a factor of its own.

    ``factors`` is a list of Cholesky factors, or an array of inverses.
    """
    k = R.shape[1]
    mean = R.mean(axis=1)
    inverted = isinstance(factors, np.ndarray)
    if inverted:
        Z = np.ascontiguousarray((factors[:k] @ (R.T - mean)[:, :, None])[:, :, 0].T)
    else:
        Z = np.empty_like(R)
        for l in range(k):  # LAPACK itself: around small systems, SciPy's checks would take longer than it does
            Z[:, l] = dpotrs(factors[l], R[:, l] - mean, lower=1)[0]
    if len(factors) > k:
        mean = factors[k] @ mean if inverted else dpotrs(factors[k], mean, lower=1)[0]
    Z += (mean - Z.mean(axis=1))[:, None]
    return Z


@njit(cache=True, nogil=True)
def _proximal(losses, blocks, width, U, ahead, V):
    """Fill ``ahead`` and its coefficients V with what the scores U lead to from ``blocks``."""
    codes, low, high, prices, above, _, k, _ = losses
    begin, length, _, classes, zeta, beta, rivals, ceilings = blocks
    new_length, new_classes, new_zeta, new_beta = ahead.length, ahead.classes, ahead.zeta, ahead.beta
    b, order, lowered = np.empty(k), np.empty(k, np.int64), np.empty(k)
    for i in range(len(U)):
        y, r, A, at = codes[i], rivals[i], width[i], begin[i]
        assign(b, U[i])
        S = 0.0
        for p in range(at, at + length[i]):
            b[classes[p]] += A * zeta[p]
            S += zeta[p]
        b[y] -= A * (S - beta[i])
        if r >= 0:
            b[r] -= A * beta[i]
        n, S, beyond = block_step(low, high, prices[i], above[i], y, b, A, r, ceilings[i], order, lowered)
        v = V[i]
        v[:] = 0.0
        for c in range(n):
            new_classes[at + c], new_zeta[at + c] = order[c], lowered[c]
            v[order[c]] = -lowered[c]
        new_length[i], new_beta[i] = n, beyond
        v[y] = S - beyond
        if r >= 0:
            v[r] += beyond


@njit(cache=True, nogil=True)
def _stiffness(n, beta, rival, price, above, A):
    """Return s, 1/E and n/(A + nD) of a row."""
    h, share, stiff = 0.5 / price, 0.0, 0.0
    if beta > 0.0:
        stiff = 1.0 / ((A if rival < 0 else 2.0 * A) + 0.5 / above)
        share = A * stiff
    return share, stiff, n / (A + n * (h + A * (1.0 - share)))


@njit(cache=True, nogil=True)
def _bend(losses, blocks, width, U, out):
    """Fill the rows of ``out`` with J_i times those of U; return it."""
    codes, prices, above = losses.codes, losses.prices, losses.above
    begin, length, _, classes, _, beta, rivals, _ = blocks
    for i in range(len(U)):
        n, y, r, u, image = length[i], codes[i], rivals[i], U[i], out[i]
        image[:] = 0.0
        if n == 0 and beta[i] == 0.0:
            continue
        share, stiff, level = _stiffness(n, beta[i], r, prices[i], above[i], width[i])
        other = u[r] if r >= 0 else 0.0
        mean = 0.0
        for p in range(begin[i], begin[i] + n):
            mean += u[classes[p]] / n
        pull, beyond = level * ((1.0 - share) * u[y] + share * other - mean), stiff * (u[y] - other)
        for p in range(begin[i], begin[i] + n):
            image[classes[p]] = (u[classes[p]] - mean) / width[i] - pull / n
        image[y] = (1.0 - share) * pull + beyond
        if r >= 0:
            image[r] += share * pull - beyond
    return out


@njit(cache=True, nogil=True)
def bend_diagonal(losses, blocks, width):
    """Return the diagonals of all J_i, and their sums of all entries divided by the number of classes."""
    diagonal, means = np.zeros((len(width), losses.n_classes)), np.zeros(len(width))
    for i in range(len(width)):
        n, y, r = blocks.length[i], losses.codes[i], blocks.rival[i]
        share, stiff, level = _stiffness(n, blocks.beta[i], r, losses.prices[i], losses.above[i], width[i])
        for p in range(blocks.begin[i], blocks.begin[i] + n):
            diagonal[i, blocks.classes[p]] = (1.0 - 1.0 / n) / width[i] + level / (n * n)
        diagonal[i, y] = (1.0 - share) ** 2 * level + stiff
        if r >= 0:
            diagonal[i, r] += share**2 * level + stiff
        else:
            means[i] = (share**2 * level + stiff) / losses.n_classes
    return diagonal, means


@njit(cache=True, nogil=True)
def _split_curvature(losses, blocks, width, active, owner, bends):
    """Fill the rows of ``bends`` (zero) with b such that J_i = Σ b b' over those that row i is the ``owner`` of.

    The classes that are lowered have an orthonormal basis of the vectors that sum to zero: (1, -1), (1, 1, -2), ...
    """
    at = 0
    for i in active:
        n, y, r = blocks.length[i], losses.codes[i], blocks.rival[i]
        share, stiff, level = _stiffness(n, blocks.beta[i], r, losses.prices[i], losses.above[i], width[i])
        classes = blocks.classes[blocks.begin[i] : blocks.begin[i] + n]
        for c in range(1, n):
            scale = 1.0 / np.sqrt(c * (c + 1.0) * width[i])
            for e in range(c):
                bends[at, classes[e]] = scale
            bends[at, classes[c]] = -c * scale
            owner[at] = i
            at += 1
        if n > 0:
            scale = np.sqrt(level)
            for e in range(n):
                bends[at, classes[e]] = -scale / n
            bends[at, y] = (1.0 - share) * scale
            if r >= 0:
                bends[at, r] += share * scale
            owner[at] = i
            at += 1
        if blocks.beta[i] > 0.0:
            bends[at, y] = np.sqrt(stiff)
            if r >= 0:
                bends[at, r] = -np.sqrt(stiff)
            owner[at] = i
            at += 1


@njit(cache=True, nogil=True)
def _weigh(S, products, owner):
    """Multiply the lower triangle of S by the products of the rows that own it, and add the identity."""
    for a in range(len(owner)):
        of_row = products[owner[a]]
        for b in range(a + 1):
            S[a, b] *= of_row[owner[b]]
        S[a, a] += 1.0


@njit(cache=True, nogil=True)
def _add_curvature(rows, losses, blocks, width, active, d, packed):
    """Add Σ_i x_i x_i' ⊗ J_i: a row of ``packed`` for each pair of classes, in it the lower triangle of its block."""
    k = losses.n_classes
    x, columns = np.zeros(d), np.empty(d, np.int64)
    square, places = np.empty(packed.shape[1]), np.empty(packed.shape[1], np.int64)
    classes, q, p = np.empty(k + 1, np.int64), np.empty(k + 1), np.empty(k + 1)
    for i in active:
        n, A = blocks.length[i], width[i]
        share, stiff, level = _stiffness(n, blocks.beta[i], blocks.rival[i], losses.prices[i], losses.above[i], A)
        for c in range(n):
            classes[c], q[c], p[c] = blocks.classes[blocks.begin[i] + c], -1.0 / n, 0.0
        classes[n], q[n], p[n] = losses.codes[i], 1.0 - share, 1.0
        size = n + 1
        if stiff > 0.0 and blocks.rival[i] >= 0:
            classes[size], q[size], p[size] = blocks.rival[i], share, -1.0
            size += 1
        count = row_scatter(rows, i, x, columns)
        if rows.bias != 0.0:
            x[d - 1], columns[count] = rows.bias, d - 1
            count += 1
        few = 2 * count <= d  # values different from zero: then only their products are added, wherever they belong
        at = 0
        if few:
            for u in range(count):
                value, begin = x[columns[u]], columns[u] * (columns[u] + 1) // 2
                for v in range(u + 1):
                    square[at], places[at] = value * x[columns[v]], begin + columns[v]
                    at += 1
        else:
            for u in range(d):
                for v in range(u + 1):
                    square[at] = x[u] * x[v]
                    at += 1
        for c in range(count):
            x[columns[c]] = 0.0
        for a in range(size):
            for b in range(a + 1):
                bend = level * q[a] * q[b] + stiff * p[a] * p[b]
                if a < n:  # then b, too, is one of the classes that are lowered
                    bend += ((1.0 if a == b else 0.0) - 1.0 / n) / A
                high, low = max(classes[a], classes[b]), min(classes[a], classes[b])
                target = packed[high * (high + 1) // 2 + low]
                if few:
                    for e in range(at):
                        target[places[e]] += bend * square[e]
                else:
                    for e in range(at):
                        target[e] += bend * square[e]


@njit(cache=True, nogil=True)
def _unpack(packed, H, d, k):
    """Fill the lower triangle of H with the identity and the packed blocks; return it."""
    for a in range(k):
        for b in range(a + 1):
            block, at = packed[a * (a + 1) // 2 + b], 0
            for u in range(d):
                for v in range(u + 1):
                    H[a * d + u, b * d + v] = block[at]
                    H[a * d + v, b * d + u] = block[at]
                    at += 1
        for u in range(d):
            H[a * d + u, a * d + u] += 1.0
    return H
