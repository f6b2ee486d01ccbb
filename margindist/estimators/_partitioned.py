"""Fits to data in partitions (:mod:`margindist.spaces.partitions`): the survey before, the problems, what is stored."""

import numpy as np
from joblib import effective_n_jobs
from sklearn.utils.multiclass import check_classification_targets

from margindist.estimators._problems import quietly, threadpools
from margindist.solvers._solution import Options
from margindist.spaces.partitions import Encoding, Round, Survey, drive


class PartitionedMixin:
    """Fits in rounds over partitions; a classifier that can says by which solver, in ``_solve_in_place``."""

    def _fit_partitions(self, X, y, sample_weight):
        """Fit to data in partitions; the rows stay where they are, and are visited in rounds."""
        self._refuse_kernels()
        place = X.place(y, sample_weight, n_jobs=effective_n_jobs(self.n_jobs))
        try:
            survey = self._survey(place, X)
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
        self.certified_problem_ = "exact"
        coefs = np.vstack([solution.coef for solution in solutions])
        constant = getattr(self, "fit_intercept", False)
        self.coef_ = np.ascontiguousarray(coefs[:, :-1]) if constant else coefs
        self.intercept_ = coefs[:, -1].copy() if constant else np.zeros(len(coefs))
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
            f"{type(self).__name__}: {what} needs rows in memory, got data in partitions; take the linear kernel with "
            "solver='auto', or load the rows."
        )

    def _refuse_kernels(self):
        if not self._named_kernel.is_linear:
            raise self._needs_memory(f"kernel={self.kernel!r}")

    def _survey(self, place, X):
        """Find labels, weights and shape of all partitions; set what every fit sets of them."""
        (found,) = drive(place, Survey, [()], _look)
        if found is None:
            raise ValueError(f"{type(self).__name__}: all sample weights are zero; at least one must be positive.")
        if found["columns_min"] != found["columns_max"]:
            raise ValueError(
                f"{type(self).__name__}: expected the same number of columns in all partitions, got from "
                f"{found['columns_min']} to {found['columns_max']}."
            )
        labels, totals = _merged(found["labels"])
        check_classification_targets(labels)
        if getattr(X, "classes", None) is not None:
            labels, totals = self._among(X.classes, labels, totals)
        self._encode(labels)
        self.n_features_in_ = int(found["columns_max"])
        if X.feature_names is not None and all(isinstance(name, str) for name in X.feature_names):
            self.feature_names_in_ = np.asarray(X.feature_names, dtype=object)
        weights = self._class_weights(totals, labels)
        self._weights_in_range(weights)
        place.encode(Encoding(self.classes_, weights, bool(getattr(self, "fit_intercept", False))))
        return found

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


def _merged(found):
    """Return all labels, sorted, and the weight of the rows that have each."""
    kinds = {"text" if labels.dtype.kind in "USO" else "numbers" for labels, _ in found}
    if len(kinds) > 1:
        raise ValueError("y: expected labels of one kind, got text in one partition and numbers in another.")
    every = np.concatenate([labels for labels, _ in found])
    labels, codes = np.unique(every, return_inverse=True)
    return labels, np.bincount(codes, weights=np.concatenate([totals for _, totals in found]))
