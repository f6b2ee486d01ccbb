"""Attack every classifier with random problems and check its claims: `python -m benchmarks.fuzz`.

`--fits 10000` is the long run, `--case SEED:INDEX` one case again (or KIND:SEED:INDEX, as it was printed), with
everything it says, `--kind large` takes cases of one kind only. Interrupt it at any time:
what was found is printed. Every fit is a line of JSON in the file of `--out` (else a temporary one); `--records` judges
such files of several runs together, whose medians are of more fits.
"""

import argparse
import collections
import itertools
import json
import multiprocessing
import os
import subprocess
import sys
import tempfile
import time
from concurrent.futures import FIRST_COMPLETED, ProcessPoolExecutor, wait

import numpy as np
from threadpoolctl import threadpool_limits

from benchmarks.fuzz_cases import draw, kind_of
from benchmarks.fuzz_checks import KINDS, Fit, run_case

SLOWEST = 20.0  # times the median of a size
NOTICEABLE = 0.1  # seconds of processor time below which nobody waits
FEWEST = 8  # fits of a size from which on a median means something


def named(case):
    """Return the arguments of `draw` for a case by its name, SEED:INDEX, KIND:SEED:INDEX or either with :ONLY."""
    first, *others = case.split(":")
    kind, seed, index, *only = ("ordinary", first, *others) if first.isdigit() else (first, *others)
    return int(seed), int(index), *(only or [None]), kind


def records_of(seed, index, only=None, kind="ordinary", limit=60.0):
    """Run one case; return a dictionary per fit."""
    case = draw(seed, index, only, kind)
    kernel = case.parameters.get("kernel", "linear")
    shape = [*case.X.shape, len(np.unique(case.y))]
    label = ("" if kind == "ordinary" else f"{kind}:") + f"{seed}:{index}" + (f":{only}" if only else "")
    return [
        {
            "case": label,
            "estimator": case.name,
            "variant": fit.variant.label,
            "kernel": kernel,
            "norm": case.parameters.get("p", 2.0),
            "shape": shape,
            "story": case.story,
            "benign": case.benign,
            "seconds": round(fit.seconds, 4),
            "outcome": fit.outcome,
            "failures": fit.failures,
        }
        for fit in run_case(case, limit)
    ]


# ---------------------------------------------------------------------- time


def _size(record):
    """Return what fits must share to be compared by time: estimator, kind of kernel and norm, magnitude of a problem.

    Each step of an online learner in another norm than the Euclidean solves an equation by Newton's method.
    """
    n, d, _ = record["shape"]
    linear = record["kernel"] == "linear"
    work = n * d if linear else n * n
    return record["estimator"], linear, record.get("norm", 2.0) == 2.0, int(np.log2(work)) // 2


def _problems(record):
    """Return how many two-class problems a fit consists of, or is as large as: its time is counted per problem."""
    k = record["shape"][2]
    return 1 if k == 2 else k


def note_slow(records, limit=60.0):
    """Note fits that are slow for their size, if they are so again when run alone and warm."""
    sizes = collections.defaultdict(list)
    for record in records:
        sizes[_size(record)].append(record["seconds"] / _problems(record))
    for record in records:
        times = sizes[_size(record)]
        usual = _problems(record) * np.median(times)
        allowed = max(NOTICEABLE, SLOWEST * usual)
        if len(times) < FEWEST or record["seconds"] <= allowed or record["outcome"] == "stopped":
            continue
        again = _repeat(record, limit)
        if again > allowed:
            text = f"{record['seconds']:.2f} s, again {again:.2f} s; median of its size {usual:.4f} s"
            record["failures"].append(("time", text))


def _repeat(record, limit):
    case = draw(*named(record["case"]))
    variant = next(variant for variant in case.variants if variant.label == record["variant"])
    return min(Fit(case, variant, limit).seconds for _ in range(2))


# ---------------------------------------------------------------------- running


def run(seed, fits, seconds=np.inf, jobs=1, only=None, out=None, limit=60.0, kind=None):
    """Run cases 0, 1, ... until there are so many fits or the time is over; return all records."""
    records = []
    end = time.monotonic() + seconds

    def enough():
        return len(records) >= fits or time.monotonic() > end

    try:
        for found in _each_case(seed, only, jobs, limit, enough, kind):
            records.extend(found)
            _tell(found, out)
    except KeyboardInterrupt:
        print("Interrupted; what was found so far:")
    return records


def read(path):
    """Return the records in a file that a run has written."""
    with open(path) as lines:
        return [json.loads(line) for line in lines]


def _tell(found, out):
    for record in found:
        if out is not None:
            print(json.dumps(record), file=out, flush=True)
        for kind, text in record["failures"]:
            print(f"{record['case']} {record['estimator']} {record['variant']}: {kind}: {text}", flush=True)


def _each_case(seed, only, jobs, limit, enough, kind):
    numbers = itertools.count()

    def arguments():
        index = next(numbers)
        return seed, index, only, kind or kind_of(index), limit

    if jobs == 1:
        while not enough():
            yield records_of(*arguments())
        return
    with ProcessPoolExecutor(jobs, mp_context=multiprocessing.get_context("spawn")) as pool:
        waiting = {pool.submit(records_of, *arguments()) for _ in range(2 * jobs)}
        while waiting:
            done, waiting = wait(waiting, return_when=FIRST_COMPLETED)
            for task in done:
                if not enough():
                    waiting.add(pool.submit(records_of, *arguments()))
                yield task.result()


# ---------------------------------------------------------------------- what is shown


def summary(records):
    """Return the table of fits and failures per estimator, and a line for each failure."""
    kinds = list(KINDS)
    lines = ["| estimator | fits | solved | warned | refused | " + " | ".join(kinds) + " |"]
    lines.append("|" + "---|" * (5 + len(kinds)))
    for name in [*sorted({record["estimator"] for record in records}), "all"]:
        own = [record for record in records if name in ("all", record["estimator"])]
        outcomes = collections.Counter(record["outcome"] for record in own)
        failures = collections.Counter(kind for record in own for kind in {kind for kind, _ in record["failures"]})
        cells = [name, len(own), *(outcomes[key] for key in ("solved", "warned", "refused"))]
        lines.append("| " + " | ".join(map(str, [*cells, *(failures[kind] for kind in kinds)])) + " |")
    lines.append("")
    for kind, meaning in KINDS.items():
        lines += [f"{kind}: {meaning}"]
    failed = [record for record in records if record["failures"]]
    lines.append("")
    for record in failed:
        lines.append(f"python -m benchmarks.fuzz --case {record['case']}  # {record['estimator']} {record['variant']}")
        lines += [f"    {kind}: {text}" for kind, text in record["failures"]]
    return "\n".join(lines)


def show_case(name, limit=60.0):
    """Print everything about one case."""
    case = draw(*named(name))
    print(case.story)
    print(f"{case.name}({', '.join(f'{key}={value!r}' for key, value in case.parameters.items())})")
    print(f"weights: {'none' if case.weights is None else np.round(case.weights[:10], 3)}, benign: {case.benign}")
    for fit in run_case(case, limit):
        gap = getattr(fit.inner, "duality_gap_", None) if fit.model is not None else None
        objective = getattr(fit.inner, "objective_", None) if fit.model is not None else fit.error
        print(f"- {fit.variant.label} {fit.variant.form}: {fit.outcome}, {fit.seconds:.3f} s, {objective}, gap {gap}")
        for kind, text in fit.failures:
            print(f"    {kind}: {text}")


def _arguments():
    parser = argparse.ArgumentParser(prog="python -m benchmarks.fuzz", description=__doc__.splitlines()[0])
    parser.add_argument("--fits", type=int, default=1000, help="fits to make (default 1000)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=np.inf, help="time after which to stop")
    parser.add_argument("--jobs", type=int, default=1, help="processes")
    parser.add_argument("--only", help="estimators whose names begin so")
    parser.add_argument("--limit", type=float, default=60.0, help="seconds a fit may take (default 60)")
    parser.add_argument("--out", help="file for one line of JSON per fit")
    parser.add_argument("--kind", choices=("ordinary", "scaled", "large", "wide"), help="cases of one kind only")
    parser.add_argument("--case", help="one case to run again, by the name it was printed with")
    parser.add_argument("--records", nargs="+", metavar="FILE", help="judge the fits in these files, and make none")
    return parser.parse_args()


def _commit():
    found = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False)
    return found.stdout.strip() or "unknown"


def main():
    """Run what the command line asks for; return 1 if anything failed."""
    options = _arguments()
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # for the processes of --jobs
    with threadpool_limits(limits=1, user_api="blas"):  # and for this one, which has loaded it
        return _run(options)


def _run(options):
    if options.case:
        show_case(options.case, limit=options.limit)
        return 0
    if options.records:
        records = [record for path in options.records for record in read(path)]
        source = f"in {len(options.records)} files"
    else:
        commit = _commit()  # before the run, for the sources may change during it
        path = options.out or tempfile.mkstemp(prefix="fuzz-", suffix=".jsonl")[1]
        with open(path, "w") as out:
            limits = options.fits, options.seconds, options.jobs
            records = run(options.seed, *limits, options.only, out, options.limit, options.kind)
        source = f"at commit {commit}, seed {options.seed}, all in {path}"
    note_slow(records, options.limit)
    print(summary(records))
    failed = sum(bool(record["failures"]) for record in records)
    print(f"\n{len(records)} fits {source}: {failed} with failures")
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
