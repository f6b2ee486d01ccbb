"""
I need probabilities, not scores
================================

Margin classifiers give decision values. scikit-learn's ``CalibratedClassifierCV`` turns them into probabilities, with
models that are fitted on one part of the data and a curve that is fitted on another. Any classifier here can be put
into it.
"""

import matplotlib.pyplot as plt
from sklearn.calibration import CalibratedClassifierCV, CalibrationDisplay
from sklearn.datasets import make_classification
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import brier_score_loss, log_loss
from sklearn.model_selection import train_test_split

from margindist import LDMClassifier, ODMClassifier

X, y = make_classification(6000, 20, n_informative=6, flip_y=0.1, class_sep=0.6, random_state=0)
X_train, X_test, y_train, y_test = train_test_split(X, y, test_size=0.5, stratify=y, random_state=0)

models = {
    "logistic regression": LogisticRegression(max_iter=1000),
    "SVM, RBF kernel": CalibratedClassifierCV(LDMClassifier(lambda1=0, lambda2=0, kernel="rbf"), cv=3),
    "ODM, RBF kernel": CalibratedClassifierCV(ODMClassifier(lam=2**10, kernel="rbf", n_components=200), cv=3),
}

# %%
# The two scores below are small where the probabilities are both right and decided. A linear model's probabilities may
# be well calibrated and yet say little.

print(f"{'':22} log-loss   Brier   accuracy")
for name, model in models.items():
    probability = model.fit(X_train, y_train).predict_proba(X_test)[:, 1]
    figures = log_loss(y_test, probability), brier_score_loss(y_test, probability), model.score(X_test, y_test)
    print(f"{name:22} {figures[0]:8.3f} {figures[1]:7.3f} {figures[2]:10.3f}")

# %%
# The diagonal is where the share of positives equals the probability that was predicted.

figure, ax = plt.subplots(figsize=(5.6, 4.6))
for name, model in models.items():
    CalibrationDisplay.from_estimator(model, X_test, y_test, n_bins=10, strategy="quantile", name=name, ax=ax)
