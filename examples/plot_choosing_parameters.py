"""
My grid search takes too long
=============================

``GridSearchCV`` fits every point of the grid from nothing. :class:`~margindist.LDMClassifierCV` and its sisters
search the same grid on the same folds and make the same choice, but solve a fold for all points at once: one
factorisation, then small steps from point to point.
"""

import time

from sklearn.datasets import load_breast_cancer
from sklearn.model_selection import GridSearchCV
from sklearn.preprocessing import minmax_scale

from margindist import LDMClassifier, LDMClassifierCV
from margindist.margins import ParameterInfluenceDisplay

X, y = load_breast_cancer(return_X_y=True)
X, y = minmax_scale(X)[::4], y[::4]
lambdas = [2.0**k for k in range(-8, -1)]
grid = {"C": [10.0, 50.0, 100.0], "lambda1": lambdas, "lambda2": lambdas}  # as in the paper


def seconds(fit):
    """Return the processor time of a call."""
    start = time.process_time()
    fit()
    return time.process_time() - start


own = LDMClassifierCV(grid["C"], grid["lambda1"], grid["lambda2"], kernel="rbf", gammas=[1.0], cv=3)
usual = GridSearchCV(LDMClassifier(kernel="rbf", gamma=1.0), grid, cv=3)
own.fit(X, y)  # the first fits compile
usual.estimator.fit(X, y)

# %%
# The same grid, the same folds:

ours = seconds(lambda: own.fit(X, y))
theirs = seconds(lambda: usual.fit(X, y))
points = len(own.cv_results_["params"])
print(f"{points} points, 3 folds: LDMClassifierCV {ours:.2f} s, GridSearchCV {theirs:.2f} s, {theirs / ours:.0f} times")
print("chosen here:   ", {name: own.best_params_[name] for name in grid}, f"{own.best_score_:.4f}")
print("GridSearchCV:  ", usual.best_params_, f"{usual.best_score_:.4f}")

# %%
# So a wider grid costs little. The lambdas of the paper are small beside ``C`` times the number of rows; here are some
# that reach as far as that. Each curve varies one parameter and leaves the others at the best values.

far = [0.0, *(2.0**k for k in range(-4, 13, 2))]
wide = LDMClassifierCV([2.0**k for k in range(-6, 11, 2)], far, far, kernel="rbf", gammas=[0.3, 1.0, 3.0], cv=3)
print(f"{seconds(lambda: wide.fit(X, y)):.1f} s for {len(wide.cv_results_['params'])} points")
ParameterInfluenceDisplay.from_cv_results(wide)
