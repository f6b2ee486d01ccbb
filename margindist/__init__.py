"""Classifiers that learn from the whole margin distribution."""

from margindist.estimators.ldm import LDMClassifier

__all__ = ["LDMClassifier"]
__version__ = "0.1.0"
