"""
An RBF kernel on many rows: exact, or approximate?
==================================================

A kernel machine looks at pairs of rows, so its cost grows with the square of their number. Up to some ten thousand
rows the exact fit is practical; beyond, ``n_components`` replaces the kernel by that many Nystroem features, and the
cost grows with the number of rows itself.
"""

import time

import matplotlib.pyplot as plt
from sklearn.datasets import make_moons
from sklearn.model_selection import train_test_split
from sklearn.svm import SVC

from margindist import LDMClassifier

X, y = make_moons(10_000, noise=0.35, random_state=0)
X_train, X_test, y_train, y_test = train_test_split(X, y, test_size=2000, random_state=0)
LDMClassifier(C=10.0, lambda1=0, lambda2=0, kernel="rbf").fit(X[:500], y[:500])  # the first fits compile
LDMClassifier(C=10.0, lambda1=0, lambda2=0, kernel="rbf", n_components=50).fit(X[:500], y[:500])

# %%
# The exact fits first: ours is certified for the kernel as it is.


def timed(model, rows):
    """Return the processor time of a fit."""
    start = time.process_time()
    model.fit(X_train[:rows], y_train[:rows])
    return time.process_time() - start


models = {
    "SVC": lambda: SVC(C=10.0),
    "exact": lambda: LDMClassifier(C=10.0, lambda1=0, lambda2=0, kernel="rbf"),
    "100 components": lambda: LDMClassifier(
        C=10.0, lambda1=0, lambda2=0, kernel="rbf", n_components=100, random_state=0
    ),
    "300 components": lambda: LDMClassifier(
        C=10.0, lambda1=0, lambda2=0, kernel="rbf", n_components=300, random_state=0
    ),
}
sizes = [1000, 2000, 4000, 8000]
taken = {name: [] for name in models}
for name, make in models.items():
    for rows in sizes:
        model = make()
        taken[name].append(timed(model, rows))
    certificate = f"gap {model.duality_gap_:.0e}, {model.certified_problem_}" if hasattr(model, "duality_gap_") else ""
    print(f"{name:15} {taken[name][-1]:6.2f} s   test accuracy {model.score(X_test, y_test):.3f}   {certificate}")

# %%
# ``certified_problem_`` says what the gap is a gap of: ``"exact"``, or the problem on Nystroem's features.

figure, ax = plt.subplots(figsize=(6, 3.8))
for name, seconds in taken.items():
    ax.loglog(sizes, seconds, "o-", label=name, color="0.45" if name == "SVC" else None)
ax.set(xlabel="training rows", ylabel="processor seconds")
ax.legend()
