"""Kernel LDM beside SVC: `python -m benchmarks.bench_kernel [section ...]`, with MARGINDIST_DATA set.

Sections: few (few support vectors), many (many of them), beyond (mnist and covtype, whose Gram matrices no memory
holds; minutes), threads (one and two), choice (what solver="auto" takes beside the other one, over a grid), whole (the
Gram matrix fits, with margin terms), limited (it must not be held). RBF kernel, gamma="scale"; ours is certified: to a
relative duality gap of 1e-3, beyond memory to 1e-2. In "few" and "many" seconds are processor time, in "beyond" and
"threads" those on the clock. Columns "sklearnex" are scikit-learn-intelex, where it is installed; in "few" and
"many" it has one thread. "gap" of a peer is the relative distance of its own objective from its own dual bound.
"""

import contextlib
import functools
import importlib
import itertools
import os
import sys
import time

import numpy as np
from sklearn.svm import SVC

from benchmarks._measure import in_turn, load, memory_growth, table
from margindist import LDMClassifier
from margindist.kernels import Kernel, resolve_gamma
from margindist.objectives import LDM
from margindist.solvers import block_descent
from margindist.solvers._solution import Options, Problem
from margindist.spaces.gram import gram_bytes, gram_matrix

LAMBDA, TOL = 0.25, 1e-3
ROUGH = 1e-2  # relative gap beyond memory
LIMIT = 2e9  # bytes, the estimators' default


def fit(X, y, C, limit, lam=LAMBDA, tol=TOL, n_jobs=1):
    weights = np.ones(len(y))
    kernel = Kernel("rbf", gamma=resolve_gamma("scale", X, weights), bias=1.0)
    gram = gram_matrix(X, kernel, limit, n_jobs)
    return block_descent.solve(Problem(LDM(C, lam, lam), gram, y, weights), Options(tol=tol))


def one_thread():
    """Keep scikit-learn-intelex to one thread, where it is installed."""
    with contextlib.suppress(ImportError):
        importlib.import_module("daal4py").daalinit(1)


def peer_gap(model, X, y):
    """Return the relative duality gap of a support vector machine with a free intercept.

    Its dual value is Σ|a| − ½ a'Ka, its objective ½ a'Ka + C Σ max(0, 1 − y f).
    """
    a = model.dual_coef_.ravel()
    scores = np.concatenate([model.decision_function(part) for part in np.array_split(X, 1 + len(X) // 5000)])
    norm = a @ (scores[model.support_] - model.intercept_[0])
    value = 0.5 * norm + model.C * np.maximum(0.0, 1.0 - y * scores).sum()
    return (value - (np.abs(a).sum() - 0.5 * norm)) / value


def beside(name, X, y, C, lam, tol=TOL, slow=False):
    """Return one row of a table: ours and the peers', seconds, ratios, gaps.

    Those that are ``slow`` are timed once, on the clock and by all cores.
    """
    others = peers(C)
    if slow:
        others.pop("SVC")
    n_jobs = os.cpu_count() if slow else 1
    clock = time.perf_counter if slow else time.process_time
    fit(X[:1200], y[:1200], C, LIMIT, lam, tol)  # compilation is not the fit's
    ours = functools.partial(fit, X, y, C, LIMIT, lam, tol, n_jobs)
    _, grown = memory_growth(ours)  # nor is memory that the system gives for the first time
    calls = [ours] + [lambda p=peer: p.fit(X, y) for peer in others.values()]
    (solution, seconds), *rest = in_turn(*calls, longest=5.0, clock=clock)
    row = {"data": f"{name} {X.shape[0]}x{X.shape[1]}", "C": C, "lambda": lam, "ours s": seconds}
    row |= {"gap (certified)": float(solution.gap), "support vectors": np.count_nonzero(solution.dual)}
    row["MB above the data"] = grown
    for peer, (model, peer_seconds) in zip(others, rest, strict=True):
        row |= {
            f"{peer} s": peer_seconds,
            f"{peer} gap": peer_gap(model, X, y),
            f"ratio to {peer}": seconds / peer_seconds,
        }
    return row


def peers(C):
    found = {"SVC": SVC(C=C, cache_size=1000)}
    with contextlib.suppress(ImportError):
        found["sklearnex"] = importlib.import_module("sklearnex.svm").SVC(C=C, cache_size=1000)
    return found


def compare(name, X, y, limit):
    """Yield one row of the table for every C."""
    for C in (1.0, 100.0):
        others = peers(C)
        calls = [lambda C=C: fit(X, y, C, limit)] + [lambda p=peer: p.fit(X, y) for peer in others.values()]
        calls[0]()  # compilation is not the fit's
        (solution, seconds), *rest = in_turn(*calls, longest=10.0)
        row = {"data": f"{name} {X.shape[0]}x{X.shape[1]}", "C": C, "LDM s": seconds}
        for peer, (_, peer_seconds) in zip(others, rest, strict=True):
            row |= {f"{peer} s": peer_seconds, f"ratio to {peer}": seconds / peer_seconds}
        _, grown = memory_growth(calls[0])
        gram = gram_bytes(len(y)) / 2**20
        yield row | {
            "gap (certified)": float(solution.gap),
            "blocks": solution.n_iter,
            "peak MB": grown,
            "Gram matrix MB": gram,
            "limit MB": limit / 2**20,
            "status": solution.status,
        }


def whole():
    rows = list(compare("raetsch-banana", *load("raetsch-banana"), np.inf))
    X, y = load("a9a:first10000")
    rows += [*compare("a9a CSR", X, y, np.inf), *compare("a9a dense", X.toarray(), y, np.inf)]
    table("RBF kernel, the Gram matrix fits", rows)


def limited():
    rows = []
    for name in ("pendigits:one", "letter:half"):
        X, y = load(name)
        rows += compare(name, X, y, gram_bytes(len(y)) // 4)
    table("RBF kernel, a quarter of the Gram matrix as the limit", rows)


def few():
    one_thread()
    X, y = load("pendigits:one")
    table(
        "RBF kernel, few support vectors",
        (beside("pendigits:one", X, y, C, lam) for lam in (0.0, LAMBDA) for C in (1.0, 100.0)),
    )


def many():
    one_thread()

    def rows():
        X, y = load("a9a:first10000")
        yield beside("a9a", X.toarray(), y, 1.0, 0.0)
        X, y = load("letter:half")
        yield from (beside("letter:half", X, y, C, 0.0) for C in (1.0, 100.0))

    table("RBF kernel, many support vectors", rows())


def even_against_odd():
    X, y = load("mnist:multi")
    return X[:60000], np.where(y[:60000] % 2 == 0, 1.0, -1.0)


def part_of_covtype():
    X, y = load("covtype")
    drawn = np.sort(np.random.default_rng(0).permutation(len(y))[:100000])
    return X[drawn], y[drawn]


def beyond():
    made = {"mnist, even against odd": even_against_odd, "covtype": part_of_covtype}
    table(
        "RBF kernel beyond memory, all cores",
        (beside(name, *make(), 1.0, 0.0, ROUGH, True) for name, make in made.items()),
    )


def threads():
    """Print one thread beside two; run it on a machine that does nothing else."""
    X, y = load("letter:half")

    def rows():
        for C in (1.0, 100.0):
            calls = [lambda C=C, n=n: fit(X, y, C, LIMIT, 0.0, n_jobs=n) for n in (1, 2)]
            calls[0]()  # compiles and touches the memory
            (one, alone), (two, together) = in_turn(*calls, clock=time.perf_counter)
            row = {"data": "letter:half", "C": C, "one thread s": alone, "two threads s": together}
            yield row | {"speed-up": alone / together, "same bits": bool((one.coef == two.coef).all())}

    table("RBF kernel, threads", rows())


def choice():
    """Print what solver="auto" takes beside the better one of both, over rows, C, lambda and gamma."""
    X, y = load("letter:half")
    order = np.random.default_rng(0).permutation(len(y))

    def rows():
        for n in (50, 100, 200, 400, 800, 1600, 3200, 10000):
            some = order[:n]
            names = ["interior-point", "block"] if n <= 1600 else ["block"]
            for C, lam, gamma in itertools.product((1.0, 100.0), (0.0, 0.25, 100.0), ("scale", 100.0)):
                options = {"C": C, "lambda1": lam, "lambda2": lam, "kernel": "rbf", "gamma": gamma, "random_state": 0}
                models = [LDMClassifier(solver=solver, **options) for solver in ["auto", *names]]
                calls = [functools.partial(model.fit, X[some], y[some]) for model in models]
                (auto, seconds), *others = in_turn(*calls, longest=2.0)
                best = min(other for _, other in others)
                row = {"rows": n, "C": C, "lambda": lam, "gamma": gamma, "solver_": auto.solver_, "auto s": seconds}
                yield row | {"better s": best, "ratio": seconds / best, "gap": float(auto.duality_gap_)}

    table("RBF kernel, the choice of the solver", rows())


SECTIONS = {"few": few, "many": many, "beyond": beyond, "threads": threads, "choice": choice}
SECTIONS |= {"whole": whole, "limited": limited}

if __name__ == "__main__":
    for section in sys.argv[1:] or SECTIONS:
        SECTIONS[section]()
