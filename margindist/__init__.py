"""Classifiers that learn from the whole margin distribution."""

from margindist.estimators.ldm import LDMClassifier
from margindist.estimators.msvmav import MSVMAvClassifier
from margindist.estimators.rivals import FMMClassifier, KOMDClassifier, MDOClassifier

__all__ = ["FMMClassifier", "KOMDClassifier", "LDMClassifier", "MDOClassifier", "MSVMAvClassifier"]
__version__ = "0.1.0"
