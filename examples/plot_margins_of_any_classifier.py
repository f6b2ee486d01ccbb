"""
What do the margins of my classifier look like?
===============================================

A margin says how clearly, and on which side, a classifier decides a row: it is positive where the prediction is
right. :mod:`margindist.margins` takes the scores of *any* classifier: decision values of a support vector machine, or
the probabilities of a forest and of a boosted model. Here are three side by side, on rows that none of them has seen.
"""

import matplotlib.pyplot as plt
import pandas as pd
from sklearn.datasets import load_breast_cancer
from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier
from sklearn.model_selection import train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MinMaxScaler

from margindist import LDMClassifier
from margindist.margins import MarginDistributionDisplay, margin_statistics, margins, margins_from_decision

X, y = load_breast_cancer(return_X_y=True)
X_train, X_test, y_train, y_test = train_test_split(X, y, stratify=y, random_state=0)

forest = RandomForestClassifier(random_state=0).fit(X_train, y_train)
boosted = HistGradientBoostingClassifier(max_iter=50, random_state=0).fit(X_train, y_train)
svm = make_pipeline(MinMaxScaler(), LDMClassifier(lambda1=0.0, lambda2=0.0)).fit(X_train, y_train)

# %%
# A forest has no decision function. The probability of the true class less that of the other is a margin between -1 and
# 1, and :func:`~margindist.margins.margins_from_decision` computes it for any number of classes.

found = {
    "forest": margins_from_decision(forest.predict_proba(X_test), y_test),
    "boosted": margins_from_decision(boosted.predict_proba(X_test), y_test),
    "SVM": margins(svm, X_test, y_test),
}

# %%
# In numbers: the share below zero is the error rate. Scores of different classifiers have different units, so only that
# column, and the shape of the curves, can be compared between rows.

table = pd.concat([margin_statistics(z).to_frame(name) for name, z in found.items()])
print(table[["minimum", "median", "mean", "variance", "share_below_zero"]].round(3))

# %%
# In a picture: the boosted model pushes nearly every probability to 0 or 1, the forest votes more carefully, and the
# support vector machine leaves a slope.

scores = {
    "forest": forest.predict_proba(X_test),
    "boosted": boosted.predict_proba(X_test),
    "SVM": svm.decision_function(X_test),
}
figure, axes = plt.subplots(1, 3, figsize=(9.5, 3.2), sharey=True)
for ax, (name, decision) in zip(axes, scores.items(), strict=True):
    MarginDistributionDisplay.from_predictions(y_test, decision, name=name, ax=ax)
    ax.set_title(name)
