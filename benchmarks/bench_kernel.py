"""Kernel LDM beside SVC: `python -m benchmarks.bench_kernel [section ...]`, with MARGINDIST_DATA set.

Sections: whole (the Gram matrix fits), limited (it must not be held). RBF kernel, gamma="scale", λ1 = λ2 = 0.25; ours
is certified to a relative duality gap of 1e-3 by an exact product with the Gram matrix. Columns "sklearnex" are
scikit-learn-intelex, where it is installed.
"""

import contextlib
import importlib
import sys

import numpy as np
from sklearn.svm import SVC

from benchmarks._measure import in_turn, load, memory_growth, table
from margindist.kernels import Kernel, resolve_gamma
from margindist.objectives import LDM
from margindist.solvers import block_descent
from margindist.solvers._solution import Options, Problem
from margindist.spaces.gram import gram_bytes, gram_matrix

LAMBDA, TOL = 0.25, 1e-3


def fit(X, y, C, limit):
    weights = np.ones(len(y))
    kernel = Kernel("rbf", gamma=resolve_gamma("scale", X, weights), bias=1.0)
    return block_descent.solve(
        Problem(LDM(C, LAMBDA, LAMBDA), gram_matrix(X, kernel, limit), y, weights), Options(tol=TOL)
    )


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


SECTIONS = {"whole": whole, "limited": limited}

if __name__ == "__main__":
    for section in sys.argv[1:] or SECTIONS:
        SECTIONS[section]()
