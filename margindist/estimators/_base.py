"""What every classifier here shares: parameters, validation, labels, one-vs-rest, progress, prediction.

Estimators validate and store; they hand arrays to one solver and keep what it returns. Nothing in this file knows a
method's mathematics.
"""

import functools
import numbers
import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from joblib import Parallel, delayed
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import assert_all_finite
from sklearn.utils.extmath import safe_sparse_dot
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_array, check_is_fitted, validate_data
from threadpoolctl import ThreadpoolController

from margindist.estimators._kernel_features import KernelFeatures
from margindist.kernels import KERNELS, Kernel, gamma_per_feature, resolve_gamma
from margindist.spaces.features import cholesky_factor, nystroem
from margindist.spaces.gram import clip_spectrum, gram_bytes, gram_matrix, is_indefinite

try:
    from sklearn.callback import CallbackSupportMixin, with_callbacks
except ImportError:  # scikit-learn before 1.9 has no callbacks

    class CallbackSupportMixin:
        """Stand-in without callbacks."""

    def with_callbacks(method):
        """Return the method as it is."""
        return method


@functools.cache
def _threadpools():
    return ThreadpoolController()


def fitting(method):
    """Make a fit all or nothing (also when interrupted), and run it within its callbacks.

    A ``fit`` begins without what an earlier one, of another kernel perhaps, has left; but for where to start from.
    """
    return all_or_nothing(with_callbacks(method), anew=method.__name__ == "fit")


def quietly(solve, *args):
    """Call a solver: what overflows in it shows in its solution, or is an error there."""
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        return solve(*args)


def all_or_nothing(method, *, anew=False):
    """Make a method leave the estimator as it was if it fails; ``anew`` forgets beforehand what was learnt."""

    @functools.wraps(method)
    def whole_or_not_at_all(self, *args, **kwargs):
        before = vars(self).copy()
        try:
            if anew:
                for name in [name for name in before if name.endswith("_") or name in ("_stream", "_memory")]:
                    del vars(self)[name]
            return method(self, *args, **kwargs)
        except BaseException:
            vars(self).clear()
            vars(self).update(before)
            raise

    return whole_or_not_at_all


class Requirement(NamedTuple):
    """What a parameter may be: a test, and the words for it in an error message."""

    test: Callable[[Any], bool]
    text: str


def _is_real(value):
    return isinstance(value, numbers.Real) and not isinstance(value, (bool, np.bool_)) and not np.isnan(value)


def _is_integer(value):
    return isinstance(value, numbers.Integral) and not isinstance(value, (bool, np.bool_))


def _is_seed(value):
    return value is None or isinstance(value, np.random.RandomState) or (_is_integer(value) and 0 <= value < 2**32)


def one_of(*options):
    """Require one of the given values."""
    words = " or ".join([", ".join(map(repr, options[:-1])), repr(options[-1])] if options[1:] else [repr(options[0])])
    return Requirement(lambda value: any(value is o or (isinstance(o, str) and value == o) for o in options), words)


def optional(requirement):
    """Allow None beside what the requirement allows."""
    return Requirement(lambda value: value is None or requirement.test(value), f"None or {requirement.text}")


POSITIVE = Requirement(lambda value: _is_real(value) and 0 < value < np.inf, "a positive number")
POSITIVE_OR_INF = Requirement(lambda value: _is_real(value) and value > 0, "a positive number or inf")
NON_NEGATIVE = Requirement(lambda value: _is_real(value) and 0 <= value < np.inf, "a number that is not negative")
REAL = Requirement(lambda value: _is_real(value) and np.isfinite(value), "a finite number")
POSITIVE_INTEGER = Requirement(lambda value: _is_integer(value) and value >= 1, "a positive integer")
FLAG = Requirement(lambda value: isinstance(value, (bool, np.bool_)), "True or False")

KERNEL_PARAMETERS = {
    "kernel": Requirement(
        lambda value: callable(value) or (isinstance(value, str) and value in KERNELS),
        "one of " + ", ".join(map(repr, KERNELS)) + " or a function k(X, Y)",
    ),
    "gamma": Requirement(
        lambda value: (
            (isinstance(value, str) and value in ("scale", "auto")) or (_is_real(value) and 0 < value < np.inf)
        ),
        "'scale', 'auto' or a positive number",
    ),
    "degree": POSITIVE_INTEGER,
    "coef0": REAL,
}

# For the estimators of Abe's paper, whose kernel divides gamma by the number of features.
GAMMA_PER_FEATURE = Requirement(
    lambda value: KERNEL_PARAMETERS["gamma"].test(value) or (isinstance(value, str) and gamma_per_feature(value) > 0),
    "'scale', 'auto', a positive number or a string such as '5/d'",
)

COMMON_PARAMETERS = {
    "fit_intercept": FLAG,
    "tol": POSITIVE,
    "max_iter": POSITIVE_INTEGER,
    "class_weight": Requirement(
        lambda value: (
            value is None
            or (isinstance(value, str) and value == "balanced")
            or (isinstance(value, dict) and all(map(NON_NEGATIVE.test, value.values())))
        ),
        "None, 'balanced' or a dict from label to weight, each a number that is not negative",
    ),
    "random_state": Requirement(_is_seed, "None, an integer from 0 to 2**32 - 1 or a RandomState"),
    "verbose": Requirement(
        lambda v: isinstance(v, (bool, np.bool_)) or (_is_integer(v) and v >= 0), "a flag or a level"
    ),
    "n_jobs": Requirement(
        lambda value: value is None or (_is_integer(value) and value != 0), "None or an integer but 0"
    ),
    "warm_start": FLAG,
}


# Solvers multiply and divide by sums of squares, and by products of two of those: with numbers between these bounds no
# such product overflows or vanishes, whatever the number of rows.
_SMALLEST, _LARGEST = 1e-70, 1e70


class TrainingData(NamedTuple):
    """Validated rows of positive weight, and where they stood in what was given."""

    X: Any  # C-contiguous array or canonical CSR, float32 or float64
    codes: np.ndarray  # index into ``classes_``, one per row
    weights: np.ndarray  # sample weight times class weight
    sample_weights: np.ndarray  # without the class weights
    kept: np.ndarray | None  # positions of these rows among those given, None if all
    n_given: int  # number of rows given


def _largest_value(X):
    """Return the value of largest size and its column."""
    values = X.data if sp.issparse(X) else X.reshape(-1)
    if not values.size:
        return 0.0, 0
    place = np.abs(values).argmax()
    return float(values[place]), X.indices[place] if sp.issparse(X) else place % X.shape[1]


class MarginClassifier(CallbackSupportMixin, ClassifierMixin, BaseEstimator):
    """Base of all classifiers: a subclass names its parameters' requirements and writes ``fit``."""

    _requirements: dict[str, Requirement] = {}

    # ------------------------------------------------------------------ what comes in

    def _check_parameters(self):
        for name, value in self.get_params(deep=False).items():
            requirement = self._requirements.get(name)
            if requirement is not None and not requirement.test(value):
                raise ValueError(f"{type(self).__name__}: {name} must be {requirement.text}, got {value!r}.")

    def _validate_training_data(self, X, y, sample_weight=None, *, classes=None, piece=False):
        """Check X, y and weights, set ``classes_``, and drop rows of weight zero (they are absent).

        With ``piece``, X is one piece of the data: the labels there are come from ``classes`` at the first piece.
        """
        first = not (piece and hasattr(self, "classes_"))
        form = {"accept_sparse": "csr", "dtype": [np.float64, np.float32], "order": "C"}
        X, y = validate_data(self, X, y, reset=first, ensure_all_finite=False, **form)
        self._check_range(X, piece)
        check_classification_targets(y)
        if getattr(self, "kernel", None) == "precomputed" and X.shape[0] != X.shape[1]:
            raise ValueError(
                f"{type(self).__name__}: kernel='precomputed' expects a square matrix of kernel values between all "
                f"training samples, got shape {X.shape}."
            )
        if sp.issparse(X) and not X.has_canonical_format:
            X = X.copy()
            X.sum_duplicates()
        sample_weights = self._validate_weights(sample_weight, len(y))
        present = sample_weights > 0.0
        if not present.any():
            raise ValueError(f"{type(self).__name__}: all sample weights are zero; at least one must be positive.")
        codes = np.zeros(len(y), dtype=np.intp)
        codes[present] = self._encode_piece(y[present], classes, first) if piece else self._encode(y[present])
        weights = self._weights_in_range(sample_weights * self._class_weights(codes, sample_weights)[codes])
        if weights.all():
            return TrainingData(X, codes, weights, sample_weights, None, len(y))
        kept = np.flatnonzero(weights)
        X = X[kept][:, kept] if getattr(self, "kernel", None) == "precomputed" else X[kept]
        return TrainingData(X, codes[kept], weights[kept], sample_weights[kept], kept, len(y))

    def _encode(self, y):
        """Set ``classes_`` and return the index of each label in it."""
        self.classes_, codes = np.unique(y, return_inverse=True)
        if len(self.classes_) < 2:
            raise ValueError(
                f"{type(self).__name__} needs samples of at least 2 classes, but y contains only one class: "
                f"{self.classes_.tolist()[0]!r}."
            )
        return codes

    def _encode_piece(self, y, classes, first):
        """Return the index of each label among the classes given at the first piece."""
        if first:
            if classes is None:
                raise ValueError(
                    f"{type(self).__name__}: the first call of partial_fit needs classes, all labels there are."
                )
            self._encode(np.asarray(classes))
        elif classes is not None and not np.array_equal(np.unique(classes), self.classes_):
            raise ValueError(
                f"`classes={classes!r}` is not the same as on last call to partial_fit, was: {self.classes_!r}"
            )
        unknown = np.setdiff1d(y, self.classes_)
        if len(unknown):
            raise ValueError(
                f"{type(self).__name__}: y has the labels {unknown.tolist()}, which are not among the classes "
                f"{self.classes_.tolist()} given at the first call."
            )
        return np.searchsorted(self.classes_, y)

    def _validate_weights(self, sample_weight, n_samples):
        if sample_weight is None:
            return np.ones(n_samples)
        if isinstance(sample_weight, numbers.Real):
            sample_weight = np.full(n_samples, float(sample_weight))
        weights = check_array(sample_weight, ensure_2d=False, dtype=np.float64, input_name="sample_weight")
        if weights.ndim != 1:
            raise ValueError("Sample weights must be 1D array or scalar")
        if len(weights) != n_samples:
            raise ValueError(f"sample_weight.shape == {weights.shape}, expected {(n_samples,)}!")
        if weights.min() < 0:
            raise ValueError(
                "Negative values in data passed to `sample_weight`; weights count how often a row is there."
            )
        return self._weights_in_range(weights)

    def _weights_in_range(self, weights):
        """Return the weights; raise an error if one is not zero and of a size with which products overflow."""
        largest = weights.max()
        smallest = np.min(weights, where=weights > 0.0, initial=np.inf)
        if largest > _LARGEST or smallest < _SMALLEST:
            raise ValueError(
                f"{type(self).__name__}: expected sample weights, times class weights, that are zero or between "
                f"{_SMALLEST:g} and {_LARGEST:g}, got {largest if largest > _LARGEST else smallest:g}; divide them by "
                f"their mean, and give rows that shall be absent the weight zero."
            )
        return weights

    def _check_range(self, X, piece):
        """Raise an error if values are not finite, or squares overflow or all vanish.

        One product of all values with themselves tells all of it in ordinary data, at the price of scikit-learn's test
        for finite values, which it replaces. A piece may be as small as it likes beside the others.
        """
        values = X.data if sp.issparse(X) else X.reshape(-1)
        with np.errstate(over="ignore", invalid="ignore"):
            total = float(values @ values)
        if _SMALLEST**2 <= total <= _LARGEST**2:
            return
        assert_all_finite(X, estimator_name=type(self).__name__, input_name="X")
        value, column = _largest_value(X)
        if abs(value) > _LARGEST or (0.0 < abs(value) < _SMALLEST and not piece):
            names = getattr(self, "feature_names_in_", None)
            raise ValueError(
                f"{type(self).__name__}: expected features (or kernel values) of which the largest is between "
                f"{_SMALLEST:g} and {_LARGEST:g} in size, got {value:g} in column "
                f"{column if names is None else repr(names[column])}; scale the features, for instance by MaxAbsScaler."
            )

    def _class_weights(self, codes, sample_weights):
        """Return one weight per class; "balanced" gives every class the same total."""
        wanted = getattr(self, "class_weight", None)
        if wanted is None:
            return np.ones(len(self.classes_))
        if isinstance(wanted, str):
            totals = np.bincount(codes, weights=sample_weights, minlength=len(self.classes_))
            return sample_weights.sum() / (len(self.classes_) * totals)
        unknown = set(wanted) - set(self.classes_.tolist())
        if unknown:
            raise ValueError(
                f"{type(self).__name__}: class_weight has the labels {sorted(unknown, key=str)}, "
                f"which are not among the classes {self.classes_.tolist()}."
            )
        return np.array([float(wanted.get(label, 1.0)) for label in self.classes_.tolist()])

    def _kernel(self, data):
        """Return the kernel with its numbers resolved against the training data, constant feature included."""
        gamma = 1.0
        if isinstance(self.kernel, str) and self.kernel not in ("linear", "precomputed"):
            gamma = resolve_gamma(self.gamma, data.X, data.sample_weights)
        bias = 1.0 if getattr(self, "fit_intercept", False) else 0.0
        return Kernel(self.kernel, gamma, self.degree, self.coef0, bias=bias)

    def _mercer_gram(self, data, kernel):
        """Return the whole Gram matrix, without its negative eigenvalues if it has any."""
        return self._positive_part(gram_matrix(data.X, kernel).whole(), data.sample_weights)

    def _kernel_features(self, data, kernel):
        """Return features of the kernel: Nystroem's with ``n_components``, else those of the whole Gram matrix."""
        m = data.X.shape[0]
        if self.n_components is not None:
            n_components = min(self.n_components, m)
            self._refuse_beyond_memory(2 * 8 * m * n_components, f"{n_components} Nystroem features")
            self.certified_problem_ = "nystroem"
            return KernelFeatures(nystroem(data.X, kernel, n_components, self._rng()))
        self._refuse_beyond_memory(4 * gram_bytes(m), f"{m} rows")
        gram = self._positive_part(gram_matrix(data.X, kernel, self.cache_size * 1e6), data.sample_weights)
        return KernelFeatures(cholesky_factor(gram), gram)

    def _refuse_beyond_memory(self, needed, what):
        if needed > getattr(self, "cache_size", np.inf) * 1e6:
            raise ValueError(
                f"{type(self).__name__}: solver={self.solver_!r} with {what} needs about {needed / 1e6:.0f} MB, more "
                f"than cache_size={self.cache_size:g}; raise it, choose another solver, or give n_components."
            )

    def _positive_part(self, gram, weights=None):
        """Return the Gram matrix, without its negative eigenvalues if it has any, and note which problem that is."""
        self.certified_problem_ = "exact"
        known = isinstance(self.kernel, str) and Kernel(self.kernel, coef0=self.coef0).is_mercer
        if known or not is_indefinite(gram, np.random.default_rng(0)):
            return gram
        warnings.warn(
            f"{type(self).__name__}: the kernel matrix has negative eigenvalues, so the problem is not convex; "
            f"they are set to zero. Predictions use the kernel as it is, with coefficients of the part that is left.",
            UserWarning,
            stacklevel=5,
        )
        self._refuse_beyond_memory(3 * gram_bytes(gram.n), f"an indefinite kernel and {gram.n} rows")
        self.certified_problem_ = "clipped kernel"
        return clip_spectrum(gram, weights)

    def _rng(self):
        """Return a NumPy generator that ``random_state`` determines."""
        if isinstance(self.random_state, np.random.RandomState):
            return np.random.default_rng(self.random_state.randint(2**31))
        return np.random.default_rng(self.random_state)

    # ------------------------------------------------------------------ two classes or more

    def _sign_vectors(self, codes):
        """Return the label vectors of the two-class problems: one for two classes, else one per class."""
        positives = [1] if len(self.classes_) == 2 else range(len(self.classes_))
        return [np.where(codes == positive, 1.0, -1.0) for positive in positives]

    def _solve_each(self, solve, codes, X=None, y=None, joint=False):
        """Call ``solve(k, signs, report)`` for every two-class problem, in parallel if asked; return the solutions.

        With ``joint`` there is one problem of all classes, which is given the codes.

        Linear algebra runs in one thread meanwhile: our matrices are small or medium-sized, where waiting for a second
        thread costs more than it brings (measured on two cores), and very much more on a busy machine.
        """
        problems = [codes] if joint else self._sign_vectors(codes)
        context = None
        if getattr(self, "_skl_callbacks", None):
            context = self._init_callback_context(max_subtasks=None)
            context.call_on_fit_task_begin(estimator=self, X=X, y=y)
        try:
            with _threadpools().limit(limits=1, user_api="blas"):
                solutions = Parallel(n_jobs=self.n_jobs, prefer="threads")(
                    delayed(quietly)(solve, k, signs, self._progress(k, len(problems), context))
                    for k, signs in enumerate(problems)
                )
        except (np.linalg.LinAlgError, ArithmeticError) as error:  # only rounding and overflow lead there
            raise self._digits_lost(error) from error
        if context is not None:
            context.call_on_fit_task_end(estimator=self, X=X, y=y)
        self._warn_unless_converged(solutions)
        return solutions

    def _digits_lost(self, error):
        return ValueError(
            f"{type(self).__name__}: expected features (or kernel values) of moderate size, got such in which the "
            f"solver loses all digits ({error}); scale the features, for instance by StandardScaler."
        )

    def _progress(self, k, n_problems, context):
        """Return what a solver calls once per iteration: it prints, informs callbacks, and says whether to stop."""
        if context is None and not self.verbose:
            return None
        which = f" class {self.classes_.tolist()[k]!r}" if n_problems > 1 else ""

        def report(iteration, coef, objective, gap):
            if self.verbose:
                certified = "" if np.isnan(gap) else f", gap {gap:.1e}"
                print(f"[{type(self).__name__}]{which} iteration {iteration}: objective {objective:.6g}{certified}")
            if context is None:
                return False
            task = context.subcontext(task_name="iteration")
            task.call_on_fit_task_begin(estimator=self)
            metadata = {"iteration": iteration, "objective": objective, "gap": gap, "class": self.classes_[k]}
            attributes = functools.partial(self._fitted_attributes, coef) if n_problems == 1 else None
            return bool(
                task.call_on_fit_task_end(estimator=self, metadata=metadata, reconstruction_attributes=attributes)
            )

        return report

    def _fitted_attributes(self, coef):
        """Return what makes a copy of this estimator predict with the coefficients of an unfinished fit."""
        if getattr(self, "kernel", "linear") != "linear":
            return None
        coef = np.atleast_2d(coef)
        weights, intercept = (coef[:, :-1], coef[:, -1]) if self.fit_intercept else (coef, np.zeros(len(coef)))
        return {"coef_": weights.copy(), "intercept_": intercept.copy(), "classes_": self.classes_}

    def _warn_unless_converged(self, solutions):
        for solution in solutions:
            if solution.status not in ("stopped", "infeasible") and not solution.gap <= self.tol:  # nan too
                warnings.warn(
                    f"{type(self).__name__} stopped ({solution.status}) after {solution.n_iter} iterations with a "
                    f"relative duality gap of {solution.gap:.1e}, above tol={self.tol:g}: the objective is at most "
                    f"that far above its minimum. Raise max_iter or tol, or scale the features.",
                    ConvergenceWarning,
                    stacklevel=4,
                )
                return

    # ------------------------------------------------------------------ what is kept, and prediction

    def _store_convergence(self, solutions):
        """Keep iterations, objective and gap: numbers for two classes, arrays for more."""
        self.n_iter_ = max(1, *(solution.n_iter for solution in solutions))  # a start may be the solution already
        values = np.array([solution.objective for solution in solutions])
        gaps = np.array([solution.gap for solution in solutions])
        self.objective_, self.duality_gap_ = (
            (values, gaps) if len(solutions) > 1 else (float(values[0]), float(gaps[0]))
        )

    def _store_linear(self, coefs):
        """Set ``coef_`` and ``intercept_`` from coefficient vectors whose last entry may be the intercept."""
        coefs = np.vstack(coefs)
        if self.fit_intercept:
            self.coef_, self.intercept_ = np.ascontiguousarray(coefs[:, :-1]), coefs[:, -1].copy()
        else:
            self.coef_, self.intercept_ = coefs, np.zeros(len(coefs))

    def _store_kernel(self, data, alphas, kernel):
        """Set ``dual_coef_``, ``support_`` and what prediction needs from one coefficient per row and problem."""
        alphas = np.vstack(alphas)
        used = np.flatnonzero(alphas.any(axis=0))
        self.support_ = used if data.kept is None else data.kept[used]
        self.dual_coef_ = np.ascontiguousarray(alphas[:, used])
        self.intercept_ = self.dual_coef_.sum(axis=1) * kernel.bias
        self.kernel_ = kernel._replace(bias=0.0)
        if self.kernel != "precomputed":
            self.support_vectors_ = data.X[used]  # a copy also of all rows: the caller may change theirs

    def _store_multipliers(self, data, solutions):
        """Set ``multipliers_``, with zeros for rows of weight zero."""
        self.multipliers_ = np.vstack([solution.dual for solution in solutions])
        if data.kept is not None:
            found, self.multipliers_ = self.multipliers_, np.zeros((len(solutions), data.n_given))
            self.multipliers_[:, data.kept] = found

    def decision_function(self, X: ArrayLike) -> np.ndarray:
        """Return the score of every sample: one number for two classes, one per class for more.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
            Samples; for ``kernel="precomputed"`` their kernel values with all training samples.

        Returns
        -------
        ndarray of shape (n_samples,) or (n_samples, n_classes)
            Positive scores speak for ``classes_[1]``, or for each class against the rest.
        """
        check_is_fitted(self)
        X = validate_data(self, X, reset=False, accept_sparse="csr", dtype=[np.float64, np.float32], order="C")
        with np.errstate(over="ignore", invalid="ignore"):
            values = self._scores(X)
        if not np.isfinite(values).all():
            value, column = _largest_value(X)
            raise ValueError(
                f"{type(self).__name__}: expected features about as large as those of the training data, got such with "
                f"which scores overflow (the largest is {value:g} in column {column}); scale all data alike."
            )
        return values.ravel() if values.shape[1] == 1 else values

    def _scores(self, X):
        if hasattr(self, "coef_"):
            return safe_sparse_dot(X, self.coef_.T, dense_output=True) + self.intercept_
        if self.kernel == "precomputed":
            return X[:, self.support_] @ self.dual_coef_.T + self.intercept_
        if not len(self.support_):  # no row tells the classes apart, and kernels take no empty arrays
            return np.tile(self.intercept_, (X.shape[0], 1))
        values = self.kernel_.against(self.support_vectors_)
        block = max(
            1, 2**24 // max(len(self.support_), X.shape[1])
        )  # rows and kernel values of at most 128 MB at a time
        parts = [values(X[start : start + block]) @ self.dual_coef_.T for start in range(0, X.shape[0], block)]
        return np.vstack(parts) + self.intercept_

    def predict(self, X: ArrayLike) -> np.ndarray:
        """Return the predicted label of every sample.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
            Samples.

        Returns
        -------
        ndarray of shape (n_samples,)
        """
        values = self.decision_function(X)
        return self.classes_[(values > 0).astype(int) if values.ndim == 1 else values.argmax(axis=1)]

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.input_tags.pairwise = getattr(self, "kernel", None) == "precomputed"
        return tags
