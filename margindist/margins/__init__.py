"""What a fitted classifier, any classifier with decision values, says about its margins."""

from margindist.margins.bounds import generalization_bound, multiclass_bound
from margindist.margins.decision import margins, margins_from_decision
from margindist.margins.influence import InfluenceCurve, ParameterInfluenceDisplay
from margindist.margins.leave_one_out import loo_error_bound
from margindist.margins.palette import MethodStyle, method_styles
from margindist.margins.partitions import PartitionMargins
from margindist.margins.plots import MarginDistributionDisplay, MarginSample
from margindist.margins.semivariance import semivariance_bound
from margindist.margins.statistics import MarginStatistics, margin_statistics
from margindist.margins.updates import first_reaching, update_bound

__all__ = [
    "InfluenceCurve",
    "MarginDistributionDisplay",
    "MarginSample",
    "MarginStatistics",
    "MethodStyle",
    "ParameterInfluenceDisplay",
    "PartitionMargins",
    "first_reaching",
    "generalization_bound",
    "loo_error_bound",
    "margin_statistics",
    "margins",
    "margins_from_decision",
    "method_styles",
    "multiclass_bound",
    "semivariance_bound",
    "update_bound",
]
