"""
Several classes: one joint problem, or one against the rest?
============================================================

One-vs-rest trains a model per class and lets the largest score win. That fails where a class lies *between* others:
no line separates it from the rest. :class:`~margindist.ODMClassifier` solves one problem for all classes
(``multi_class="direct"``, the default): the margin of a row is the score of its class less the best of the others.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.inspection import DecisionBoundaryDisplay

from margindist import LDMClassifier, ODMClassifier
from margindist.margins import MarginDistributionDisplay

rng = np.random.default_rng(0)
y = np.repeat(np.arange(4), 60)
X = np.column_stack([y / 3 + rng.normal(0, 0.06, y.size), rng.normal(0.5, 0.2, y.size)])
names = np.array(["cold", "cool", "warm", "hot"])[y]

# %%
# Four classes in a row, three linear models:

models = {
    "ODM": ODMClassifier(lam=2**12, random_state=0),
    "ODM, one-vs-rest": ODMClassifier(lam=2**12, multi_class="ovr", random_state=0),
    "SVM, one-vs-rest": LDMClassifier(C=16.0, lambda1=0, lambda2=0, random_state=0),
}
for name, model in models.items():
    print(f"{name:18} training accuracy {model.fit(X, names).score(X, names):.3f}")

# %%
# The joint problem gives each class a strip. One-vs-rest has to make do with lines that do not exist: none separates a
# class in the middle from the other three.

figure, axes = plt.subplots(1, 3, figsize=(9.5, 3.2), sharey=True)
for ax, (name, model) in zip(axes, models.items(), strict=True):
    codes = np.searchsorted(model.classes_, names)
    DecisionBoundaryDisplay.from_estimator(
        model, X, response_method="predict", plot_method="pcolormesh", alpha=0.35, ax=ax
    )
    ax.scatter(*X.T, c=codes, s=8)
    ax.set_title(name)

# %%
# The margins say the same: the curves meet the vertical line at the share of rows that are classified wrongly.

figure, ax = plt.subplots(figsize=(7, 3.6))
MarginDistributionDisplay.from_estimators(models, X, names, ax=ax)

# %%
# The price of large margins makes the joint problem non-convex; it is solved in rounds of convex ones, each of which is
# certified. The objective never increases from round to round:

joint = models["ODM"]
print(
    joint.objective_history_.round(2),
    joint.stop_reason_,
    f"gap of the convex problem: {joint.duality_gap_:.1e}",
    sep="\n",
)
