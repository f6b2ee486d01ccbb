"""Every classifier, declared once; what lists classifiers anywhere reads this table.

The package's names, model files, ONNX, colours, the searches over grids, ``margindist compare`` and the common tests
all come from :data:`CLASSIFIERS`. A new classifier is one entry here, besides its own file; one that lives outside the
package is made known by :func:`register`.

Grids are wide and coarse, and alike for all: four or five prices over four or five powers of ten, three widths of the
RBF kernel. Prices of LDM's mean and variance, and of ODM, grow with the number of rows (the hinge is a sum, they are
averages), and the kernel's width follows the distances between the encoded rows.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from inspect import signature
from typing import TYPE_CHECKING, Any, NamedTuple

from margindist.suggestions import did_you_mean

if TYPE_CHECKING:
    from sklearn.base import BaseEstimator

__all__ = ["Classifier", "Reach", "Shape", "register"]  # what is documented

_PRICES = (0.01, 0.1, 1.0, 10.0, 100.0)
_FEW_PRICES = (0.1, 1.0, 10.0)
_LANDMARKS = 300  # of the Nystroem features that stand for a kernel on many rows
SECONDS_PER_SPLIT = 60.0  # search and fit of a method that nobody asked for
SECONDS_OF_RESERVE = 600.0  # the same for methods of the kind of the best one
TOO_SLOW = (
    f"too slow here by a pilot fit: methods run that take up to {SECONDS_PER_SPLIT:g} s per split, and up to "
    f"{SECONDS_OF_RESERVE:g} s if the best one is of their kind; --methods runs them by name."
)
APPROXIMATED = f"too slow here by a pilot fit, so linear methods on {_LANDMARKS} Nystroem features of the kernel run."
ASKED_ONLY = "only when asked for (--methods all)."


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
        middle = 2.0 ** round(math.log2(2.0 / self.distance)) if self.distance > 0 else 1.0
        return middle / 8.0, middle, middle * 8.0

    @property
    def scale(self) -> float:
        """The power of ten nearest to the number of rows."""
        return 10.0 ** round(math.log10(self.rows))


class Reach(NamedTuple):
    """Up to which size ``margindist compare`` runs a method that nobody asked for by name, and asks nothing.

    Beyond it a pilot fit tells how long a split would take, and that decides.

    Parameters
    ----------
    rows : int
        Rows times classes.
    columns : int
        Columns.
    default : bool
        Whether it runs without being asked for.
    cost : int
        Rank by expected time: quick methods run first.
    sparse : bool
        Whether it takes sparse rows.
    """

    rows: int = 1_000_000
    columns: int = 1_000_000
    default: bool = True
    cost: int = 1
    sparse: bool = True


@dataclass(frozen=True)
class Classifier:
    """One classifier.

    Parameters
    ----------
    name : str
        Of its class.
    module : str
        Where that class lives.
    key : str
        Its name on the command line.
    label : str
        Its name in tables and figures.
    about : str
        One clause on what it does.
    style : (str, str) or None
        Colour and line, by their names in :mod:`margindist.margins.palette`; None takes any that is free.
    grid : callable
        Takes the data's `Shape` and whether few values will do; returns the values to try of each parameter.
    linear, rbf : Reach, optional
        Up to which size a comparison runs it with a linear and with the RBF kernel; None if it has no such form.
    fixed : dict
        Parameters that are not searched.
    search : str
        Name of the class, in the same module, that searches its grids with shared work; empty if there is none.
    aliases : tuple of str
        Other names for it in the papers.
    words : str
        What the label stands for, if that is an acronym.
    registered : type, optional
        The class itself, if it was given to :func:`register`.
    """

    name: str
    module: str
    key: str
    label: str
    about: str
    style: tuple[str, str] | None
    grid: Callable[[Shape, bool], dict[str, tuple]]
    linear: Reach | None = None
    rbf: Reach | None = None
    fixed: Mapping[str, Any] = field(default_factory=dict)
    search: str = ""
    aliases: tuple[str, ...] = ()
    words: str = ""
    registered: type | None = None

    @property
    def rival(self) -> bool:
        """Whether it is one of scikit-learn's, there to be compared with."""
        return self.module.startswith("sklearn.")

    @property
    def home(self) -> str:
        """The module to import it from."""
        return "margindist" if self.module.startswith("margindist.") else self.module

    def load(self) -> type:
        """Return the class; it is imported when it is first asked for."""
        return self.registered or getattr(import_module(self.module), self.name)

    def methods(self) -> "list[Method]":
        """Return its forms in a comparison: linear, with the RBF kernel, and linear on features of that kernel."""
        forms = ((self.linear, False), (self.rbf, True))
        result = [Method(self, kernel, reach) for reach, kernel in forms if reach is not None]
        if self.linear is not None and self.rbf is not None:
            result.append(Method(self, True, self.linear._replace(default=False), _LANDMARKS))
        return result


class Method(NamedTuple):
    """A classifier in one form.

    Parameters
    ----------
    classifier : Classifier
    kernel : bool
        Whether it uses the RBF kernel.
    reach : Reach
        Up to which size it runs without being asked for.
    landmarks : int or None
        Of the Nystroem features on which the linear form stands for the kernel; None is the kernel itself.
    """

    classifier: Classifier
    kernel: bool
    reach: Reach
    landmarks: int | None = None

    @property
    def key(self) -> str:
        """Its name on the command line."""
        if self.landmarks is not None:
            return f"{self.classifier.key}-nystroem"
        return f"{self.classifier.key}-rbf" if self.kernel and not self.classifier.rival else self.classifier.key

    @property
    def family(self) -> str:
        """The label without the kernel; it decides colour and line."""
        return self.classifier.label

    @property
    def label(self) -> str:
        """Its name in tables."""
        if self.landmarks is not None:
            return f"{self.family} (Nystroem)"
        return f"{self.family} (RBF)" if self.kernel else self.family

    @property
    def about(self) -> str:
        """One clause on what it does."""
        return self.classifier.about

    @property
    def words(self) -> str:
        """What the label stands for, if that is an acronym."""
        return self.classifier.words

    @property
    def kind(self) -> str:
        """Whether it is ``"linear"``, has an ``"rbf"`` kernel, or is made of ``"trees"``."""
        if self.classifier.module == "sklearn.ensemble":
            return "trees"
        return "rbf" if self.kernel else "linear"

    @property
    def default(self) -> bool:
        """Whether it runs without being asked for at all."""
        return self.reach.default

    @property
    def fixed(self) -> dict[str, Any]:
        """Parameters that are not searched."""
        return {"kernel": "rbf", **self.classifier.fixed} if self.kernel else dict(self.classifier.fixed)

    def grid(self, shape: Shape, few: bool) -> dict[str, tuple]:
        """Return the values to try of each parameter, for data of this shape."""
        if self.landmarks is not None:
            values = {f"classifier__{name}": result for name, result in self.classifier.grid(shape, True).items()}
            return {**values, "features__gamma": shape.gammas[:2]}
        values = self.classifier.grid(shape, few)
        if self.kernel:
            values = {**values, "gamma": shape.gammas[:2] if few else shape.gammas}
        return values

    def estimator(self, seed: int, **parameters: Any) -> "BaseEstimator":
        """Return the classifier, not fitted, with the seed where it takes one."""
        if self.landmarks is None:
            return self.classifier.load()(**self._given(seed, parameters))
        from sklearn.kernel_approximation import Nystroem
        from sklearn.pipeline import Pipeline

        features = Nystroem(n_components=self.landmarks, random_state=seed)
        classifier = self.classifier.load()(**self._linear._given(seed, {}))
        return Pipeline([("features", features), ("classifier", classifier)]).set_params(**parameters)

    @property
    def _linear(self):
        return self._replace(kernel=False, landmarks=None)

    def code(self, seed: int, parameters: Mapping[str, Any]) -> tuple[str, str]:
        """Return Python that imports the class, and Python that makes the classifier."""
        if self.landmarks is not None:
            parts = {step: {} for step in ("features", "classifier")}
            for name, value in parameters.items():
                step, _, own = name.partition("__")
                parts[step][own] = value
            features = {**parts["features"], "n_components": self.landmarks, "random_state": seed}
            imported, made = self._linear.code(seed, parts["classifier"])
            return (
                f"from sklearn.kernel_approximation import Nystroem\nfrom sklearn.pipeline import Pipeline\n{imported}",
                f"Pipeline([('features', Nystroem({_arguments(features)})), ('classifier', {made})])",
            )
        name = self.classifier.name
        arguments = _arguments(self._given(seed, parameters))
        return f"from {self.classifier.home} import {name}", f"{name}({arguments})"

    def _given(self, seed, parameters):
        given = {**self.fixed, **parameters}
        if "random_state" in signature(self.classifier.load()).parameters:
            given["random_state"] = seed
        return given


def _arguments(given):
    return ", ".join(f"{name}={value!r}" for name, value in given.items())


# ---------------------------------------------------------------------- grids


def _none(shape, few):
    return {}


def _price(shape, few):
    return {"C": _FEW_PRICES if few else _PRICES}


def _ldm(shape, few):
    from margindist.estimators.ldm import RELATIVE_LAMBDAS

    lambdas = {name: values[: 2 if few else None] for name, values in RELATIVE_LAMBDAS.items()}
    return {**_price(shape, few), **lambdas}


def _odm(shape, few):
    lams = tuple(shape.scale * price for price in (_FEW_PRICES if few else _PRICES))
    return {"lam": lams, "mu": (0.4,) if few else (0.2, 0.8), "theta": (0.2, 0.6)}


def _msvmav(shape, few):
    values = tuple(4.0**k for k in ((-3, 0, 3) if few else (-4, -2, 0, 2, 4)))
    return {"alpha": values, "beta": values[:2] if few else values}


def _svr(shape, few):
    return {**_price(shape, few), "epsilon": (0.1,) if few else (0.1, 0.5)}


def _boosting(shape, few):
    return {} if few else {"learning_rate": (0.03, 0.1, 0.3)}


def _komd(shape, few):
    return {"lam": (0.01, 1.0) if few else (0.001, 0.01, 0.1, 1.0, 10.0)}


def _mdo(shape, few):
    return {"alpha": (30.0, 300.0), "beta": (10.0,) if few else (1.0, 10.0)}


def _soft_margin(shape, few):
    return {"soft_margin": (0.1, 1.0) if few else (0.01, 0.1, 1.0, 10.0)}


_DECLARED = (
    Classifier(
        "LinearSVC", "sklearn.svm", "linearsvc", "LinearSVC", "scikit-learn's linear SVM", ("grey", "long"), _price,
        Reach(cost=1), fixed={"dual": "auto"},
    ),
    Classifier(
        "LogisticRegression", "sklearn.linear_model", "logistic", "LogisticRegression",
        "scikit-learn's logistic regression", ("grey", "dotted"), _price, Reach(cost=1), fixed={"max_iter": 1000},
    ),
    Classifier(
        "SVC", "sklearn.svm", "svc", "SVC", "scikit-learn's kernel SVM", ("grey", "dash-dot-dot"), _price,
        rbf=Reach(rows=40_000, cost=4),
    ),
    Classifier(
        "RandomForestClassifier", "sklearn.ensemble", "forest", "Random forest", "scikit-learn's forest of 200 trees",
        ("grey", "solid"), _none, Reach(rows=100_000, cost=5), fixed={"n_estimators": 200},
    ),
    Classifier(
        "HistGradientBoostingClassifier", "sklearn.ensemble", "boosting", "Gradient boosting",
        "scikit-learn's boosted trees", ("purple", "dashed"), _boosting, Reach(rows=200_000, cost=5, sparse=False),
    ),
    Classifier(
        "MAMClassifier", "margindist.estimators.mam", "mamc", "MAMC_b",
        "the largest mean margin, in closed form, with the bias of fewest errors",
        ("green", "dotted"), _none, Reach(cost=0), Reach(rows=20_000, cost=1),
        words="maximum average margin classifier",
    ),
    Classifier(
        "MAMClassifier", "margindist.estimators.mam", "mamc-plain", "MAMC",
        "the largest mean margin, with the mean label as bias", ("blue", "dotted"), _none, Reach(default=False, cost=0),
        Reach(rows=20_000, default=False, cost=1), fixed={"bias": "mean"}, words="the plain one of the papers",
    ),
    Classifier(
        "MAMClassifier", "margindist.estimators.mam", "mamc-bs", "MAMC_bs",
        "MAMC_b with a factor of the negative class, by cross-validation", None, _none, Reach(default=False, cost=1),
        Reach(rows=20_000, default=False, cost=2), fixed={"slope": "cv"}, words="with optimal bias and slope",
    ),
    Classifier(
        "LSSVMClassifier", "margindist.estimators.lssvm", "lssvm", "LS-SVM", "squared distance of every margin from 1",
        ("blue", "dashed"), _price, Reach(cost=0), Reach(rows=8_000, cost=3), search="LSSVMClassifierCV",
        words="least-squares support vector machine",
    ),
    Classifier(
        "LSSVMClassifier", "margindist.estimators.lssvm", "emamc", "EMAMC",
        "least squares in the space of the kernel values", ("green", "dash-dot-dot"), _price,
        rbf=Reach(rows=4_000, cost=4), fixed={"space": "empirical"},
        words="MAMC with equality constraints",
    ),
    Classifier(
        "LDMClassifier", "margindist.estimators.ldm", "ldm", "LDM",
        "hinge loss, mean and variance of the margins priced apart", ("blue", "solid"), _ldm,
        Reach(rows=500_000, cost=3), Reach(rows=4_000, cost=6), fixed={"lambda_scale": "relative"},
        search="LDMClassifierCV", words="large margin distribution machine",
    ),
    Classifier(
        "ODMClassifier", "margindist.estimators.odm", "odm", "ODM", "margins kept within a band around 1",
        ("green", "dash-dot"), _odm, Reach(rows=500_000, cost=2), Reach(rows=4_000, cost=6), search="ODMClassifierCV",
        aliases=("mcODM",),
        words="optimal margin distribution machine",
    ),
    Classifier(
        "MSVMAvClassifier", "margindist.estimators.msvmav", "msvmav", "MSVMAv",
        "mean margin and semi-variance below it", ("purple", "dash-dot-dot"), _msvmav,
        Reach(rows=200_000, columns=2000, cost=2), Reach(rows=2_000, cost=6), search="MSVMAvClassifierCV",
        words="margin semi-variance and average",
    ),
    Classifier(
        "SVRClassifier", "margindist.estimators.reductions", "svr", "SVR", "regression on the labels -1 and 1",
        ("purple", "solid"), _svr, Reach(rows=20_000, columns=5000, default=False, cost=4),
        Reach(rows=2_000, default=False, cost=6),
        words="support vector regression",
    ),
    Classifier(
        "ECOCClassifier", "margindist.estimators.reductions", "ecoc", "ECOC", "two-class problems from a code book",
        ("blue", "long"), _none,
        words="error-correcting output codes",
    ),
    Classifier(
        "KOMDClassifier", "margindist.estimators.rivals", "komd", "KOMD",
        "game between margins and a distribution over the rows", ("purple", "long"), _komd, Reach(rows=6_000, cost=4),
        Reach(rows=2_000, cost=5), aliases=("KM-OMD",),
        words="kernel optimisation of the margin distribution",
    ),
    Classifier(
        "MDOClassifier", "margindist.estimators.rivals", "mdo", "MDO", "a cost of normalised margins, several starts",
        ("red", "dash-dot"), _mdo, Reach(rows=20_000, columns=2000, cost=4),
        words="margin distribution optimisation",
    ),
    Classifier(
        "FMMClassifier", "margindist.estimators.rivals", "fmm", "FMM",
        "the largest smallest margin, by accelerated steps", ("green", "long"), _none,
        Reach(rows=50_000, default=False, cost=2),
        Reach(rows=2_000, default=False, cost=5),
        words="fast maximum margin",
    ),
    Classifier(
        "PUMMAClassifier", "margindist.estimators.online", "pumma", "PUMMA", "an online learner of the largest margin",
        ("red", "solid"), _soft_margin, Reach(rows=20_000, cost=3), Reach(rows=2_000, default=False, cost=5),
        words="p-norm utilising maximum margin algorithm",
    ),
    Classifier(
        "ROMMAClassifier", "margindist.estimators.online", "romma", "ROMMA", "an online learner of the largest margin",
        ("purple", "dotted"), _soft_margin, Reach(default=False, cost=3),
        words="relaxed online maximum margin algorithm",
    ),
    Classifier(
        "ALMAClassifier", "margindist.estimators.online", "alma", "ALMA",
        "an online learner of an approximately largest margin", ("purple", "dash-dot"), _soft_margin,
        Reach(default=False, cost=3),
        words="approximate large margin algorithm",
    ),
    Classifier(
        "MICRAClassifier", "margindist.estimators.online", "micra", "MICRA",
        "an online learner with a growing margin condition", ("red", "dash-dot-dot"), _soft_margin,
        Reach(default=False, cost=3),
        words="mistake-controlled rule algorithm",
    ),
)  # fmt: skip

CLASSIFIERS: list[Classifier] = []  # in the order of tables
OURS: dict[str, Classifier] = {}  # all but scikit-learn's, by the name of the class; model files hold no others
METHODS: list[Method] = []  # linear ones first
BY_KEY: dict[str, Method] = {}
BASELINES = ("linearsvc", "svc", "logistic")


def _add(classifier):
    CLASSIFIERS.append(classifier)
    if not classifier.rival:
        OURS.setdefault(classifier.name, classifier)  # of two that share a class, the first stands for it
    METHODS.extend(classifier.methods())
    METHODS.sort(key=lambda method: method.kernel)
    BY_KEY.update((method.key, method) for method in classifier.methods())


def _remove(classifier):
    CLASSIFIERS.remove(classifier)
    del OURS[classifier.name]
    for method in classifier.methods():
        METHODS.remove(method)
        del BY_KEY[method.key]


for _classifier in _DECLARED:
    _add(_classifier)


def register(
    kind: type,
    *,
    key: str,
    label: str,
    about: str = "",
    style: tuple[str, str] | None = None,
    grid: Callable[[Shape, bool], dict[str, tuple]] = _none,
    linear: Reach | None = None,
    rbf: Reach | None = None,
    fixed: Mapping[str, Any] | None = None,
) -> Classifier:
    """Make a classifier from outside the package known: ``compare`` runs it, model files and ONNX take it.

    A model file loads in a process that has registered the class, and in no other. The class must predict like the
    classifiers here, by ``coef_`` and ``intercept_`` or by ``dual_coef_``, ``support_`` and ``kernel_``, which those
    that derive from ``margindist.estimators._base.MarginClassifier`` do. Registered again, it takes the place of what
    went by its name before.

    Parameters
    ----------
    kind : type
        The class of the classifier.
    key, label, about, style, grid, linear, rbf, fixed
        As in :class:`Classifier`.

    Returns
    -------
    Classifier
    """
    classifier = Classifier(
        kind.__name__, kind.__module__, key, label, about, style, grid, linear, rbf, fixed or {}, registered=kind
    )
    before = OURS.get(classifier.name)
    others = [method.key for method in METHODS if method.classifier is not before]
    taken = [method.key for method in classifier.methods() if method.key in others]
    if before is not None and before.registered is None:
        taken.append(classifier.name)
    if taken:
        raise ValueError(f"register: {taken[0]!r} is the name of another classifier; choose another one.")
    if before is not None:
        _remove(before)
    _add(classifier)
    return classifier


# ---------------------------------------------------------------------- searching and choosing


def search(
    estimator: "BaseEstimator",
    grid: Mapping[str, Sequence[Any]],
    *,
    folds: int | Sequence[tuple] = 5,
    seed: int | None = None,
    scoring: Any = None,
    shared: bool = False,
) -> "BaseEstimator":
    """Return the estimator that chooses from the grid by cross-validation, not yet fitted.

    It has ``best_params_``, ``best_estimator_`` and ``cv_results_`` as `GridSearchCV` has them: one of this library's
    own, such as `LDMClassifierCV`, where it takes every parameter of the grid, else `SharedSearch` or `GridSearchCV`.

    Parameters
    ----------
    estimator : classifier
        Its own parameters hold where the grid says nothing.
    grid : dict of sequences
    folds : int or sequence of (train, test)
    seed : int, optional
        Of a number of folds, which are stratified and shuffled.
    scoring : str, optional
        As scikit-learn takes it; accuracy if None.
    shared : bool
        Whether `SharedSearch` stands for `GridSearchCV` where accuracy is the score: quicker with kernels, but an error
        in one fit ends it.
    """
    from sklearn.model_selection import GridSearchCV, StratifiedKFold

    from margindist.estimators._search import SharedSearch

    folded = StratifiedKFold(folds, shuffle=True, random_state=seed) if isinstance(folds, int) else folds
    declared = OURS.get(type(estimator).__name__)
    if declared is not None and declared.search:
        kind = getattr(import_module(declared.module), declared.search)
        parameters = _search_parameters(kind, estimator, grid)
        if parameters is not None:
            return kind(**parameters, cv=folded, scoring=scoring)
    if shared and scoring in (None, "accuracy"):
        return SharedSearch(estimator, grid, folded)
    return GridSearchCV(estimator, dict(grid), cv=folded, scoring=scoring)


def _search_parameters(kind, estimator, grid):
    """Return what makes a search of this kind equal to one over the grid, or None if it cannot be.

    The search takes the values of ``C`` as ``Cs``, and so on. A parameter that it does not know must have its default
    value, where it changes nothing.
    """
    known = signature(kind).parameters
    defaults = signature(type(estimator)).parameters
    if any(f"{name}s" not in known for name in grid):
        return None
    parameters = {f"{name}s": values for name, values in grid.items()}
    for name, value in estimator.get_params(deep=False).items():
        if name in grid:
            continue
        if name in known:
            parameters[name] = value
        elif value != defaults[name].default:
            return None
        elif f"{name}s" in known:
            parameters[f"{name}s"] = [value]
    return parameters


def best_model(model: Any) -> Any:
    """Return the best model of a search over parameters, anything else as it is."""
    while "best_estimator_" in getattr(model, "__dict__", {}):
        model = model.best_estimator_
    return model


class Choice(NamedTuple):
    """Which methods run.

    Parameters
    ----------
    methods : tuple of Method
        Those that run, quick ones first.
    reserve : tuple of Method
        Those that run after them if the best one is of their kind.
    left_out : dict of str to str
        For the label of each method that does not run, or perhaps not, the reason.
    """

    methods: tuple[Method, ...]
    reserve: tuple[Method, ...]
    left_out: dict[str, str]


def choose(wanted: Sequence[str] | None, shape: Shape, cost: Callable[[Method], float] = lambda method: 0.0) -> Choice:
    """Choose the methods by name, or all that take no longer than is fair; scikit-learn's are always beside them.

    Parameters
    ----------
    wanted : sequence of str or None
        Keys; ``"linear"`` and ``"rbf"`` stand for all defaults of the kind, ``"all"`` for every method there is.
    shape : Shape
    cost : callable
        Returns the seconds that a split of a method would take; asked only beyond the method's reach.
    """
    asked = None if wanted is None else _expand(wanted)
    kept, reserve, left_out = [], [], {}
    for method in METHODS:
        if asked is not None and method.key not in asked and method.key not in BASELINES:
            continue
        if asked is None and method.landmarks is not None:
            continue
        named = asked is not None and method.key in asked
        if shape.sparse and not method.reach.sparse:
            left_out[method.label] = "takes no sparse rows."
            continue
        if asked is None and not method.default:
            left_out[method.label] = ASKED_ONLY
            continue
        seconds = 0.0 if named or _within_reach(method, shape) else cost(method)
        if seconds <= SECONDS_PER_SPLIT:
            kept.append(method)
            continue
        left_out[method.label] = TOO_SLOW
        if asked is not None:
            continue
        if seconds <= SECONDS_OF_RESERVE:
            reserve.append(method)
        near = BY_KEY.get(f"{method.classifier.key}-nystroem") if method.kernel else None
        if near is None:
            continue
        if cost(near) <= SECONDS_PER_SPLIT:
            left_out[method.label] = APPROXIMATED
            kept.append(near)
        elif cost(near) <= SECONDS_OF_RESERVE < seconds:
            reserve.append(near)
    return Choice(_quick_first(kept), _quick_first(reserve), left_out)


def _quick_first(methods):
    return tuple(sorted(methods, key=lambda method: method.reach.cost))


def _expand(wanted):
    keys = set()
    for name in wanted:
        key = name.strip().lower()
        if key == "all":
            keys.update(method.key for method in METHODS if method.landmarks is None)
        elif key in ("linear", "rbf"):
            keys.update(method.key for method in METHODS if method.default and method.kind == key)
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
        known = list(known)
        meant = did_you_mean(name, known, f"there are {', '.join(known)}.")
        super().__init__(f"there is no method {name!r}; {meant}")


def _within_reach(method, shape):
    n_problems = shape.classes if shape.classes > 2 else 1
    return shape.rows * n_problems <= method.reach.rows and shape.columns <= method.reach.columns
