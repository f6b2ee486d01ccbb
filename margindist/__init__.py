"""Classifiers that learn from the whole margin distribution."""

from margindist.estimators.ldm import LDMClassifier
from margindist.estimators.odm import ODMClassifier

__all__ = ["LDMClassifier", "ODMClassifier"]
__version__ = "0.1.0"
