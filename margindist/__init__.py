"""Classifiers that learn from the whole margin distribution."""

from margindist.estimators.ldm import LDMClassifier
from margindist.estimators.lssvm import LSSVMClassifier
from margindist.estimators.mam import MAMClassifier
from margindist.estimators.reductions import ECOCClassifier, SVRClassifier

__all__ = ["ECOCClassifier", "LDMClassifier", "LSSVMClassifier", "MAMClassifier", "SVRClassifier"]
__version__ = "0.1.0"
