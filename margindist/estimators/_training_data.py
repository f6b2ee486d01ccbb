"""Training data: from whatever was given to validated rows, codes of the labels and weights."""

import numbers
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias, Union

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike
from sklearn.utils import assert_all_finite
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_array, validate_data

from margindist.dask import as_partitions
from margindist.kernels import Kernel
from margindist.spaces.sparse import canonical, checked_csr

if TYPE_CHECKING:
    from margindist.dask import DaskPartitions
    from margindist.datasets import Partitions

MatrixLike: TypeAlias = ArrayLike | sp.spmatrix | sp.sparray
RowsLike: TypeAlias = Union[MatrixLike, "Partitions", "DaskPartitions"]

# Solvers multiply and divide by sums of squares, and by products of two of those: with numbers between these bounds no
# such product overflows or vanishes, whatever the number of rows.
_SMALLEST, _LARGEST = 1e-70, 1e70
_TRIAL_ROWS = 16  # on which a kernel function is tried
_ROUNDING = 1e-6  # relative to the largest kernel value: what single precision may leave of symmetry
_STRIP = 256  # rows of a matrix that are compared at a time
_MANY_LABELS, _FEW_LABELS, _FEW_LOOKS = 10_000, 100, 3  # where sorting them all is avoided


class TrainingData(NamedTuple):
    """Validated rows of positive weight, and where they stood in what was given."""

    X: Any  # C-contiguous array or canonical CSR, float32 or float64
    codes: np.ndarray  # index into ``classes_``, one per row
    weights: np.ndarray  # sample weight times class weight
    sample_weights: np.ndarray  # without the class weights
    kept: np.ndarray | None  # positions of these rows among those given, None if all
    n_given: int  # number of rows given


def largest_value(X):
    """Return the value of largest size and its column."""
    values = X.data if sp.issparse(X) else X.reshape(-1)
    if not values.size:
        return 0.0, 0
    place = np.abs(values).argmax()
    return float(values[place]), X.indices[place] if sp.issparse(X) else place % X.shape[1]


def asymmetry(K):
    """Return the largest difference of a square matrix from its transpose, and its largest value in size."""
    if sp.issparse(K):
        return abs(K - K.T).max(), abs(K).max()
    difference = largest = 0.0
    for begin in range(0, len(K), _STRIP):
        upper = K[begin : begin + _STRIP, begin:]
        lower = K[begin:, begin : begin + _STRIP].T
        difference = max(difference, np.abs(upper - lower).max())
        largest = max(largest, np.abs(upper).max())
    return difference, largest


def distinct(y):
    """Return the different numbers among many labels, and the index of each label; None, None if that is not quick.

    Sorting millions of labels takes as long as a good part of a fit; looking each up among a few does not.
    """
    if len(y) < _MANY_LABELS or y.dtype.kind not in "biuf":
        return None, None
    labels = np.unique(y[:: len(y) // _MANY_LABELS])
    for _ in range(_FEW_LOOKS):
        if len(labels) > _FEW_LABELS:
            return None, None
        codes = np.searchsorted(labels, y)
        np.minimum(codes, len(labels) - 1, out=codes)
        unknown = labels[codes] != y
        if not unknown.any():
            return labels, codes
        others = y[unknown]
        labels = np.union1d(labels, others[:: len(others) // _MANY_LABELS + 1])
    return None, None


class TrainingDataMixin:
    """Validation of X, y and weights."""

    classes_: np.ndarray

    def _validate_training_data(self, X, y, sample_weight=None, *, classes=None, piece=False):
        """Check X, y and weights, set ``classes_``, and drop rows of weight zero (they are absent).

        With ``piece``, X is one piece of the data: the labels there are come from ``classes`` at the first piece.
        """
        if as_partitions(X) is not None:
            raise TypeError(
                f"{type(self).__name__} with these parameters needs rows in memory, got {type(X).__name__}; make an "
                f"array of it (X.compute() with Dask), or choose a solver that works in rounds over partitions."
            )
        first = not (piece and hasattr(self, "classes_"))
        X, y = self._validate_rows(X, y, reset=first, ensure_all_finite=False)
        self._check_range(X, piece)
        labels, places = distinct(y)
        check_classification_targets(y if labels is None else np.repeat(labels, 2))  # which sorts what it is given
        if getattr(self, "kernel", None) == "precomputed" and X.shape[0] != X.shape[1]:
            raise ValueError(
                f"{type(self).__name__}: kernel='precomputed' expects a square matrix of kernel values between all "
                f"training samples, got shape {X.shape}."
            )
        if sp.issparse(X):
            X = canonical(X)
        self._check_symmetry(X)
        sample_weights = self._validate_weights(sample_weight, len(y))
        present = sample_weights > 0.0
        if not present.any():
            raise ValueError(f"{type(self).__name__}: all sample weights are zero; at least one must be positive.")
        codes = np.zeros(len(y), dtype=np.intp)
        if piece:
            codes[present] = self._encode_piece(y[present], classes, first)
        elif labels is not None and present.all():
            self._set_classes(labels)
            codes = places
        else:
            codes[present] = self._encode(y[present])
        totals = np.bincount(codes, weights=sample_weights, minlength=len(self.classes_))
        weights = self._weights_in_range(sample_weights * self._class_weights(totals, y)[codes])
        if weights.all():
            return TrainingData(X, codes, weights, sample_weights, None, len(y))
        kept = np.flatnonzero(weights)
        X = X[kept][:, kept] if getattr(self, "kernel", None) == "precomputed" else X[kept]
        return TrainingData(X, codes[kept], weights[kept], sample_weights[kept], kept, len(y))

    def _validate_rows(self, X, *y, **options):
        """Return X, and y if given, as scikit-learn's ``validate_data`` does: rows of float32 or float64."""
        X = checked_csr(X, type(self).__name__) if sp.issparse(X) else X
        form = {"accept_sparse": "csr", "dtype": [np.float64, np.float32], "order": "C"}
        try:
            return validate_data(self, X, *y, **form, **options)
        except (TypeError, ValueError) as error:
            self._refuse_text(X, error)
            raise

    def _refuse_text(self, X, error):
        """Raise an error that names the first column of a table which is no column of numbers, if there is one."""
        if hasattr(X, "collect"):
            raise TypeError(
                f"{type(self).__name__}: expected rows in memory, got a {type(X).__name__}; call its collect()."
            ) from error
        for name in getattr(X, "column_names", getattr(X, "columns", ())):
            try:
                np.asarray(X[name], dtype=np.float64)
            except (TypeError, ValueError):
                raise ValueError(
                    f"{type(self).__name__}: expected columns of numbers, but {name!r} has others; put "
                    f"margindist.datasets.encoder(X), or an encoder of scikit-learn's, before the classifier."
                ) from error

    def _encode(self, y):
        """Set ``classes_`` and return the index of each label in it."""
        classes, codes = np.unique(y, return_inverse=True)
        self._set_classes(classes)
        return codes

    def _set_classes(self, classes):
        self.classes_ = classes
        if len(self.classes_) < 2:
            raise ValueError(
                f"{type(self).__name__} needs samples of at least 2 classes, but y contains only one class: "
                f"{self.classes_.tolist()[0]!r}."
            )

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
        value, column = largest_value(X)
        if abs(value) > _LARGEST or (0.0 < abs(value) < _SMALLEST and not piece):
            names = getattr(self, "feature_names_in_", None)
            raise ValueError(
                f"{type(self).__name__}: expected features (or kernel values) of which the largest is between "
                f"{_SMALLEST:g} and {_LARGEST:g} in size, got {value:g} in column "
                f"{column if names is None else repr(names[column])}; scale the features, for instance by MaxAbsScaler."
            )

    def _check_symmetry(self, X):
        """Raise an error if kernel values given, or some that a function given returns, are those of no kernel."""
        kernel = getattr(self, "kernel", None)
        if callable(kernel):
            X = Kernel(kernel)(X[:_TRIAL_ROWS], X[:_TRIAL_ROWS])
        elif kernel != "precomputed":
            return
        difference, largest = asymmetry(X)
        if difference > _ROUNDING * largest:
            raise ValueError(
                f"{type(self).__name__}: expected symmetric kernel values, got k(x, z) and k(z, x) that differ by "
                f"{difference:.3g} (the largest value is {largest:.3g}); correct the kernel, or give (K + K.T) / 2."
            )

    def _class_weights(self, totals, y):
        """Return one weight per class, of which the samples' weights are known in total; "balanced" makes these equal.

        A label may have a weight that occurs in ``y`` only with samples of weight zero.
        """
        wanted = getattr(self, "class_weight", None)
        if wanted is None:
            return np.ones(len(self.classes_))
        if isinstance(wanted, str):
            return totals.sum() / (len(self.classes_) * totals)
        unknown = set(wanted) - set(self.classes_.tolist()) - set(np.unique(y).tolist())
        if unknown:
            raise ValueError(
                f"{type(self).__name__}: class_weight has the labels {sorted(unknown, key=str)}, "
                f"which are not among the classes {self.classes_.tolist()}."
            )
        return np.array([float(wanted.get(label, 1.0)) for label in self.classes_.tolist()])
