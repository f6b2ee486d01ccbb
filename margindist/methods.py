"""The methods that a comparison knows, as data: what each is called, how it is built, which parameters it tries.

Grids are wide and coarse, and alike for all: four or five prices over four or five powers of ten, three widths of the
RBF kernel. Prices of LDM's mean and variance, and of ODM, grow with the number of rows (the hinge is a sum, they are
averages), and the kernel's width follows the distances between the encoded rows.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from importlib import import_module
from typing import Any, NamedTuple

import numpy as np
from sklearn.base import BaseEstimator

_PRICES = (0.01, 0.1, 1.0, 10.0, 100.0)
_FEW_PRICES = (0.1, 1.0, 10.0)


class Shape(NamedTuple):
    """What is known of the data before a method is chosen.

    Parameters
    ----------
    rows, columns : int
        Rows, and columns after encoding.
    classes : int
    sparse : bool
    distance : float
        Mean squared distance between two encoded rows.
    """

    rows: int
    columns: int
    classes: int
    sparse: bool
    distance: float

    @property
    def gammas(self) -> tuple[float, ...]:
        """Widths of the RBF kernel: powers of two around 2 over the mean squared distance."""
        middle = 2.0 ** round(np.log2(2.0 / self.distance)) if self.distance > 0 else 1.0
        return middle / 8.0, middle, middle * 8.0

    @property
    def scale(self) -> float:
        """The power of ten nearest to the number of rows."""
        return 10.0 ** round(np.log10(self.rows))


@dataclass(frozen=True)
class Method:
    """A classifier with the parameters it tries.

    Parameters
    ----------
    key : str
        Its name on the command line.
    label : str
        Its name in tables.
    home : str
        Module and class of the estimator, ``"module:Class"``.
    about : str
        One clause on what it does.
    kernel : bool
        Whether it uses the RBF kernel.
    grid : callable
        Takes the data's `Shape` and whether few values will do; returns the values to try of each parameter.
    fixed : dict
        Parameters that are not searched.
    rows : int
        The most rows times classes for which it is run unasked.
    columns : int
        The most columns for which it is run unasked.
    default : bool
        Whether it is run unasked at all.
    cost : int
        Rank by expected time: quick methods run first.
    """

    key: str
    label: str
    home: str
    about: str
    kernel: bool
    grid: Callable[[Shape, bool], dict[str, tuple]]
    fixed: Mapping[str, Any] = field(default_factory=dict)
    rows: int = 1_000_000
    columns: int = 1_000_000
    default: bool = True
    cost: int = 1

    @property
    def family(self) -> str:
        """The label without the kernel; it decides colour and line."""
        return self.label.removesuffix(" (RBF)")

    def estimator(self, seed: int, **parameters: Any) -> BaseEstimator:
        """Return the classifier, not fitted, with the seed where it takes one."""
        made = self._class()(**{**self.fixed, **parameters})
        return made.set_params(random_state=seed) if "random_state" in made.get_params(deep=False) else made

    def code(self, seed: int, parameters: Mapping[str, Any]) -> tuple[str, str]:
        """Return Python that imports the class, and Python that makes the classifier."""
        module, name = self.home.split(":")
        given = {**self.fixed, **parameters}
        if "random_state" in self._class()().get_params(deep=False):
            given["random_state"] = seed
        return f"from {module} import {name}", f"{name}({', '.join(f'{k}={v!r}' for k, v in given.items())})"

    def _class(self):
        module, name = self.home.split(":")
        return getattr(import_module(module), name)


def _none(shape, few):
    return {}


def _price(shape, few):
    return {"C": _FEW_PRICES if few else _PRICES}


def _ldm(shape, few):
    lambdas = tuple(shape.scale * share for share in ((0.01, 1.0) if few else (0.01, 0.3, 10.0)))
    return {"C": _FEW_PRICES if few else _PRICES, "lambda1": lambdas, "lambda2": lambdas}


def _odm(shape, few):
    lams = tuple(shape.scale * price for price in (_FEW_PRICES if few else _PRICES))
    return {"lam": lams, "mu": (0.4,) if few else (0.2, 0.8), "theta": (0.2, 0.6)}


def _msvmav(shape, few):
    values = tuple(4.0**k for k in ((-3, 0, 3) if few else (-4, -2, 0, 2, 4)))
    return {"alpha": values, "beta": values[:2] if few else values}


def _svr(shape, few):
    return {**_price(shape, few), "epsilon": (0.1,) if few else (0.1, 0.5)}


def _komd(shape, few):
    return {"lam": (0.01, 1.0) if few else (0.001, 0.01, 0.1, 1.0, 10.0)}


def _mdo(shape, few):
    return {"alpha": (30.0, 300.0), "beta": (10.0,) if few else (1.0, 10.0)}


def _soft_margin(shape, few):
    return {"soft_margin": (0.1, 1.0) if few else (0.01, 0.1, 1.0, 10.0)}


def _with_gamma(grid):
    def wider(shape, few):
        return {**grid(shape, few), "gamma": shape.gammas[:2] if few else shape.gammas}

    return wider


def _linear(key, label, home, about, grid, **rest):
    return Method(key, label, home, about, False, grid, **rest)


def _rbf(key, label, home, about, grid, fixed=(), **rest):
    return Method(
        f"{key}-rbf", f"{label} (RBF)", home, about, True, _with_gamma(grid), {"kernel": "rbf", **dict(fixed)}, **rest
    )


_OURS = "margindist:"
_ABOUT = {
    "ldm": "hinge loss, mean and variance of the margins priced apart",
    "odm": "margins kept within a band around 1",
    "lssvm": "squared distance of every margin from 1",
    "emamc": "least squares in the space of the kernel values",
    "mamc": "the largest mean margin, in closed form",
    "msvmav": "mean margin and semi-variance below it",
    "pumma": "an online learner of the largest margin",
    "svr": "regression on the labels -1 and 1",
    "komd": "game between margins and a distribution over the rows",
    "mdo": "a cost of normalised margins, several starts",
    "fmm": "the largest smallest margin, by accelerated steps",
    "romma": "an online learner of the largest margin",
    "alma": "an online learner of an approximately largest margin",
    "micra": "an online learner with a growing margin condition",
}
_ONLINE = {"max_iter": 20}

METHODS: tuple[Method, ...] = (
    _linear("linearsvc", "LinearSVC", "sklearn.svm:LinearSVC", "scikit-learn's linear SVM", _price,
            fixed={"dual": "auto"}, cost=1),
    _linear("logistic", "LogisticRegression", "sklearn.linear_model:LogisticRegression",
            "scikit-learn's logistic regression", _price, fixed={"max_iter": 1000}, cost=1),
    Method("svc", "SVC (RBF)", "sklearn.svm:SVC", "scikit-learn's kernel SVM", True, _with_gamma(_price),
           rows=40_000, cost=4),
    _linear("mamc", "MAMC", _OURS + "MAMClassifier", _ABOUT["mamc"], _none, cost=0),
    _linear("lssvm", "LS-SVM", _OURS + "LSSVMClassifier", _ABOUT["lssvm"], _price, cost=0),
    _linear("ldm", "LDM", _OURS + "LDMClassifier", _ABOUT["ldm"], _ldm, rows=500_000, cost=3),
    _linear("odm", "ODM", _OURS + "ODMClassifier", _ABOUT["odm"], _odm, rows=500_000, cost=2),
    _linear("msvmav", "MSVMAv", _OURS + "MSVMAvClassifier", _ABOUT["msvmav"], _msvmav, rows=200_000, columns=2000,
            cost=2),
    _linear("svr", "SVR", _OURS + "SVRClassifier", _ABOUT["svr"], _svr, rows=20_000, columns=5000, cost=4),
    _linear("komd", "KOMD", _OURS + "KOMDClassifier", _ABOUT["komd"], _komd, rows=6_000, cost=4),
    _linear("mdo", "MDO", _OURS + "MDOClassifier", _ABOUT["mdo"], _mdo, rows=20_000, columns=2000, cost=4),
    _linear("fmm", "FMM", _OURS + "FMMClassifier", _ABOUT["fmm"], _none, rows=50_000, cost=2),
    _linear("pumma", "PUMMA", _OURS + "PUMMAClassifier", _ABOUT["pumma"], _soft_margin, fixed=_ONLINE, rows=20_000,
            cost=3),
    _linear("romma", "ROMMA", _OURS + "ROMMAClassifier", _ABOUT["romma"], _soft_margin, fixed=_ONLINE, default=False,
            cost=3),
    _linear("alma", "ALMA", _OURS + "ALMAClassifier", _ABOUT["alma"], _soft_margin, fixed=_ONLINE, default=False,
            cost=3),
    _linear("micra", "MICRA", _OURS + "MICRAClassifier", _ABOUT["micra"], _soft_margin, fixed=_ONLINE, default=False,
            cost=3),
    _rbf("mamc", "MAMC", _OURS + "MAMClassifier", _ABOUT["mamc"], _none, rows=20_000, cost=1),
    _rbf("lssvm", "LS-SVM", _OURS + "LSSVMClassifier", _ABOUT["lssvm"], _price, rows=8_000, cost=3),
    _rbf("emamc", "EMAMC", _OURS + "LSSVMClassifier", _ABOUT["emamc"], _price, fixed={"space": "empirical"},
         rows=4_000, cost=4),
    _rbf("ldm", "LDM", _OURS + "LDMClassifier", _ABOUT["ldm"], _ldm, rows=4_000, cost=6),
    _rbf("odm", "ODM", _OURS + "ODMClassifier", _ABOUT["odm"], _odm, rows=4_000, cost=6),
    _rbf("msvmav", "MSVMAv", _OURS + "MSVMAvClassifier", _ABOUT["msvmav"], _msvmav, rows=2_000, cost=6),
    _rbf("svr", "SVR", _OURS + "SVRClassifier", _ABOUT["svr"], _svr, default=False, rows=2_000, cost=6),
    _rbf("komd", "KOMD", _OURS + "KOMDClassifier", _ABOUT["komd"], _komd, rows=2_000, cost=5),
    _rbf("fmm", "FMM", _OURS + "FMMClassifier", _ABOUT["fmm"], _none, default=False, rows=2_000, cost=5),
    _rbf("pumma", "PUMMA", _OURS + "PUMMAClassifier", _ABOUT["pumma"], _soft_margin, fixed=_ONLINE, default=False,
         rows=2_000, cost=5),
)  # fmt: skip

BY_KEY: dict[str, Method] = {method.key: method for method in METHODS}
BASELINES = ("linearsvc", "svc", "logistic")


class Choice(NamedTuple):
    """The methods to run, quick ones first, and for each one left out the reason, a sentence."""

    methods: tuple[Method, ...]
    left_out: dict[str, str]


def choose(wanted: Sequence[str] | None, shape: Shape) -> Choice:
    """Choose the methods by name, or all that suit the data's shape; scikit-learn's are always beside them.

    Parameters
    ----------
    wanted : sequence of str or None
        Keys; ``"linear"`` and ``"rbf"`` stand for all defaults of the kind, ``"all"`` for every method there is.
    shape : Shape
    """
    if wanted is None:
        reasons = {method.key: _reason_against(method, shape) for method in METHODS}
        kept = [method for method in METHODS if reasons[method.key] is None]
        left_out = {method.label: reasons[method.key] for method in METHODS if reasons[method.key] is not None}
    else:
        keys = _expand(wanted)
        kept = [method for method in METHODS if method.key in keys]
        left_out = {}
        for key in BASELINES:
            reason = _reason_against(BY_KEY[key], shape)
            if key not in keys and reason is None:
                kept.append(BY_KEY[key])
            elif key not in keys:
                left_out[BY_KEY[key].label] = reason
    return Choice(tuple(sorted(kept, key=lambda method: method.cost)), left_out)


def _expand(wanted):
    keys = set()
    for name in wanted:
        key = name.strip().lower()
        if key == "all":
            keys.update(BY_KEY)
        elif key in ("linear", "rbf"):
            keys.update(method.key for method in METHODS if method.default and method.kernel == (key == "rbf"))
        elif key in BY_KEY:
            keys.add(key)
        else:
            raise UnknownMethod(name, (*BY_KEY, "linear", "rbf", "all"))
    return keys


class UnknownMethod(ValueError):
    """A key that no method has.

    Parameters
    ----------
    name : str
    known : iterable of str
        The keys there are, the likeliest of which are named first.
    """

    exit_code = 2  # of the command line: wrong usage

    def __init__(self, name: str, known: Iterable[str]):
        near = get_close_matches(name.strip().lower(), list(known), n=3)
        guess = f" did you mean {', '.join(near)}?" if near else ""
        super().__init__(f"no method is called {name!r};{guess} there are: {', '.join(known)}.")


def _reason_against(method, shape):
    if not method.default:
        return "runs only when asked for by name (--methods)."
    problem = shape.rows * (shape.classes if shape.classes > 2 else 1)
    if problem > method.rows:
        times = f" times {shape.classes} classes" if shape.classes > 2 else ""
        return f"would take long with {shape.rows:,} rows{times}; runs unasked up to {method.rows:,}."
    if shape.columns > method.columns:
        return f"would take long with {shape.columns:,} columns; runs unasked up to {method.columns:,}."
    return None
