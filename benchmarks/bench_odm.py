"""ODM beside LinearSVC: `python -m benchmarks.bench_odm [section ...]`, with MARGINDIST_DATA set.

Sections: binary, wide, multiclass, against_regression, few, classes. Times are processor times. Two-class fits are
certified by their duality gap; the peer is LinearSVC with the squared hinge (primal), at the same price per sample.
Joint multi-class fits are compared with LinearSVC by Crammer and Singer and with multinomial logistic regression; the
gap is that of the best round's convex problem. Arguments after a section's name that are data sets (numbers of classes)
restrict it to them.
"""

import sys
from functools import partial

import numpy as np
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import train_test_split
from sklearn.svm import LinearSVC

from benchmarks._measure import in_turn, load, memory_growth, table
from margindist import ODMClassifier

MU, THETA = 0.4, 0.2
FINEST = 1e-4  # relative distance from a minimum below which nothing is compared
MULTICLASS = ["satimage", "usps", "pendigits", "letter", "shuttle", "mnist", "covtype"]
JOINT = ["usps", "letter", "shuttle", "satimage", "covtype", "mnist"]
SECTIONS = ["binary", "wide", "multiclass", "against_regression", "few", "classes"]


def against_linear_svc(name, tol, equally=False):
    """Yield both at one price per sample; ``equally`` adds ours, solved no further than the peer solves its problem."""
    X, y = load(name)
    price = 1.0 / (len(y) * (1 - THETA) ** 2)
    ODMClassifier(fit_intercept=False, tol=0.1).fit(X, y)  # compilation is not the fit's
    for lam in (1, 2**10, 2**20):
        ours = ODMClassifier(lam, MU, THETA, fit_intercept=False, tol=tol)
        peer = LinearSVC(C=lam * price, dual=False, fit_intercept=False, random_state=0)
        (model, seconds), (svc, peer_seconds) = in_turn(
            lambda o=ours: o.fit(X, y), lambda p=peer: p.fit(X, y), repeats=5
        )
        row = {
            "data": f"{name} {X.shape[0]}x{X.shape[1]}",
            "lambda": lam,
            "solver": model.solver_,
            "ODM s": seconds,
            "LinearSVC(dual=False) s": peer_seconds,
            "ratio": seconds / peer_seconds,
            "gap (certified)": model.duality_gap_,
            "iterations": model.n_iter_,
        }
        if equally:
            above = above_squared_hinge_minimum(svc, X, y, lam * price)
            equal = ODMClassifier(lam, MU, THETA, fit_intercept=False, tol=max(above, FINEST))
            ((_, equal_seconds),) = in_turn(lambda o=equal: o.fit(X, y), repeats=5)
            row |= {
                "LinearSVC above its minimum": above,
                "ODM s as exact": equal_seconds,
                "ratio as exact": equal_seconds / peer_seconds,
            }
        yield row


def above_squared_hinge_minimum(model, X, y, price):
    """Return how far, relatively, a model is above the minimum of ½‖w‖² + price Σ(1 − z)_+²; to about FINEST.

    The minimum is that of ODM without a band, whose price above it is next to nothing.
    """

    def value(w):
        return 0.5 * (w @ w) + price * np.sum(np.maximum(0.0, 1.0 - y * (X @ w)) ** 2)

    least = ODMClassifier(price * len(y), 1e-9, 0.0, fit_intercept=False, tol=FINEST, max_iter=10**5).fit(X, y)
    return float(max(0.0, value(model.coef_[0]) / value(least.coef_[0]) - 1.0))


def binary():
    names = ("a9a", "w8a", "cod-rna")
    table("Two classes, certified to 1e-6", (row for name in names for row in against_linear_svc(name, 1e-6)))


def wide(names=("bibtex", "farm-ads")):
    rows = (row for name in names for row in against_linear_svc(name, 1e-3, equally=True))
    table("Two classes, sparse and wide, certified to 1e-3", rows)


def split(name):
    X, y = load(name + ":multi")
    return train_test_split(X, y, test_size=0.2, random_state=0)


def fit_joint(X, y, outer, price=1.0):
    lam = price * len(y) * (1 - THETA) ** 2
    return ODMClassifier(lam, MU, THETA, outer=outer, fit_intercept=False, random_state=0).fit(X, y)


def fit_crammer_singer(X, y, price=1.0):
    return LinearSVC(C=price, multi_class="crammer_singer", fit_intercept=False, random_state=0).fit(X, y)


def multiclass(names=MULTICLASS):
    """Both at one price per sample: C = 1, and lambda = m (1 - theta)²."""
    rows = []
    for name in names:
        X, test, y, truth = split(name)
        fit_joint(X[:2000], y[:2000], "concave")
        (concave, seconds), (frozen, frozen_seconds), (svc, peer_seconds) = in_turn(
            partial(fit_joint, X, y, "concave"), partial(fit_joint, X, y, "frozen"), partial(fit_crammer_singer, X, y),
            repeats=2, longest=30.0,
        )  # fmt: skip
        rows.append({
            "data": f"{name} {X.shape[0]}x{X.shape[1]}, {len(concave.classes_)} classes",
            "concave s": seconds, "frozen s": frozen_seconds, "Crammer-Singer s": peer_seconds,
            "ratio": seconds / peer_seconds, "rounds": len(concave.objective_history_), "passes": concave.n_iter_,
            "gap": concave.duality_gap_, "objective, frozen / concave": frozen.objective_ / concave.objective_,
            "accuracy": concave.score(test, truth), "frozen accuracy": frozen.score(test, truth),
            "Crammer-Singer accuracy": svc.score(test, truth),
        })  # fmt: skip
        print(rows[-1], file=sys.stderr, flush=True)
    table("More classes, one price per sample (C = 1), default tolerance", rows)


def few(names=("dna", "usps", "letter", "news20-train")):
    """A few rows with more columns times classes, as they are met within cross-validation of small data."""
    rows = []
    for name in names:
        X, _, y, _ = split(name)
        X, y = X[:240], y[:240]
        fit_joint(X, y, "concave")
        for price in (1.0, 2.0**10):
            (ours, seconds), (_, peer_seconds) = in_turn(
                partial(fit_joint, X, y, "concave", price), partial(fit_crammer_singer, X, y, price),
                repeats=3, longest=30.0,
            )  # fmt: skip
            rows.append({
                "data": f"{name} {X.shape[0]}x{X.shape[1]}, {len(ours.classes_)} classes", "C": price,
                "ODM s": seconds, "Crammer-Singer s": peer_seconds, "ratio": seconds / peer_seconds,
                "steps": ours.n_iter_, "gap": ours.duality_gap_,
            })  # fmt: skip
            print(rows[-1], file=sys.stderr, flush=True)
    table("More classes, 240 rows", rows)


def against_regression(names=JOINT):
    """The joint problem beside multinomial logistic regression, both at their default tolerances."""
    rows = map(beside_regression, names)
    table("More classes beside multinomial logistic regression, default tolerances", rows)


def beside_regression(name):
    X, test, y, truth = split(name)
    fit_joint(X[:2000], y[:2000], "concave")
    (ours, seconds), (peer, peer_seconds) = in_turn(
        partial(fit_joint, X, y, "concave"), partial(fit_regression, X, y), repeats=3, longest=30.0
    )
    return {
        "data": f"{name} {X.shape[0]}x{X.shape[1]}, {len(ours.classes_)} classes",
        "ODM s": seconds, "LogisticRegression s": peer_seconds, "ratio": seconds / peer_seconds,
        "steps": ours.n_iter_, "gap": ours.duality_gap_, "iterations of the peer": int(peer.n_iter_[0]),
        "accuracy": ours.score(test, truth), "accuracy of the peer": peer.score(test, truth),
    }  # fmt: skip


def fit_regression(X, y):
    return LogisticRegression(fit_intercept=False, max_iter=1000).fit(X, y)


def classes(counts=(2, 5, 10, 30, 100, 300, 1000)):
    """Time and memory against the number of classes, with as many rows and columns."""
    rows = []

    def measured():
        for k in map(int, counts):
            X, y = blobs(k)
            ODMClassifier(tol=0.1).fit(X[: 4 * k], y[: 4 * k])
            ours = partial(fit_joint, X, y, "concave")
            _, grown = memory_growth(ours)
            (model, seconds), (_, joint), (_, rest) = in_turn(
                ours, partial(fit_regression, X, y), partial(fit_one_against_rest, X, y), repeats=3, longest=10.0
            )
            rows.append({
                "classes": k, "ODM s": seconds, "LogisticRegression s": joint, "LinearSVC s": rest,
                "steps": model.n_iter_, "gap": model.duality_gap_, "memory growth MB": grown, "data MB": X.nbytes / 1e6,
            })  # fmt: skip
            yield rows[-1]

    table("Time against the number of classes, 20,000 x 50", measured())
    table("Exponents of the number of classes", [exponents(rows)])


def blobs(k):
    rng = np.random.default_rng(0)
    y = np.r_[np.arange(k), rng.integers(0, k, 20_000 - k)]
    return rng.standard_normal((k, 50))[y] + rng.standard_normal((20_000, 50)), y


def fit_one_against_rest(X, y):
    return LinearSVC(fit_intercept=False, random_state=0).fit(X, y)


def exponents(rows):
    """Return e of the best fit of seconds (or MB) to classes^e."""
    logs = np.log([row["classes"] for row in rows])
    columns = ["ODM s", "LogisticRegression s", "LinearSVC s", "memory growth MB"]
    return {name: float(np.polyfit(logs, np.log([max(row[name], 1e-3) for row in rows]), 1)[0]) for name in columns}


if __name__ == "__main__":
    section, *names = sys.argv[1:] or ["all"]
    for name in SECTIONS if section == "all" else [section]:
        globals()[name](*([names] if names else []))
