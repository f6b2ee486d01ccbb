"""Some 500 fixed fits, and what a change does to them: `python -m benchmarks.panel --against REVISION`.

Both versions fit every problem in turn, each in a process of its own with its own compiled code, through the public
classes alone. What is printed: proofs lost and won, objectives that are worse beyond what both certificates allow,
certificates that an objective refutes, times by class of problems, and every fit that takes over a second and over
1.5 times as long as before. The end status is 1 if there is anything to answer for.

Without ``--against``, this version is compared with the newest one in `benchmarks/panel.json`, whose times are those of
the machine that measured them. `--keep` stores what was measured there, `--only PATTERN` takes the problems whose name
or group contains the pattern, `--quick` those of a minute, `--seed 7` draws other data and prices of the same kinds.
"""

import argparse
import ast
import csv
import hashlib
import io
import itertools
import json
import math
import os
import selectors
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
import tokenize
from datetime import date
from pathlib import Path
from typing import NamedTuple

import numpy as np

from benchmarks._measure import machine, versions
from benchmarks.panel_problems import is_there, problems

ROOT = Path(__file__).parents[1]
RESULTS = Path(__file__).with_suffix(".json")
MECHANISMS = Path(__file__).with_name("mechanisms.csv")
ROUNDING = 1e-9  # relative, of an objective
OF_VALUE = 1e-7  # relative, of an objective that the panel computes in other sums than the library
NOTICEABLE = 1.0  # seconds more that somebody notices
SLOWER = 1.5  # times as long, the same
SHORTEST = 1e-3  # seconds below which a ratio of times is all noise
UNSURE = 1.3  # ratio of times from which on both are measured again
MEDIAN, WORST = 1.2, 3.0  # ratios from which on a mechanism earns its place
UNCERTIFIED = {  # relative distances that mean nothing, of methods without a certificate
    "ODMClassifier": 1e-2,  # several classes: local minima
    "MDOClassifier": 1e-2,
    "MSVMAvClassifier": 1e-4,
    "SVRClassifier": 1e-3,
}
LEARNERS = ("PUMMAClassifier", "ROMMAClassifier", "ALMAClassifier", "MICRAClassifier")
BY_SCORE = 2e-3  # absolute, of accuracies
BY_MARGIN = 2e-2  # relative, of margins that learners reach


# ---------------------------------------------------------------------- versions


class Version(NamedTuple):
    """One version of the package, in a folder of its own."""

    label: str
    folder: Path


def prepare(revision=None):
    """Return a version by its revision, or the one in the working copy, as a folder that nobody edits."""
    base = Path(tempfile.gettempdir()) / "margindist-panel"
    if revision is None:
        label = _git("rev-parse", "--short=7", "HEAD") + ("+" if _git("status", "--porcelain", "margindist") else "")
        folder = base / _hash_of_sources()
        if not folder.exists():
            made = folder.with_name(f"{folder.name}-{os.getpid()}")
            shutil.copytree(ROOT / "margindist", made / "margindist", ignore=shutil.ignore_patterns("__pycache__"))
            made.rename(folder)
        return Version(label, folder)
    label = _git("rev-parse", "--short=7", revision)
    folder = base / label
    if not folder.exists():
        packed = subprocess.run(["git", "archive", revision, "margindist"], cwd=ROOT, capture_output=True, check=True)
        made = folder.with_name(f"{folder.name}-{os.getpid()}")
        with tarfile.open(fileobj=io.BytesIO(packed.stdout)) as archive:
            archive.extractall(made, filter="data")
        made.rename(folder)
    return Version(label, folder)


def _git(*words):
    found = subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, check=False)
    if found.returncode:
        sys.exit(f"benchmarks.panel: git {' '.join(words)} failed: {found.stderr.strip()}")
    return found.stdout.strip()


def _hash_of_sources():
    digest = hashlib.sha256()
    for path in sorted((ROOT / "margindist").rglob("*.py")):
        digest.update(path.read_bytes())
    return digest.hexdigest()[:16]


class Worker:
    """A process that fits with one version; it is begun anew where a fit does not end."""

    def __init__(self, version, seed, limit):
        self.version, self.seed, self.limit = version, seed, limit
        self.process = None

    def ask(self, name):
        """Return the record of a problem."""
        if self.process is None:
            self._start()
        print(name, file=self.process.stdin, flush=True)
        with selectors.DefaultSelector() as selector:
            selector.register(self.process.stdout, selectors.EVENT_READ)
            answered = selector.select(120.0 + 20.0 * self.limit)  # of the clock, on a machine that others use too
        line = self.process.stdout.readline() if answered else ""
        if line:
            return json.loads(line)
        self.end()
        if answered:
            return {"error": "the process ended", "seconds": 0.0}
        return {"stopped": True, "seconds": self.limit}

    def _start(self):
        environment = os.environ | {
            "PYTHONPATH": os.pathsep.join([str(self.version.folder), str(ROOT)]),
            "NUMBA_CACHE_DIR": str(self.version.folder / "numba"),
            "OMP_NUM_THREADS": "1",
            "OPENBLAS_NUM_THREADS": "1",
        }
        self.process = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.panel_worker", str(self.seed), str(self.limit)],
            cwd=self.version.folder,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def end(self):
        """End the process."""
        if self.process is not None:
            self.process.kill()
            self.process.communicate()
        self.process = None


# ---------------------------------------------------------------------- judgement


class Verdict(NamedTuple):
    """What a change does, in sentences by kind, and the ratios of times by group."""

    lost: list
    won: list
    worse: list
    better: list
    refuted: list
    slower: list
    ended: list  # errors and fits beyond the limit, of the newer version alone
    ratios: dict

    @property
    def is_clean(self):
        """Tell whether the newer version has nothing to answer for."""
        return not (self.lost or self.worse or self.refuted or self.slower or self.ended)


def judge(pairs, references=None):
    """Compare (problem, older record, newer record); ``references`` has values that anybody has reached, by name."""
    verdict = Verdict([], [], [], [], [], [], [], {})
    for problem, old, new in pairs:
        _judge_end(verdict, problem, old, new)
        if "value" not in old or "value" not in new:
            continue
        _judge_proof(verdict, problem, old, new)
        _judge_values(verdict, problem, old, new)
        _judge_claims(verdict, problem, old, new, (references or {}).get(problem.name))
        _judge_time(verdict, problem, old, new)
    return verdict


def is_proved(record):
    """Tell whether a record claims a gap within its tolerance for every problem that it consists of."""
    return bool(record.get("gap")) and max(record["gap"]) <= record["tol"]


def _judge_end(verdict, problem, old, new):
    for here, there, kind in ((new, old, verdict.ended), (old, new, verdict.won)):
        if "value" in here or "value" not in there:
            continue
        told = here.get("error") or f"still running after {here['seconds']:.1f} s"
        kind.append(f"{problem.name}: {told}, the other version ends after {there['seconds']:.3g} s")


def _judge_proof(verdict, problem, old, new):
    if is_proved(old) == is_proved(new):
        return
    gaps = f"{problem.name}: gap {max(old['gap']):.1e} -> {max(new['gap']):.1e}"
    (verdict.lost if is_proved(old) else verdict.won).append(gaps)


def allowed(problem, old, new, value):
    """Return how far apart two values of a problem may be without either of them being worse."""
    if problem.estimator.endswith("CV"):
        return BY_SCORE
    if problem.estimator in LEARNERS:
        return BY_MARGIN * abs(value) + BY_SCORE * bool(problem.parameters.get("soft_margin"))
    if not old["objective"] or not new["objective"]:
        return max(UNCERTIFIED.get(problem.estimator, 0.0) * abs(value), ROUNDING)
    gaps = sum(min(max(record["gap"]), record["tol"]) for record in (old, new))
    return (gaps + ROUNDING) * abs(value)


def _judge_values(verdict, problem, old, new):
    for before, after in zip(old["value"], new["value"], strict=True):
        if math.isnan(before) or math.isnan(after) or before == after:
            continue
        least = before if math.isfinite(before) else after
        change = after - before
        if abs(change) <= allowed(problem, old, new, least):
            continue
        (verdict.worse if change > 0 else verdict.better).append(f"{problem.name}: {before:.10g} -> {after:.10g}")
        return


def _judge_claims(verdict, problem, old, new, reference):
    """The weights have the objective that is claimed, and nobody has reached one below the claimed bound."""
    if not new["exact"] or not old["exact"] or not new["objective"]:
        return
    for k, (claimed, gap) in enumerate(zip(new["objective"], new["gap"], strict=True)):
        value = new["value"][k]
        if not math.isfinite(claimed) or not math.isfinite(gap) or math.isnan(value):
            continue
        bound = claimed - gap * abs(claimed)
        reached = [record["value"][k] for record in (old, new)] + ([reference[k]] if reference else [])
        best = min(one for one in reached if not math.isnan(one))
        if value > claimed + (min(gap, new["tol"]) + OF_VALUE) * abs(claimed):
            verdict.refuted.append(
                f"{problem.name}: {claimed:.12g} claimed, gap {gap:.1e}, the weights have {value:.12g}"
            )
            return
        if bound > best + ROUNDING * abs(best):
            verdict.refuted.append(f"{problem.name}: at least {bound:.12g} claimed, {best:.12g} is reached")
            return


def _judge_time(verdict, problem, old, new):
    before, after = old["seconds"], new["seconds"]
    if max(before, after) >= SHORTEST:
        verdict.ratios.setdefault(problem.group, []).append((after / max(before, 1e-9), problem.name))
    if after > before + NOTICEABLE and after > SLOWER * before:
        verdict.slower.append(f"{problem.name}: {before:.3g} s -> {after:.3g} s")


# ---------------------------------------------------------------------- running


def run(chosen, workers, tell=print):
    """Yield every problem with its records, one of each version, which take turns."""
    began = time.monotonic()
    for number, problem in enumerate(chosen):
        order = range(len(workers)) if number % 2 == 0 else reversed(range(len(workers)))
        records = [None] * len(workers)
        for k in order:
            records[k] = workers[k].ask(problem.name)
        if len(workers) == 2 and _unsure(*records):
            for worker, record in zip(workers, records, strict=True):
                again = worker.ask(problem.name)
                if "value" in again:
                    record["seconds"] = min(record["seconds"], again["seconds"])
        yield problem, records
        if number % 50 == 49:
            tell(f"{number + 1} of {len(chosen)} problems, {time.monotonic() - began:.0f} s", file=sys.stderr)


def _unsure(old, new):
    if "value" not in old or "value" not in new:
        return False
    low, high = sorted((old["seconds"], new["seconds"]))
    return high >= SHORTEST and high > UNSURE * low


def describe(verdict, pairs):
    """Yield the lines of a report."""
    kinds = {
        "proofs lost": verdict.lost,
        "proofs won": verdict.won,
        "objectives worse": verdict.worse,
        "objectives better": verdict.better,
        "certificates refuted": verdict.refuted,
        f"over {NOTICEABLE:g} s and {SLOWER:g} times slower": verdict.slower,
        "ended by an error or by the limit": verdict.ended,
    }
    proved = [sum(is_proved(pair[k]) for pair in pairs) for k in (1, 2)]
    certified = sum(bool(old.get("gap") or new.get("gap")) for _, old, new in pairs)
    yield f"{len(pairs)} problems; of {certified} with certificates {proved[0]} -> {proved[1]} are proved."
    for kind, sentences in kinds.items():
        yield f"\n{kind}: {len(sentences)}"
        yield from (f"  {sentence}" for sentence in sentences)
    yield "\n| class | problems | seconds | time ratio, median | worst | of |"
    yield "|---|--:|--:|--:|--:|---|"
    for group, found in verdict.ratios.items():
        own = [(old["seconds"], new["seconds"]) for problem, old, new in pairs if problem.group == group]
        seconds = "{:.3g} -> {:.3g}".format(*map(sum, zip(*own, strict=True)))
        worst, name = max(found)
        median = np.median([ratio for ratio, _ in found])
        yield f"| {group} | {len(found)} | {seconds} | {median:.2f} | {worst:.2f} | {name} |"


# ---------------------------------------------------------------------- files


def read_results():
    """Return what is stored: the revisions, and the records of each problem by revision."""
    if not RESULTS.exists():
        return {"revisions": {}, "references": {}, "problems": {}}
    return json.loads(RESULTS.read_text(encoding="utf-8"))


def keep(stored, label, records):
    """Put the records of a version into the file of results."""
    stored["revisions"][label] = {"date": date.today().isoformat(), "machine": machine(), "versions": versions()}
    for name, record in records.items():
        stored["problems"].setdefault(name, {})[label] = _compact(record)
    write_results(stored)


def keep_references(stored, chosen):
    """Put what a generic solver reaches into the file of results; return the end status."""
    from benchmarks.panel_references import reference

    for problem in chosen:
        values = reference(problem)
        if values is not None:
            stored["references"][problem.name] = [float(f"{value:.12g}") for value in values]
    write_results(stored)
    print(f"{len(stored['references'])} problems have references.")
    return 0


def write_results(stored):
    """Write the file of results, a line for every record."""
    problems = [f"  {json.dumps(name)}: {{\n{_lines(found)}\n  }}" for name, found in stored["problems"].items()]
    parts = [f'"{part}": {{\n{_lines(stored[part])}\n}}' for part in ("revisions", "references")]
    parts.append('"problems": {\n' + ",\n".join(problems) + "\n}")
    RESULTS.write_text("{\n" + ",\n".join(parts) + "\n}\n", encoding="utf-8")


def _lines(entries):
    return ",\n".join(f"    {json.dumps(key)}: {json.dumps(value)}" for key, value in entries.items())


def _compact(record):
    """Return a record with as many digits as it has."""
    digits = {"value": 12, "objective": 12, "gap": 10, "seconds": 3}
    compact = {}
    for key, value in record.items():
        if key in digits and isinstance(value, list):
            value = [float(f"{entry:.{digits[key]}g}") for entry in value]
        elif key in digits:
            value = float(f"{value:.{digits[key]}g}")
        compact[key] = value[:120] if isinstance(value, str) else value
    return compact


def code_lines(folder):
    """Return how many lines of a folder's Python files hold code: neither blank nor comment nor docstring."""
    return sum(_code_lines(path.read_bytes()) for path in folder.rglob("*.py"))


def _code_lines(source):
    skipped = (tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENCODING,
               tokenize.ENDMARKER)  # fmt: skip
    used = set()
    for token in tokenize.tokenize(io.BytesIO(source).readline):
        if token.type not in skipped:
            used.update(range(token.start[0], token.end[0] + 1))
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            used.difference_update(range(node.lineno, node.end_lineno + 1))
    return len(used)


def mechanism_row(mechanism, lines, verdict, count):
    """Return what the panel says of a mechanism that the older version has and the newer one has not."""
    medians = {group: float(np.median([ratio for ratio, _ in found])) for group, found in verdict.ratios.items()}
    group = max(medians, key=medians.get)
    worst, _ = max(itertools.chain.from_iterable(verdict.ratios.values()))
    lost = len(verdict.lost) + len(verdict.ended)
    earns = medians[group] > MEDIAN or worst > WORST or lost or verdict.worse
    return {
        "mechanism": mechanism,
        "lines it cost": lines,
        "problems": count,
        "class": group,
        "time ratio without it": float(f"{medians[group]:.3g}"),
        "worst of all problems": float(f"{worst:.3g}"),
        "proofs lost without it": lost,
        "objectives worse without it": len(verdict.worse),
        "verdict": "stays" if earns else "goes",
    }


def keep_row(row):
    """Append a row to the table of mechanisms, in the place of an earlier one of the same mechanism."""
    rows = []
    if MECHANISMS.exists():
        with MECHANISMS.open(newline="", encoding="utf-8") as file:
            rows = [other for other in csv.DictReader(file) if other["mechanism"] != row["mechanism"]]
    with MECHANISMS.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, list(row), lineterminator="\n")
        writer.writeheader()
        writer.writerows([*rows, row])


# ---------------------------------------------------------------------- command line


def _arguments():
    parser = argparse.ArgumentParser(prog="python -m benchmarks.panel", description=__doc__.splitlines()[0])
    parser.add_argument("--against", metavar="REVISION", help="the older version; without it, what is stored")
    parser.add_argument("--only", metavar="PATTERN", default="", help="problems whose name or group contains this")
    parser.add_argument("--quick", action="store_true", help="the problems of a minute")
    parser.add_argument("--seed", type=int, default=0, help="another seed draws other data and prices")
    parser.add_argument("--limit", type=float, default=12.0, help="seconds of processor time a fit may take")
    parser.add_argument("--keep", action="store_true", help=f"store what is measured in {RESULTS.name}")
    parser.add_argument(
        "--references", action="store_true", help="store what a generic solver reaches, and fit nothing"
    )
    parser.add_argument("--row", metavar="MECHANISM", help=f"append what its absence does to {MECHANISMS.name}")
    options = parser.parse_args()
    if options.seed and options.keep:
        parser.error("--keep stores the panel itself: leave out --seed.")
    if options.row and not options.against:
        parser.error("--row compares with the version that has the mechanism: name it by --against.")
    return options


def choose(options):
    """Return the problems to run; a line says which data are not there."""
    chosen = [problem for problem in problems(options.seed) if options.only in f"{problem.group}: {problem.name}"]
    if options.quick:
        chosen = [problem for problem in chosen if problem.quick]
    absent = [problem for problem in chosen if not is_there(problem)]
    if absent:
        print(f"{len(absent)} problems with real data are left out: set MARGINDIST_DATA to the folder with them.")
    return [problem for problem in chosen if is_there(problem)]


def main():
    """Run what the command line asks for; return 1 if the newer version has anything to answer for."""
    options = _arguments()
    chosen = choose(options)
    stored = read_results()
    if options.references:
        return keep_references(stored, chosen)
    present = prepare()
    asked = [prepare(options.against), present] if options.against else [present]
    workers = [Worker(version, options.seed, options.limit) for version in asked]
    measured = {version.label: {} for version in asked}
    pairs = []
    try:
        for problem, records in run(chosen, workers):
            for version, record in zip(asked, records, strict=True):
                measured[version.label][problem.name] = record
            known = stored["problems"].get(problem.name, {})
            old = records[0] if options.against else known.get(_newest(known, stored, present.label))
            if old is not None:
                pairs.append((problem, old, records[-1]))
    except KeyboardInterrupt:
        print("Interrupted; what was measured so far:")
    finally:
        for worker in workers:
            worker.end()
    if options.keep:
        for label, records in measured.items():
            keep(stored, label, records)
    verdict = judge(pairs, {} if options.seed else stored["references"])
    print("\n".join(describe(verdict, pairs)))
    if options.row:
        lines = code_lines(asked[0].folder / "margindist") - code_lines(present.folder / "margindist")
        row = mechanism_row(options.row, lines, verdict, len(pairs))
        keep_row(row)
        print(json.dumps(row, indent=1))
    return int(not verdict.is_clean)


def _newest(known, stored, but):
    """Return the label of the newest stored version that has a problem, other than the present one."""
    labels = [label for label in stored["revisions"] if label in known and label != but]
    return max(labels, key=lambda label: stored["revisions"][label]["date"], default=None)


if __name__ == "__main__":
    sys.exit(main())
