"""
My classes are of unequal size: what helps?
===========================================

When one class is rare, the accuracy says little: who always predicts the common class is nearly always right. Two
remedies work with every classifier here whose objective is a sum over rows: ``class_weight="balanced"``, which makes
each class count the same, and another threshold on the decision values.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import make_classification
from sklearn.dummy import DummyClassifier
from sklearn.metrics import PrecisionRecallDisplay, accuracy_score, balanced_accuracy_score, f1_score
from sklearn.model_selection import TunedThresholdClassifierCV, train_test_split

from margindist import LDMClassifier
from margindist.margins import MarginDistributionDisplay

X, y = make_classification(
    4000, 10, n_informative=4, n_clusters_per_class=1, weights=[0.97], flip_y=0.01, random_state=2
)
X_train, X_test, y_train, y_test = train_test_split(X, y, stratify=y, random_state=0)
print(f"the rare class: {y.mean():.1%} of the rows")

# %%
# Four ways. The third keeps the model and moves its threshold, to where the balanced accuracy was best in
# cross-validation.

svm = LDMClassifier(lambda1=0, lambda2=0)
models = {
    "most frequent class": DummyClassifier(),
    "as it is": svm,
    "threshold tuned": TunedThresholdClassifierCV(
        svm, scoring="balanced_accuracy", response_method="decision_function"
    ),
    "class_weight": LDMClassifier(lambda1=0, lambda2=0, class_weight="balanced"),
}
print(f"{'':18}  accuracy  balanced  F1 of the rare class")
for name, model in models.items():
    predicted = model.fit(X_train, y_train).predict(X_test)
    figures = [score(y_test, predicted) for score in (accuracy_score, balanced_accuracy_score, f1_score)]
    print(f"{name:18} {figures[0]:9.3f} {figures[1]:9.3f} {figures[2]:9.3f}")

# %%
# The margins of the rare class, alone: weights move them to the right side of zero. The ranking of the rows, which is
# what the precision-recall curve shows, changes much less.

rare = y_test == 1
drawn = {"as it is": svm.fit(X_train, y_train), "class_weight": models["class_weight"]}
figure, (left, right) = plt.subplots(1, 2, figsize=(9.5, 3.8))
# margins are those of the rare class's rows; a second class has to be among the labels, hence the weights
MarginDistributionDisplay.from_estimators(drawn, X_test, y_test, sample_weight=np.where(rare, 1.0, 0.0), ax=left)
left.set_title("margins of the rare class")
for name, model in drawn.items():
    PrecisionRecallDisplay.from_estimator(model, X_test, y_test, name=name, ax=right)
right.set_title("precision and recall")
