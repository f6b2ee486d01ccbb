"""What a parameter may be, as data: a test, and the words for an error message.

scikit-learn's ``_parameter_constraints`` serve the same end, but its sentences name Python types where ours name what
is meant ("a positive number or inf"), and it is private to scikit-learn.
"""

import numbers
from collections.abc import Callable, Iterable
from typing import Any, Literal, NamedTuple, TypeAlias

import numpy as np

from margindist.kernels import KERNELS, gamma_per_feature, width_in_distances

PRICES = ("C", "lambda1", "lambda2", "lam", "alpha", "beta")  # parameters that multiply a part of the objective
_CHEAPEST, _DEAREST = 1e-100, 1e100  # beyond, squares overflow


KernelName: TypeAlias = Literal["linear", "rbf", "poly", "sigmoid", "precomputed"]


class Requirement(NamedTuple):
    """What a parameter may be: a test, and the words for it in an error message."""

    test: Callable[[Any], bool]
    text: str


def is_real(value):
    return isinstance(value, numbers.Real) and not isinstance(value, (bool, np.bool_)) and not np.isnan(value)


def _is_integer(value):
    return isinstance(value, numbers.Integral) and not isinstance(value, (bool, np.bool_))


def _is_moderate(price):
    """Tell whether a price, or all of a sequence, can be squared; zero and inf are no prices to reckon with."""
    entries = price if isinstance(price, Iterable) else [price]
    return all(not is_real(entry) or entry in (0, np.inf) or _CHEAPEST <= entry <= _DEAREST for entry in entries)


def _is_seed(value):
    return value is None or isinstance(value, np.random.RandomState) or (_is_integer(value) and 0 <= value < 2**32)


def one_of(*options):
    """Require one of the given values."""
    words = " or ".join([", ".join(map(repr, options[:-1])), repr(options[-1])] if options[1:] else [repr(options[0])])
    return Requirement(lambda value: any(value is o or (isinstance(o, str) and value == o) for o in options), words)


def optional(requirement):
    """Allow None beside what the requirement allows."""
    return Requirement(lambda value: value is None or requirement.test(value), f"None or {requirement.text}")


POSITIVE = Requirement(lambda value: is_real(value) and 0 < value < np.inf, "a positive number")
POSITIVE_OR_INF = Requirement(lambda value: is_real(value) and value > 0, "a positive number or inf")
NON_NEGATIVE = Requirement(lambda value: is_real(value) and 0 <= value < np.inf, "a number that is not negative")
REAL = Requirement(lambda value: is_real(value) and np.isfinite(value), "a finite number")
POSITIVE_INTEGER = Requirement(lambda value: _is_integer(value) and value >= 1, "a positive integer")
COMPONENTS = Requirement(
    lambda value: value is None or (isinstance(value, str) and value == "auto") or POSITIVE_INTEGER.test(value),
    "None, 'auto' or a positive integer",
)
FLAG = Requirement(lambda value: isinstance(value, (bool, np.bool_)), "True or False")

KERNEL_PARAMETERS = {
    "kernel": Requirement(
        lambda value: callable(value) or (isinstance(value, str) and value in KERNELS),
        "one of " + ", ".join(map(repr, KERNELS)) + " or a function k(X, Y)",
    ),
    "gamma": Requirement(
        lambda value: (
            (isinstance(value, str) and value in ("scale", "auto"))
            or (isinstance(value, str) and (gamma_per_feature(value) > 0 or width_in_distances(value) > 0))
            or (is_real(value) and 0 < value < np.inf)
        ),
        "'scale', 'auto', a positive number or a string such as '5/d' or '2*mean-distance'",
    ),
    "degree": POSITIVE_INTEGER,
    "coef0": REAL,
}

COMMON_PARAMETERS = {
    "fit_intercept": FLAG,
    "tol": POSITIVE,
    "max_iter": POSITIVE_INTEGER,
    "class_weight": Requirement(
        lambda value: (
            value is None
            or (isinstance(value, str) and value == "balanced")
            or (isinstance(value, dict) and all(map(NON_NEGATIVE.test, value.values())))
        ),
        "None, 'balanced' or a dict from label to weight, each a number that is not negative",
    ),
    "random_state": Requirement(_is_seed, "None, an integer from 0 to 2**32 - 1 or a RandomState"),
    "verbose": Requirement(
        lambda v: isinstance(v, (bool, np.bool_)) or (_is_integer(v) and v >= 0), "a flag or a level"
    ),
    "n_jobs": Requirement(
        lambda value: value is None or (_is_integer(value) and value != 0), "None or an integer other than 0"
    ),
    "warm_start": FLAG,
}


class ParametersMixin:
    """Parameters that are checked against what the class requires of them."""

    _requirements: dict[str, Requirement] = {}

    def _check_parameters(self):
        for name, value in self.get_params(deep=False).items():
            requirement = self._requirements.get(name)
            if requirement is not None and not requirement.test(value):
                raise ValueError(f"{type(self).__name__}: {name} must be {requirement.text}, got {value!r}.")
            if name.removesuffix("s") in PRICES and not _is_moderate(value):
                raise ValueError(
                    f"{type(self).__name__}: {name} must be of moderate size, between {_CHEAPEST:g} and {_DEAREST:g}, "
                    f"got {value!r}."
                )

    def _rng(self):
        """Return a NumPy generator that ``random_state`` determines."""
        if isinstance(self.random_state, np.random.RandomState):
            return np.random.default_rng(self.random_state.randint(2**31))
        return np.random.default_rng(self.random_state)
