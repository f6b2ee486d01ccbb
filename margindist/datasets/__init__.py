"""The papers' data sets."""

from margindist.datasets.generators import make_threshold

__all__ = ["make_threshold"]
