"""The answer in sentences and the table for a terminal: what to use, why, and what is only chance."""

from math import isnan
from typing import TYPE_CHECKING, NamedTuple

from margindist.compare.scoring import LABELS, SHORT
from margindist.methods import APPROXIMATED, ASKED_ONLY, BY_KEY
from margindist.runs.wording import aligned, duration, listed, rounded

if TYPE_CHECKING:
    from margindist.compare.comparison import Comparison, ComparisonRow, Difference

BASELINE = "(the most frequent class)"
_SIGNS = {"win": " +", "loss": " -"}
_ROUNDING = 1e-12


class Score(NamedTuple):
    """How a score is written: log-loss is kept with a minus sign."""

    name: str

    @property
    def is_loss(self) -> bool:
        """Whether less is better, as it is written."""
        return self.name == "log_loss"

    @property
    def label(self) -> str:
        """Its name within a sentence."""
        return LABELS.get(self.name, self.name)

    @property
    def short(self) -> str:
        """Its name at the head of a column."""
        return SHORT.get(self.name, self.name)

    def text(self, value: float) -> str:
        """Return a score with three digits."""
        return rounded(-value if self.is_loss else value)

    def spread(self, row: "ComparisonRow") -> str:
        """Return a method's mean and standard deviation."""
        return self.text(row.score) + ("" if row.score_std is None else f" ± {row.score_std:.3f}")

    def difference(self, difference: "Difference") -> str:
        """Return a difference as it is written, with its interval if there is one."""
        sign = -1.0 if self.is_loss else 1.0
        mean = rounded(sign * difference.mean, sign=True)
        if difference.low is None:
            return mean
        ends = sorted((sign * difference.low, sign * difference.high))
        return f"{mean} [{', '.join(rounded(end, sign=True) for end in ends)}]"


def verdict(comparison: "Comparison") -> list[str]:
    """Return the answer in a few sentences.

    Parameters
    ----------
    comparison : Comparison
    """
    if not comparison.rows:
        return ["Nothing is finished yet, so there is nothing to compare."]
    score = Score(comparison.plan.scoring)
    return [
        _advice(comparison, score),
        *_about_the_best(comparison, score),
        *_about_the_baseline(comparison, score),
        *_about_the_machine(comparison, score),
        *_unranked(comparison.rows, score),
        *_not_compared(comparison),
    ]


def _advice(comparison, score):
    """What to use, and why: a sentence that can be repeated."""
    best, choice, alike = comparison.rows[0], comparison.choice, comparison.alike
    if choice is None and best.rank is None:
        return "Use none of these: no method converged on every split, so none is ranked."
    if choice is None and best.below_baseline:
        return f"Use none of these: no method is better than {_always(score)}."
    if choice is None:
        return (
            f"Use none of these yet: {named(best.method)} is the best with {score.label} {score.spread(best)}, and not "
            f"clearly better than {_always(score)}, {score.text(comparison.baseline)}."
        )
    why = _why(comparison, score, best, choice, alike)
    return f"Use {named(choice.method)}: {why}; expected {score.label}: {score.spread(choice)}."


def named(key: str) -> str:
    """Return the label of a method, with the words that an acronym stands for."""
    method = BY_KEY[key]
    return f"{method.label} ({method.words})" if method.words else method.label


def _why(comparison, score, best, choice, alike):
    highest = f"the {'lowest' if score.is_loss else 'highest'} {score.label}"
    if len(comparison.rows) == 1:
        return "it is the only method that ran"
    if not comparison.tested:
        return (
            f"it has {highest}, though {best.splits} split{'s are' if best.splits > 1 else ' is'} too few to tell "
            + ("whether differences are real (take 5 or more)")
        )
    if choice is not best:
        return f"the fastest of {len(alike)} methods that cannot be told apart"
    if len(alike) > 1:
        return f"it has {highest} of {len(alike)} methods that cannot be told apart, none of them much faster"
    rivals = [row for row in comparison.rows[1:] if row.rank is not None]
    if all(row.to_best.verdict == "loss" for row in rivals):
        return f"it has {highest}, and every other method that ran is significantly worse"
    return f"it has {highest}, and no other method comes within one standard error of it"


def _about_the_best(comparison, score):
    """Which method has the best score, where another one is advised, and of which methods it is the best."""
    best, choice = comparison.rows[0], comparison.choice
    whole = _whole(comparison.rows)
    if choice in (None, best):
        return [f"It is the best{whole}."] if whole and choice is best else []
    difference = score.difference(choice.to_best)
    return [
        f"{named(best.method)} has the {'lowest' if score.is_loss else 'highest'} {score.label}{whole}, "
        f"{score.text(best.score)}; {choice.label} differs by {difference} (95 % interval) and takes "
        f"{duration(choice.fit_seconds)} to fit instead of {duration(best.fit_seconds)}."
    ]


def _whole(rows):
    """Of which methods the first is the best, where that is not all of them."""
    did = ["finished"] if any(row.splits < rows[0].splits for row in rows) else []
    did += ["converged on"] if any(row.rank is None for row in rows) else []
    return f" of the methods that {' and '.join(did)} every split" if did else ""


def _always(score):
    return "giving each class its share" if score.is_loss else "always naming the most frequent class"


def _about_the_baseline(comparison, score):
    best, base = comparison.rows[0], comparison.baseline
    if isnan(base) or (comparison.choice is None and best.rank is not None and not best.below_baseline):
        return []  # or it has been said
    beside = ""
    if abs(best.score - base) < _ROUNDING:
        beside = ": that is as good"
    elif best.below_baseline:
        beside = ": that is better" if score.is_loss else ": that is more"
    elif best.score - base <= (best.score_std or 0.0):
        beside = ": that is hardly worse" if score.is_loss else ": that is hardly less"
    always = _always(score)
    return [f"{always[0].upper()}{always[1:]} would give {score.text(base)}{beside}."]


def _about_the_machine(comparison, score):
    """How the method advised, or else the best one, compares with the support vector machine."""
    row = comparison.choice or comparison.rows[0]
    if row.to_svm is None or comparison.reference is None:
        return []
    verdicts = {
        "win": ", significantly better",
        "loss": ", significantly worse",
        "tie": ": no clear difference",
        "": "",
    }
    machine = f"the better support vector machine, {BY_KEY[comparison.reference].label}"
    return [f"Against {machine}, {row.label} differs by {score.difference(row.to_svm)}{verdicts[row.to_svm.verdict]}."]


def _unranked(rows, score):
    """What methods without a rank had, where that is more than the best one had."""
    better = [row for row in rows[1:] if row.rank is None and row.score > rows[0].score]
    for row in better:
        yield f"{row.label}, which did not converge on some splits and has no rank, had {score.text(row.score)}."


def _not_compared(comparison):
    """Which rivals nothing is said about; those of the kind of the best method first."""
    unfinished = comparison.unfinished
    result = [f"Not finished, so not compared: {listed(unfinished)}."] if unfinished else []
    if comparison.about.methods is not None:
        return [*result, "Only the methods asked for, and scikit-learn's, were compared."]
    best = comparison.rows[0]
    kernels = {method.label: method.kernel for method in BY_KEY.values()}
    slow = [label for label, reason in comparison.left_out.items() if reason not in (ASKED_ONLY, APPROXIMATED)]
    near = [label for label in slow if kernels[label] == best.kernel]
    far = [label for label in slow if label not in near]
    if near:
        result.append(
            f"{'Also not' if result else 'Not'} compared, though of the same kind as {best.label}: {listed(near)}."
        )
    if far:
        result.append(f"{'Also not' if result else 'Not'} compared: {listed(far)}.")
    return result


def table_as_text(comparison: "Comparison") -> str:
    """Return the ranked table for a terminal.

    Parameters
    ----------
    comparison : Comparison
    """
    score = Score(comparison.plan.scoring)
    second = "accuracy" if score.name != "accuracy" else "balanced_accuracy"
    lines = [("", "method", score.short, SHORT[second], "to the best", "fit", "predict", "")]
    shown = list(comparison.rows)
    if not isnan(comparison.baseline):  # before the first method that is worse
        place = (k for k, row in enumerate(comparison.rows) if row.rank is None or row.below_baseline)
        shown.insert(next(place, len(shown)), None)
    for row in shown:
        if row is None:
            lines.append(("", BASELINE, score.text(comparison.baseline), *[""] * 5))
            continue
        to_best = "" if row.to_best is None else score.difference(row.to_best) + _SIGNS.get(row.to_best.verdict, "  ")
        lines.append((
            "–" if row.rank is None else str(row.rank), row.label, score.spread(row), rounded(getattr(row, second)),
            to_best, duration(row.fit_seconds), duration(row.predict_seconds), "; ".join(row.remarks),
        ))  # fmt: skip
    return aligned(lines, left=(1, 7))
