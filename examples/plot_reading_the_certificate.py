"""
How do I read the certificate?
==============================

A fit ends when its *duality gap* is below ``tol``. The gap is a proof: no weights whatever have an objective that is
lower than ``objective_`` by more than ``duality_gap_`` times it. Whether the solver was slow, lucky or broken does
not matter, because the proof is checked from the coefficients alone.
"""

import warnings

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_breast_cancer
from sklearn.preprocessing import minmax_scale

from margindist import LDMClassifier

X, y = load_breast_cancer(return_X_y=True)
X = minmax_scale(X)
model = LDMClassifier(C=10.0, lambda1=0.0, lambda2=0.0, tol=1e-4).fit(X, y)

print(f"solver:      {model.solver_}, {model.n_iter_} iterations")
print(f"objective:   {model.objective_:.6f}")
print(f"gap:         {model.duality_gap_:.1e}  (asked for: {model.tol:g})")
print(f"the minimum: at least {model.objective_ * (1 - model.duality_gap_):.6f}")

# %%
# The bound can be checked by hand. Multipliers between 0 and ``C`` make a point of the dual problem, whose value is
# below the minimum; for the support vector machine that value is :math:`\sum_i \beta_i - \tfrac12 \|\sum_i \beta_i y_i
# x_i\|^2`.

signs = np.where(y == 1, 1.0, -1.0)
rows = np.column_stack([X, np.ones(len(y))])  # the intercept is the weight of a constant
multipliers = model.multipliers_[0]
w = rows.T @ (multipliers * signs)
lower = multipliers.sum() - w @ w / 2
print(f"from the multipliers: the minimum is at least {lower:.6f}")

# %%
# What does a loose gap cost? The objective is proved to be within the gap; here is how far it really was, and how many
# training rows change sides compared with the best model.

best = LDMClassifier(C=10.0, lambda1=0.0, lambda2=0.0, tol=1e-10).fit(X, y)
tolerances = np.logspace(0, -6, 7)
gaps, above = [], []
for tol in tolerances:
    loose = LDMClassifier(C=10.0, lambda1=0.0, lambda2=0.0, tol=tol).fit(X, y)
    gaps.append(loose.duality_gap_)
    above.append(max(loose.objective_ / best.objective_ - 1, 1e-12))
    changed = np.sum(loose.predict(X) != best.predict(X))
    print(f"tol {tol:7.0e}: proved {gaps[-1]:.1e}, true {above[-1]:.1e}, {changed} rows predicted differently")

figure, ax = plt.subplots(figsize=(6, 3.6))
ax.loglog(tolerances, gaps, "o-", label="duality_gap_: proved")
ax.loglog(tolerances, above, "s--", label="distance from the optimum: true")
ax.plot(tolerances, tolerances, color="0.6", linewidth=1, label="what tol asks for")
ax.set(xlabel="tol", ylabel="relative to the objective")
ax.invert_xaxis()
ax.legend()

# %%
# A fit that cannot reach ``tol`` says so, with both numbers. Here it is stopped after three iterations:

with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    LDMClassifier(C=10.0, lambda1=0.0, lambda2=0.0, max_iter=3).fit(X, y)
print(caught[0].message)
