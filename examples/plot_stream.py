"""
My rows come one after the other: can it learn as they come?
============================================================

:class:`~margindist.PUMMAClassifier` and the other online learners update their weights row by row. ``partial_fit``
takes a row or a million and keeps nothing but the weights (linear models), so that the memory does not grow with the
stream. A stream cannot be centred beforehand; PUMMA does not mind, because it finds the intercept exactly.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.linear_model import Perceptron

from margindist import PUMMAClassifier, ROMMAClassifier

rng = np.random.default_rng(0)
d, batch, n_batches = 30, 50, 120
centre, truth = rng.normal(3.0, 1.0, size=d), rng.normal(size=d)


def next_batch(truth):
    """Return rows as they come, far from the origin."""
    X = rng.normal(size=(batch, d))
    return X + centre, np.where(X @ truth > 0, "yes", "no")


learners = {"PUMMA": PUMMAClassifier(), "ROMMA": ROMMAClassifier(), "Perceptron": Perceptron()}

# %%
# Test first, then learn: every batch is predicted before its labels are shown. Two thirds of the way the world changes,
# and the learners have to follow.

hits = {name: [] for name in learners}
for number in range(n_batches):
    if number == 2 * n_batches // 3:
        truth = rng.normal(size=d)
    X, y = next_batch(truth)
    for name, learner in learners.items():
        if number:
            hits[name].append(learner.score(X, y))
        learner.partial_fit(X, y, classes=["no", "yes"])

# %%
# Accuracy on the coming batch, averaged over five:

figure, ax = plt.subplots()
for name, scores in hits.items():
    smooth = np.convolve(scores, np.ones(5) / 5, mode="valid")
    ax.plot(smooth, label=name, color="0.45" if name == "Perceptron" else None)
    print(f"{name:12} {np.mean(scores):.3f} over the whole stream")
ax.axvline(2 * n_batches // 3 - 4, color="0.7", linestyle="dotted", label="the world changes")
ax.set(xlabel="batches seen", ylabel="accuracy on the next ones")
ax.legend()

# %%
# What a learner keeps: its weights, and how many rows made it change them.

pumma = learners["PUMMA"]
print(pumma.coef_.shape, "weights,", pumma.n_updates_, "updates in", batch * n_batches, "rows")

# %%
# This stream has no wrong labels. Where labels can be wrong, or classes overlap, set ``soft_margin=1``: see
# :doc:`/user_guide/online`.
