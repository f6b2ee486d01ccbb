"""The large margin distribution machine."""

from margindist.estimators._base import (
    COMMON_PARAMETERS,
    KERNEL_PARAMETERS,
    NON_NEGATIVE,
    POSITIVE_OR_INF,
    MarginClassifier,
    one_of,
    with_callbacks,
)
from margindist.objectives import LDM
from margindist.solvers import interior_point
from margindist.solvers._rows import as_rows


class LDMClassifier(MarginClassifier):
    """Large margin distribution machine."""

    _requirements = {
        **KERNEL_PARAMETERS,
        **COMMON_PARAMETERS,
        "C": POSITIVE_OR_INF,
        "lambda1": NON_NEGATIVE,
        "lambda2": NON_NEGATIVE,
        "solver": one_of("auto", "interior-point", "coordinate-descent"),
    }

    def __init__(
        self,
        C=1.0,
        lambda1=0.25,
        lambda2=0.25,
        *,
        kernel="linear",
        gamma="scale",
        degree=3,
        coef0=0.0,
        fit_intercept=True,
        solver="auto",
        tol=1e-4,
        max_iter=1000,
        warm_start=False,
        class_weight=None,
        random_state=None,
        verbose=0,
        n_jobs=None,
    ):
        self.C = C
        self.lambda1 = lambda1
        self.lambda2 = lambda2
        self.kernel = kernel
        self.gamma = gamma
        self.degree = degree
        self.coef0 = coef0
        self.fit_intercept = fit_intercept
        self.solver = solver
        self.tol = tol
        self.max_iter = max_iter
        self.warm_start = warm_start
        self.class_weight = class_weight
        self.random_state = random_state
        self.verbose = verbose
        self.n_jobs = n_jobs

    @with_callbacks
    def fit(self, X, y, sample_weight=None):
        """Fit."""
        self._check_parameters()
        data = self._validate_training_data(X, y, sample_weight)
        objective = LDM(float(self.C), float(self.lambda1), float(self.lambda2))
        rows = as_rows(data.X, self.fit_intercept)

        def solve(k, signs, report):
            return interior_point.solve(objective, rows, signs, data.weights, tol=self.tol, report=report)

        solutions = self._solve_each(solve, data.codes, X, y)
        self._store_linear([s.coef for s in solutions])
        self._store_convergence(solutions)
        return self
