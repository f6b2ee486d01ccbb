"""
Which C, without folds?
=======================

For least squares the error that leaving out a row would cause is known without leaving it out.
:meth:`~margindist.LSSVMClassifier.path` factorises the kernel matrix once and returns the *exact* leave-one-out
scores for as many values of ``C`` as you like.
"""

import time

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_breast_cancer
from sklearn.model_selection import LeaveOneOut, cross_val_score
from sklearn.preprocessing import minmax_scale

from margindist import LSSVMClassifier

X, y = load_breast_cancer(return_X_y=True)
X = minmax_scale(X)
Cs = np.logspace(-3, 3, 25)
machine = LSSVMClassifier(kernel="rbf", gamma=0.3)

start = time.process_time()
path = machine.path(X, y, Cs)
seconds = time.process_time() - start
print(f"{len(Cs)} values of C, {len(y)} rows left out one by one: {seconds:.2f} s; the best C is {path.best_C:g}")

# %%
# Is that really leaving out? On some rows, the slow way:

few = slice(None, None, 8)
slow = cross_val_score(machine.set_params(C=10.0), X[few], y[few], cv=LeaveOneOut()).mean()
fast = machine.path(X[few], y[few], [10.0]).loo_error[0]
print(f"accuracy by {len(y[few])} fits: {slow:.4f}; by the formula: {1 - fast:.4f}")

# %%
# Beside five-fold cross-validation, which costs five fits for every ``C``:

folds = [1 - cross_val_score(machine.set_params(C=C), X, y, cv=5).mean() for C in Cs[::4]]
figure, ax = plt.subplots(figsize=(6, 3.6))
ax.semilogx(Cs, path.loo_error, "-", label="leave-one-out, exact")
ax.semilogx(Cs[::4], folds, "s--", color="0.45", label="five folds")
ax.set(xlabel="C", ylabel="error")
ax.legend()
