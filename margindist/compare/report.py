"""The comparison's report: one HTML page that needs nothing else, made from stored results alone."""

from collections import Counter
from typing import NamedTuple

import numpy as np
from jinja2 import Environment, PackageLoader, StrictUndefined

from margindist.compare import plots
from margindist.compare.comparison import LEVEL, Comparison
from margindist.compare.plan import left_out_notes
from margindist.compare.scoring import SHORT
from margindist.compare.verdict import BASELINE, Score
from margindist.margins import method_styles
from margindist.methods import BY_KEY, METHODS
from margindist.runs.statistics import corrected_resampled_t
from margindist.runs.wording import duration, setting

_LARGEST_MATRIX = 15  # classes of a confusion matrix; of more, the most frequent confusions are listed


class Choice(NamedTuple):
    """A setting of parameters, and how often it was chosen."""

    text: str
    times: int


def html(comparison: Comparison, command: str | None = None) -> str:
    """Return the report.

    Parameters
    ----------
    comparison : Comparison
    command : str, optional
        The command line that made it.
    """
    environment = Environment(
        loader=PackageLoader("margindist.compare"), autoescape=True, undefined=StrictUndefined, trim_blocks=True,
        lstrip_blocks=True,
    )  # fmt: skip
    environment.filters.update(duration=duration)
    done = comparison.done
    styles = _styles()
    return environment.get_template("compare.html.j2").render(
        comparison=comparison,
        plan=comparison.plan,
        about=comparison.about,
        numbers=comparison.about.numbers,
        answer=comparison.answer(),
        rows=comparison.rows,
        methods=BY_KEY,
        alike={row.method for row in comparison.alike},
        level=LEVEL,
        styles=styles,
        score=Score(comparison.plan.scoring),
        score_label=Score(comparison.plan.scoring).label,
        second="accuracy" if comparison.plan.scoring != "accuracy" else "balanced_accuracy",
        short=SHORT | {comparison.plan.scoring: Score(comparison.plan.scoring).short},
        baseline_label=BASELINE,
        shows_svm=comparison.reference is not None and comparison.reference != comparison.rows[0].method,
        scores={key: [result.score for result in results] for key, results in done.items()},
        reach=_reach(done),
        plots=_plots(comparison, styles) if comparison.rows else {},
        by_class=[ByClass(key, *by_class(done[key], comparison.about.classes)) for key in comparison.looked_at],
        distributions=plots.distributions(comparison, done, styles),
        influences=plots.influences(comparison, done, styles),
        choices={key: choices(results) for key, results in done.items()},
        per_split=done,
        statistics=_statistics(done),
        code=code(comparison) if comparison.rows else "",
        repeat=repeat_code(comparison),
        command=command,
        versions=_versions(comparison),
        seconds=sum(result.seconds or 0.0 for result in [*comparison.results, *comparison.looks]),
        setting=setting,
        left_out=left_out_notes(comparison.left_out),
    )


def _plots(comparison, styles):
    """The plots by name, and the sentences that go with them; those that cannot be drawn are None."""
    return {
        "time": plots.time_and_score(comparison, styles),
        "learning": plots.learning_curve(comparison, styles),
        "worth": worth_of_more_rows(comparison),
        "curves": plots.two_class_curves(comparison, styles),
        "calibration": plots.calibration_curve(comparison, styles),
        "importance": plots.importance(comparison, comparison.looked_at[0], styles),
    }


def worth_of_more_rows(comparison: Comparison) -> str:
    """Return a sentence on whether more rows would be worth having, from the end of the learning curve."""
    curves = plots.looks_of(comparison, comparison.looked_at[0], "learning")
    sizes, mean, _ = plots.learning(curves)
    if len(sizes) < 2:
        return ""
    before, after = np.array([[curve[-2][1], curve[-1][1]] for curve in curves]).T
    rise = corrected_resampled_t(after, before, test_share=1.0 / comparison.plan.splits)
    step = f"from {sizes[-2]:,.0f} to {sizes[-1]:,.0f} training rows the score changes by {mean[-1] - mean[-2]:+.3f}"
    if rise.verdict(LEVEL) == "win":
        return f"More rows would probably help: {step}."
    return f"More rows would hardly help, or too little to see here: {step}."


class ByClass(NamedTuple):
    """How a method treats each class: the confusion matrix or the most frequent confusions, precision and recall."""

    key: str
    classes: list
    matrix: list | None
    confusions: list
    lines: list


def by_class(results: list, class_counts: dict) -> tuple:
    """Return classes, confusion matrix in shares of the true class, most frequent confusions, and a line per class.

    A line has the class, rows, precision, recall and F1; the matrix is None if there are too many classes.
    """
    classes = list(class_counts)
    counts = np.sum([result.detail.confusion for result in results], axis=0).astype(float)
    true, named = counts.sum(axis=1), counts.sum(axis=0)
    shares = counts / np.maximum(true, 1.0)[:, None]
    recall = np.diag(shares)
    precision = np.diag(counts) / np.maximum(named, 1.0)
    f1 = 2.0 * np.diag(counts) / np.maximum(true + named, 1.0)
    lines = list(zip(classes, class_counts.values(), precision.tolist(), recall.tolist(), f1.tolist()))
    wrong = counts - np.diag(np.diag(counts))
    order = np.argsort(-wrong, axis=None, kind="stable")[:10]
    pairs = [(int(k) // len(classes), int(k) % len(classes)) for k in order]
    confusions = [(classes[i], classes[j], float(shares[i, j])) for i, j in pairs if wrong[i, j] > 0]
    return classes, shares.tolist() if len(classes) <= _LARGEST_MATRIX else None, confusions, lines


def _styles():
    """One style per family: the kernel decides the figure, not the line."""
    families = list(dict.fromkeys(method.family for method in METHODS))
    styles = dict(zip(families, method_styles(families)))
    return {method.key: styles[method.family] for method in METHODS}


def _reach(done):
    scores = [result.score for results in done.values() for result in results]
    return (min(scores), max(scores)) if scores else (0.0, 1.0)


def _versions(comparison):
    """The versions that the results were computed with, several where they differ."""
    outcome: dict[str, list[str]] = {}
    for result in comparison.results:
        for name, version in result.versions.items():
            if version not in outcome.setdefault(name, []):
                outcome[name].append(version)
    return {name: ", ".join(versions) for name, versions in outcome.items()}


def choices(results: list) -> list[Choice]:
    """Return the settings chosen, the most frequent first, ties in the order of the splits."""
    counted = Counter(setting(result.parameters) for result in results)
    return [Choice(text, times) for text, times in counted.most_common()]


def _chosen(results):
    """The parameters chosen most often."""
    text = choices(results)[0].text
    return next(result.parameters for result in results if setting(result.parameters) == text)


def _statistics(done):
    """Mean over the splits of each margin statistic, by method and part; methods without margins are left out."""
    names = ("minimum", "quantile_0.05", "median", "mean", "variance", "semi_variance", "share_below_zero")
    outcome = {}
    for key, results in done.items():
        for part in ("train", "test"):
            margins = [getattr(result.detail.margins, part) for result in results]
            if not margins[0].statistics:
                continue
            values = {name: float(np.mean([each.statistics[name] for each in margins])) for name in names}
            distances = [each.distance for each in margins]
            outcome[key, part] = {**values, "distance": None if None in distances else float(np.mean(distances))}
    return outcome


# ---------------------------------------------------------------------- code


def _data_code(source):
    """Python that reads the data: what to import, the statement, and the names of features and labels."""
    if source["kind"] == "file":
        given = [f", {name}={source[name]!r}" for name in ("target", "encoding") if source.get(name) is not None]
        return "read_file", f"data = read_file({source['path']!r}{''.join(given)})", ("data.X", "data.y")
    if source["kind"] == "name":
        folder = "" if source["data_dir"] is None else f", data_dir={source['data_dir']!r}"
        return "load", f"data = load({source['name']!r}{folder})", ("data.X", "data.y")
    return None, "# X and y are your data.", ("X", "y")


def code(comparison: Comparison, key: str | None = None) -> str:
    """Return Python that scores and fits the method advised, or a given one, with the parameters it chose most often.

    Parameters
    ----------
    comparison : Comparison
    key : str, optional
    """
    plan = comparison.plan
    key = key or (comparison.choice or comparison.rows[0]).method
    imported, made = BY_KEY[key].code(plan.seed, _chosen(comparison.done[key]))
    reader, data, (X, y) = _data_code(comparison.about.source)
    readers = ", ".join(["encoder", *([reader] if reader else [])])
    divided = any(comparison.about.source.get(name) for name in ("drop", "only", "groups", "time"))
    if divided:
        data += "\n# Leave out the columns here that the comparison left out, and divide the rows as it did."
    return f"""\
from sklearn.model_selection import RepeatedStratifiedKFold, cross_val_score
from sklearn.pipeline import make_pipeline
{imported}
from margindist.datasets import {readers}

{data}
model = make_pipeline(encoder({X}), {made})

splits = RepeatedStratifiedKFold(n_splits={plan.splits}, n_repeats={plan.repeats}, random_state={plan.seed})
print(cross_val_score(model, {X}, {y}, cv=splits).mean())

model.fit({X}, {y})
"""


def repeat_code(comparison: Comparison) -> str:
    """Return Python that computes the table again, number for number."""
    plan, about = comparison.plan, comparison.about
    source = dict(about.source)
    given = {"file": "path", "name": "name"}.get(source.pop("kind"))
    first = repr(source.pop(given)) if given else "data" if source.get("target") else "X, y"
    named = {name: value for name, value in source.items() if value is not None}
    if about.methods is not None:
        named["methods"] = about.methods
    named |= {"splits": plan.splits, "repeats": plan.repeats, "seed": plan.seed}
    if plan.scoring != "accuracy":
        named["scoring"] = plan.scoring
    if about.quick:
        named["quick"] = True
    arguments = [first, *(f"{name}={value!r}" for name, value in named.items()), "n_jobs=-1"]
    return (
        f"from margindist.compare import compare\n\ncomparison = compare({', '.join(arguments)})\nprint(comparison)\n"
    )
