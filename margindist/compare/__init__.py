"""Which method suits your data: nested cross-validation of all of them, with a ranked table and a report."""

from margindist.compare.comparison import Comparison, ComparisonRow
from margindist.compare.nested import compare
from margindist.compare.plan import Plan
from margindist.compare.training import Trained, train

__all__ = ["Comparison", "ComparisonRow", "Plan", "Trained", "compare", "train"]
