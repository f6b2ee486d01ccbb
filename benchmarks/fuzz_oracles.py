"""What is true about a fitted model, computed in long double from the papers' formulas, not from the library's code.

Every objective is evaluated at the coefficients a model has, from the rows as they were given. Whatever weights there
are, their objective is an upper bound of the minimum: so a certificate is refuted by any weights found in any
way, and those of a generic solver (:func:`reference`) need not be trusted.
"""

from typing import NamedTuple

import numpy as np
from scipy.optimize import linprog

LONG = np.longdouble
INNER = ("poly", "sigmoid")  # kernels of inner products, which may cancel
MOST_LONG_ROWS = 1200  # up to which kernel values are in long double; of more rows they would take gigabytes


class Value(NamedTuple):
    """An objective with the sum of its terms' absolute values, to which rounding is relative."""

    value: float
    scale: float
    cancelled: float = 0.0  # what cancels within a term: float64 cannot tell differences below eps times this
    unknown: float = 0.0  # how far kernel values that rounding has left few digits of can take it in float64


class Problem:
    """Rows of positive weight with their labels and weights, in long double."""

    def __init__(self, X, y, weights, parameters):
        weights = np.ones(len(y)) if weights is None else weights
        price = _class_weights(y, weights, parameters.get("class_weight"))
        self.kept = np.flatnonzero(weights * price)
        self.parameters = parameters
        self.kernel = parameters.get("kernel", "linear")
        self.bias = float(parameters.get("fit_intercept", False))
        X = X[self.kept]
        self.X = X[:, self.kept] if self.kernel == "precomputed" else X
        self.rows = self.X.astype(LONG)
        self.y = y[self.kept]
        self.sample_weights = weights[self.kept].astype(LONG)
        self.weights = self.sample_weights * price[self.kept]
        self.classes = np.unique(self.y)
        self._gram = self._gamma = None

    def signs(self):
        """Return the labels -1 and +1 of the two-class problems."""
        positives = self.classes[1:] if len(self.classes) == 2 else self.classes
        return [np.where(self.y == positive, LONG(1), LONG(-1)) for positive in positives]

    def gram(self, gamma=None):
        """Return the kernel values, without a constant feature."""
        if self._gram is None:
            self._gram, self._gamma = _kernel_values(self.rows, self.parameters, gamma), gamma
        return self._gram

    @property
    def eps(self):
        """The relative rounding of the oracle's own numbers."""
        few = self.kernel == "linear" or len(self.X) <= MOST_LONG_ROWS
        return float(np.finfo(LONG if few else float).eps)

    def gram_error(self, eps):
        """Return how far values of an ``INNER`` kernel can be from the exact ones by rounding to a relative ``eps``.

        An inner product of d terms is off by at most d eps times the sum of their absolute values, in whatever order it
        is added up. Beside rows that are long and orthogonal that may be more than all a "sigmoid" or "poly" has.
        """
        size = np.abs(self.rows)
        gamma, offset = LONG(self._gamma), LONG(self.parameters["coef0"])
        error = (size.shape[1] + 2) * LONG(eps) * (gamma * (size @ size.T) + abs(offset))
        inner = gamma * (self.rows @ self.rows.T) + offset
        return np.maximum(*(abs(_of_inner(inner + e, self.parameters) - self._gram) for e in (error, -error)))

    def distance_error(self, eps):
        """Return how far values of the RBF kernel can be off where that is less than ``eps`` of the largest value, 1.

        There distances from inner products of centred rows will do: they lose eps times the squared lengths.
        """
        squares = ((self.rows - self.rows.mean(axis=0)) ** 2).sum(axis=1)
        size = LONG(self._gamma) * (squares[:, None] + squares)
        error = np.abs(self._gram) * size
        return np.where(error < 1, (self.rows.shape[1] + 2) * LONG(eps) * error, 0)

    def gamma(self):
        """Return the number gamma stands for."""
        gamma = self.parameters.get("gamma")
        if gamma == "auto":
            return 1.0 / self.X.shape[1]
        if gamma != "scale":
            return gamma
        share = self.sample_weights / self.sample_weights.sum()
        mean = share @ self.rows.mean(axis=1)
        variance = share @ ((self.rows - mean) ** 2).mean(axis=1)
        nothing = (64 * np.finfo(LONG).eps * np.abs(self.rows).max()) ** 2  # of a constant the mean itself is rounded
        return 1.0 / float(self.X.shape[1] * variance) if variance > nothing else 1.0


def _class_weights(y, weights, wanted):
    """Return the weight of each row's class."""
    if wanted is None:
        return np.ones(len(y))
    if wanted != "balanced":
        return np.array([wanted.get(int(label), 1.0) for label in y])
    labels = np.unique(y[weights > 0])
    totals = np.array([weights[y == label].sum() for label in labels])
    price = weights.sum() / (len(labels) * totals)
    return np.array([price[labels == label][0] if label in labels else 0.0 for label in y])


def _kernel_values(rows, parameters, gamma):
    name = parameters["kernel"]
    if len(rows) > MOST_LONG_ROWS:
        rows = rows.astype(float)
    if name == "precomputed":
        return rows
    number = rows.dtype.type
    if name == "rbf":
        return np.array([np.exp(-number(gamma) * ((rows - row) ** 2).sum(axis=1)) for row in rows])
    inner = rows @ rows.T
    if name == "linear":
        return inner
    return _of_inner(number(gamma) * inner + number(parameters["coef0"]), parameters)


def _of_inner(inner, parameters):
    return inner ** parameters["degree"] if parameters["kernel"] == "poly" else np.tanh(inner)


class Point(NamedTuple):
    """Weights as far as objectives see them: squared length, scores of the rows, and the constant of these."""

    square: LONG
    scores: np.ndarray
    intercept: LONG
    coef: np.ndarray  # of the columns or, with a kernel, of the rows


def points(problem, model):
    """Return the point of every two-class problem of a fitted model."""
    intercepts = np.ravel(model.intercept_).astype(LONG)
    if hasattr(model, "coef_"):
        coefs = np.atleast_2d(model.coef_).astype(LONG)
        return [Point(w @ w, problem.rows @ w + b, b, w) for w, b in zip(coefs, intercepts)]
    gram = problem.gram(getattr(model.kernel_, "gamma", None))
    place = {row: k for k, row in enumerate(problem.kept)}
    found = []
    for dual, b in zip(np.atleast_2d(model.dual_coef_), intercepts):
        alpha = np.zeros(len(gram), dtype=LONG)
        alpha[[place[row] for row in model.support_]] = dual
        image = gram @ alpha
        found.append(Point(alpha @ image, image + b, b, alpha))
    return found


def weights_of_zero(point):
    """Return the point that does without weights, of as many rows and coefficients."""
    return Point(LONG(0), np.zeros_like(point.scores), LONG(0), np.zeros_like(point.coef))


# ---------------------------------------------------------------------- objectives, from PAPERS


def ldm(problem, point, signs):
    """½‖w‖² + 2 λ1 Var(z) − λ2 z̄ + C Σ s max(0, 1 − z); the weights are lengthened if a hard margin needs it."""
    p = problem.parameters
    z = signs * point.scores
    square = point.square + _constant_square(problem, point)
    if np.isinf(p["C"]):
        least = z.min()
        if least <= 0:
            return Value(np.inf, np.inf)
        stretch = max(LONG(1), 1 / least)
        z, square, hinge = z * stretch, square * stretch**2, LONG(0)
    else:
        hinge = LONG(p["C"]) * (problem.weights @ np.maximum(0, 1 - z))
    share = problem.weights / problem.weights.sum()
    mean = share @ z
    lambda1, lambda2 = lambdas(p, problem.weights)
    terms = square / 2, 2 * lambda1 * (share @ (z - mean) ** 2), -lambda2 * mean, hinge
    return Value(sum(terms), sum(abs(term) for term in terms))


def lambdas(parameters, weights):
    """Return what LDM's lambdas are in absolute terms."""
    unit = LONG(parameters["C"]) * weights.sum() if parameters.get("lambda_scale") == "relative" else LONG(1)
    return unit * LONG(parameters["lambda1"]), unit * LONG(parameters["lambda2"])


def odm(problem, point, signs):
    """½‖w‖² + λ/(M (1−θ)²) Σ s (ξ² + μ ε²)."""
    square = point.square + _constant_square(problem, point)
    return _sum(square / 2, _band_loss(problem, signs * point.scores))


def odm_joint(problem, found):
    """½ Σ ‖w_l‖² and the loss of the margins w_y·x − max w_l·x."""
    scores = np.column_stack([point.scores for point in found])
    codes = np.searchsorted(problem.classes, problem.y)
    every = np.arange(len(codes))
    own = scores[every, codes]
    scores[every, codes] = -np.inf
    square = sum(point.square + _constant_square(problem, point) for point in found)
    return _sum(square / 2, _band_loss(problem, own - scores.max(axis=1)))


def _band_loss(problem, z):
    p = problem.parameters
    theta = LONG(p["theta"])
    short, beyond = np.maximum(0, 1 - theta - z), np.maximum(0, z - 1 - theta)
    price = LONG(p["lam"]) / (problem.weights.sum() * (1 - theta) ** 2)
    return price * (problem.weights @ (short**2 + LONG(p["mu"]) * beyond**2))


def _constant_square(problem, point):
    """Return the square of the constant feature's weight; in a kernel it is the sum of the coefficients."""
    return problem.bias * point.intercept**2


def lssvm(problem, point, signs):
    """½‖w‖² + C/2 Σ s (1 − z)², the constant free; None where the length is not to be had from the coefficients."""
    p = problem.parameters
    square = point.square
    if p.get("space") == "empirical":
        if problem.kernel == "linear":
            return None
        square = (point.coef**2 / problem.sample_weights).sum()
    return _sum(square / 2, LONG(p["C"]) / 2 * (problem.weights @ (1 - signs * point.scores) ** 2))


def komd(problem, point, signs):
    """γᵀYKYγ + λ‖γ‖², from y γ; None for linear models, which do not have them."""
    if problem.kernel == "linear":
        return None
    value = _sum(point.square, LONG(problem.parameters["lam"]) * (point.coef**2 / problem.weights).sum())
    return value._replace(cancelled=np.abs(point.coef) @ np.abs(problem.gram()) @ np.abs(point.coef))


def msvmav(problem, point, signs):
    """SV / θ².

    Where scores are off by e on average, and each one by e_i, the root of SV, a norm, is off by that of e + e_i.
    """
    share = problem.weights / problem.weights.sum()
    z = signs * point.scores
    mean = share @ z
    if abs(mean) <= 1e-9 * (share @ np.abs(z)):  # then it is rounding that is divided by
        return None
    below = share @ np.maximum(0, mean - z) ** 2
    value = below / mean**2
    off = score_errors(problem, point, np.finfo(float).eps)
    left, moved = abs(mean) - share @ off, np.sqrt(share @ (share @ off + off) ** 2)
    unknown = (np.sqrt(below) + moved) ** 2 / left**2 - value if left > 0 else np.inf
    return Value(value, (share @ z**2) / mean**2, unknown=unknown)


def score_errors(problem, point, eps):
    """Return how far scores can be off by what rounding to a relative ``eps`` does to sums of kernel values.

    And to the inner products that these are made of, where they can cancel, and to distances in values next to nothing.
    """
    if problem.kernel == "linear":
        return np.zeros(len(point.scores))
    errors = len(point.coef) * eps * np.abs(problem.gram())
    if problem.kernel in INNER:
        errors = errors + problem.gram_error(eps)
    elif problem.kernel == "rbf":
        errors = errors + problem.distance_error(eps)
    return errors @ np.abs(point.coef)


def mdo(problem, point, signs):
    """Σ s c(ν), ν the margins of rows and weights of length one; the constant feature is as long as the longest row."""
    p = problem.parameters
    longest = np.sqrt((problem.rows**2).sum(axis=1).max()) * LONG(problem.bias)
    lengths = np.sqrt((problem.rows**2).sum(axis=1) + longest**2)
    constant = point.intercept / longest if longest > 0 else LONG(0)
    norm = np.sqrt(point.square + constant**2)
    if norm == 0 or not lengths.all():
        return None
    nu = signs * point.scores / (norm * lengths)
    alpha, beta = LONG(p.get("alpha", 300.0)), LONG(p.get("beta", 10.0))
    return _sum(problem.weights @ np.where(nu >= 0, np.exp(-alpha * nu**2), np.exp(-beta * np.minimum(nu, 0))))


def least_margin(problem, point, signs, p=2.0, constant=True):
    """Return the smallest margin over the dual norm of the weights."""
    if p != 2.0:
        q = LONG(p) / (LONG(p) - 1)
        norm = (np.abs(point.coef) ** q).sum() ** (1 / q)
    else:
        norm = np.sqrt(square_norm(problem, point, constant))
    return float((signs * point.scores).min() / norm) if norm > 0 else 0.0


def square_norm(problem, point, constant=True):
    """Return the squared length of the weights, with that of the constant feature or without."""
    return point.square + (_constant_square(problem, point) if constant else 0)


def _sum(*terms):
    return Value(sum(terms), sum(abs(term) for term in terms))


# ---------------------------------------------------------------------- a generic solver, for upper bounds

MOST_REFERENCE = 60  # rows and columns up to which the generic solver is asked
MOST_SECONDS = 20.0  # for linear programming, which can go round in circles


def reference(problem, name, signs):
    """Return a point that a generic solver thinks the best, or None; only its objective matters, so it may err."""
    features, back = _features(problem)
    if features is None:
        return None
    margins = signs.astype(float)[:, None] * features
    weights = problem.weights.astype(float)
    with np.errstate(all="ignore"):
        coef = _SOLVERS[name](problem.parameters, margins, weights)
        if coef is None or not np.isfinite(coef).all():
            return None
        return _point_of(problem, back, coef.astype(LONG))


def largest_term(problem, signs):
    """Return from how large terms, at least, margins of 1 are added up, or infinity; by linear programming.

    Each column counts by its largest value, so that the answer does not depend on the units of the columns.
    """
    constant = np.full((len(problem.X), int(problem.bias)), 1.0)
    features = np.hstack([problem.X, constant]).astype(float)
    sizes = np.abs(features).max(axis=0)
    features = signs.astype(float)[:, None] * features / np.where(sizes > 0.0, sizes, 1.0)
    d = features.shape[1]  # the least margin of weights within [-1, 1] shall be as large as can be
    target, ones = np.append(np.zeros(d), -1.0), np.ones((len(features), 1))
    bounds = [(-1.0, 1.0)] * d + [(0.0, 1.0)]
    found = linprog(
        target,
        A_ub=np.hstack([-features, ones]),
        b_ub=np.zeros(len(features)),
        bounds=bounds,
        options={"time_limit": MOST_SECONDS},  # what it has found by then counts: the margins below are computed anew
    )
    if found.x is None:
        return np.inf
    least = (features.astype(LONG) @ found.x[:d].astype(LONG)).min()
    return float(np.abs(found.x[:d]).max() / least) if least > 0 else np.inf


def _features(problem):
    """Return the columns of the regularised weights, and what leads back to coefficients of rows."""
    if problem.kernel == "linear":
        if max(problem.X.shape) > MOST_REFERENCE:
            return None, None
        constant = np.full((len(problem.X), int(problem.bias)), 1.0)
        return np.hstack([problem.X, constant]), None
    if len(problem.X) > MOST_REFERENCE or problem._gram is None:
        return None, None
    gram = problem.gram().astype(float) + problem.bias
    if not np.isfinite(gram).all():
        return None, None
    values, vectors = np.linalg.eigh((gram + gram.T) / 2)
    if values[0] < -1e-9 * values[-1]:  # then the problem solved is that of the positive part
        return None, None
    kept = values > 1e-14 * values[-1]
    root = np.sqrt(values[kept])
    return vectors[:, kept] * root, vectors[:, kept] / root


def _point_of(problem, back, coef):
    if back is None:
        intercept = coef[-1] if problem.bias else LONG(0)
        weights = coef[:-1] if problem.bias else coef
        return Point(weights @ weights, problem.rows @ weights + intercept, intercept, weights)
    alpha = back.astype(LONG) @ coef
    image = problem.gram() @ alpha
    intercept = alpha.sum() * problem.bias
    return Point(alpha @ image, image + intercept, intercept, alpha)


def _quadratic_program(P, q, A, b, n_equal=0):
    """Return x with the least ½xᵀPx + qᵀx among those with Ax ≤ b, by Clarabel; None if it is not installed.

    The first ``n_equal`` rows are equations.
    """
    try:
        import clarabel
    except ImportError:
        return None
    import scipy.sparse as sp

    settings = clarabel.DefaultSettings()
    settings.verbose = False
    settings.tol_gap_abs = settings.tol_gap_rel = settings.tol_feas = 1e-11
    settings.max_iter = 200
    upper = sp.csc_matrix(np.triu(P))
    cones = [clarabel.ZeroConeT(n_equal)] * (n_equal > 0) + [clarabel.NonnegativeConeT(len(b) - n_equal)]
    try:
        solver = clarabel.DefaultSolver(
            upper, np.asarray(q, float), sp.csc_matrix(A), np.asarray(b, float), cones, settings
        )
        return np.array(solver.solve().x)
    except BaseException as error:  # its panics are no exceptions of Python's
        if isinstance(error, KeyboardInterrupt):
            raise
        return None


def _ldm_program(p, Z, weights):
    n, d = Z.shape
    share = weights / weights.sum()
    centred = np.sqrt(share)[:, None] * (Z - share @ Z)
    lambda1, lambda2 = map(float, lambdas(p, weights))
    P_w = np.eye(d) + 4.0 * lambda1 * centred.T @ centred
    q_w = -lambda2 * (share @ Z)
    if np.isinf(p["C"]):
        return _quadratic_program(P_w, q_w, -Z, -np.ones(n))
    P = np.zeros((d + n, d + n))
    P[:d, :d] = P_w
    A = np.block([[-Z, -np.eye(n)], [np.zeros((n, d)), -np.eye(n)]])
    found = _quadratic_program(P, np.append(q_w, p["C"] * weights), A, np.append(-np.ones(n), np.zeros(n)))
    return None if found is None else found[:d]


def _odm_program(p, Z, weights):
    n, d = Z.shape
    price = 2.0 * p["lam"] * weights / (weights.sum() * (1.0 - p["theta"]) ** 2)
    P = np.diag(np.concatenate([np.ones(d), price, p["mu"] * price]))
    zero, one = np.zeros((n, n)), np.eye(n)
    A = np.block([
        [-Z, -one, zero],
        [Z, zero, -one],
        [np.zeros((n, d)), -one, zero],
        [np.zeros((n, d)), zero, -one],
    ])  # fmt: skip
    b = np.concatenate([np.full(n, p["theta"] - 1.0), np.full(n, 1.0 + p["theta"]), np.zeros(2 * n)])
    found = _quadratic_program(P, np.zeros(d + 2 * n), A, b)
    return None if found is None else found[:d]


def _margin_program(p, Z, weights):
    """Return the shortest weights with margins of at least 1."""
    return _quadratic_program(np.eye(Z.shape[1]), np.zeros(Z.shape[1]), -Z, -np.ones(len(Z)))


_SOLVERS = {"LDMClassifier": _ldm_program, "ODMClassifier": _odm_program, "FMMClassifier": _margin_program}


def komd_reference(problem, signs):
    """Return KOMD's objective at distributions that a generic solver thinks the best; None for many rows."""
    n = len(problem.X)
    if n > MOST_REFERENCE or (problem.kernel != "linear" and problem._gram is None):
        return None
    gram = problem.gram() * np.outer(signs, signs)
    if not np.isfinite(gram).all() or np.linalg.eigvalsh(gram.astype(float))[0] < -1e-9 * np.abs(gram).max():
        return None  # then the problem solved is that of the positive part
    penalty = LONG(problem.parameters["lam"]) / problem.weights
    classes = np.array([signs > 0, signs < 0], dtype=float)
    size = max(float(np.abs(gram).max() + penalty.max()), 1e-300)
    P = 2.0 * (gram + np.diag(penalty)).astype(float) / size
    found = _quadratic_program(P, np.zeros(n), np.vstack([classes, -np.eye(n)]), np.append([1.0, 1.0], np.zeros(n)), 2)
    if found is None or not np.isfinite(found).all():
        return None
    distribution = np.maximum(found, 0.0).astype(LONG)
    distribution /= classes.T @ (classes @ distribution)  # now they are distributions, whatever the solver did
    value = _sum(distribution @ gram @ distribution, penalty @ distribution**2)
    return value._replace(cancelled=distribution @ np.abs(gram) @ distribution)


def lssvm_reference(problem, signs):
    """Return the solution of LS-SVM's system in long double, for few rows; None for more, or in the empirical space.

    With an indefinite kernel the system has a saddle for a solution: the problem solved is that of the positive part.
    """
    p = problem.parameters
    n = len(problem.X)
    if n > MOST_REFERENCE or p.get("space") == "empirical" or (problem.kernel != "linear" and problem._gram is None):
        return None
    gram = problem.gram()
    if problem.kernel != "linear" and _is_indefinite(gram.astype(float)):
        return None
    system = np.zeros((n + 1, n + 1), dtype=LONG)
    system[:n, :n] = gram + np.diag(1 / (LONG(p["C"]) * problem.weights))
    system[n, n] = 1
    if problem.bias:
        system[:n, n] = system[n, :n] = 1
        system[n, n] = 0
    solution = _eliminate(system, np.append(signs, LONG(0)))
    if solution is None:
        return None
    alpha, b = solution[:n], solution[n] * LONG(problem.bias)
    if problem.kernel == "linear":
        w = problem.rows.T @ alpha
        return Point(w @ w, problem.rows @ w + b, b, w)
    image = gram @ alpha
    return Point(alpha @ image, image + b, b, alpha)


def _is_indefinite(gram):
    """Tell whether a matrix may have negative eigenvalues that are more than rounding."""
    if not np.isfinite(gram).all():
        return True
    values = np.linalg.eigvalsh(gram)
    return bool(values[0] < -len(gram) * np.finfo(float).eps * values[-1])


def _eliminate(A, b):
    """Solve A x = b by elimination with pivots, in long double; None if a pivot is zero."""
    A, b = A.copy(), b.copy()
    n = len(b)
    for k in range(n):
        pivot = k + int(np.argmax(np.abs(A[k:, k])))
        if A[pivot, k] == 0 or not np.isfinite(A[pivot, k]):
            return None
        A[[k, pivot]], b[[k, pivot]] = A[[pivot, k]], b[[pivot, k]]
        factors = A[k + 1 :, k] / A[k, k]
        A[k + 1 :, k:] -= factors[:, None] * A[k, k:]
        b[k + 1 :] -= factors * b[k]
    x = np.zeros(n, dtype=LONG)
    for k in range(n - 1, -1, -1):
        x[k] = (b[k] - A[k, k + 1 :] @ x[k + 1 :]) / A[k, k]
    return x
