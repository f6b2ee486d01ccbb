r"""How far other people's support vector machines are from the optimum of *their* problem.

A fitted classifier minimises, or means to, with signed scores :math:`z_i = y_i (w \cdot x_i + b)`,

.. math:: P(w, b) = \tfrac12 \|w\|^2 + \sum_i \ell_i(z_i) ,

and any numbers a that the dual problem allows bound the minimum from below:

.. math:: D(a) = -\tfrac12 \|\tilde w\|^2 - \sum_i \ell_i^*(-a_i) , \qquad \tilde w = \sum_i a_i y_i x_i .

Where the intercept is free (not regularised), :math:`\sum_i a_i y_i = 0` belongs to what is allowed.

=====================  ===================================  ==========================================  ================
loss                   ℓ(z)                                 −ℓ*(−a)                                     allowed
=====================  ===================================  ==========================================  ================
hinge                  C max(0, 1 − z)                      a                                           0 ≤ a ≤ C
squared hinge          C max(0, 1 − z)²                     a − a²/(4C)                                 0 ≤ a
logistic               C log(1 + e^−z)                      C H(a/C), H the entropy                     0 ≤ a ≤ C
ridge                  C/2 (1 − z)²                         a − a²/(2C)                                 any
=====================  ===================================  ==========================================  ================

The dual point comes from the best solution that is found quickly: for smooth losses that of Newton steps from the
model's own point, for the hinge our own fit of the same problem. With a free intercept, what is left of the sum of
:math:`a_i y_i` is taken from the heavier class in proportion, which keeps a allowed. The length of a is the best one.

**Rounding.** Both objectives are computed in float64 and bounded outwards by the sizes of the sums they consist of
(:func:`margindist.certificate.gamma`).
"""

import html
import warnings
from typing import NamedTuple

import numpy as np
import scipy.sparse as sp
from scipy.special import entr, expit
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.class_weight import compute_sample_weight
from sklearn.utils.validation import check_is_fitted, check_X_y

from margindist.certificate import gamma
from margindist.estimators._training_data import MatrixLike
from margindist.estimators.ldm import LDMClassifier
from margindist.proof.predictions import _last_step

__all__ = ["Judgement", "certify"]

_NEWTON_STEPS = 10
_LARGEST_SYSTEM = 3000  # columns of which Newton's system is formed
_SEARCHED = 60  # halvings of a step
_NEARLY_FREE = 30.0  # the constant feature of our own fit where the intercept is free


class Judgement(NamedTuple):
    """What is proved of a fitted classifier; prints as three lines.

    Parameters
    ----------
    model : str
        The name of its class.
    problem : str
        What it minimises.
    objective : ndarray of shape (n_problems,)
        The objective at the model's weights, for each two-class problem that it consists of.
    lower, upper : ndarray of shape (n_problems,)
        What the minimum is at least, and at most: the objective of a better solution, if one was found.
    differing : float
        The share of the training labels that the better solution predicts differently; nan if none was looked for.
    """

    model: str
    problem: str
    objective: np.ndarray
    lower: np.ndarray
    upper: np.ndarray
    differing: float

    @property
    def gap(self):
        """Bracket of the relative distance of the objective from its minimum: at least, at most."""
        scale = np.maximum(np.abs(self.objective), np.finfo(float).tiny)
        least = np.maximum(0.0, self.objective - self.upper) / scale
        return least, np.maximum(least, (self.objective - self.lower) / scale)

    def __str__(self):
        least, most = (values.max() for values in self.gap)
        labels = f"{100 * self.differing:.2g} % of the training labels differ from those of a better solution"
        if np.isnan(self.differing):
            labels = "no better solution was looked for"
        return (
            f"{self.model} minimises {self.problem}\n"
            f"its objective is between {least:.2g} and {most:.2g} (relative) above the minimum\n{labels}"
        )

    def _repr_html_(self):
        lines = "<br>".join(html.escape(line) for line in str(self).split("\n"))
        return f"<p>{lines}</p>"


def certify(model, X: MatrixLike, y, sample_weight=None) -> Judgement:
    """Say how far a fitted classifier of another library is from the optimum of its own problem.

    Parameters
    ----------
    model : LinearSVC, SVC, SGDClassifier (hinge), LogisticRegression (l2), RidgeClassifier, or a pipeline or search
        Fitted. :class:`~sklearn.svm.SVC` with two classes. Others are judged if they have the attributes of one of
        these and its class name.

    X, y : training samples and labels
        What the model was fitted to.

    sample_weight : array-like of shape (n_samples,), default=None
        The weights that it was fitted with.

    Returns
    -------
    Judgement
        The objective reached, a lower bound of the minimum, a bracket of the relative distance, and the share of
        training labels that differ from those of a better solution. Prints as three lines.

    Examples
    --------
    >>> from sklearn.datasets import load_breast_cancer
    >>> from sklearn.preprocessing import minmax_scale
    >>> from sklearn.svm import LinearSVC
    >>> from margindist.proof import certify
    >>> X, y = load_breast_cancer(return_X_y=True)
    >>> X = minmax_scale(X)
    >>> judgement = certify(LinearSVC(max_iter=3, random_state=0).fit(X, y), X, y)
    >>> least, most = judgement.gap
    >>> bool(least[0] > 1e-4 and most[0] < 2 * least[0])
    True
    """
    model, X, _ = _last_step(model, X, None)
    name = type(model).__name__
    if name not in _READERS:
        raise TypeError(f"certify: expected one of {', '.join(_READERS)}, got {name}.")
    check_is_fitted(model)
    X, y = check_X_y(X, y, accept_sparse="csr", dtype=np.float64)
    weights = np.ones(len(y)) if sample_weight is None else np.asarray(sample_weight, dtype=np.float64)
    weights = weights * compute_sample_weight(getattr(model, "class_weight", None), y)
    present = weights > 0.0
    if not present.all():
        raise ValueError("certify: expected positive weights, got some that are zero; leave those samples out.")
    problems = _READERS[name](model, X, y, weights)
    result = [problem.judged() for problem in problems]
    objective, lower, upper, better = (np.array(part) for part in zip(*result, strict=True))
    differing = np.nan
    if not isinstance(problems[0], Expansion):
        codes = (better[0] > 0).astype(int) if len(better) == 1 else better.argmax(axis=0)
        differing = float(np.average(model.predict(X) != model.classes_[codes], weights=weights))
    return Judgement(name, problems[0].words(), objective, lower, upper, differing)


# ---------------------------------------------------------------------- losses


def _equal_sums(loss, a, signs):
    """Return multipliers of which the heavier class is scaled down, so that both have the same sum."""
    positive, negative = a[signs > 0].sum(), a[signs < 0].sum()
    if not (positive > 0.0 and negative > 0.0):
        return np.zeros_like(a)
    return a * (min(positive, negative) / np.where(signs > 0, positive, negative))


class Hinge(NamedTuple):
    """C max(0, 1 − z)."""

    prices: np.ndarray
    words = "½‖w‖² + C Σ max(0, 1 − z)"
    balanced = _equal_sums

    def losses(self, z):
        """Return the loss of each row."""
        return self.prices * np.maximum(0.0, 1.0 - z)

    def conjugates(self, a):
        """Return ℓ*(−a)."""
        return -a

    def allowed(self, a):
        """Return the nearest dual point that is allowed."""
        return np.clip(a, 0.0, self.prices)


class SquaredHinge(NamedTuple):
    """C max(0, 1 − z)²."""

    prices: np.ndarray
    words = "½‖w‖² + C Σ max(0, 1 − z)²"
    balanced = _equal_sums

    def losses(self, z):
        """Return the loss of each row."""
        return self.prices * np.maximum(0.0, 1.0 - z) ** 2

    def slopes(self, z):
        """Return ℓ'(z)."""
        return -2.0 * self.prices * np.maximum(0.0, 1.0 - z)

    def curvatures(self, z):
        """Return ℓ''(z)."""
        return 2.0 * self.prices * (z < 1.0)

    def conjugates(self, a):
        """Return ℓ*(−a)."""
        return a * (0.25 * a / self.prices - 1.0)

    def allowed(self, a):
        """Return the nearest dual point that is allowed."""
        return np.maximum(a, 0.0)


class Logistic(NamedTuple):
    """C log(1 + e^−z)."""

    prices: np.ndarray
    words = "½‖w‖² + C Σ log(1 + e^−z)"
    balanced = _equal_sums

    def losses(self, z):
        """Return the loss of each row."""
        return self.prices * np.logaddexp(0.0, -z)

    def slopes(self, z):
        """Return ℓ'(z)."""
        return -self.prices * expit(-z)

    def curvatures(self, z):
        """Return ℓ''(z)."""
        return self.prices * expit(-z) * expit(z)

    def conjugates(self, a):
        """Return ℓ*(−a)."""
        share = np.clip(a / self.prices, 0.0, 1.0)
        return -self.prices * (entr(share) + entr(1.0 - share))

    def allowed(self, a):
        """Return the nearest dual point that is allowed."""
        return np.clip(a, 0.0, self.prices)


class Ridge(NamedTuple):
    """C/2 (1 − z)²."""

    prices: np.ndarray
    words = "½‖w‖² + C/2 Σ (1 − z)²"

    def losses(self, z):
        """Return the loss of each row."""
        return 0.5 * self.prices * (1.0 - z) ** 2

    def slopes(self, z):
        """Return ℓ'(z)."""
        return self.prices * (z - 1.0)

    def curvatures(self, z):
        """Return ℓ''(z)."""
        return self.prices.copy()

    def conjugates(self, a):
        """Return ℓ*(−a)."""
        return a * (0.5 * a / self.prices - 1.0)

    def allowed(self, a):
        """Return the nearest dual point that is allowed."""
        return a

    def balanced(self, a, signs):
        """Return multipliers of residuals without their weighted mean."""
        return a - signs * self.prices * ((signs @ a) / self.prices.sum())


# ---------------------------------------------------------------------- one two-class problem


class Linear(NamedTuple):
    """Weights of columns; the last column is the constant one, free or regularised like the others."""

    loss: NamedTuple
    X: np.ndarray  # the constant column included, if there is one
    signs: np.ndarray
    w: np.ndarray
    free: bool  # whether the last weight costs nothing
    constant: float  # the value of the constant column, 0 if there is none

    def words(self):
        """Return what is minimised."""
        return self.loss.words + (", the intercept free" if self.free else "")

    def judged(self):
        """Return the objective, bounds of the minimum from below and above, and the scores of the better solution."""
        objective, error = self.value(self.w)
        better = self.by_newton() if hasattr(self.loss, "slopes") else self.by_our_own_fit()
        w, a = better
        best, best_error = self.value(w)
        lower = max(self.dual(a), self.dual(-self.slopes_at(self.w)) if hasattr(self.loss, "slopes") else -np.inf)
        return objective + error, lower, min(objective + error, best + best_error), self.X @ w

    def value(self, w):
        """Return the objective, and how far rounding can have taken it."""
        z = self.signs * (self.X @ w)
        norm = w[:-1] if self.free else w
        value = 0.5 * (norm @ norm) + self.loss.losses(z).sum()
        errors = gamma(len(w) + 4) * (abs(self.X) @ np.abs(w))
        moved = np.maximum(*(np.abs(self.loss.losses(z + e) - self.loss.losses(z)) for e in (-errors, errors))).sum()
        return value, moved + gamma(len(z) + len(w) + 8) * abs(value)

    def slopes_at(self, w):
        """Return the derivatives of the losses."""
        return self.loss.slopes(self.signs * (self.X @ w))

    def dual(self, a):
        """Return a lower bound of the minimum, rounding included."""
        a = self.loss.allowed(a)
        if self.free:
            a = self.loss.balanced(a, self.signs)
        scaled = self.signs * a
        pressure = self.X.T @ scaled
        pressure = pressure[:-1] if self.free else pressure
        length = np.linalg.norm(pressure) + gamma(len(a) + 8) * (np.abs(a) @ _lengths(self.X))
        terms = -self.loss.conjugates(a)
        value = terms.sum() - 0.5 * length**2
        sizes = np.abs(terms).sum() + np.abs(a).sum() + 0.5 * length**2
        value -= gamma(len(a) + 32) * sizes
        if self.free:  # what rounding leaves of the sum times an intercept that no solution exceeds
            reach = 1.0 + _lengths(self.X).max() * np.sqrt(2.0 * self.loss.losses(np.zeros(len(a))).sum())
            value -= gamma(len(a) + 8) * np.abs(a).sum() * reach
        return value

    def by_newton(self):
        """Return weights after damped Newton steps, and the dual point there."""
        w = self.w.copy()
        d = len(w)
        if d > _LARGEST_SYSTEM:
            return w, -self.slopes_at(w)
        cost = np.ones(d)
        cost[-1] = 0.0 if self.free else 1.0
        for _ in range(_NEWTON_STEPS):
            z = self.signs * (self.X @ w)
            gradient = cost * w + self.X.T @ (self.signs * self.loss.slopes(z))
            curvatures = self.loss.curvatures(z)
            H = self.X.T @ (
                self.X.multiply(curvatures[:, None]) if sp.issparse(self.X) else curvatures[:, None] * self.X
            )
            H = np.asarray(H.todense()) if sp.issparse(H) else H
            H[np.diag_indices(d)] += cost + 1e-12 * max(H.diagonal().max(), 1.0)
            step = np.linalg.solve(H, -gradient)
            before, slope, length = self.value(w)[0], gradient @ step, 1.0
            for _ in range(_SEARCHED):
                if self.value(w + length * step)[0] <= before + 1e-4 * length * slope:
                    break
                length *= 0.5
            else:
                break
            w = w + length * step
            if -slope <= 1e-15 * abs(before):
                break
        return w, -self.slopes_at(w)

    def by_our_own_fit(self):
        """Return the weights and multipliers of our own fit to the same problem; a free intercept is a cheap one."""
        X = self.X[:, :-1] if self.constant else self.X
        if self.constant and (self.free or self.constant != 1.0):
            X = _with_constant(X, _NEARLY_FREE if self.free else self.constant)
        intercept = self.constant == 1.0 and not self.free
        ours = LDMClassifier(C=1.0, lambda1=0.0, lambda2=0.0, fit_intercept=intercept, tol=1e-8)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)  # it is judged like any other
            ours.fit(X, self.signs, sample_weight=self.loss.prices)
        w = np.append(ours.coef_[0], ours.intercept_) if intercept else ours.coef_[0].copy()
        if self.free:
            w[-1] *= _NEARLY_FREE / self.constant
        return w, ours.multipliers_[0]


class Expansion(NamedTuple):
    """Coefficients of the rows of a kernel machine with a free intercept, which are a dual point, too."""

    loss: NamedTuple
    signs: np.ndarray
    a: np.ndarray  # multipliers of all rows
    scores: np.ndarray
    intercept: float
    lengths: np.ndarray  # of the rows, in the space of the kernel

    def words(self):
        """Return what is minimised."""
        return self.loss.words + ", the intercept free"

    def judged(self):
        """Return the objective, bounds of the minimum from below and above, and the scores."""
        f = self.scores - self.intercept
        square = (self.signs * self.a) @ f
        z = self.signs * self.scores
        errors = gamma(len(z) + 64) * (self.lengths * (self.lengths @ self.a) + abs(self.intercept))
        off = self.a @ errors
        loss = self.loss.losses(z - errors).sum()  # a hinge is the larger, the smaller the margin
        unbalanced = abs(self.signs @ self.a) + gamma(len(z)) * self.a.sum()
        reach = 1.0 + self.lengths.max() * np.sqrt(2.0 * self.loss.prices.sum())
        upper = (0.5 * (square + off) + loss) * (1.0 + gamma(len(z) + 8))
        lower = self.a.sum() - 0.5 * (square + off) - unbalanced * reach - gamma(len(z) + 8) * (self.a.sum() + square)
        return upper, lower, upper, self.scores


def _scaled(X, scales):
    """Return the rows times their scales."""
    return X.multiply(scales[:, None]).tocsr() if sp.issparse(X) else scales[:, None] * X


def _lengths(X):
    squares = X.multiply(X).sum(axis=1) if sp.issparse(X) else np.einsum("ij,ij->i", X, X)
    return np.sqrt(np.asarray(squares).ravel()) * (1.0 + gamma(X.shape[1] + 4))


# ---------------------------------------------------------------------- what the models minimise


def _with_constant(X, value):
    if value == 0.0:
        return X
    column = np.full((X.shape[0], 1), value)
    return sp.csr_array(sp.hstack([X, column])) if sp.issparse(X) else np.hstack([X, column])


def _problems(model, X, y, losses_of, constant, free, w_of):
    """Return a problem for each class against the rest, or one for two classes."""
    positives = [1] if len(model.classes_) == 2 else range(len(model.classes_))
    whole = _with_constant(X, constant)
    codes = np.searchsorted(model.classes_, y)
    return [
        Linear(losses_of, whole, np.where(codes == positive, 1.0, -1.0), w_of(k), free, constant)
        for k, positive in enumerate(positives)
    ]


def _weights_of(model, constant):
    def weights(k):
        w = np.atleast_2d(model.coef_)[k].astype(np.float64)
        return np.append(w, np.atleast_1d(model.intercept_)[k] / constant) if constant else w

    return weights


def _linear_svc(model, X, y, weights):
    if model.penalty != "l2" or getattr(model, "multi_class", "ovr") != "ovr":
        raise ValueError("LinearSVC: certify judges penalty='l2' and multi_class='ovr', other problems are not these.")
    constant = float(model.intercept_scaling) if model.fit_intercept else 0.0
    loss = (Hinge if model.loss == "hinge" else SquaredHinge)(model.C * weights)
    return _problems(model, X, y, loss, constant, False, _weights_of(model, constant))


def _sgd(model, X, y, weights):
    if model.loss != "hinge" or model.penalty != "l2":
        raise ValueError("SGDClassifier: certify judges loss='hinge' with penalty='l2'.")
    constant = 1.0 if model.fit_intercept else 0.0
    loss = Hinge(weights / (model.alpha * len(y)))
    return _problems(model, X, y, loss, constant, bool(constant), _weights_of(model, constant))


def _logistic(model, X, y, weights):
    parameters = model.get_params()
    plain = not parameters.get("l1_ratio") and parameters.get("penalty") not in ("l1", "elasticnet", None)
    if len(model.classes_) > 2 or not plain or not np.isfinite(model.C):
        raise ValueError("LogisticRegression: certify judges two classes with an l2 penalty and a finite C.")
    constant = 1.0 if model.fit_intercept else 0.0
    loss = Logistic(model.C * weights)
    return _problems(model, X, y, loss, constant, bool(constant), _weights_of(model, constant))


def _ridge(model, X, y, weights):
    if np.ndim(model.alpha) or not model.alpha > 0.0:
        raise ValueError("RidgeClassifier: certify judges one positive alpha.")
    constant = 1.0 if model.fit_intercept else 0.0
    return _problems(model, X, y, Ridge(weights / model.alpha), constant, bool(constant), _weights_of(model, constant))


def _svc(model, X, y, weights):
    if len(model.classes_) > 2 or callable(model.kernel):
        raise ValueError("SVC: certify judges two classes and kernels by name.")
    a = np.zeros(len(y))
    a[model.support_] = np.abs(model.dual_coef_.toarray() if sp.issparse(model.dual_coef_) else model.dual_coef_)[0]
    prices = model.C * weights
    if (a > prices * (1.0 + 1e-9)).any():
        raise ValueError("SVC: expected the samples and weights of its fit, got others: multipliers exceed C.")
    signs = np.where(y == model.classes_[1], 1.0, -1.0)
    lengths = np.sqrt(np.maximum(_diagonal(model, X), 0.0))
    scores = model.decision_function(X)
    return [Expansion(Hinge(prices), signs, np.minimum(a, prices), scores, float(model.intercept_[0]), lengths)]


def _diagonal(model, X):
    """Return the kernel values of the rows with themselves."""
    if model.kernel == "precomputed":
        return X.diagonal()
    if model.kernel == "rbf":
        return np.ones(X.shape[0])
    squares = _lengths(X) ** 2
    if model.kernel == "linear":
        return squares
    inner = model._gamma * squares + model.coef0
    return inner**model.degree if model.kernel == "poly" else np.tanh(inner)


_READERS = {
    "LinearSVC": _linear_svc,
    "SVC": _svc,
    "SGDClassifier": _sgd,
    "LogisticRegression": _logistic,
    "RidgeClassifier": _ridge,
}
