"""What the cells say: the ranked table, tests of significance, and the answer in a few sentences."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from margindist.methods import BY_KEY
from margindist.runs.statistics import corrected_resampled_t, holm

if TYPE_CHECKING:
    from margindist.compare.comparison import Comparison

LEVEL = 0.05
FEWEST_TESTED = 5  # two or three splits often differ by exactly the same, which a t-test takes for certainty
_SIGNS = {"": "  ", "tie": "  ", "win": " +", "loss": " -"}


class ComparisonRow(NamedTuple):
    """A method's line in the table.

    Parameters
    ----------
    rank : int
    method : str
        Its key.
    label : str
    kernel : bool
    splits : int
        How many splits the figures are means over.
    accuracy, accuracy_std : float
        Mean and standard deviation over the splits; the latter None for one split.
    balanced_accuracy, balanced_accuracy_std : float
    margin_mean, margin_variance : float
        Of the normalised margins of the test parts.
    geometric_margin : float or None
        Mean distance to the boundary, in the space where the method is linear; None if it has no weight vector.
    fit_seconds, predict_seconds : float
        Processor time of one fit with chosen parameters, and of the prediction of one test part.
    p_best : float or None
        Adjusted probability of such a difference from the best method by chance; None for the best itself.
    verdict_best : str
        ``"tie"`` or ``"loss"`` against it, or an empty string; a method that failed on some splits may ``"win"`` on the
        others.
    p_svm : float or None
        The same against the support vector machine of the same kind.
    against_svm : str
        Which machine that is, or an empty string.
    verdict_svm : str
        ``"win"``, ``"tie"`` or ``"loss"`` against it, or an empty string.
    """

    rank: int
    method: str
    label: str
    kernel: bool
    splits: int
    accuracy: float
    accuracy_std: float | None
    balanced_accuracy: float
    balanced_accuracy_std: float | None
    margin_mean: float
    margin_variance: float
    geometric_margin: float | None
    fit_seconds: float
    predict_seconds: float
    p_best: float | None
    verdict_best: str
    p_svm: float | None
    against_svm: str
    verdict_svm: str


def comparable_splits(plan, results):
    """The splits that every method has finished; methods that finished none or failed somewhere do not count."""
    done: dict[str, set[int]] = {}
    failed = {result.cell.method for result in results if result.status != "done"}
    for result in results:
        if result.status == "done":
            done.setdefault(result.cell.method, set()).add(result.cell.split)
    counted = [splits for key, splits in done.items() if key not in failed] or list(done.values())
    return set.intersection(*counted) if counted else set()


def ranked(plan, done):
    """Return the rows of the table, best first, from the results of each method."""
    if not done:
        return []
    means = {key: np.mean([r.score for r in results]) for key, results in done.items()}
    most = max(
        map(len, done.values())
    )  # a method that failed on some splits, hard ones perhaps, comes after the others
    order = sorted(done, key=lambda key: (len(done[key]) < most, -means[key], list(plan.grids).index(key)))
    against_best = _tests(done, dict.fromkeys(order[1:], order[0]), plan)
    machines = _machines(done)
    against_svm = _tests(done, {key: machines[key] for key in order if machines[key] not in (None, key)}, plan)
    rows = []
    for rank, key in enumerate(order, 1):
        method, results = BY_KEY[key], done[key]
        scores = np.array([result.score for result in results])
        balanced = np.array([result.detail["balanced_accuracy"] for result in results])
        tests = [result.detail["margins"]["test"] for result in results]
        geometric = [result.detail["margins"]["test_geometric"] for result in results]
        versus = against_svm.get(key)
        rows.append(
            ComparisonRow(
                rank=rank,
                method=key,
                label=method.label,
                kernel=method.kernel,
                splits=len(results),
                accuracy=float(scores.mean()),
                accuracy_std=float(scores.std(ddof=1)) if len(scores) > 1 else None,
                balanced_accuracy=float(balanced.mean()),
                balanced_accuracy_std=float(balanced.std(ddof=1)) if len(scores) > 1 else None,
                margin_mean=float(np.mean([part["mean"] for part in tests])),
                margin_variance=float(np.mean([part["variance"] for part in tests])),
                geometric_margin=None if None in geometric else float(np.mean([part["mean"] for part in geometric])),
                fit_seconds=float(np.median([result.fit_seconds for result in results])),
                predict_seconds=float(np.median([result.predict_seconds for result in results])),
                p_best=against_best[key].p_value if key in against_best else None,
                verdict_best=against_best[key].verdict(LEVEL) if key in against_best else "",
                p_svm=None if versus is None else versus.p_value,
                against_svm=BY_KEY[machines[key]].label if versus is not None else "",
                verdict_svm="" if versus is None else versus.verdict(LEVEL),
            )
        )
    return rows


def _machines(done):
    """The support vector machine each method is held against: that of its own kind, or the other if it is missing."""
    both = [key for key in ("linearsvc", "svc") if key in done]
    own = {True: "svc", False: "linearsvc"}
    return {
        key: own[BY_KEY[key].kernel] if own[BY_KEY[key].kernel] in both else (both[0] if both else None)
        for key in done
    }  # fmt: skip


def _tests(done, pairs, plan):
    """Corrected resampled t-tests of each pair on the splits both have, the p-values adjusted by Holm's rule."""
    found = {}
    for key, other in pairs.items():
        scores = [{result.cell.split: result.score for result in done[name]} for name in (key, other)]
        shared = sorted(scores[0].keys() & scores[1].keys())
        if len(shared) >= FEWEST_TESTED:
            found[key] = corrected_resampled_t(
                *([part[split] for split in shared] for part in scores), test_share=1.0 / plan.splits
            )
    adjusted = holm([test.p_value for test in found.values()])
    return {key: test._replace(p_value=float(p)) for (key, test), p in zip(found.items(), adjusted)}


def alike(rows: Sequence[ComparisonRow]) -> list[ComparisonRow]:
    """Return the methods that cannot be told apart from the best one, itself not among them."""
    return [row for row in rows[1:] if row.verdict_best != "loss"]


def answer_of(comparison):
    """Return the answer in a few sentences: which method, and whether the difference is real."""
    rows = comparison.rows
    if not rows:
        return ["Nothing is finished yet, so there is nothing to compare."]
    best = rows[0]
    whole = " of the methods that finished every split" if any(row.splits < best.splits for row in rows) else ""
    sentences = [
        f"{best.label} has the highest accuracy{whole}, {_mean_and_spread(best)} over {best.splits} "
        f"split{'s' if best.splits > 1 else ''}."
    ]
    commonest = max(comparison.about["classes"].values()) / sum(comparison.about["classes"].values())
    hardly = best.accuracy - commonest <= (best.accuracy_std or 0.0)
    beside = ": that is more" if best.accuracy < commonest else ": that is hardly less" if hardly else ""
    sentences.append(f"Always naming the commonest class would give {commonest:.3f}{beside}.")
    if len(rows) == 1:
        return sentences
    if best.splits < FEWEST_TESTED:
        few = f"{best.splits} split{'s are' if best.splits > 1 else ' is'} too few"
        return [*sentences, f"Whether the differences are real cannot be said: {few}, take {FEWEST_TESTED} or more."]
    others = alike(rows)
    if not others:
        sentences.append("The difference is real: every other method is significantly worse.")
    elif len(others) == len(rows) - 1:
        sentences.append(
            f"The differences may well be chance: none of the other {len(others)} methods is significantly worse."
        )
    else:
        names = _listed([row.label for row in others])
        worse = _worse(len(rows) - 1 - len(others))
        sentences.append(f"{best.label} cannot be told apart from {names}; {worse} significantly worse.")
    sentences += _svm_sentence(rows, best)
    near = [row for row in others if row.accuracy >= best.accuracy - best.accuracy_std]
    quickest = min([best, *near], key=lambda row: row.fit_seconds)
    if 2.0 * quickest.fit_seconds < best.fit_seconds:
        sentences.append(
            f"Of those within one standard deviation of it, {quickest.label} is the quickest to fit "
            f"({duration(quickest.fit_seconds)} against {duration(best.fit_seconds)})."
        )
    return sentences


def _mean_and_spread(row):
    return f"{row.accuracy:.3f}" if row.accuracy_std is None else f"{row.accuracy:.3f} ± {row.accuracy_std:.3f}"


def _worse(count):
    return "the other one is" if count == 1 else f"the other {count} are"


def _svm_sentence(rows, best):
    machines = [row for row in rows if row.method in ("linearsvc", "svc")]
    if not machines or best in machines:
        return []
    machine = machines[0]
    gap = f"{best.accuracy - machine.accuracy:+.3f}"
    if machine in alike(rows):
        return [f"Against the better support vector machine, {machine.label}, it gains {gap}: no clear difference."]
    return [f"Against the better support vector machine, {machine.label}, it gains {gap}, significantly."]


def _listed(names, most=5):
    if len(names) > most:
        return f"{', '.join(names[:most])} and {len(names) - most} more"
    return " and ".join([", ".join(names[:-1]), names[-1]] if names[1:] else names)


def duration(seconds: float) -> str:
    """Return a time in the unit that suits it."""
    for unit, factor in (("s", 1.0), ("ms", 1e3)):
        if seconds * factor >= 1.0:
            return f"{seconds * factor:.3g} {unit}" if seconds * factor < 1000 else f"{seconds:.0f} s"
    return f"{seconds * 1e6:.0f} µs"


def probability(p: float | None) -> str:
    """Return a p-value as tables have it; a dash where there is none."""
    if p is None or np.isnan(p):
        return "–"
    if p > 0.9995:
        return "1"
    return "<.001" if p < 0.001 else f"{p:.3f}".removeprefix("0")


def table_as_text(comparison: "Comparison") -> str:
    """Return the ranked table for a terminal."""
    head = ("", "method", "accuracy", "balanced", "margin mean", "variance", "fit", "predict", "p best", "p SVM")
    lines = [head]
    for row in comparison.rows:
        lines.append((
            str(row.rank), row.label, _mean_and_spread(row), f"{row.balanced_accuracy:.3f}",
            f"{row.margin_mean:.3f}", f"{row.margin_variance:.3f}", duration(row.fit_seconds),
            duration(row.predict_seconds), probability(row.p_best), probability(row.p_svm) + _SIGNS[row.verdict_svm],
        ))  # fmt: skip
    widths = [max(len(line[k]) for line in lines) for k in range(len(head))]
    return "\n".join(
        "  ".join(cell.ljust(w) if k == 1 else cell.rjust(w) for k, (cell, w) in enumerate(zip(line, widths))).rstrip()
        for line in lines
    )
