"""What every classifier here shares: parameters, training data, two-class problems, prediction, and a space.

Estimators validate and store; they hand a problem to one solver and keep what it returns. Nothing here knows a method's
mathematics.
"""

import functools
import warnings
from collections.abc import Callable
from importlib import metadata
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import sklearn.utils.metaestimators
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator, ClassifierMixin

from margindist.estimators._parameters import ParametersMixin
from margindist.estimators._partitioned import PartitionedMixin
from margindist.estimators._prediction import PredictionMixin
from margindist.estimators._problems import ProblemsMixin, threadpools
from margindist.estimators._training_data import RowsLike, TrainingDataMixin
from margindist.kernels import Kernel, resolve_gamma
from margindist.spaces.gram import clip_spectrum, gram_bytes, gram_matrix, is_indefinite
from margindist.spaces.space import KernelSpace, LinearSpace

try:
    from sklearn.callback import CallbackSupportMixin, with_callbacks
except ImportError:  # scikit-learn before 1.9 has no callbacks

    class CallbackSupportMixin:
        """Stand-in without callbacks."""

    def with_callbacks(method):
        """Return the method as it is."""
        return method


Method = TypeVar("Method", bound=Callable)

# n_components="auto":
_FEWEST_COMPONENTS = 128
_NEAR_KERNEL = 1e-2  # relative distance from the minimum with the whole kernel that is near enough
_FALLS = 0.9  # share of what half as many components leave of the trace: above it, more of them do not help


def fitting(method: Method) -> Method:
    """Make a fit all or nothing (also when interrupted), and run it within its callbacks.

    A ``fit`` begins without what an earlier one, of another kernel perhaps, has left; but for where to start from.
    """
    return all_or_nothing(with_callbacks(method), anew=method.__name__ == "fit")


@functools.cache
def _documentation():
    """Return the address of the documentation; an empty text for sources that are not installed."""
    try:
        urls = metadata.metadata("margindist").get_all("Project-URL", [])
    except metadata.PackageNotFoundError:
        return ""
    return dict(url.split(", ", 1) for url in urls).get("Documentation", "")


def all_or_nothing(method: Method, *, anew: bool = False) -> Method:
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

    return whole_or_not_at_all  # type: ignore[return-value]


def available_if(check: Callable[[Any], bool]) -> Callable[[Method], Method]:
    """Make a method available where a condition holds: scikit-learn's own, with types."""
    return sklearn.utils.metaestimators.available_if(check)


class MarginClassifier(
    ParametersMixin,
    TrainingDataMixin,
    ProblemsMixin,
    PartitionedMixin,
    PredictionMixin,
    CallbackSupportMixin,
    ClassifierMixin,
    BaseEstimator,
):
    """Base of all classifiers: a subclass names its parameters' requirements and writes ``fit``."""

    _doc_link_module = "margindist"

    if TYPE_CHECKING:  # scikit-learn has no types

        def score(self, X: RowsLike, y: ArrayLike, sample_weight: ArrayLike | None = None) -> float: ...

    else:  # for a type checker, every attribute would be there

        def __getattr__(self, name):
            """Say of some attributes that are not there what to do instead; hasattr is False all the same."""
            if name == "predict_proba":
                raise AttributeError(
                    f"{type(self).__name__} has no predict_proba, as margins are no probabilities; wrap it in "
                    f"sklearn.calibration.CalibratedClassifierCV(model, ensemble=False), or take decision_function."
                )
            if name == "coef_" and "dual_coef_" in vars(self):
                raise AttributeError(
                    f"{type(self).__name__} has coef_ with kernel='linear' only; a kernel's model has dual_coef_ and "
                    f"support_."
                )
            return object.__getattribute__(self, name)  # which raises Python's error, or that of a property

    @property
    def _doc_link_template(self):
        """Where the HTML representation links to: below the documentation's address in the package's metadata."""
        home = _documentation()
        return f"{home}/generated/margindist.{type(self).__name__}.html" if home else ""

    @property
    def _named_kernel(self):
        """The kernel that the parameters name, before its gamma is known; linear for methods without one."""
        return Kernel(getattr(self, "kernel", "linear"), coef0=getattr(self, "coef0", 0.0))

    def _kernel(self, data):
        """Return the kernel with its numbers resolved against the training data, constant feature included."""
        gamma = 1.0
        if self._named_kernel.has_gamma:
            gamma = resolve_gamma(self.gamma, data.X, data.sample_weights)
        bias = 1.0 if getattr(self, "fit_intercept", False) else 0.0
        return Kernel(self.kernel, gamma, self.degree, self.coef0, bias=bias)

    def _space(self, data, *, constant=None, definite=True, n_components=None):
        """Return the space that the rows live in; the one place that asks whether the kernel is linear.

        ``constant`` says whether a constant feature belongs to it; None leaves that to ``fit_intercept``. Methods that
        minimise nothing take a matrix with negative eigenvalues as it is: ``definite=False``. ``n_components`` replaces
        the parameter of that name.
        """
        kernel = self._kernel(data)
        if constant is not None:
            kernel = kernel._replace(bias=float(constant))
        max_bytes = getattr(self, "cache_size", np.inf) * 1e6
        if kernel.is_linear:
            return LinearSpace(data, kernel, max_bytes)
        threads = self._threads_per_problem()
        if getattr(self, "n_components", None) is not None:
            landmarks = self.n_components if n_components is None else n_components, self._rng()
            return KernelSpace(data, kernel, None, landmarks, threads)

        def make_gram():
            gram = gram_matrix(data.X, kernel, max_bytes, threads)
            return self._positive_part(gram, data.sample_weights) if definite else gram

        return KernelSpace(data, kernel, make_gram)

    def _solve_in_spaces(self, data, solve_all, gap):
        """Return the space of the coefficients with ``solve_all(space, starts)``, the solutions in it.

        Linear algebra of kernels runs in one thread: where there are several, they are ours.

        For ``n_components="auto"`` there are ever more components, until ``gap(space, solution)``, which bounds how far
        a solution is above the minimum with the whole kernel, is small for each, or more of them add next to nothing.
        """
        if self._named_kernel.is_linear:
            space = self._space(data)
            return space, solve_all(space, None)
        with threadpools().limit(limits=1, user_api="blas"):
            if self.n_components == "auto":
                space, solutions = self._solve_near_kernel(data, solve_all, gap)
            else:
                space = self._space(data)
                solutions = solve_all(space, None)
            if space.certified == "nystroem":
                self.n_components_ = space.factor().rank
        return space, solutions

    def _solve_near_kernel(self, data, solve_all, gap):
        self._refuse_indefinite()
        most = int(getattr(self, "cache_size", np.inf) * 1e6 / (2 * 8 * data.X.shape[0]))
        size, solutions, left = _FEWEST_COMPONENTS, None, np.inf
        while True:
            size = max(1, min(size, most, data.X.shape[0]))
            space = self._space(data, n_components=size)
            solutions = solve_all(space, solutions)
            gaps = np.array([gap(k, space, solution) for k, solution in enumerate(solutions)])
            factor = space.factor()
            enough = gaps.max() <= max(_NEAR_KERNEL, self.tol) or factor.remainder > _FALLS * left
            if enough or size in (most, data.X.shape[0]) or factor.rank < size:
                break
            size, left = 2 * size, factor.remainder
        self.kernel_gap_ = gaps if len(gaps) > 1 else float(gaps[0])
        return space, solutions

    def _refuse_indefinite(self):
        if not self._named_kernel.is_mercer:
            raise ValueError(
                f"{type(self).__name__}: n_components='auto' needs a kernel that is known to have no negative "
                f"eigenvalues ('rbf', or 'poly' with coef0 >= 0), got kernel={self.kernel!r} with "
                f"coef0={self.coef0:g}; give a number of components."
            )

    def _positive_part(self, gram, weights=None):
        """Return the Gram matrix, without its negative eigenvalues if it has any."""
        if self._named_kernel.is_mercer or not is_indefinite(gram, np.random.default_rng(0)):
            return gram
        warnings.warn(
            f"{type(self).__name__}: the kernel matrix has negative eigenvalues, so the problem is not convex; "
            f"they are set to zero. Predictions use the kernel as it is, with coefficients of the part that is left.",
            UserWarning,
            stacklevel=5,
        )
        self._refuse_beyond_memory(3 * gram_bytes(gram.n), f"an indefinite kernel and {gram.n} rows")
        return clip_spectrum(gram, weights)

    def _refuse_beyond_memory(self, needed, what):
        if needed > getattr(self, "cache_size", np.inf) * 1e6:
            raise ValueError(
                f"{type(self).__name__}: solver={self.solver_!r} with {what} needs about {needed / 1e6:.0f} MB, more "
                f"than cache_size={self.cache_size:g}; raise it, choose another solver, or give n_components."
            )

    def _store(self, space, coefs):
        """Set the attributes that predict with these coefficients of a space, one vector per problem."""
        vars(self).update(space.attributes(np.vstack(coefs)))

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.input_tags.pairwise = self._named_kernel.is_precomputed
        return tags
