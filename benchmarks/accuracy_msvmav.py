"""MSVMAv, linear, on sets of Table 1 of Qian et al. (2022), beside the printed accuracies.

    MARGINDIST_DATA=... python -m benchmarks.accuracy_msvmav [--splits 30] [--sets wdbc german]

As the paper: features scaled to [0, 1] on the training part, a constant feature, random 80/20 splits, alpha and beta
in {2^-10, 2^-8, ..., 2^10} by five-fold cross-validation on the training part, at most 100 rounds. Its 30 partitions
seem to share one split (the deviations printed for MAMC are zero), so deviations are not comparable. "diff" is ours
minus print.
"""

import argparse
import warnings

import numpy as np
from joblib import Parallel, delayed
from sklearn.model_selection import StratifiedKFold, train_test_split

from benchmarks._measure import data_folder, table
from margindist import MSVMAvClassifier

GRID = [2.0**k for k in range(-10, 11, 2)]

# Mean and standard deviation as printed in Table 1: MSVMAv, then SVM.
PRINTED = {
    "australian": ((0.8314, 0.0079), (0.8167, 0.0077)),
    "breastw": ((0.9730, 0.0038), (0.9725, 0.0041)),
    "diabetes": ((0.7530, 0.0088), (0.7561, 0.0104)),
    "german": ((0.7518, 0.0097), (0.7457, 0.0095)),
    "halloffame": ((0.9644, 0.0025), (0.9617, 0.0047)),
    "pbcseq": ((0.6626, 0.0074), (0.6439, 0.0147)),
    "sleepdata": ((0.6925, 0.0056), (0.6743, 0.0051)),
    "titanic": ((0.7658, 0.0038), (0.7636, 0.0000)),
    "wdbc": ((0.9778, 0.0067), (0.9787, 0.0084)),
}


def scaled(X, reference):
    low, span = reference.min(axis=0), np.ptp(reference, axis=0)
    return (X - low) / np.where(span > 0, span, 1.0)


def accuracy(X, y, seed):
    """Return the test accuracy on one split and the parameters chosen."""
    warnings.simplefilter("ignore")  # cycles at the corners of the grid
    train, test = train_test_split(np.arange(len(y)), test_size=0.2, random_state=seed, stratify=y)
    X = scaled(X, X[train])
    folds = list(StratifiedKFold(5, shuffle=True, random_state=seed).split(train[:, None], y[train]))
    correct = {
        (alpha, beta): sum(
            (MSVMAvClassifier(alpha, beta).fit(X[train[a]], y[train[a]]).predict(X[train[b]]) == y[train[b]]).sum()
            for a, b in folds
        )
        for alpha in GRID
        for beta in GRID
    }
    alpha, beta = max(correct, key=correct.get)
    return MSVMAvClassifier(alpha, beta).fit(X[train], y[train]).score(X[test], y[test]), alpha, beta


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--splits", type=int, default=30)
    parser.add_argument("--sets", nargs="*", default=list(PRINTED))
    parser.add_argument("--jobs", type=int, default=1)
    arguments = parser.parse_args()
    lines = []
    for name in arguments.sets:
        stored = np.load(data_folder() / f"{name}.npz", allow_pickle=False)
        X, y = stored["X"].astype(np.float64), stored["y"]
        found = Parallel(n_jobs=arguments.jobs)(delayed(accuracy)(X, y, seed) for seed in range(arguments.splits))
        ours, alphas, betas = map(np.array, zip(*found))
        (printed, deviation), (svm, _) = PRINTED[name]
        lines.append({
            "set": name, "splits": len(ours), "MSVMAv": f"{ours.mean():.4f} ± {ours.std():.4f}",
            "printed": f"{printed:.4f} ± {deviation:.4f}", "diff": f"{ours.mean() - printed:+.4f}",
            "printed SVM": f"{svm:.4f}", "alpha (median)": f"{np.median(alphas):.3g}",
            "beta (median)": f"{np.median(betas):.3g}",
        })  # fmt: skip
    table("MSVMAv, linear: test accuracy", lines)


if __name__ == "__main__":
    main()
