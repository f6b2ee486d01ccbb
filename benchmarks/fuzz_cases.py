"""The problems of the fuzz: rows, labels, weights and parameters drawn from a seed and a number.

A case is one mathematical problem and several *variants*, ways to state it that must not matter: another solver, CSR
instead of dense rows, float32 instead of float64 (the values are rounded first, so that they are the same numbers),
rows repeated instead of weighted, the linear kernel precomputed.

Cases are of four kinds. "ordinary": up to 400 rows, all that goes wrong in data and parameters. "scaled": the same with
LDM's margin terms on the scale of its hinge loss, where they matter. "large": up to 20,000 rows, on both sides of the
sizes at which methods change hands. "wide": few sparse rows of many columns and large values.
"""

from typing import NamedTuple

import numpy as np
import scipy.sparse as sp

LDM_SOLVERS = ("auto", "interior-point", "coordinate-descent", "block", "dcd", "asgd")
ODM_SOLVERS = ("auto", "newton", "coordinate-descent")
LSSVM_SOLVERS = ("auto", "cholesky", "cg")

SHARES = {
    "LDMClassifier": 30,
    "ODMClassifier": 18,
    "LSSVMClassifier": 12,
    "KOMDClassifier": 6,
    "FMMClassifier": 4,
    "MAMClassifier": 4,
    "MSVMAvClassifier": 5,
    "MDOClassifier": 3,
    "PUMMAClassifier": 3,
    "ROMMAClassifier": 2,
    "ALMAClassifier": 2,
    "MICRAClassifier": 2,
    "SVRClassifier": 1,
    "ECOCClassifier": 1,
    "LDMClassifierCV": 2,
    "ODMClassifierCV": 2,
    "LSSVMClassifierCV": 2,
    "MSVMAvClassifierCV": 1,
}
ONLINE = ("PUMMAClassifier", "ROMMAClassifier", "ALMAClassifier", "MICRAClassifier")
LINEAR_ONLY = ("MDOClassifier", "ECOCClassifier")
UNWEIGHTED = ONLINE
NO_CLASS_WEIGHT = (*ONLINE, "KOMDClassifier", "FMMClassifier", "ECOCClassifier")
MOST_KERNEL_WORK = 10**7  # kernel values times columns: what the oracle computes in long double
SCHEDULE = {7: "large", 3: "wide", 13: "wide", **dict.fromkeys((1, 5, 9, 11, 17), "scaled")}  # of twenty cases
THRESHOLDS = (128, 300, 400, 450, 512, 1000, 1024, 1500, 2000, 3000, 3072, 4096, 5000, 20_000)  # rows
MOST_ROWS = {"linear": 21_000, "rbf": 4000, "poly": 1100}
LARGE_SHARES = {
    "LDMClassifier": 12,
    "ODMClassifier": 5,
    "LSSVMClassifier": 3,
    "KOMDClassifier": 1,
    "MSVMAvClassifier": 1,
}
WIDE_SHARES = {"LDMClassifier": 4, "ODMClassifier": 2, "LSSVMClassifier": 1}
MOST_VALUES = 3 * 10**5  # of large cases


class Variant(NamedTuple):
    """One way to state the problem of a case."""

    label: str
    form: str  # "dense", "csr", "float32", "float32-csr", "integers", "repeated" or "precomputed"
    parameters: dict  # that differ from the case's


class Case(NamedTuple):
    """One problem, and the ways to state it."""

    name: str  # of the estimator
    X: np.ndarray  # float64, shape (n, d); the kernel matrix for ``kernel="precomputed"``
    y: np.ndarray
    weights: np.ndarray | None
    parameters: dict
    variants: list
    benign: bool  # ordinary numbers and parameters: here nothing but a certified answer will do
    story: str  # what was drawn, in words


def kind_of(index):
    """Return of which kind the case of this number is in a run."""
    return SCHEDULE.get(index % 20, "ordinary")


def draw(seed, index, only=None, kind="ordinary"):
    """Return the case of this number; the same numbers always give the same case."""
    rng = np.random.default_rng([seed, index])
    shares = {"large": LARGE_SHARES, "wide": WIDE_SHARES}.get(kind, SHARES)
    if only is not None and not any(name.startswith(only) for name in shares):
        kind, shares = "ordinary", SHARES
    name = _draw_name(rng, shares, only)
    case = {"large": _draw_large, "wide": _draw_wide}.get(kind, _draw_ordinary)(rng, name)
    return case if kind == "ordinary" else _scaled(np.random.default_rng([seed, index, 1]), case)


def _draw_name(rng, shares, only):
    names = [name for name in shares if only is None or name.startswith(only)]
    if not names:
        raise SystemExit(f"benchmarks.fuzz: --only must begin the name of an estimator, got {only!r}.")
    chances = np.array([shares[name] for name in names], dtype=float)
    return str(rng.choice(names, p=chances / chances.sum()))


def _draw_ordinary(rng, name):
    kernel = _draw_kernel(rng, name)
    X, y, story, tame = _draw_rows(rng, name, kernel["kernel"])
    parameters, moderate = _draw_parameters(rng, name, X, y)
    parameters |= kernel
    weights, even = (None, True) if name in UNWEIGHTED else _draw_weights(rng, len(y))
    if kernel["kernel"] == "precomputed":
        X = X @ X.T
    if name not in NO_CLASS_WEIGHT and rng.random() < 0.15:
        wanted = {int(label): float(10 ** rng.uniform(-1, 1)) for label in np.unique(y)}
        parameters["class_weight"] = "balanced" if rng.random() < 0.5 else wanted
    parameters = {key: value for key, value in parameters.items() if key in _accepted(name)}
    parameters = _in_search(rng, name, parameters)
    X, variants = _draw_variants(rng, name, X, y, weights, parameters)
    usual = kernel["kernel"] in ("linear", "rbf") and kernel.get("gamma") in (None, "scale")
    benign = tame and moderate and even and usual
    return Case(name, X, y, weights, parameters, variants, bool(benign), story)


def _draw_large(rng, name):
    """Rows on one side of a size at which methods change hands, or anywhere up to the largest."""
    kernel = {"kernel": "linear"}
    if rng.random() < 0.5:
        poly = rng.random() < 0.15
        gamma = "scale" if rng.random() < 0.5 else float(10 ** rng.uniform(-1, 1.5))
        kernel = {"kernel": "poly" if poly else "rbf", "gamma": gamma, "degree": int(rng.integers(2, 4)), "coef0": 1.0}
    most = MOST_ROWS[kernel["kernel"]]
    if rng.random() < 0.6:
        n = int(rng.choice([size for size in THRESHOLDS if size <= most]) * rng.uniform(0.96, 1.04))
    else:
        n = int(2 ** rng.uniform(np.log2(300), np.log2(most)))
    widest = MOST_VALUES // n if kernel["kernel"] == "linear" else 12
    d = max(1, int(2 ** rng.uniform(0, np.log2(widest + 1))))
    n_classes = 2 if rng.random() < 0.9 else int(rng.integers(3, 6))
    form = str(rng.choice(["normal", "uniform", "binary", "sparse", "low rank"]))
    X = _values(rng, form, n, d)
    y, labels = _labels(rng, X, n_classes)
    parameters, moderate = _draw_parameters(rng, name, X, y)
    parameters |= kernel
    weights, even = _draw_weights(rng, n)
    parameters = {key: value for key, value in parameters.items() if key in _accepted(name)}
    solver = {"solver": "auto"} if "solver" in _accepted(name) else {}
    variants = [Variant("auto" if solver else "default", "dense", solver)]
    if kernel["kernel"] == "linear" and rng.random() < 0.5:
        variants.append(Variant("csr", "csr", solver))
    benign = moderate and even and kernel["kernel"] != "poly"
    story = f"{n} x {d} {form}, {n_classes} classes ({labels})"
    return Case(name, X, y, weights, parameters, variants, bool(benign), story)


def _draw_wide(rng, name):
    """Few sparse rows with large values: margins of 1 are what is left of much larger terms."""
    n, stored = int(2 ** rng.uniform(1, np.log2(100))), int(2 ** rng.uniform(0, np.log2(150)))
    d = int(2 ** rng.uniform(np.log2(max(stored, 100 * n + 1)), np.log2(50_000)))
    power = rng.uniform(0, 7)
    X = np.zeros((n, d))
    for row in X:
        row[rng.integers(0, d, stored)] = 10**power * rng.standard_normal(stored)
    y = rng.integers(0, 2, n)
    y[rng.permutation(n)[:2]] = 0, 1
    parameters, _ = _draw_parameters(rng, name, X, y)
    parameters = {key: value for key, value in parameters.items() if key in _accepted(name)} | {"kernel": "linear"}
    solver = {"solver": "auto"}
    variants = [Variant("auto", "csr", solver)]
    if name == "LDMClassifier":
        variants.append(Variant("coordinate-descent", "csr", {"solver": "coordinate-descent"}))
    story = f"{n} x {d} sparse, {stored} values a row, times 1e{power:.0f}"
    return Case(name, X, y, None, parameters, variants, False, story)


def _scaled(rng, case):
    """Return the case with LDM's margin terms on the scale of its hinge loss, C times the weight of the rows."""
    p = dict(case.parameters)
    if not case.name.startswith("LDM") or not np.all(np.isfinite(p.get("Cs", p.get("C")))):
        return case
    drawn = [float(rng.choice([0.0, 0.1, 1.0, 10.0, _price(rng, -3, 2)])) for _ in range(2)]
    relative = bool(rng.random() < 0.5)
    if case.name.endswith("CV"):
        p |= {"lambda1s": [drawn[0]], "lambda2s": [drawn[1]], "lambda_scale": "relative"}
    else:
        unit = 1.0 if relative else p["C"] * (len(case.y) if case.weights is None else float(case.weights.sum()))
        p |= {"lambda1": unit * drawn[0], "lambda2": unit * drawn[1]}
        p |= {"lambda_scale": "relative" if relative else "absolute"}
    story = f"{case.story}, margin terms {drawn[0]:.3g} and {drawn[1]:.3g} times the hinge loss"
    return case._replace(parameters=p, story=story)


def rows_of(case, variant):
    """Return X, y and the weights as the variant states them."""
    X, y, weights = case.X, case.y, case.weights
    if variant.form == "csr":
        X = sp.csr_array(X)
    elif variant.form == "float32":
        X = X.astype(np.float32)
    elif variant.form == "float32-csr":
        X = sp.csr_matrix(X.astype(np.float32))
    elif variant.form == "integers":
        X = X.astype(np.int64)
    elif variant.form == "precomputed":
        X = X @ X.T
    elif variant.form == "repeated":
        times = weights.astype(int)
        X, y, weights = np.repeat(X, times, axis=0), np.repeat(y, times), None
    return X, y, weights


# ---------------------------------------------------------------------- rows


def _draw_rows(rng, name, kernel):
    linear = kernel == "linear"
    n = int(2 ** rng.uniform(1, np.log2(400)))
    d = int(2 ** rng.uniform(0, np.log2(2500)))
    if not linear:
        d = max(1, min(d, 60, MOST_KERNEL_WORK // n**2))
    if name.endswith("CV"):
        n, d = max(20, min(n, 150)), min(d, 200)
    n_classes = 2 if rng.random() < 0.7 else int(rng.integers(3, 21))
    if name == "ECOCClassifier":
        n_classes = min(n_classes, 5)
    n_classes = max(2, min(n_classes, n // (10 if name.endswith("CV") else 1)))
    kind = str(rng.choice(["normal", "uniform", "binary", "integers", "sparse", "heavy", "low rank"]))
    X = _values(rng, kind, n, d)
    y, labels = _labels(rng, X, n_classes)
    X, changes = _spoil(rng, X, y)
    tame = not changes and kind != "heavy"
    story = f"{n} x {d} {kind}, {n_classes} classes ({labels})" + "".join(f", {change}" for change in changes)
    return X, y, story, tame


def _values(rng, kind, n, d):
    if kind == "normal":
        return rng.standard_normal((n, d))
    if kind == "uniform":
        return rng.random((n, d))
    if kind == "binary":
        return (rng.random((n, d)) < rng.uniform(0.05, 0.95)).astype(float)
    if kind == "integers":
        return rng.integers(-9, 10, (n, d)).astype(float)
    if kind == "sparse":
        return np.where(rng.random((n, d)) < 0.05, rng.standard_normal((n, d)), 0.0)
    if kind == "heavy":
        return rng.standard_normal((n, d)) * np.exp(3.0 * rng.standard_normal((n, d)))
    rank = max(1, d // 4)
    return rng.standard_normal((n, rank)) @ rng.standard_normal((rank, d))


def _labels(rng, X, n_classes):
    """Return labels 0, 1 .. that all occur, and how they were made."""
    n, d = X.shape
    way = str(rng.choice(["linear rule", "clusters", "random"], p=[0.5, 0.25, 0.25]))
    if way == "random":
        y = rng.integers(0, n_classes, n)
    elif way == "clusters":
        y = rng.integers(0, n_classes, n)
        X += rng.standard_normal((n_classes, d))[y] * rng.uniform(0.5, 8.0) * np.abs(X).mean()
    else:
        scores = X @ rng.standard_normal(d)
        cuts = np.sort(rng.random(n_classes - 1))
        if rng.random() < 0.3:
            cuts = np.linspace(0, 1, n_classes + 1)[1:-1] ** 3  # imbalanced
        y = np.searchsorted(np.quantile(scores, cuts), scores)
    if rng.random() < 0.4:
        noise = rng.random(n) < rng.choice([0.02, 0.1, 0.3])
        y = np.where(noise, rng.integers(0, n_classes, n), y)
        way += " with noise"
    y[rng.permutation(n)[:n_classes]] = np.arange(n_classes)
    if rng.random() < 0.2:
        order = np.argsort(y, kind="stable")
        X[:], y = X[order], y[order]
        way += ", sorted"
    return y, way


def _spoil(rng, X, y):
    """Return the rows with a few of the things that go wrong in real data, and their names."""
    n, d = X.shape
    changes = []
    if rng.random() < 0.2:
        power = rng.uniform(-8, 8)
        X = X * 10**power
        changes.append(f"times 1e{power:.0f}")
    if rng.random() < 0.15:
        X = X * 10 ** rng.uniform(-4, 4, d)
        changes.append("bad column scales")
    if rng.random() < 0.1:
        X[:, rng.integers(d)] = rng.choice([0.0, 1.0, 1e6, 1e-6])
        changes.append("constant column")
    if rng.random() < 0.05:
        X[:, rng.integers(d)] += 1e6
        changes.append("offset column")
    if rng.random() < 0.15:
        source = rng.integers(0, n, n)
        X = X[np.where(rng.random(n) < 0.5, source, np.arange(n))]
        changes.append("repeated rows")
    if rng.random() < 0.1:
        X[rng.random(n) < 0.2] = 0.0
        changes.append("zero rows")
    return np.ascontiguousarray(X), changes


def _draw_weights(rng, n):
    chance = rng.random()
    if chance < 0.6:
        return None, True
    if chance < 0.75:
        return rng.integers(0, 3, n).astype(float), True
    if chance < 0.9:
        return rng.uniform(0.1, 3.0, n), True
    return 10 ** rng.uniform(-6, 6, n), False


# ---------------------------------------------------------------------- parameters


def _draw_kernel(rng, name):
    if name in LINEAR_ONLY or rng.random() < 0.55:
        return {"kernel": "linear"}
    kernel = str(rng.choice(["rbf", "poly", "sigmoid", "precomputed"], p=[0.55, 0.2, 0.1, 0.15]))
    if kernel == "precomputed":
        return {"kernel": kernel}
    gamma = "scale" if rng.random() < 0.5 else float(10 ** rng.uniform(-6, 4))
    degree, coef0 = int(rng.integers(1, 5)), float(rng.choice([0.0, 1.0, -1.0]))
    return {"kernel": kernel, "gamma": gamma, "degree": degree, "coef0": coef0}


def _price(rng, low=-3, high=4):
    return float(10 ** rng.uniform(low, high))


def _draw_parameters(rng, name, X, y):
    """Return the method's parameters, and whether all are ordinary ones."""
    parameters = {"fit_intercept": bool(rng.random() < 0.6), "random_state": int(rng.integers(1000))}
    moderate = True
    base = name.removesuffix("CV")
    if base == "LDMClassifier":
        extreme = rng.random()
        C = np.inf if extreme < 0.12 else 1e8 if extreme < 0.16 else _price(rng)
        lambdas = [float(rng.choice([0.0, 0.25, _price(rng), _price(rng) * len(y)])) for _ in range(2)]
        parameters |= {"C": C, "lambda1": lambdas[0], "lambda2": lambdas[1]}
        moderate = C <= 1e4
    elif base == "ODMClassifier":
        parameters |= {"lam": float(4.0 ** rng.integers(-2, 11)), "mu": float(rng.choice([0.01, 0.2, 0.4, 1.0]))}
        parameters |= {
            "theta": float(rng.choice([0.0, 0.2, 0.8, 0.99])),
            "outer": str(rng.choice(["concave", "frozen"])),
        }
        parameters["multi_class"] = str(rng.choice(["direct", "ovr"]))
        moderate = parameters["theta"] < 0.9 and parameters["mu"] > 0.1
    elif base == "LSSVMClassifier":
        parameters |= {"C": _price(rng, -4, 8), "space": str(rng.choice(["dual", "dual", "empirical"]))}
        moderate = parameters["C"] < 1e4
    elif base == "KOMDClassifier":
        parameters["lam"] = float(rng.choice([0.0, 0.1, _price(rng, -6, 3)]))
    elif base == "MAMClassifier":
        parameters |= {"bias": str(rng.choice(["optimal", "mean", "zero"])), "slope": _price(rng, -1, 1)}
        if rng.random() < 0.3:
            parameters["slope"] = "cv"
    elif base == "MSVMAvClassifier":
        parameters |= {"alpha": float(4.0 ** rng.integers(-5, 6)), "beta": float(4.0 ** rng.integers(-5, 6))}
    elif base in ONLINE:
        parameters["soft_margin"] = float(rng.choice([0.0, 1.0, _price(rng, -3, 2)]))
        if base in ("PUMMAClassifier", "ALMAClassifier") and parameters["soft_margin"] == 0.0:
            parameters["p"] = float(rng.choice([2.0, 2.0, 3.0, 8.0]))
    elif base == "SVRClassifier":
        parameters |= {"C": _price(rng, -2, 1), "max_iter": 200, "tol": 1e-4}
    if rng.random() < 0.3 and base in ("LDMClassifier", "ODMClassifier", "LSSVMClassifier", "KOMDClassifier"):
        parameters["tol"] = float(10 ** rng.uniform(-9, -1))
        moderate = moderate and parameters["tol"] >= 1e-7
    if rng.random() < 0.05 and base not in ("MAMClassifier", "ECOCClassifier"):
        parameters["max_iter"] = int(rng.integers(1, 6))
        moderate = False
    return parameters, moderate


_GRIDS = {"C": "Cs", "lambda1": "lambda1s", "lambda2": "lambda2s", "lam": "lams", "mu": "mus", "theta": "thetas",
          "alpha": "alphas", "beta": "betas", "gamma": "gammas"}  # fmt: skip


def _in_search(rng, name, parameters):
    """Return the parameters of a search of one or two values each; others unchanged."""
    if not name.endswith("CV"):
        return parameters
    searched = {key: value for key, value in parameters.items() if key not in _GRIDS}
    for key, grid in _GRIDS.items():
        if key not in parameters:
            continue
        value = parameters[key]
        twice = key in ("C", "lam", "lambda1", "alpha") and np.isfinite(value)
        searched[grid] = [value, 4.0 * value] if twice else [value]
    return searched | {"cv": int(rng.integers(2, 6))}


def _accepted(name):
    import margindist

    base = getattr(margindist, name.removesuffix("CV"))
    names = set(base._get_param_names())
    if name.endswith("CV"):
        search = getattr(margindist, name)
        names &= set(search._get_param_names()) | set(_GRIDS)
        names = {key for key in names if key not in _GRIDS or _GRIDS[key] in search._get_param_names()}
    return names


# ---------------------------------------------------------------------- variants


def _solvers(rng, name, n, kernel):
    """Return the solvers to compare, "auto" first; some of them, to spread the fits over more problems."""
    if name == "LDMClassifier":
        others = [s for s in LDM_SOLVERS[1:] if s != "asgd" or kernel == "linear"]
    elif name == "ODMClassifier":
        others = list(ODM_SOLVERS[1:])
    elif name == "LSSVMClassifier":
        others = ["cg"] if kernel == "linear" else []
    else:
        return [None]
    picked = rng.permutation(others)[: int(rng.integers(1, 4))]
    return ["auto", *map(str, picked)]


def _draw_variants(rng, name, X, y, weights, parameters):
    """Return the rows, rounded if a variant asks for that, and the variants."""
    kernel = parameters.get("kernel", "linear")
    variants = []
    for solver in _solvers(rng, name, len(X), kernel):
        variants.append(Variant(solver or "default", "dense", {} if solver is None else {"solver": solver}))
    first = variants[0].parameters
    if rng.random() < 0.35:
        variants.append(Variant("csr", "csr", first))
    if rng.random() < 0.3:
        with np.errstate(over="ignore"):
            rounded = X.astype(np.float32).astype(float)
        if np.isfinite(rounded).all():
            X = rounded
            form = str(rng.choice(["float32", "float32-csr"]))
            last = variants[int(rng.integers(len(variants)))].parameters
            variants.append(Variant(form, form, last))
    if np.array_equal(X, np.rint(X)) and np.abs(X).max() < 2**53 and rng.random() < 0.5:
        variants.append(Variant("integers", "integers", first))
    whole = weights is not None and np.array_equal(weights, np.rint(weights)) and len(np.unique(y[weights > 0])) > 1
    varies = name.endswith("CV") or parameters.get("slope") == "cv"  # folds of rows, not of their copies
    if whole and kernel != "precomputed" and not varies and "class_weight" not in parameters:
        variants.append(Variant("repeated", "repeated", first))
    small = len(X) ** 2 * X.shape[1] <= MOST_KERNEL_WORK
    same = name in ("LDMClassifier", "ODMClassifier", "KOMDClassifier")
    exact = np.array_equal(X, np.rint(X)) and np.abs(X).max(initial=0.0) ** 2 * X.shape[1] < 2**53
    if kernel == "linear" and same and small and exact:  # else the kernel values are other numbers
        variants.append(Variant("precomputed", "precomputed", first | {"kernel": "precomputed"}))
    return X, variants
