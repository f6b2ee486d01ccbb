"""Train LDM and a support vector machine on scikit-learn's breast-cancer data, compare their margins, draw them."""

import sys
from pathlib import Path

import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt
from sklearn.datasets import load_breast_cancer
from sklearn.model_selection import train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MinMaxScaler
from sklearn.svm import LinearSVC

from margindist import LDMClassifier
from margindist.margins import MarginDistributionDisplay, margin_statistics, margins

C = 1.0
PICTURE = "margin-distribution.png"

INTRODUCTION = """\
Breast cancer: {n_train} training and {n_test} test samples, {n_features} features scaled to [0, 1].

  LDM        C = {C:g}, lambda1 = lambda2 = {lam:g}. The hinge is summed over the samples, mean and variance of the
             margins are averages, so they only matter with lambdas on the scale of C times the number of
             samples; here they are just that.
  SVM        The same classifier with lambda1 = lambda2 = 0: the linear support vector machine, certified.
  LinearSVC  scikit-learn's solver for the same problem, without a certificate.
"""

CLOSING = """\
On the test samples the margin terms bring spread / mean from {svm_spread:.2f} (SVM) to {ldm_spread:.2f} (LDM),
and the mean margin from {svm_mean:.2f} to {ldm_mean:.2f}: here the variance is bought with some of the mean.
One split of one data set says nothing about accuracy in general; do not expect LDM to beat a
well-tuned SVM.
"""


def fitted_classifiers(X, y):
    lam = C * len(y)
    classifiers = {
        "LDM": LDMClassifier(C=C, lambda1=lam, lambda2=lam),
        "SVM": LDMClassifier(C=C, lambda1=0.0, lambda2=0.0),
        "LinearSVC": LinearSVC(C=C, loss="hinge", max_iter=100_000, random_state=0),
    }
    return {name: make_pipeline(MinMaxScaler(), last).fit(X, y) for name, last in classifiers.items()}


def table(classifiers, parts):
    """Return lines of text: one column per classifier, one row per figure."""
    lines = ["", *classifiers], ["test accuracy"], ["relative duality gap"]
    for classifier in classifiers.values():
        lines[1].append(f"{classifier.score(*parts['test']):.3f}")
        gap = getattr(classifier[-1], "duality_gap_", None)
        lines[2].append("-" if gap is None else f"{gap:.0e}")
    lines = list(lines)
    for part, (X, y) in parts.items():
        statistics = [margin_statistics(margins(classifier, X, y)) for classifier in classifiers.values()]
        lines.append([f"{part} margins"])
        for label, value in ROWS.items():
            lines.append([f"  {label}", *(f"{value(s):.3f}" for s in statistics)])
    return ["".join(f"{cell:>12}" if k else f"  {cell:<24}" for k, cell in enumerate(line)).rstrip() for line in lines]


def spread(statistics):
    return statistics.variance**0.5 / statistics.mean


ROWS = {
    "minimum": lambda s: s.minimum,
    "median": lambda s: s.median,
    "mean": lambda s: s.mean,
    "variance": lambda s: s.variance,
    "semi-variance": lambda s: s.semi_variance,
    "spread / mean": spread,
    "share below zero": lambda s: s.share_below_zero,
}


def draw(classifiers, train, test, path):
    drawn = {name: classifiers[name] for name in ("LDM", "SVM")}  # LinearSVC's curve would cover SVM's
    figure, (left, right) = plt.subplots(1, 2, figsize=(9.6, 3.8), layout="constrained")
    MarginDistributionDisplay.from_estimators(drawn, *train, X_test=test[0], y_test=test[1], ax=left)
    MarginDistributionDisplay.from_estimators(drawn, *test, kind="histogram", bins=28, ax=right)
    left.set_title("Cumulative", loc="left", fontsize="medium")
    right.set_title("Histogram of the test samples", loc="left", fontsize="medium")
    figure.get_layout_engine().set(wspace=0.06)
    figure.savefig(path, dpi=160)


def main(path=PICTURE):
    X, y = load_breast_cancer(return_X_y=True)
    X_train, X_test, y_train, y_test = train_test_split(X, y, test_size=0.3, stratify=y, random_state=0)
    parts = {"training": (X_train, y_train), "test": (X_test, y_test)}
    classifiers = fitted_classifiers(X_train, y_train)
    lam = classifiers["LDM"][-1].lambda1
    print(INTRODUCTION.format(n_train=len(y_train), n_test=len(y_test), n_features=X.shape[1], C=C, lam=lam))
    print("\n".join(table(classifiers, parts)), end="\n\n")
    svm, ldm = (margin_statistics(margins(classifiers[name], X_test, y_test)) for name in ("SVM", "LDM"))
    print(CLOSING.format(svm_spread=spread(svm), ldm_spread=spread(ldm), svm_mean=svm.mean, ldm_mean=ldm.mean))
    draw(classifiers, *parts.values(), path)
    print(f"The margin distributions are drawn in {Path(path).resolve()}.")


if __name__ == "__main__":
    main(*sys.argv[1:])
