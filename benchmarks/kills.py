"""Kill, interrupt and starve `compare` and `reproduce`, resume them, and compare the tables with undisturbed ones.

`python -m benchmarks.kills --kills 300 --seed 0` prints a line per scenario. A *story* is a few runs of one command on
one store, each disturbed at a random moment of its life, from the start of Python to the last report, and then one run
to the end. At that end the results must be those of an undisturbed run (times aside), and the folder must hold the same
files. Every exit code must be one that is documented, every error one sentence, and no traceback may be seen.
Moments are measured in processor time or in results, so that a busy machine does not move them.
"""

import argparse
import json
import os
import random
import re
import secrets
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager, nullcontext, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from sklearn.datasets import make_classification

ROOT = Path(__file__).parent.parent
TICK = os.sysconf("SC_CLK_TCK")
INTERRUPTED = 130
SHOWN_BY_PYTHON = re.compile(r"Traceback|Exception ignored|exception calling callback|Error in sys|an error of ours")
KILLS_PER_STORY = 5
PATIENCE = 600  # seconds for one run


class Product(NamedTuple):
    """A command, and where its results are kept."""

    name: str
    arguments: tuple[str, ...]
    store: str


COMPARE = Product(
    "compare",
    ("margindist", "compare", "flowers.csv", "--methods", "mamc,lssvm", "--splits", "3", "--quick", "--resume",
     "-o", "report.html", "--json", "all.json", "--csv", "table.csv"),
    "report.results.sqlite",
)  # fmt: skip
REPRODUCE = Product(
    "reproduce",
    ("reproduction", "ldm-table-2", "--only", "wdbc/mamc", "--only", "wdbc/mdo", "--splits", "3", "-o", "out"),
    "out/results.sqlite",
)


@dataclass
class Tally:
    """What became of the stories of a scenario."""

    kills: int = 0
    too_late: int = 0
    stories: int = 0
    same: int = 0
    codes: Counter = field(default_factory=Counter)
    problems: list[str] = field(default_factory=list)


class Run:
    """One run of a command in a process group of its own."""

    def __init__(self, product, folder, jobs):
        self._said = folder.with_name(f"{folder.name}-{secrets.token_hex(4)}.said")
        temporary = folder / "temporary"
        temporary.mkdir(exist_ok=True)
        own = {"PYTHONPATH": str(ROOT), "TMPDIR": str(temporary), "JOBLIB_TEMP_FOLDER": str(temporary)}
        with open(self._said, "wb") as said:  # not a pipe, which workers that outlive the run would keep open
            self._process = subprocess.Popen(
                [sys.executable, "-m", *product.arguments, "--jobs", str(jobs)],
                cwd=folder, stdin=subprocess.DEVNULL, stdout=said, stderr=subprocess.STDOUT, env={**os.environ, **own},
                start_new_session=True, preexec_fn=_answer_ctrl_c,
            )  # fmt: skip
        self.pid = self._process.pid

    def wait_until(self, seconds):
        """Wait until the run has used so much processor time; tell whether it still runs."""
        while self._process.poll() is None:
            if _processor_seconds(self.pid) >= seconds:
                return True
            time.sleep(0.005)
        return False

    def runs(self):
        return self._process.poll() is None

    def signal(self, number, *, group):
        with suppress(ProcessLookupError):
            os.killpg(self.pid, number) if group else os.kill(self.pid, number)

    def end(self):
        """Wait for the end, of workers too; return the exit code and everything that was said."""
        try:
            code = self._process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            code = "hangs"
        if not _group_ends(self.pid):
            code = f"{code}, workers left"
        with suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)
        self._process.wait()
        said = self._said.read_text(errors="replace")
        self._said.unlink()
        return code, said


def _answer_ctrl_c():  # which processes in the background have been told to ignore
    signal.signal(signal.SIGINT, signal.default_int_handler)


def _processor_seconds(pid):
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return float("inf")
    return (int(fields[11]) + int(fields[12])) / TICK


def _group_ends(group, patience=30):
    deadline = time.monotonic() + patience
    while time.monotonic() < deadline:
        try:
            os.killpg(group, 0)
        except ProcessLookupError:
            return True
        time.sleep(0.02)
    return False


class Story:
    """One folder with one store; `tell` of the scenarios disturbs it, `ends_well` resumes it."""

    def __init__(self, product, jobs, folder, undisturbed, draw, tally):
        self.product, self.jobs, self.folder, self.draw, self.tally = product, jobs, folder, draw, tally
        self.undisturbed = undisturbed
        self.store = folder / product.store

    def start(self):
        return Run(self.product, self.folder, self.jobs)

    def wait(self, run, *, with_store=False):
        """Wait for a random moment of a run's life, or of the part that has a store; tell whether it still runs.

        Every other moment is that of a result: where workers compute, the run itself hardly uses the processor.
        """
        have, total = recorded(self.store), len(self.undisturbed["results"])
        if self.draw.random() < 0.5 and have < total:
            wanted = self.draw.randint(have + 1, total)
            while run.runs() and recorded(self.store) < wanted:
                time.sleep(0.01)
            time.sleep(self.draw.uniform(0.0, 0.1))
            return run.runs()
        first = self.undisturbed["store after"] if with_store else 0.0
        return run.wait_until(self.draw.uniform(first, self.undisturbed["seconds"]))

    def problem(self, what, said=""):
        self.tally.problems.append(f"{self.folder.name}: {what}\n{said}")
        print(self.tally.problems[-1], flush=True)

    def saw_end(self, run, allowed):
        """Note the exit code of a disturbed run and check what it said."""
        code, said = run.end()
        shown = SHOWN_BY_PYTHON.search(said)
        if shown and _is_before_the_command(said) and code in (1, INTERRUPTED, -signal.SIGINT):
            self.tally.codes["before it began"] += 1
            return code
        self.tally.codes[code] += 1
        if code not in allowed or shown:
            self.problem(f"exit code {code}, allowed {allowed}", said)
        if code == 1 and not shown and sum(line.startswith("margindist: ") for line in said.splitlines()) != 1:
            self.problem("not one sentence", said)
        return code

    def ends_well(self):
        """Resume to the end and compare with the undisturbed run."""
        code, said = self.start().end()
        if code != 0 or SHOWN_BY_PYTHON.search(said):
            self.problem(f"the last run ended with {code}", said)
            return
        self.is_whole()

    def is_whole(self):
        found = snapshot(self.product, self.folder)
        different = [name for name in found if found[name] != self.undisturbed[name]]
        if different:
            detail = {name: (found[name], self.undisturbed[name]) for name in different}
            self.problem(f"not as undisturbed: {', '.join(different)}", str(detail)[:3000])
        else:
            self.tally.same += 1


def _is_before_the_command(said):
    """Tell whether Ctrl-C came while Python itself, or the name of the command, was being loaded.

    Then Python's traceback is all that was said.
    """
    begins = said.startswith(("Traceback", "Could not import runpy module"))
    return begins and said.rstrip().endswith("KeyboardInterrupt") and ", in main\n" not in said


def recorded(store):
    """How many results a store has; none if it cannot be read just now."""
    try:
        with closing(sqlite3.connect(f"file:{store}?mode=ro", uri=True)) as connection:
            return connection.execute("SELECT count(*) FROM results").fetchone()[0]
    except sqlite3.DatabaseError:
        return 0


def snapshot(product, folder):
    """What must be the same whatever happened: results without times, what the reports say, names of files."""
    with closing(sqlite3.connect(folder / product.store)) as connection:
        rows = connection.execute(
            "SELECT experiment, dataset, method, split, status, score, parameters, error FROM results"
        ).fetchall()
    if product is COMPARE:
        table = json.loads((folder / "all.json").read_text())["table"]
        report = [{key: value for key, value in row.items() if "seconds" not in key} for row in table]
        whole = (folder / "report.html").read_text().rstrip().endswith("</html>")
    else:
        report = (folder / "out/ldm-table-2.md").read_text()
        whole = (folder / "out/ldm-table-2.html").read_text().rstrip().endswith("</html>")
    files = sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))
    return {"results": sorted(rows), "report": report, "whole": whole, "files": files}


# ---------------------------------------------------------------------- scenarios: each disturbs a story once


def signalled(number):
    def disturb(story):
        run = story.start()
        if not story.wait(run):
            story.tally.too_late += 1
        # A terminal and a batch system send their signal to all processes; the system kills one.
        run.signal(number, group=number != signal.SIGKILL)
        story.saw_end(run, {0, -number, *([INTERRUPTED] if number != signal.SIGKILL else [])} - {-signal.SIGINT})

    return disturb


def worker_killed(story):
    run = story.start()
    workers = []
    while run.runs() and not workers:
        workers = _workers(run.pid)
        time.sleep(0.01)
    if not workers:
        story.tally.too_late += 1
    time.sleep(story.draw.uniform(0.0, 1.0))
    for pid in workers[:1]:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    story.saw_end(run, {0, 1})


def _workers(pid):
    found = []
    with suppress(OSError):
        for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split():
            if b"LokyProcess" in Path(f"/proc/{child}/cmdline").read_bytes():
                found.append(int(child))
    return found


def two_runners(story):
    first, second = story.start(), story.start()
    if not story.wait(first):
        story.tally.too_late += 1
    number = story.draw.choice([signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
    first.signal(number, group=True)
    story.saw_end(first, {0, 1, -number, INTERRUPTED})
    story.saw_end(second, {0, 1})  # one of them is refused while the other one works


def damaged(how):
    def disturb(story):
        run = story.start()
        story.wait(run, with_store=True)
        while run.runs() and not story.store.exists():
            time.sleep(0.005)
        if not run.runs():
            story.tally.too_late += 1
        how(story.store, story.draw)
        story.saw_end(run, {0, 1})
        if how is not deleted:
            story.saw_end(story.start(), {0, 1})  # what is no store is refused, never overwritten
        story.store.unlink(missing_ok=True)

    return disturb


def deleted(store, draw):
    store.unlink(missing_ok=True)


def replaced(store, draw):
    garbage = store.with_name("garbage")
    garbage.write_bytes(draw.randbytes(draw.randrange(1, 50_000)))
    os.replace(garbage, store)


def overwritten(store, draw):
    size = store.stat().st_size
    with open(store, "r+b") as file:
        file.write(draw.randbytes(max(size, 5000)))


def truncated(store, draw):
    os.truncate(store, draw.randrange(1, max(2, store.stat().st_size)))


def disk_full(story):
    """Leave a random amount of room, less than a run needs."""
    ballast = story.folder / "ballast"
    room = shutil.disk_usage(story.folder).free
    ballast.write_bytes(bytes(max(0, room - story.draw.randrange(story.undisturbed["bytes"]))))
    story.saw_end(story.start(), {0, 1})
    for report in story.folder.rglob("*.html"):
        if not report.read_text().rstrip().endswith("</html>"):
            story.problem(f"{report.name} is half written")
    ballast.unlink()


class Scenario(NamedTuple):
    """A way to disturb runs, and how often of a hundred."""

    name: str
    product: Product
    jobs: int
    disturb: object
    share: int
    small_disk: bool = False


SCENARIOS = [
    *(
        Scenario(f"{product.name}, {number.name}", product, 1, signalled(number), 9)
        for product in (COMPARE, REPRODUCE)
        for number in (signal.SIGKILL, signal.SIGTERM, signal.SIGINT)
    ),
    *(
        Scenario(f"compare --jobs 2, {number.name}", COMPARE, 2, signalled(number), 4)
        for number in (signal.SIGKILL, signal.SIGTERM, signal.SIGINT)
    ),
    Scenario("compare --jobs 2, a worker killed", COMPARE, 2, worker_killed, 3),
    Scenario("compare, two runners, one killed", COMPARE, 1, two_runners, 5),
    Scenario("reproduce, two runners, one killed", REPRODUCE, 1, two_runners, 5),
    Scenario("compare, disk full", COMPARE, 1, disk_full, 4, True),
    Scenario("reproduce, disk full", REPRODUCE, 1, disk_full, 4, True),
    *(
        Scenario(f"{product.name}, store {how.__name__}", product, 1, damaged(how), 2)
        for product in (COMPARE, REPRODUCE)
        for how in (deleted, replaced, overwritten, truncated)
    ),
]


# ---------------------------------------------------------------------- telling them


@contextmanager
def small_disk(folder):
    """Mount a file system of 4 MB, which only root may."""
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", folder], check=True, capture_output=True)
    try:
        yield
    finally:
        subprocess.run(["umount", "-l", folder], check=True)


def may_mount(folder):
    try:
        with small_disk(folder):
            return True
    except (OSError, subprocess.CalledProcessError):
        return False


def write_flowers(folder):
    X, y = make_classification(60, 3, n_informative=3, n_redundant=0, flip_y=0.1, random_state=0)
    lines = ["height,width,depth,species"]
    lines += [",".join([*(f"{value:.4f}" for value in row), "lily" if label else "rose"]) for row, label in zip(X, y)]
    (folder / "flowers.csv").write_text("\n".join(lines) + "\n")


def undisturbed_run(product, folder):
    """The second of two runs: the first one compiles."""
    for _ in range(2):
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        write_flowers(folder)
        run, seconds, store_after = Run(product, folder, 1), 0.0, 0.0
        while run.runs():
            now = _processor_seconds(run.pid)
            seconds = now if now < float("inf") else seconds
            store_after = store_after if (folder / product.store).exists() else seconds
            time.sleep(0.01)
        code, said = run.end()
        if code != 0:
            sys.exit(f"the undisturbed run failed:\n{said}")
    size = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
    return {**snapshot(product, folder), "seconds": seconds, "store after": store_after, "bytes": size}


def tell(scenario, kills, folder, undisturbed, draw, tally):
    """One story: some disturbances, then the end."""
    folder.mkdir()
    with small_disk(folder) if scenario.small_disk else nullcontext():
        write_flowers(folder)
        story = Story(scenario.product, scenario.jobs, folder, undisturbed, draw, tally)
        for _ in range(kills):
            late = tally.too_late
            scenario.disturb(story)
            tally.kills += tally.too_late == late
        story.ends_well()
        tally.stories += 1
    if not tally.problems:
        shutil.rmtree(folder)


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--kills", type=int, default=300, help="at least so many disturbances")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=1, help="stories at a time")
    parser.add_argument("--only", default="", help="scenarios whose name holds this text")
    parser.add_argument("--folder", type=Path, help="where to work; kept, with the stories that went wrong")
    options = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="kills-")) if options.folder is None else options.folder
    folder.mkdir(parents=True, exist_ok=True)
    began = time.monotonic()
    undisturbed = {}
    for product in (COMPARE, REPRODUCE):
        undisturbed[product] = undisturbed_run(product, folder / f"undisturbed-{product.name}")
        print(f"{product.name}: {undisturbed[product]['seconds']:.1f} processor seconds undisturbed", flush=True)
    (folder / "disk").mkdir(exist_ok=True)
    mounts = may_mount(folder / "disk")
    chosen = [s for s in SCENARIOS if options.only in s.name and (mounts or not s.small_disk)]
    if not mounts:
        print("disk full: skipped, this user may not mount a small file system.")
    draw = random.Random(options.seed)
    tallies = {scenario.name: Tally() for scenario in chosen}
    _tell_all(chosen, options, folder, undisturbed, draw, tallies)
    print(f"\n{summary(tallies)}\n\n{time.monotonic() - began:.0f} s, seed {options.seed}")
    problems = any(tally.problems for tally in tallies.values())
    if options.folder is None and not problems:
        shutil.rmtree(folder)
    sys.exit(problems)


def _tell_all(chosen, options, folder, undisturbed, draw, tallies):
    """Tell stories until there are enough kills; signals that came too late do not count."""
    shares = sum(scenario.share for scenario in chosen)
    lock = threading.Lock()

    def tell_scenario(scenario):
        wanted, tally = -(-options.kills * scenario.share // shares), tallies[scenario.name]
        with lock:
            own = random.Random(draw.random())
        number = 0
        while tally.kills < wanted and tally.too_late < 5 * wanted:
            place = folder / f"{scenario.name.replace(' ', '-').replace(',', '')}-{number}"
            shutil.rmtree(place, ignore_errors=True)
            few = min(own.randint(1, KILLS_PER_STORY), wanted - tally.kills)
            tell(scenario, few, place, undisturbed[scenario.product], own, tally)
            number += 1
        print(f"{scenario.name}: {tally.kills} kills, {len(tally.problems)} problems", flush=True)

    with ThreadPoolExecutor(options.jobs) as pool:
        list(pool.map(tell_scenario, chosen))


def summary(tallies):
    lines = [
        "| scenario | kills | too late | stories | same table | exit codes | problems |",
        "|---|--:|--:|--:|--:|---|--:|",
    ]
    for name, tally in [*tallies.items(), ("all", _sum(tallies.values()))]:
        codes = ", ".join(f"{code}: {count}" for code, count in sorted(tally.codes.items(), key=str))
        counts = (tally.kills, tally.too_late, tally.stories, tally.same, codes, len(tally.problems))
        lines.append(f"| {' | '.join(map(str, (name, *counts)))} |")
    return "\n".join(lines)


def _sum(tallies):
    total = Tally()
    for tally in tallies:
        total.kills += tally.kills
        total.too_late += tally.too_late
        total.stories += tally.stories
        total.same += tally.same
        total.codes += tally.codes
        total.problems += tally.problems
    return total


if __name__ == "__main__":
    main()
