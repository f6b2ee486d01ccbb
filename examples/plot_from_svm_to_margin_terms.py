"""
What do LDM's margin terms do?
==============================

:class:`~margindist.LDMClassifier` begins as a support vector machine and adds a price on the variance of the margins
(``lambda1``) and a reward for their mean (``lambda2``). The hinge loss is a *sum* over rows, mean and variance are
*averages*: the two terms begin to matter when the lambdas are about ``C`` times the number of rows. Let us walk from
one end to the other.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_breast_cancer
from sklearn.model_selection import train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MinMaxScaler

from margindist import LDMClassifier
from margindist.margins import MarginDistributionDisplay, margin_statistics, margins

X, y = load_breast_cancer(return_X_y=True)
X_train, X_test, y_train, y_test = train_test_split(X, y, test_size=0.4, stratify=y, random_state=0)
C, m = 1.0, len(y_train)

shares = np.concatenate([[0.0], np.logspace(-4, 2, 13)])
models = {
    share: make_pipeline(MinMaxScaler(), LDMClassifier(C, share * C * m, share * C * m)).fit(X_train, y_train)
    for share in shares
}

# %%
# One column per quantity, on the test rows. Spread is the standard deviation of the margins over their mean: it has no
# unit, so that models with longer and shorter weights can be compared.

statistics = [margin_statistics(margins(model, X_test, y_test)) for model in models.values()]
spread = np.array([s.variance**0.5 / s.mean for s in statistics])
accuracy = np.array([model.score(X_test, y_test) for model in models.values()])
print("lambda / (C m)   spread   accuracy")
for share, s, a in zip(shares, spread, accuracy, strict=True):
    print(f"{share:14g} {s:8.3f} {a:10.3f}")

# %%
# On the left the path, on the right its ends: the SVM's margins, and those with the terms in force.

figure, (left, right) = plt.subplots(1, 2, figsize=(9.5, 3.6))
left.semilogx(shares[1:], spread[1:], "o-", label="spread / mean of the test margins")
left.axhline(spread[0], color="0.5", linestyle="dotted", label="SVM")
left.plot(shares[1:], 1 - accuracy[1:], "s--", color="0.45", label="test error")
left.set(xlabel="lambda1 = lambda2, in units of C times the number of rows", ylim=(0, None))
left.legend()
ends = {"SVM": models[shares[0]], "LDM": models[shares[9]]}
MarginDistributionDisplay.from_estimators(ends, X_test, y_test, kind="histogram", ax=right)

# %%
# The margin terms do what they say: the margins draw together. The accuracy is another matter; a well-tuned support
# vector machine is hard to beat, and :doc:`the papers' tables, run again </reproduction/index>` show no general gain.
