"""
LinearSVC does not converge: what now?
======================================

``ConvergenceWarning: Liblinear failed to converge, increase the number of iterations.`` With a large ``C``, or with
features that are not scaled, more iterations help little. :class:`~margindist.LDMClassifier` with ``lambda1=0,
lambda2=0`` is the same support vector machine, solved by an interior point method whose number of iterations hardly
depends on ``C``.
"""

import time
import warnings

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import make_classification
from sklearn.preprocessing import minmax_scale
from sklearn.svm import LinearSVC

from margindist import LDMClassifier

X, y = make_classification(5000, 30, n_informative=10, flip_y=0.1, class_sep=0.7, random_state=0)
X = minmax_scale(X)
signs = np.where(y == 1, 1, -1)


def objective(model, C):
    """Return what both minimise. The intercept counts as a weight, as in LinearSVC."""
    w = np.append(model.coef_, model.intercept_)
    z = signs * (X @ w[:-1] + w[-1])
    return w @ w / 2 + C * np.maximum(0, 1 - z).sum()


def seconds(fit):
    """Return the processor time of a call."""
    start = time.process_time()
    fit()
    return time.process_time() - start


LDMClassifier(lambda1=0, lambda2=0).fit(X, y)  # the first fit compiles

# %%
# Both solve the same problem for growing ``C``. How far is each above the optimum? For ours an upper bound is known:
# ``duality_gap_``. For the other one we have to compute its objective and compare.

Cs = np.logspace(-2, 4, 7)
rows = []
for C in Cs:
    svm = LDMClassifier(C=C, lambda1=0, lambda2=0, tol=1e-6)
    peer = LinearSVC(C=C, loss="hinge", max_iter=1000, random_state=0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        taken = seconds(lambda peer=peer: peer.fit(X, y))
    ours = seconds(lambda svm=svm: svm.fit(X, y))
    above = objective(peer, C) / svm.objective_ - 1
    rows.append((ours, taken, svm.duality_gap_, above))
    print(f"C = {C:8g}: ours {ours:.3f} s, gap {svm.duality_gap_:.0e}; LinearSVC {taken:.3f} s, {above:.1e} above")

# %%
# LinearSVC's time and error grow with ``C``; the certified fit takes about as long at every ``C``.

ours, taken, gaps, above = np.array(rows).T
figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.4))
for ax, pair, title in ((left, (ours, taken), "processor seconds"), (right, (gaps, above), "above the optimum")):
    ax.loglog(Cs, np.maximum(pair[0], 1e-12), "o-", label="LDMClassifier(lambda1=0, lambda2=0)")
    ax.loglog(Cs, np.maximum(pair[1], 1e-12), "s--", color="0.45", label="LinearSVC(loss='hinge')")
    ax.set(xlabel="C", title=title)
left.legend()

# %%
# More iterations are no way out. These are 5,000 at the largest ``C``:

patient = LinearSVC(C=Cs[-1], loss="hinge", max_iter=5000, random_state=0)
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    taken = seconds(lambda: patient.fit(X, y))
print(f"{taken:.1f} s, {objective(patient, Cs[-1]) / svm.objective_ - 1:.1e} above the optimum")
print(*(str(warning.message) for warning in caught))
