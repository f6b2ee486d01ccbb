"""
Can it read text?
=================

TF-IDF makes a sparse matrix of texts: many columns, few entries per row. All classifiers take such a matrix as it is.
The texts here are the descriptions that scikit-learn ships with its data sets, cut into pieces of a few sentences;
the question is which description a piece comes from.
"""

import re
from importlib import resources

import matplotlib.pyplot as plt
import numpy as np
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.metrics import ConfusionMatrixDisplay
from sklearn.model_selection import cross_val_predict, cross_val_score
from sklearn.naive_bayes import MultinomialNB
from sklearn.pipeline import make_pipeline
from sklearn.svm import LinearSVC

from margindist import LDMClassifier, ODMClassifier

names = ["breast_cancer", "california_housing", "covtype", "diabetes", "digits", "kddcup99", "lfw", "rcv1"]
texts, labels = [], []
for name in names:
    description = resources.files("sklearn.datasets").joinpath("descr", f"{name}.rst").read_text(encoding="utf-8")
    words = re.findall(r"[a-z]{2,}", description.lower())
    pieces = [" ".join(words[k : k + 25]) for k in range(0, len(words) - 10, 25)]
    texts += pieces
    labels += [name.replace("_", " ")] * len(pieces)
labels = np.array(labels)
print(f"{len(texts)} pieces of {len(names)} descriptions; the first begins: {texts[0][:60]}")

# %%
# A pipeline with the vectoriser first: each fold of the cross-validation learns its own vocabulary.


def pipeline(classifier):
    """Return texts to TF-IDF to labels."""
    return make_pipeline(TfidfVectorizer(sublinear_tf=True, stop_words="english"), classifier)


classifiers = {
    "naive Bayes": MultinomialNB(alpha=0.1),
    "LinearSVC": LinearSVC(C=10.0, loss="hinge", max_iter=10_000, random_state=0),
    "SVM here": LDMClassifier(C=10.0, lambda1=0, lambda2=0, random_state=0),
    "ODM, one joint problem": ODMClassifier(lam=10.0 * len(texts), random_state=0),
}
for name, classifier in classifiers.items():
    scores = cross_val_score(pipeline(classifier), texts, labels, cv=5)
    print(f"{name:24} {scores.mean():.3f} ± {scores.std():.3f}")

# %%
# Where is it wrong? And which words speak for a description?

model = pipeline(classifiers["SVM here"])
predicted = cross_val_predict(model, texts, labels, cv=5)
figure, ax = plt.subplots(figsize=(7, 5))
ConfusionMatrixDisplay.from_predictions(labels, predicted, ax=ax, xticks_rotation=45, colorbar=False, cmap="Blues")

model.fit(texts, labels)
words = model[0].get_feature_names_out()
for label, weights in zip(model[-1].classes_, model[-1].coef_, strict=True):
    print(f"{label:20}", ", ".join(words[np.argsort(-weights)[:6]]))
