"""Small semi-variance and large mean of the margins (MSVMAv)."""

import warnings
from collections.abc import Callable, Sequence
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.exceptions import ConvergenceWarning

from margindist.estimators._base import MarginClassifier, fitting
from margindist.estimators._parameters import COMMON_PARAMETERS, KERNEL_PARAMETERS, POSITIVE, KernelName
from margindist.estimators._search import POWERS_OF_FOUR, GridSearchClassifier
from margindist.estimators._training_data import MatrixLike
from margindist.objectives import SemiVariance
from margindist.solvers import semivariance
from margindist.solvers._solution import Options, Problem, Status
from margindist.spaces.rows import as_rows, dense_matrix

_LARGEST_DENSE = 2e7  # entries of sparse rows that are made dense for the compiled rounds of a search


class MSVMAvClassifier(MarginClassifier):
    r"""Classifier of small margin semi-variance and large average margin.

    .. math:: \min_{\|w\|=1} \frac{SV(w)}{\hat\theta_w^2}, \qquad
        \hat\theta_w = \frac1n \sum_i z_i, \quad SV(w) = \frac1n \sum_i \max(0, \hat\theta_w - z_i)^2,
        \quad z_i = y_i \, w \cdot x_i .

    Only margins *below* the mean are pulled towards it; margins above it cost nothing. The problem is not convex, and
    its minimum is not guaranteed: the method is the alternation of [1]_, at most ``max_iter`` rounds of a proximal
    step for the semi-variance (``beta``) and one for the mean (``alpha``), starting from the ``w`` with the largest
    mean margin. See :mod:`margindist.solvers.semivariance` for the formulas, and for two misprints of the paper that
    are corrected here (the sign of eq. 8, and the square of the mean in section 4).

    Both parameters damp the steps: with small values a round goes all the way, with large ones ``max_iter`` rounds
    amount to early stopping. So ``max_iter`` is part of the method, and reaching it is no failure; entering a cycle is,
    and raises a warning. The paper chooses both parameters by cross-validation; the defaults are ours, chosen on six
    small data sets.

    Parameters
    ----------
    alpha : float, default=64.0
        Damping of the steps towards a larger mean margin, positive.
    beta : float, default=0.25
        Damping of the steps towards a smaller semi-variance, positive.
    kernel : {"linear", "rbf", "poly", "sigmoid", "precomputed"} or callable, default="linear"
        Kernel. "linear" is the form of section 4.1; all others, a precomputed linear kernel included, are the form of
        section 4.2, whose proximal metric differs.
    gamma : {"scale", "auto"}, float or str such as "5/d", default="scale"
        Coefficient of the "rbf", "poly" and "sigmoid" kernels. "5/d" is 5 over the number of features,
        "2*mean-distance" a Gaussian twice as wide as the mean distance of two samples.
    degree : int, default=3
        Degree of the "poly" kernel.
    coef0 : float, default=0.0
        Constant of the "poly" and "sigmoid" kernels.
    fit_intercept : bool, default=True
        Whether to append a constant feature 1 to every sample, as the paper does for linear functions.
    tol : float, default=1e-6
        The rounds stop when the active set stays the same and ``w``, of length one, moves by less than this.
    max_iter : int, default=100
        Largest number of rounds.
    class_weight : dict, "balanced" or None, default=None
        Weights of the classes, multiplied with ``sample_weight``.
    verbose : int, default=0
        Whether to print the objective after every round.
    n_jobs : int or None, default=None
        Number of classes fitted at the same time when there are more than two.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
        Labels.
    coef_ : ndarray of shape (n_problems, n_features)
        Weights (``kernel="linear"`` only); together with the intercept they have length one.
    intercept_ : ndarray of shape (n_problems,)
        Constants in the decision function.
    dual_coef_, support_ : ndarray
        Coefficients of the training samples and their indices (kernels).
    n_support_ : ndarray of shape (n_classes,)
        How many of them belong to each class.
    n_iter_ : int
        Rounds, of the class that took most.
    objective_ : float or ndarray of shape (n_classes,)
        ``SV / θ²`` on the training data.
    objective_history_ : ndarray or list of ndarray
        ``SV / θ²`` of the start and after every round; one array per class for more than two.
    status_ : str or list of str
        "settled", "iteration limit", "cycle" or "stopped" (by a callback).
    n_features_in_ : int
        Number of features seen in ``fit``.

    References
    ----------
    .. [1] M.-Z. Qian, Z. Ai, T. Zhang, W. Gao. On the optimization of margin distribution. IJCAI 2022.

    Examples
    --------
    >>> from sklearn.datasets import load_breast_cancer
    >>> from sklearn.pipeline import make_pipeline
    >>> from sklearn.preprocessing import MinMaxScaler
    >>> from margindist import MSVMAvClassifier
    >>> X, y = load_breast_cancer(return_X_y=True)
    >>> model = make_pipeline(MinMaxScaler(), MSVMAvClassifier(alpha=4.0, beta=0.001)).fit(X, y)
    >>> bool(model.score(X, y) > 0.95)
    True
    """

    _requirements = {**KERNEL_PARAMETERS, **COMMON_PARAMETERS, "alpha": POSITIVE, "beta": POSITIVE}

    def __init__(
        self,
        alpha: float = 64.0,
        beta: float = 0.25,
        *,
        kernel: KernelName | Callable = "linear",
        gamma: str | float = "scale",
        degree: int = 3,
        coef0: float = 0.0,
        fit_intercept: bool = True,
        tol: float = 1e-6,
        max_iter: int = 100,
        class_weight: dict | Literal["balanced"] | None = None,
        verbose: int = 0,
        n_jobs: int | None = None,
    ):
        self.alpha = alpha
        self.beta = beta
        self.kernel = kernel
        self.gamma = gamma
        self.degree = degree
        self.coef0 = coef0
        self.fit_intercept = fit_intercept
        self.tol = tol
        self.max_iter = max_iter
        self.class_weight = class_weight
        self.verbose = verbose
        self.n_jobs = n_jobs

    @fitting
    def fit(self, X: MatrixLike, y: ArrayLike, sample_weight: ArrayLike | None = None) -> Self:
        """Run the rounds.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
            Training samples, or their kernel values with each other for ``kernel="precomputed"``.
        y : array-like of shape (n_samples,)
            Labels.
        sample_weight : array-like of shape (n_samples,), default=None
            Weights; two is the sample given twice, zero its absence.

        Returns
        -------
        MSVMAvClassifier
            The fitted classifier.
        """
        self._check_parameters()
        data = self._validate_training_data(X, y, sample_weight)
        space = self._space(data)
        features = semivariance.features_of(space, data.weights)

        def solve(k, signs, report):
            objective = SemiVariance(self.alpha, self.beta, features.metric)
            problem = Problem(objective, features.rows, signs, data.weights)
            return semivariance.solve(problem, Options(self.tol, self.max_iter, report=report))

        rounds = self._solve_each(solve, data.codes, X, y, space=space)
        coefs = np.array([features.coefficients(r.coef) for r in rounds])
        if features.spectrum is not None:  # features lack what is small beside the largest kernel value; scores do not
            objective = SemiVariance(self.alpha, self.beta, features.metric)
            margins = np.array(self._sign_vectors(data.codes)) * space.image(coefs.T).T
            rounds = [r._replace(objective=objective.value(z, data.weights)) for r, z in zip(rounds, margins)]
        self._store(space, coefs)
        return self._store_rounds(rounds)

    def _store_rounds(self, rounds):
        self.n_iter_ = max(r.n_iter for r in rounds)
        if len(rounds) == 1:
            (only,) = rounds
            self.objective_, self.objective_history_ = only.objective, only.extra["history"]
            self.status_ = str(only.status)
        else:
            self.objective_ = np.array([r.objective for r in rounds])
            self.objective_history_ = [r.extra["history"] for r in rounds]
            self.status_ = [str(r.status) for r in rounds]
        return self

    def _warn_unless_converged(self, solutions):
        for rounds in solutions:
            if rounds.status is Status.CYCLE:
                warnings.warn(
                    f"{type(self).__name__}: the rounds went into a cycle, found after {rounds.n_iter} of them, in "
                    f"which the coefficients move by {rounds.extra['step']:.1e} per round; the last ones are kept. "
                    f"Raise beta or alpha to shorten the steps.",
                    ConvergenceWarning,
                    stacklevel=4,
                )
                return


class MSVMAvClassifierCV(GridSearchClassifier):
    r"""Classifier of small margin semi-variance and large average margin, parameters chosen by cross-validation.

    The same choice as ``GridSearchCV(MSVMAvClassifier(...), grid)`` makes, up to rounding. The rounds of all points of
    the grid start from the same coefficients, the same active rows and their Gram matrix, and for kernels from the same
    features; they run in one compiled loop (:func:`margindist.solvers.semivariance.solve_grid`).

    The default grid is that of the paper. Points whose rounds go into a cycle are scored like any other.

    Parameters
    ----------
    alphas, betas : sequence of float, default=(2**-10, 2**-8, ..., 2**10)
        Values of ``alpha`` and of ``beta``.

    gammas : sequence of {"scale", "auto"} or float, default=("scale",)
        Values of ``gamma`` for "rbf", "poly" and "sigmoid"; other kernels have none, and then this is not looked at.

    kernel, degree, coef0, fit_intercept
        As in :class:`MSVMAvClassifier`.

    cv : int, splitter or iterable of (train, test), default=None
        None is 5 stratified folds, an integer that many; see :func:`sklearn.model_selection.check_cv`.

    scoring : str or callable, default=None
        Any scorer of scikit-learn that asks for predictions or decision values; None is the accuracy.

    tol, max_iter, class_weight
        As in :class:`MSVMAvClassifier`.

    verbose : int, default=0
        Print progress.

    n_jobs : int, default=None
        Threads for the folds.

    Attributes
    ----------
    cv_results_ : dict
        Scores as in :class:`~sklearn.model_selection.GridSearchCV`, without times: no point of the grid has its own.

    best_estimator_ : MSVMAvClassifier
        Fitted to all samples with the best parameters. Its fitted attributes (``coef_``, ``dual_coef_`` ...) are also
        those of this estimator.

    best_params_, best_score_, best_index_ : dict, float and int
        The best point, its mean score and its position in ``cv_results_``; of several, the first.

    alpha_, beta_, gamma_ : float
        The best parameters.

    scorer_, n_splits_ : callable and int
        The scorer used, and the number of folds.

    classes_, n_features_in_, feature_names_in_ : ndarray, int and ndarray
        As in :class:`MSVMAvClassifier`.

    See Also
    --------
    MSVMAvClassifier : The classifier itself.

    Examples
    --------
    >>> from sklearn.datasets import load_breast_cancer
    >>> from sklearn.preprocessing import minmax_scale
    >>> from margindist import MSVMAvClassifierCV
    >>> X, y = load_breast_cancer(return_X_y=True)
    >>> search = MSVMAvClassifierCV().fit(minmax_scale(X), y)
    >>> len(search.cv_results_["params"]), search.best_score_ > 0.95
    (121, True)
    """

    best_estimator_: MSVMAvClassifier
    _classifier = MSVMAvClassifier
    _searched = ("alpha", "beta", "gamma")

    def __init__(
        self,
        alphas: Sequence[float] = POWERS_OF_FOUR,
        betas: Sequence[float] = POWERS_OF_FOUR,
        *,
        gammas: Sequence[str | float] = ("scale",),
        kernel: KernelName | Callable = "linear",
        degree: int = 3,
        coef0: float = 0.0,
        fit_intercept: bool = True,
        cv: Any = None,
        scoring: str | Callable | None = None,
        tol: float = 1e-6,
        max_iter: int = 100,
        class_weight: dict | Literal["balanced"] | None = None,
        verbose: int = 0,
        n_jobs: int | None = None,
    ):
        self.alphas = alphas
        self.betas = betas
        self.gammas = gammas
        self.kernel = kernel
        self.degree = degree
        self.coef0 = coef0
        self.fit_intercept = fit_intercept
        self.cv = cv
        self.scoring = scoring
        self.tol = tol
        self.max_iter = max_iter
        self.class_weight = class_weight
        self.verbose = verbose
        self.n_jobs = n_jobs

    def _decision_values(self, fold, points):
        data = fold.data
        space = fold.space()
        if space.n_columns is not None and space.n_columns * space.n_rows > _LARGEST_DENSE:
            return self._fit_each(fold, points)
        features = semivariance.features_of(space, data.weights)
        rows = as_rows(dense_matrix(features.rows))
        objectives = [SemiVariance(float(p["alpha"]), float(p["beta"]), features.metric) for p in points]
        options = Options(self.tol, self.max_iter)
        coefs = [
            semivariance.solve_grid(Problem(objectives, rows, signs, data.weights), options)
            for signs in fold.estimator._sign_vectors(data.codes)
        ]
        return fold.scores(space, features.coefficients(np.stack(coefs, axis=1))), 0
