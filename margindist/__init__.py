"""Classifiers that learn from the whole margin distribution."""

from importlib import import_module
from typing import TYPE_CHECKING

from margindist.methods import OURS

if TYPE_CHECKING:
    from margindist.estimators.ldm import LDMClassifier, LDMClassifierCV
    from margindist.estimators.lssvm import LSSVMClassifier, LSSVMClassifierCV
    from margindist.estimators.mam import MAMClassifier
    from margindist.estimators.msvmav import MSVMAvClassifier, MSVMAvClassifierCV
    from margindist.estimators.odm import ODMClassifier, ODMClassifierCV
    from margindist.estimators.online import ALMAClassifier, MICRAClassifier, PUMMAClassifier, ROMMAClassifier
    from margindist.estimators.reductions import ECOCClassifier, SVRClassifier
    from margindist.estimators.rivals import FMMClassifier, KOMDClassifier, MDOClassifier
    from margindist.models import load_model, save_model
    from margindist.onnx import to_onnx

__all__ = [
    "ALMAClassifier",
    "ECOCClassifier",
    "FMMClassifier",
    "KOMDClassifier",
    "LDMClassifier",
    "LDMClassifierCV",
    "LSSVMClassifier",
    "LSSVMClassifierCV",
    "MAMClassifier",
    "MDOClassifier",
    "MICRAClassifier",
    "MSVMAvClassifier",
    "MSVMAvClassifierCV",
    "ODMClassifier",
    "ODMClassifierCV",
    "PUMMAClassifier",
    "ROMMAClassifier",
    "SVRClassifier",
    "load_model",
    "save_model",
    "to_onnx",
]
__version__ = "0.2.0.dev0"

# A module is imported when one of its names is first used: the first fit then waits for no other's code.
_HOMES = {"load_model": "margindist.models", "save_model": "margindist.models", "to_onnx": "margindist.onnx"}
for _classifier in OURS.values():
    _HOMES[_classifier.name] = _classifier.module
    if _classifier.search:
        _HOMES[_classifier.search] = _classifier.module


def __getattr__(name):
    if name not in _HOMES:
        raise AttributeError(f"module 'margindist' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)


def __dir__():
    return sorted([*globals(), *__all__])
