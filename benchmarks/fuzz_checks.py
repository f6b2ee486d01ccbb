"""What the fuzz asks of a fit: true claims, no silence about failures, finite numbers, answers that agree."""

import re
import signal
import time
import traceback
import warnings
from contextlib import contextmanager
from functools import partial
from typing import NamedTuple

import numpy as np
import scipy.sparse as sp
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.class_weight import compute_sample_weight

import margindist
from benchmarks import fuzz_exact as exact
from benchmarks import fuzz_oracles as oracles
from benchmarks.fuzz_cases import rows_of

KINDS = {
    "value": "an objective or margin differs from its definition",
    "certificate": "a claimed lower bound is above an objective that a reference reaches",
    "disagreement": "a claimed lower bound is above an objective that another solver reaches",
    "refusal": "'not separable' or 'scale the features' where that is not so",
    "silent": "above tol without a warning",
    "message": "an error or warning that is not a sentence of ours",
    "nan": "a number that is not finite",
    "prediction": "predictions, decision values and coefficients that do not belong together",
    "form": "dense, CSR, float32, float64, weights or copies give different models",
    "worthless": "an objective above that of weights of zero, warned or not",
    "unsolved": "a warning or refusal on an ordinary problem with solver='auto'",
    "time": "more than 20 times the median of its size, or beyond the limit",
}

VALUE_ROUNDING = 1e-6  # relative to the sum of the terms' absolute values
BOUND_ROUNDING = 1e-9
EPSILON = np.finfo(float).eps
CANCELLATION = 64 * EPSILON  # relative to what cancels
OBJECTIVES = {
    "LDMClassifier": oracles.ldm,
    "ODMClassifier": oracles.odm,
    "LSSVMClassifier": oracles.lssvm,
    "KOMDClassifier": oracles.komd,
    "MSVMAvClassifier": oracles.msvmav,
    "MDOClassifier": oracles.mdo,
}
CERTIFIED = ("LDMClassifier", "ODMClassifier", "LSSVMClassifier", "KOMDClassifier")
ROUNDED = ("LDMClassifier", "ODMClassifier", "LSSVMClassifier")  # losses of scores
MODERATE = 1e7  # terms that margins of 1 are added up from: linear programming does not see what needs larger ones
MAY_BE_INFINITE = {"duality_gap_", "margin_share_", "margin_bound_"}  # no bound is known, which a warning says


class TimeLimit(Exception):
    """A fit took longer than it may."""


@contextmanager
def time_limit(seconds):
    """Raise :class:`TimeLimit` in the block after so many seconds of processor time."""

    def stop(*_):
        raise TimeLimit

    before = signal.signal(signal.SIGPROF, stop)
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)


class Fit:
    """One fit of one variant: the model or the error, the warnings, the time."""

    def __init__(self, case, variant, limit):
        self.case, self.variant = case, variant
        self.parameters = case.parameters | variant.parameters
        self.X, self.y, self.weights = rows_of(case, variant)
        self.failures = []
        self.lost = 0.0  # by the scores, to rounding of what cancels in them
        self.model, self.error, self.trace = None, None, ""
        model = _make(case.name, self.parameters)
        extra = {} if self.weights is None else {"sample_weight": self.weights}
        start = time.process_time()
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            try:
                with time_limit(limit):
                    self.model = model.fit(self.X, self.y, **extra)
            except TimeLimit:
                self.fail("time", f"still running after {limit:g} s")
            except Exception as error:
                self.error, self.trace = error, traceback.format_exc(limit=-2)
        self.seconds = time.process_time() - start
        self.warnings = caught
        self.warned = any(issubclass(w.category, ConvergenceWarning) for w in caught)

    def fail(self, kind, text):
        """Note a failure, the first of its kind."""
        if kind not in dict(self.failures):
            self.failures.append((kind, str(text)[:400]))

    @property
    def outcome(self):
        """Return how the fit ended, in a word."""
        if self.error is not None:
            return "refused"
        if self.model is None:
            return "stopped"
        return "warned" if self.warned else "solved"

    @property
    def inner(self):
        """Return the classifier itself, also of a search."""
        return getattr(self.model, "best_estimator_", self.model)

    @property
    def inner_parameters(self):
        """Return all parameters of the classifier itself."""
        return self.inner.get_params(deep=False)


def _make(name, parameters):
    if name == "ECOCClassifier":
        return margindist.ECOCClassifier(margindist.LSSVMClassifier())
    return getattr(margindist, name)(**parameters)


def run_case(case, limit=60.0):
    """Fit all variants of a case and check them; return the fits."""
    fits = [_fit(case, variant, limit) for variant in case.variants]
    for fit in fits:
        if fit.model is None:
            _check_error(fit)
        else:
            _check_warnings(fit)
            _check_finite(fit)
            _check_predictions(fit)
            _check_silence(fit)
        _check_solved(fit)
    with np.errstate(all="ignore"):
        _check_claims(case, [fit for fit in fits if fit.model is not None], fits)
    _check_forms(case, fits)
    return fits


def _fit(case, variant, limit):
    """Return the fit; one that had to be stopped is tried again, compiled code at hand."""
    fit = Fit(case, variant, limit)
    return Fit(case, variant, limit) if fit.outcome == "stopped" else fit


# ---------------------------------------------------------------------- one fit at a time


def _check_error(fit):
    if fit.error is None:
        return
    text = str(fit.error)
    ours = isinstance(fit.error, ValueError) and re.match(r"\w+Classifier(CV)?\b", text)
    if not ours or "\n" in text or not text.endswith("."):
        fit.fail("message", f"{type(fit.error).__name__}: {text} | {fit.trace[-300:]}")


def _check_warnings(fit):
    for caught in fit.warnings:
        text = str(caught.message)
        if fit.case.name == "SVRClassifier" and caught.category is ConvergenceWarning:
            continue  # scikit-learn's own
        if "number of unique classes" in text:
            continue
        if fit.case.name.endswith("CV") and "least populated class" in text:
            continue  # of scikit-learn's folds, as in any search of its own
        if not re.match(r"\w+Classifier(CV)?\b", text):
            fit.fail("message", f"{caught.category.__name__}: {text} ({caught.filename.rsplit('/', 1)[-1]})")


def _check_finite(fit):
    for name, value in vars(fit.inner).items():
        if not name.endswith("_") or name == "classes_":
            continue
        values = _numbers(value)
        if np.isfinite(values).all():
            continue
        may_be_infinite = name in MAY_BE_INFINITE
        # By definition a hard margin's objective is infinite where margins fall short.
        may_be_infinite |= name == "objective_" and np.isinf(fit.inner_parameters.get("C", 1.0))
        if name.startswith("objective_") and fit.case.name.startswith("MSVMAv") and not _have_mean_margins(fit).all():
            continue  # a ratio to the mean margin, which is zero whatever the weights where equal rows cancel
        if may_be_infinite and fit.warned and not np.isnan(values).any():
            continue
        fit.fail("nan", f"{name} has {'nan' if np.isnan(values).any() else 'inf'}")


def _have_mean_margins(fit):
    """Tell of every class against the rest whether the mean margin is more than the rounding of its terms."""
    scores = np.atleast_2d(fit.model.decision_function(fit.X).T)
    signs = np.where(fit.y == fit.model.classes_[-len(scores) :, None], 1.0, -1.0)
    weights = 1.0 if fit.weights is None else fit.weights
    weights = weights * compute_sample_weight(fit.inner_parameters.get("class_weight"), fit.y)
    terms = weights * signs * scores
    return np.abs(terms.sum(axis=1)) > CANCELLATION * np.abs(terms).sum(axis=1)


def _numbers(value):
    """Return all floating point numbers in an attribute."""
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, (list, tuple)):
        return np.concatenate([np.empty(0), *map(_numbers, value)])
    if sp.issparse(value):
        value = value.data
    values = np.asarray(value)
    if values.dtype.names:
        return _numbers([values[name] for name in values.dtype.names])
    return values.ravel() if values.dtype.kind == "f" else np.empty(0)


def _check_predictions(fit):
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            values = fit.model.decision_function(fit.X)
            labels = fit.model.predict(fit.X)
    except Exception as error:
        fit.fail("prediction", f"{type(error).__name__}: {error}")
        return
    fit.scores = values
    if not np.isfinite(values).all():
        fit.fail("nan", "decision_function")
        return
    classes = fit.model.classes_
    expected = classes[(values > 0).astype(int)] if values.ndim == 1 else classes[values.argmax(axis=1)]
    if not np.array_equal(labels, expected):
        fit.fail("prediction", "predict does not follow decision_function")


def _check_silence(fit):
    model = fit.inner
    if fit.warned:
        return
    tol = getattr(model, "tol", None)
    gap = np.max(getattr(model, "duality_gap_", 0.0))
    if tol is not None and not gap <= tol:
        fit.fail("silent", f"gap {gap:.1e} above tol={tol:g}")
    if getattr(model, "converged_", True) is False:
        fit.fail("silent", "converged_ is False")
    if fit.case.name == "FMMClassifier":
        reached = np.asarray(model.margin_) >= (1 - 1.001 * model.tol) * np.asarray(model.margin_bound_)
        if not reached.all():
            fit.fail("silent", f"margin {model.margin_} of {model.margin_bound_}")


def _check_solved(fit):
    """An ordinary problem is solved; only a hard margin may be refused, and methods without a limit of theirs warn."""
    auto = fit.parameters.get("solver", "auto") == "auto"
    if not (fit.case.benign and auto and fit.case.name.removesuffix("CV") in CERTIFIED):
        return
    if fit.case.name == "KOMDClassifier" and fit.parameters["lam"] == 0.0:
        return  # the hulls may overlap
    absent = fit.weights is not None and len(np.unique(fit.y[fit.weights > 0])) < 2
    if fit.outcome == "refused" and not absent and "separable" not in str(fit.error):
        fit.fail("unsolved", fit.error)
    if fit.outcome == "warned":
        fit.fail("unsolved", f"gap {np.max(fit.inner.duality_gap_):.1e}, tol={fit.inner.tol:g}")


# ---------------------------------------------------------------------- all fits of a problem together


class Claim(NamedTuple):
    """What a fit says about one two-class problem, and what is so."""

    fit: Fit
    problem: oracles.Problem
    value: oracles.Value | None  # None where the coefficients do not tell
    bound: float  # the claimed lower bound of the minimum
    error: float  # how far rounding, even in long double, can have taken the value
    point: oracles.Point


def _settings(fit):
    """Return the parameters that say which problem is solved; a search may choose others for another variant."""
    left_out = ("solver", "kernel", "random_state")
    return repr(sorted((key, value) for key, value in fit.inner_parameters.items() if key not in left_out))


def _problem(fit, known):
    """Return the problem in long double; variants that state it by the same rows share one."""
    form = fit.variant.form if fit.variant.form in ("repeated", "precomputed") else "same"
    key = form, _settings(fit)
    if key not in known:
        X = fit.case.X if form == "same" else fit.X
        known[key] = oracles.Problem(X, fit.y, fit.weights, fit.inner_parameters)
    return known[key]


def _check_claims(case, fitted, fits):
    name = case.name.removesuffix("CV")
    known, pools = {}, {}
    for fit in fitted:
        problem = _problem(fit, known)
        model = fit.inner
        if name == "ECOCClassifier":
            continue
        if hasattr(model, "kernel_") and problem.kernel in ("rbf", "poly", "sigmoid"):
            expected = problem.gamma()
            if expected is not None and not np.isclose(model.kernel_.gamma, expected, rtol=1e-7):
                fit.fail("value", f"gamma {model.kernel_.gamma} instead of {expected}")
        found = oracles.points(problem, model)
        _check_scores(fit, problem, found)
        if name in ("FMMClassifier", "PUMMAClassifier"):
            _check_margin(fit, name, problem, found)
        if name in OBJECTIVES:
            _check_objectives(fit, name, problem, found, pools)
    _compare(name, pools)
    _check_separable(name, pools, fits)


def _check_scores(fit, problem, found):
    """Decision values are those of the coefficients."""
    scores = getattr(fit, "scores", None)
    if scores is None or not np.isfinite(scores).all():
        return
    ours = np.column_stack([point.scores for point in found]).astype(float)
    kept = np.atleast_2d(scores.T).T[problem.kept]
    if problem.kernel == "linear":
        size = np.abs(problem.rows) @ np.column_stack([np.abs(point.coef) for point in found])
    else:
        size = np.abs(problem.gram()) @ np.column_stack([np.abs(point.coef) for point in found])
    size = size.astype(float) + np.abs([float(point.intercept) for point in found])
    unknown = np.column_stack([oracles.score_errors(problem, point, EPSILON) for point in found]).astype(float)
    fit.lost = float((CANCELLATION * size + unknown).max())
    wrong = np.abs(kept - ours) > 1e-9 * size + unknown + 1e-300
    if wrong.any():
        worst = np.unravel_index(np.argmax(np.abs(kept - ours) / (size + 1e-300)), kept.shape)
        fit.fail("prediction", f"decision value {kept[worst]:.17g}, by the coefficients {ours[worst]:.17g}")


def _check_margin(fit, name, problem, found):
    model = fit.inner
    p = float(fit.inner_parameters.get("p", 2.0))
    if name == "PUMMAClassifier" and (model.soft_margin or (p != 2.0 and problem.kernel != "linear")):
        return
    for k, (point, signs) in enumerate(zip(found, problem.signs())):
        claimed = np.ravel(model.margin_)[k]
        actual = oracles.least_margin(problem, point, signs, p, constant=name == "FMMClassifier")
        size = float(np.sqrt((problem.rows**2).sum(axis=1).max()))
        if problem.kernel != "linear":
            size = float(np.sqrt(np.abs(np.diag(problem.gram())).max()))
        # Where coefficients cancel, the length of the weights is known to rounding of what cancels, and no better.
        slack = 1e-7 * max(size, 1.0)
        if problem.kernel != "linear":
            lengths = np.sqrt(np.abs(np.diag(problem.gram())) + problem.bias)
            lost = CANCELLATION * float((lengths @ np.abs(point.coef)) ** 2)
            square = oracles.square_norm(problem, point, constant=name == "FMMClassifier")
            slack = slack + lost / square * abs(actual) if square > lost else np.inf
        if not abs(claimed - actual) <= slack:
            fit.fail("value", f"margin_ {claimed:.12g}, by the coefficients {actual:.12g}")
        if name == "FMMClassifier":
            best = oracles.reference(problem, name, signs)
            reached = -np.inf if best is None else oracles.least_margin(problem, best, signs)
            bound = np.ravel(model.margin_bound_)[k]
            if reached > bound * (1 + 1e-9) + 1e-12 * size:
                fit.fail("certificate", f"margin_bound_ {bound:.12g}, but a margin of {reached:.12g} exists")


def _check_objectives(fit, name, problem, found, pools):
    model = fit.inner
    joint = name == "ODMClassifier" and len(found) > 1 and np.ndim(model.objective_) == 0
    signs = problem.signs()
    if joint:
        values = [oracles.odm_joint(problem, found)]
    else:
        values = [OBJECTIVES[name](problem, point, sign) for point, sign in zip(found, signs)]

    def rounding(k, value, share):
        if joint:
            return _score_rounding(partial(oracles.odm_joint, problem), problem, found, signs, value, share)
        evaluate = partial(_value_of_one, OBJECTIVES[name], problem, signs[k])
        return _score_rounding(evaluate, problem, found[k : k + 1], signs[k : k + 1], value, share)

    gaps = np.broadcast_to(getattr(model, "duality_gap_", 0.0), len(values))
    for k, (value, claimed, gap) in enumerate(zip(values, np.ravel(model.objective_), gaps)):
        if value is not None:
            clipped = any("negative eigenvalues" in str(caught.message) for caught in fit.warnings)
            if clipped and name == "KOMDClassifier":  # its coefficients are those of the positive part
                continue
            slack = VALUE_ROUNDING * value.scale + CANCELLATION * value.cancelled + value.unknown
            if name in ROUNDED:
                slack += rounding(k, value, CANCELLATION)
            rounded = slack
            if name in CERTIFIED:
                slack += min(gap, 1.0) * abs(claimed)
            same = claimed == value.value or abs(claimed - value.value) <= slack
            if not same and not (fit.warned and np.isinf(claimed)):
                fit.fail("value", f"objective_ {claimed:.12g}, by definition {float(value.value):.12g}, gap {gap:.1e}")
            if name in ROUNDED and np.isfinite(claimed):
                nothing = [oracles.weights_of_zero(point) for point in found]
                zero = oracles.odm_joint(problem, nothing) if joint else OBJECTIVES[name](problem, nothing[k], signs[k])
                if claimed > zero.value + rounded:
                    fit.fail("worthless", f"objective_ {claimed:.12g}, with weights of zero {float(zero.value):.12g}")
        if name in CERTIFIED and not joint:
            # A gap of 1 beside an objective of 1e24 does not tell a bound of 0 from one of -1e8: it has 16 digits.
            bound = claimed - gap * abs(claimed) - 4.0 * EPSILON * (1.0 + gap) * abs(claimed)
            bound = bound if np.isfinite(gap) else -np.inf
            error = 0.0
            if name in ROUNDED and value is not None:
                error = rounding(k, value, 64 * problem.eps)
            pools.setdefault((_settings(fit), k), []).append(Claim(fit, problem, value, bound, error, found[k]))


def _value_of_one(objective, problem, signs, points):
    return objective(problem, points[0], signs)


def _score_rounding(evaluate, problem, found, signs, value, share):
    """Return how far the rounding of scores, relative to what cancels in them, can take an objective of some points.

    Where scores are differences of large numbers, float64 does not know the losses; the gap has to say so.
    """
    linear = problem.kernel == "linear"
    steps, lengths = [], 0.0
    for point, sign in zip(found, signs):
        reach = np.abs(problem.rows if linear else problem.gram()) @ np.abs(point.coef)
        off = oracles.score_errors(problem, point, share / 64)
        steps.append((share * (reach + abs(point.intercept)) + off) * sign)
        lengths += 0 if linear else np.abs(point.coef) @ (share * reach + off)
    moved = 0.0
    for side in (1, -1):
        near = [point._replace(scores=point.scores + side * step) for point, step in zip(found, steps)]
        moved += abs(evaluate(near).value - value.value)
    return float(moved + lengths)


def _compare(name, pools):
    """No lower bound is above an objective that anybody reaches."""
    for (_, k), claims in pools.items():
        reached = [(claim.value, claim.error, claim.fit.variant.label) for claim in claims if claim.value is not None]
        best = _reference_value(name, claims[0].problem, k)
        _check_exactly(name, k, claims)
        for fit, _, _, bound, *_ in claims:
            for value, error, label in reached:
                if label != fit.variant.label and _is_above(bound - error, value):
                    found = f"{label} reaches {float(value.value):.15g}"
                    fit.fail("disagreement", f"at least {bound:.15g} claimed, {found}")
                    break
            if best is not None and _is_above(bound, best):
                fit.fail("certificate", f"at least {bound:.15g} claimed, but {float(best.value):.15g} is reached")


def _check_exactly(name, k, claims):
    """In exact arithmetic, weights are as near to the best ones as is claimed, and none are below the claimed bound."""
    claims = [claim for claim in claims if claim.problem.kernel == "linear" and _is_finite(claim)]
    if name not in exact.NAMES or not claims or not exact.is_small(claims[0].problem):
        return
    problem = claims[0].problem
    signs = problem.signs()[k]
    points = [(claim.point.coef, claim.point.intercept) for claim in claims]
    points += _witnesses(name, problem, signs, [claim.fit for claim in claims if claim.problem is problem], k)
    evaluate = exact.Exact(name, problem, signs)
    best = exact.best_found(evaluate, points)
    for claim in claims:
        objective, gap = (
            float(np.ravel(told)[k]) for told in (claim.fit.inner.objective_, claim.fit.inner.duality_gap_)
        )
        own, size = evaluate.value(evaluate.see(claim.point.coef, claim.point.intercept))
        if own is None or not np.isfinite(objective):
            continue
        claimed = exact.fraction(objective)
        distance = exact.fraction(gap) * abs(claimed) + exact.UNTOLD * size
        if best < claimed - distance:
            claim.fit.fail("certificate", f"{objective:.15g}, gap {gap:.1e} claimed; exactly {float(best):.15g} exists")
        elif own - best > distance:
            told = f"{float(own):.15g} exactly, and {float(best):.15g} exists"
            claim.fit.fail("certificate", f"{objective:.15g}, gap {gap:.1e} claimed; the weights have {told}")


def _is_finite(claim):
    return np.isfinite(claim.bound) and np.isfinite(claim.point.coef).all() and np.isfinite(claim.point.intercept)


def _witnesses(name, problem, signs, fits, k):
    """Return coefficients and constants that may be better than those of the fits."""
    found = []
    if name == "LSSVMClassifier":
        point = oracles.lssvm_reference(problem, signs)
        found = [] if point is None else [(point.coef, point.intercept)]
    elif name in oracles._SOLVERS:
        point = oracles.reference(problem, name, signs)
        found = [] if point is None else [(point.coef, point.intercept)]
    for fit in fits:
        if name == "LDMClassifier" and hasattr(fit.inner, "multipliers_"):
            beta = np.atleast_2d(fit.inner.multipliers_)[k][problem.kept]
            found.append(exact.from_multipliers(problem, signs, beta))
    return [point for point in found if point is not None]


def _is_above(bound, value):
    return bound > value.value + BOUND_ROUNDING * value.scale + CANCELLATION * value.cancelled


def _reference_value(name, problem, k):
    """Return what a generic solver reaches in the problem of class k, or None."""
    signs = problem.signs()[k]
    if name == "KOMDClassifier":
        return oracles.komd_reference(problem, signs)
    if name == "LSSVMClassifier":
        point = oracles.lssvm_reference(problem, signs)
    else:
        point = oracles.reference(problem, name, signs)
    if point is None:
        return None
    value = OBJECTIVES[name](problem, point, signs)
    return value if value is not None and np.isfinite(value.value) else None


def _check_separable(name, pools, fits):
    """'Not separable', proved or suspected, is refuted by weights of moderate length that separate every class."""
    refused = [fit for fit in fits if _refuses(fit)]
    if not refused or name != "LDMClassifier":
        return
    proofs = []
    for fit in refused:
        X = fit.X.toarray() if sp.issparse(fit.X) else np.asarray(fit.X, dtype=float)
        defaults = margindist.LDMClassifier().get_params() | fit.parameters
        if fit.case.name != name or defaults["kernel"] not in ("linear", "precomputed"):
            continue
        problem = oracles.Problem(X, fit.y, fit.weights, defaults)
        problem.gram()
        if fit.model is None and defaults["kernel"] == "linear":
            term = max(oracles.largest_term(problem, signs) for signs in problem.signs())
            if term < MODERATE:
                proofs.append(term)
                fit.fail("refusal", f"margins of 1 are added up from terms of {term:.3g}: {_said(fit)}")
                continue
        lengths = []
        for signs in problem.signs():
            point = oracles.reference(problem, "FMMClassifier", signs)
            margin = -np.inf if point is None else oracles.least_margin(problem, point, signs)
            size = float(np.sqrt(np.abs(np.diag(problem.gram())).max()) + problem.bias)
            lengths.append(size / margin if margin > 0 else np.inf)
        if max(lengths) < 1e4:
            proofs.append(max(lengths))
            fit.fail("refusal", f"weights of length {max(lengths):.3g} (times the longest row) separate: {_said(fit)}")
    solved = [fit for fit in fits if fit.model is not None and np.isfinite(np.max(fit.inner.objective_))]
    if solved and not proofs:
        for fit in refused:
            fit.fail("refusal", f"{solved[0].variant.label} separates the rows: {_said(fit)}")


def _refuses(fit):
    """Tell whether a fit found no hard margin, nobody having limited it; Algorithm 1 has no help."""
    if fit.model is None:
        return fit.error is not None and "separable" in str(fit.error)
    limited = "max_iter" in fit.parameters or fit.parameters.get("solver") == "dcd"
    return not limited and np.isinf(np.max(getattr(fit.inner, "objective_", 0.0)))


def _said(fit):
    return fit.error if fit.model is None else "an infinite objective_"


def _check_forms(case, fits):
    """Methods without a certificate give the same scores however the problem is stated."""
    if case.name.removesuffix("CV") in CERTIFIED:
        return
    first, *others = fits
    for fit in others:
        if (first.model is None) != (fit.model is None):
            fit.fail("form", f"{first.outcome} as {first.variant.label}, {fit.outcome} as {fit.variant.label}")
            continue
        if (
            fit.model is None
            or fit.variant.form == "repeated"
            or not hasattr(fit, "scores")
            or not hasattr(first, "scores")
        ):
            continue
        if case.name == "MDOClassifier":
            _compare_costs(first, fit)
            continue
        size = np.abs(first.scores).max()
        distance = np.abs(first.scores - fit.scores).max()
        allowed = 1e-3 if case.name == "ECOCClassifier" else 1e-5  # its classifiers have a tolerance
        lost = first.lost + fit.lost  # kernel values of nearly equal rows are other numbers in their last digit
        if not distance <= allowed * size + lost and not (first.warned and fit.warned):
            fit.fail("form", f"scores differ by {distance:.1e}, largest {size:.1e}")


def _compare_costs(first, fit):
    """Descents that end when the cost hardly falls agree in the cost.

    Near its end a cost is flat: a step that lowers it by a share of 1e-6 may turn the weights by the root of that, and
    at a kink of a cost that is not convex by more. Sums in another order are enough for another number of such steps.
    """
    costs, others = np.ravel(first.inner.objective_), np.ravel(fit.inner.objective_)
    agree = np.abs(costs - others) <= 1e-3 * costs
    if not agree.all() and not (first.warned and fit.warned):
        fit.fail("form", f"costs differ: {costs[~agree]} and {others[~agree]}")
