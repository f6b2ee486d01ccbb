"""What a certificate says beyond the fit: about predictions, and about other people's models."""

from margindist.proof.judge import Judgement, certify
from margindist.proof.predictions import ScoreBounds, certain, score_bounds

__all__ = ["Judgement", "ScoreBounds", "certain", "certify", "score_bounds"]
