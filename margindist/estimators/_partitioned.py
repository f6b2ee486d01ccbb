"""Fits to data in partitions (:mod:`margindist.spaces.partitions`): the survey before, the problems, what is stored."""

import numpy as np
import scipy.sparse as sp
from joblib import effective_n_jobs
from sklearn.utils.multiclass import check_classification_targets

from margindist.estimators._problems import quietly, threadpools
from margindist.estimators._training_data import TrainingData
from margindist.kernels import Kernel, looks_at_rows, named_gamma, scale_gamma
from margindist.solvers._solution import Options
from margindist.spaces.partitions import Encoding, Round, Survey, drive
from margindist.spaces.space import KernelSpace, LinearSpace

_SAMPLE_ROWS, _SAMPLE_PER_LANDMARK = 10_000, 20  # rows that landmarks are drawn from, at least


class PartitionedMixin:
    """Fits in rounds over partitions; a classifier that can says by which solver, in ``_solve_in_place``."""

    def _fit_partitions(self, X, y, sample_weight):
        """Fit to data in partitions; the rows stay where they are, and are visited in rounds."""
        self._refuse_kernels()
        place = X.place(y, sample_weight, n_jobs=effective_n_jobs(self.n_jobs))
        try:
            survey, encoding = self._survey(place, X)
            space = self._space_in_place(place, survey, encoding)
            positives = [1] if len(self.classes_) == 2 else list(range(len(self.classes_)))
            rngs = self._rng().spawn(len(positives))
            reports = [self._progress(k, len(positives), None, None) for k in range(len(positives))]
            options = [Options(self.tol, self.max_iter, rng, report) for rng, report in zip(rngs, reports, strict=True)]
            with threadpools().limit(limits=1, user_api="blas"):
                solutions = quietly(self._solve_in_place, place, survey, positives, options)
        except (np.linalg.LinAlgError, ArithmeticError) as error:
            raise self._digits_lost(error) from error
        finally:
            place.close()
        self._warn_unless_converged(solutions)
        self.certified_problem_ = space.certified
        self._store(space, space.from_weights(np.vstack([solution.coef for solution in solutions])))
        self._store_convergence(solutions)
        return self

    def _solve_in_place(self, place, survey, positives, options):
        """Return one solution per positive class (one class of two, or all of them), and set ``solver_``.

        The survey is the record of :class:`~margindist.spaces.partitions.Survey`; options are one per problem.
        """
        raise self._needs_memory(f"solver={self.solver!r}")

    def _needs_memory(self, what):
        """Return the error of a choice that does not go with data in partitions."""
        return TypeError(
            f"{type(self).__name__}: {what} needs rows in memory, got data in partitions; take the linear kernel, or "
            "n_components of another one, with solver='auto', or load the rows."
        )

    def _refuse_kernels(self):
        kernel = self._named_kernel
        if not kernel.is_linear and (kernel.is_precomputed or getattr(self, "n_components", None) is None):
            raise self._needs_memory(f"kernel={self.kernel!r} without n_components")
        if not kernel.is_linear and self.n_components == "auto":
            raise self._needs_memory("n_components='auto' (unlike a number)")

    def _space_in_place(self, place, survey, encoding):
        """Return the space of the coefficients, and have the partitions loaded as rows of it from now on."""
        bias = 1.0 if encoding.fit_intercept else 0.0
        if self._named_kernel.is_linear:
            place.encode(encoding)
            nothing = np.empty((0, self.n_features_in_))  # the rows are elsewhere
            return LinearSpace(TrainingData(nothing, None, None, None, None, 0), Kernel("linear", bias=bias))
        self._check_partition_sizes(survey["rows_max"])
        share = min(1.0, max(_SAMPLE_ROWS, _SAMPLE_PER_LANDMARK * self.n_components) / survey["rows"])
        seed = int(self._rng().integers(2**31))
        gamma = self.gamma if self._named_kernel.has_gamma else 1.0
        rounds = _gamma_and_sample(gamma, survey["rows"], self.n_features_in_, share, seed)
        ((gamma, sample),) = drive(place, Survey, [()], lambda k, start: rounds)
        kernel = Kernel(self.kernel, gamma, self.degree, self.coef0, bias=bias)
        space = KernelSpace(self._as_training_data(sample), kernel, None, (self.n_components, self._rng()))
        cache_bytes = min(self.cache_size * 1e6, getattr(place, "cache_bytes", np.inf))
        place.encode(encoding._replace(fit_intercept=False, feature_map=space.feature_map(), cache_bytes=cache_bytes))
        return space

    def _check_partition_sizes(self, largest):
        needed = 2 * 8 * largest * self.n_components
        if needed > self.cache_size * 1e6:
            raise ValueError(
                f"{type(self).__name__}: {self.n_components} Nystroem features of a partition of {largest} rows take "
                f"about {needed / 1e6:.0f} MB, more than cache_size={self.cache_size:g}; make smaller partitions, or "
                f"raise it."
            )

    def _as_training_data(self, sample):
        """Return rows of many partitions as training data that know where they stood among all."""
        join = sp.vstack if any(map(sp.issparse, sample["rows"])) else np.vstack
        X = join(sample["rows"])
        firsts = np.cumsum([0, *(m for m, _ in sample["places"])])
        places = np.concatenate([first + which for first, (_, which) in zip(firsts, sample["places"], strict=False)])
        codes = np.searchsorted(self.classes_, np.concatenate(sample["labels"]))
        return TrainingData(sp.csr_matrix(X) if sp.issparse(X) else X, codes, None, None, places, int(firsts[-1]))

    def _survey(self, place, X):
        """Find labels, weights and shape of all partitions, and how to encode them; set what every fit sets of them."""
        (result,) = drive(place, Survey, [()], _look)
        if result is None:
            raise ValueError(f"{type(self).__name__}: all sample weights are zero; at least one must be positive.")
        if result["columns_min"] != result["columns_max"]:
            raise ValueError(
                f"{type(self).__name__}: expected the same number of columns in all partitions, got from "
                f"{result['columns_min']} to {result['columns_max']}."
            )
        labels, totals = _merged(result["labels"])
        check_classification_targets(labels)
        if getattr(X, "classes", None) is not None:
            labels, totals = self._among(X.classes, labels, totals)
        self._encode(labels)
        self.n_features_in_ = int(result["columns_max"])
        if X.feature_names is not None and all(isinstance(name, str) for name in X.feature_names):
            self.feature_names_in_ = np.asarray(X.feature_names, dtype=object)
        weights = self._class_weights(totals, labels)
        self._weights_in_range(weights)
        result["total_weight"] = float(np.dot(totals, weights))
        return result, Encoding(self.classes_, weights, bool(getattr(self, "fit_intercept", False)))

    def _among(self, classes, labels, totals):
        """Return the classes that were given, and the weight of each."""
        unknown = np.setdiff1d(labels, classes)
        if len(unknown):
            raise ValueError(
                f"{type(self).__name__}: expected labels among the classes given, got {unknown.tolist()[:5]} in y too."
            )
        known = np.zeros(len(classes))
        known[np.searchsorted(classes, labels)] = totals
        return classes, known


def _look(k, start):
    return (yield Round("look"))


def _gamma_and_sample(gamma, n_rows, n_features, share, seed):
    """Find the kernel's gamma, then some rows of all partitions that landmarks are drawn from."""
    if isinstance(gamma, str) and gamma == "scale":
        sums = yield Round("entries")
        total = sums["weight"] * n_features
        mean = sums["sum"] / total
        spread = yield Round("spread", (mean,))
        gamma = scale_gamma(mean, spread["square"] / total, n_rows, n_features)
    elif looks_at_rows(gamma):
        raise ValueError(
            f"gamma={gamma!r} looks at pairs of rows, which partitions do not have in one place; give a number."
        )
    else:
        gamma = named_gamma(gamma, n_features)
    return gamma, (yield Round("sample", (share, seed)))


def _merged(result):
    """Return all labels, sorted, and the weight of the rows that have each."""
    kinds = {"text" if labels.dtype.kind in "USO" else "numbers" for labels, _ in result}
    if len(kinds) > 1:
        raise ValueError("y: expected labels of one kind, got text in one partition and numbers in another.")
    every = np.concatenate([labels for labels, _ in result])
    labels, codes = np.unique(every, return_inverse=True)
    return labels, np.bincount(codes, weights=np.concatenate([totals for _, totals in result]))
