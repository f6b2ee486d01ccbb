"""The papers' data sets and generators."""

from margindist.datasets.generators import make_threshold

__all__ = ["make_threshold"]
