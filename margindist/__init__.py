"""Classifiers that learn from the whole margin distribution."""

from margindist.estimators.ldm import LDMClassifier
from margindist.estimators.online import ALMAClassifier, MICRAClassifier, PUMMAClassifier, ROMMAClassifier

__all__ = [
    "ALMAClassifier",
    "LDMClassifier",
    "MICRAClassifier",
    "PUMMAClassifier",
    "ROMMAClassifier",
]
__version__ = "0.1.0"
