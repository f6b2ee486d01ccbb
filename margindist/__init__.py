"""Classifiers that learn from the whole margin distribution."""

from margindist.estimators.ldm import LDMClassifier
from margindist.estimators.lssvm import LSSVMClassifier
from margindist.estimators.mam import MAMClassifier
from margindist.estimators.msvmav import MSVMAvClassifier
from margindist.estimators.odm import ODMClassifier
from margindist.estimators.online import ALMAClassifier, MICRAClassifier, PUMMAClassifier, ROMMAClassifier
from margindist.estimators.reductions import ECOCClassifier, SVRClassifier
from margindist.estimators.rivals import FMMClassifier, KOMDClassifier, MDOClassifier

__all__ = [
    "ALMAClassifier",
    "ECOCClassifier",
    "FMMClassifier",
    "KOMDClassifier",
    "LDMClassifier",
    "LSSVMClassifier",
    "MAMClassifier",
    "MDOClassifier",
    "MICRAClassifier",
    "MSVMAvClassifier",
    "ODMClassifier",
    "PUMMAClassifier",
    "ROMMAClassifier",
    "SVRClassifier",
]
__version__ = "0.1.0"
