"""The comparison's report: one HTML page that needs nothing else, made from stored results alone."""

from collections import Counter
from typing import NamedTuple

import numpy as np
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from margindist.compare.comparison import LEVEL, Comparison, alike, probability
from margindist.compare.nested import QUANTILES
from margindist.margins import method_styles
from margindist.methods import BY_KEY, METHODS
from margindist.runs.figures import inline_svg, named, new_figure
from margindist.runs.wording import duration, setting

_DRAWN = 6  # methods of one kind per figure; more could not be told apart


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
    environment.filters.update(duration=duration, probability=probability)
    done = comparison.done
    styles = _styles()
    return environment.get_template("compare.html.j2").render(
        comparison=comparison,
        plan=comparison.plan,
        about=comparison.about,
        numbers=comparison.about["numbers"],
        answer=comparison.answer(),
        rows=comparison.rows,
        methods=BY_KEY,
        alike=_shaded(comparison.rows),
        level=LEVEL,
        styles=styles,
        scores={key: [result.score for result in results] for key, results in done.items()},
        reach=_reach(done),
        distributions=_distributions(comparison, done, styles),
        influences=_influences(comparison, done, styles),
        choices={key: choices(results) for key, results in done.items()},
        per_split=done,
        statistics=_statistics(done),
        code=code(comparison) if comparison.rows else "",
        repeat=repeat_code(comparison),
        command=command,
        versions=_versions(comparison),
        seconds=sum(result.seconds or 0.0 for result in comparison.results),
        setting=setting,
        left_out=_grouped(comparison.about["left_out"]),
    )


def _styles():
    """One style per family: the kernel decides the figure, not the line."""
    families = list(dict.fromkeys(method.family for method in METHODS))
    styles = dict(zip(families, method_styles(families)))
    return {method.key: styles[method.family] for method in METHODS}


def _shaded(rows):
    """The best method and those that the tests, if there were any, could not tell apart from it."""
    tested = any(row.p_best is not None for row in rows)
    return {row.method for row in [rows[0], *alike(rows)]} if tested else set()


def _grouped(left_out):
    """The methods left out, grouped by their reasons."""
    groups: dict[str, list[str]] = {}
    for label, reason in left_out.items():
        groups.setdefault(reason, []).append(label)
    return {", ".join(labels): reason for reason, labels in groups.items()}


def _reach(done):
    scores = [result.score for results in done.values() for result in results]
    return (min(scores), max(scores)) if scores else (0.0, 1.0)


def _versions(comparison):
    """The versions that the results were computed with, several where they differ."""
    found: dict[str, list[str]] = {}
    for result in comparison.results:
        for name, version in result.versions.items():
            if version not in found.setdefault(name, []):
                found[name].append(version)
    return {name: ", ".join(versions) for name, versions in found.items()}


def choices(results: list) -> list[Choice]:
    """Return the settings chosen, the most frequent first, ties in the order of the splits."""
    counted = Counter(setting(result.parameters) for result in results)
    return [Choice(text, times) for text, times in counted.most_common()]


def _chosen(results):
    """The parameters chosen most often."""
    text = choices(results)[0].text
    return next(result.parameters for result in results if setting(result.parameters) == text)


# ---------------------------------------------------------------------- figures


class Panel(NamedTuple):
    """A figure with the methods drawn in it."""

    figure: Markup
    keys: list[str]
    others: int


def _distributions(comparison, done, styles):
    """Cumulative margin distributions, one panel for linear methods and one for kernel methods."""
    panels = []
    for kernel, title in ((False, "Linear methods"), (True, "Methods with the RBF kernel")):
        ranked = [row.method for row in comparison.rows if row.kernel == kernel]
        keys = _shown(ranked, "svc" if kernel else "linearsvc")
        if keys:
            panels.append(Panel(_cumulative(title, keys, done, styles), keys, len(ranked) - len(keys)))
    return panels


def _cumulative(title, keys, done, styles):
    """Draw the share of rows up to each margin: thin lines are training parts, bold ones test parts."""
    figure, axes = new_figure(460, 320)
    curves = {(key, part): _mean_quantiles(done[key], part) for key in keys for part in ("train", "test")}
    low = min(np.quantile(curve, 0.01) for curve in curves.values())
    high = max(np.quantile(curve, 0.99) for curve in curves.values())
    axes.axvline(0.0, color="#767676", linewidth=1.0)
    for key in reversed(keys):
        for part, width in (("train", 1.0), ("test", 2.2)):
            drawn = axes.plot(curves[key, part], QUANTILES, linewidth=width, **styles[key]._asdict())
            named(drawn, f"{BY_KEY[key].label}, {part}")
    axes.set(
        title=title, xlabel="margin (1 = root mean square in training)", ylabel="share of rows up to this margin",
        ylim=(0.0, 1.0), xlim=(low, high) if low < high else None,
    )  # fmt: skip
    labels = ", ".join(BY_KEY[key].label for key in keys)
    return Markup(inline_svg(figure, f"{title}: cumulative margin distributions of {labels}"))


def _shown(ranked, machine):
    """The best methods of one kind, and the support vector machine in any case."""
    keys = ranked[:_DRAWN]
    if machine in ranked and machine not in keys:
        keys = [*keys[:-1], machine]
    return keys


def _mean_quantiles(results, part):
    return np.mean([result.detail["margins"][f"{part}_quantiles"] for result in results], axis=0)


class Influence(NamedTuple):
    """What the parameters of a method do to its accuracy, one figure per parameter."""

    key: str
    figures: list[Markup]


def _influences(comparison, done, styles):
    found = []
    for row in comparison.rows:
        profiles = {name: _profile(done[row.method], name) for name in _searched(comparison.plan, row.method)}
        profiles = {name: profile for name, profile in profiles.items() if len(profile.values) > 1}
        if profiles:
            figures = [_curve(row, name, profiles, styles[row.method]) for name in profiles]
            found.append(Influence(row.method, figures))
    return found


def _curve(row, name, profiles, style):
    """Draw the accuracy along one parameter; the figures of one method share their vertical axis."""
    figure, axes = new_figure(230, 150)
    values, mean, spread = profiles[name]
    axes.fill_between(values, mean - spread, mean + spread, color=style.color, alpha=0.15, linewidth=0)
    named(axes.plot(values, mean, linewidth=2.0, **style._asdict()), f"{row.label}, {name}")
    axes.plot(values, mean, "o", color=style.color, markersize=4)
    if min(values) > 0 and max(values) / min(values) > 4:
        axes.set_xscale("log", base=_base(values))
        axes.set_xticks(values)
        axes.minorticks_off()
    low = min(float((each.mean - each.spread).min()) for each in profiles.values())
    high = max(float((each.mean + each.spread).max()) for each in profiles.values())
    room = 0.05 * (high - low) or 0.05
    axes.set(title=name, ylim=(low - room, high + room))
    return Markup(inline_svg(figure, f"{row.label}: accuracy by {name}"))


def _base(values):
    """Return 2 if all values are powers of two, else 10: what the axis shows as powers."""
    exponents = np.log2(values)
    return 2 if np.allclose(exponents, np.round(exponents)) else 10


def _searched(plan, key):
    return [name for name, values in plan.grids[key].items() if len(values) > 1]


class Profile(NamedTuple):
    """Values of a parameter, with mean and standard deviation of the inner accuracy at each."""

    values: list
    mean: np.ndarray
    spread: np.ndarray


def _profile(results, name):
    """Return the inner accuracy along a parameter when the other parameters are at their best.

    A setting that could not be fitted has no accuracy; a value without any is left out.
    """
    values = np.unique(results[0].detail["influence"]["settings"][name])
    curves = []
    for result in results:
        influence = result.detail["influence"]
        column = np.array(influence["settings"][name])
        scores = np.array([-np.inf if score is None else score for score in influence["scores"]])
        curves.append([scores[column == value].max() for value in values])
    kept = np.isfinite(curves).all(axis=0)
    curves = np.array(curves)[:, kept]
    return Profile(values[kept].tolist(), curves.mean(axis=0), curves.std(axis=0))


def _statistics(done):
    """Mean over the splits of each margin statistic, by method and part."""
    names = ("minimum", "quantile_0.05", "median", "mean", "variance", "semi_variance", "share_below_zero")
    found = {}
    for key, results in done.items():
        for part in ("train", "test"):
            values = {name: float(np.mean([r.detail["margins"][part][name] for r in results])) for name in names}
            geometric = [r.detail["margins"][f"{part}_geometric"] for r in results]
            values["geometric"] = None if None in geometric else float(np.mean([g["mean"] for g in geometric]))
            found[key, part] = values
    return found


# ---------------------------------------------------------------------- code


def _data_code(source):
    """Python that reads the data: what to import, the statement, and the names of features and labels."""
    if source["kind"] == "file":
        target = "" if source["target"] is None else f", target={source['target']!r}"
        return "read_file", f"data = read_file({source['path']!r}{target})", ("data.X", "data.y")
    if source["kind"] == "name":
        folder = "" if source["data_dir"] is None else f", data_dir={source['data_dir']!r}"
        return "load", f"data = load({source['name']!r}{folder})", ("data.X", "data.y")
    return None, "# X and y are your data.", ("X", "y")


def code(comparison: Comparison, key: str | None = None) -> str:
    """Return Python that scores and fits the best method, or a given one, with the parameters it chose most often.

    Parameters
    ----------
    comparison : Comparison
    key : str, optional
    """
    plan = comparison.plan
    key = key or comparison.rows[0].method
    imported, made = BY_KEY[key].code(plan.seed, _chosen(comparison.done[key]))
    reader, data, (X, y) = _data_code(comparison.about["source"])
    readers = ", ".join(["encoder", *([reader] if reader else [])])
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
    source = about["source"]
    given = {"file": "path", "name": "name"}.get(source["kind"])
    arguments = [repr(source[given])] if given else ["X", "y"]
    for name in ("target", "data_dir"):
        if source.get(name) is not None:
            arguments.append(f"{name}={source[name]!r}")
    if about["methods"] is not None:
        arguments.append(f"methods={about['methods']!r}")
    arguments += [f"splits={plan.splits}", f"repeats={plan.repeats}", f"seed={plan.seed}"]
    if about["quick"]:
        arguments.append("quick=True")
    return (
        "from margindist.compare import compare\n\n"
        f"comparison = compare({', '.join([*arguments, 'n_jobs=-1'])})\nprint(comparison)\n"
    )
