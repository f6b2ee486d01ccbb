"""Every command and every piece of Python of README, guide and gallery, from the wheel in a new environment.

`make wheel-check`, or `python docs/check_commands.py [folder] [--only PART ...]`: builds the source distribution, the
wheel from it, and in the folder (a temporary one unless named) an environment with nothing but the wheel and its
extras, where it compiles ahead. Everything runs there, in empty folders with the small files that the pages mention, so
that nothing is found because the sources lie beside it; only `reproduction/`, which no wheel has, is put there. The
tests of the source distribution are collected against the wheel, and a few run.

The parts are build, readme, guide, gallery and tests. Those after the first take the environment that an earlier build
left in the folder, so that one part can be repeated alone.

Prints a line for each command and ends with 1 if one failed. What installs, lints or takes hours is listed as left out.
"""

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).parent.parent
README = [ROOT / "README.md"]
GUIDE = [
    ROOT / "docs" / "index.md",
    ROOT / "docs" / "beyond_one_machine.md",
    *sorted((ROOT / "docs" / "user_guide").glob("*.md")),
]
PARTS = ("build", "readme", "guide", "gallery", "tests")
EXTRAS = "plots,cli,parquet,onnx,dask"
LEFT_OUT = {
    "make": "needs the sources",
    "pip": "done above, with the wheel",
    "python -m reproduction --quick": "minutes",
    "python -m reproduction --report-only": "needs the results, which are in a clone only",
    "python -m reproduction ldm": "hours",
}
FEW_TESTS = ["tests/test_packaging.py", "tests/test_awkward_files.py", "tests/test_statistics.py"]

FILES = """
import numpy as np, pandas as pd
from pathlib import Path
from sklearn.datasets import load_iris
from sklearn.utils import shuffle

table = shuffle(load_iris(as_frame=True).frame, random_state=0).rename(columns={"target": "species"})
table["species"] = table["species"].map({0: "setosa", 1: "versicolor", 2: "virginica"})
table = table[table["species"] != "setosa"]
few = table.groupby("species").head(12)  # a whole comparison, all methods with all their grids, takes minutes with more
few.to_csv("flowers.csv", index=False)
table.drop(few.index).drop(columns="species").to_csv("new.csv", index=False)
lifts = pd.DataFrame(np.random.default_rng(0).normal(size=(300, 3)), columns=["height", "load", "speed"])
lifts.assign(stops=(lifts["load"] > 0).astype(int)).to_parquet("lifts.parquet", index=False)
Path("new_lifts").mkdir()
lifts[:50].to_parquet("new_lifts/part-0.parquet", index=False)
lifts[50:90].to_parquet("new_lifts/part-1.parquet", index=False)
np.save("X.npy", lifts.to_numpy())
np.save("y.npy", (lifts["load"] > 0).to_numpy().astype(int))
"""


def blocks(page, language):
    """Return the blocks of a page in one language."""
    return re.findall(rf"^```{language}\n(.*?)^```$", page.read_text(encoding="utf-8"), flags=re.M | re.S)


def commands(page):
    """Return the lines of a page's shell blocks, without prompts and comments."""
    lines = "".join(blocks(page, "(?:sh|console)")).splitlines()
    return [line.removeprefix("$ ").split("  #")[0].strip() for line in lines]


class Environment:
    """An environment outside the sources, and what became of the commands that ran in it."""

    def __init__(self, folder, new):
        self.folder = folder
        self.failed = []
        self.seen = set()
        if new:
            subprocess.run([sys.executable, "-m", "venv", "--clear", folder / "venv"], check=True)
        self.bin = folder / "venv" / ("Scripts" if os.name == "nt" else "bin")
        self.variables = {
            key: value for key, value in os.environ.items() if key not in ("PYTHONPATH", "MARGINDIST_DATA")
        }
        self.variables |= {"PATH": f"{self.bin}{os.pathsep}{os.environ['PATH']}", "MPLBACKEND": "Agg"}
        self.variables |= {"NUMBA_CACHE_DIR": str(folder / "compiled")}

    def install(self, *what):
        """Install with pip."""
        command = [self.bin / "python", "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *what]
        subprocess.run(command, check=True, env=self.variables)

    def run(self, title, command, folder):
        """Run a command, as a list or a line of shell, and print whether it passed."""
        start = time.perf_counter()
        command = [shutil.which("bash") or "sh", "-c", command] if isinstance(command, str) else command
        run = subprocess.run(command, cwd=folder, env=self.variables, capture_output=True, text=True, check=False)
        outcome = "passed" if run.returncode == 0 else "FAILED"
        print(f"{outcome} {time.perf_counter() - start:6.1f} s  {title}", flush=True)
        if run.returncode:
            self.failed.append(title)
            print(run.stdout[-2000:] + run.stderr[-2000:], flush=True)

    def empty_folder(self, title):
        """Return a new folder for the commands of one page."""
        folder = self.folder / re.sub(r"\W+", "-", title)
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        return folder


def build(folder):
    """Build the source distribution, and the wheel from it; check how the README will look."""
    shutil.rmtree(folder / "dist", ignore_errors=True)
    tools = Environment(folder / "build", new=True)
    tools.install("build", "twine")
    subprocess.run(
        [tools.bin / "python", "-m", "build", "--outdir", folder / "dist", ROOT], check=True, env=tools.variables
    )
    files = sorted((folder / "dist").iterdir())
    subprocess.run([tools.bin / "python", "-m", "twine", "check", "--strict", *files], check=True, env=tools.variables)


def built(folder, ending):
    """Return the distribution with this ending that was built in a folder."""
    found = next((folder / "dist").glob(f"*{ending}"), None)
    if found is None:
        sys.exit(f"{folder} has no {ending}; run the part build first.")
    return found


def check_pages(environment, pages):
    """Run what stands in shell and Python blocks."""
    for page in pages:
        name = page.relative_to(ROOT).as_posix()
        folder = environment.empty_folder(name)
        shutil.copytree(
            ROOT / "reproduction", folder / "reproduction", ignore=shutil.ignore_patterns("*.sqlite", "__pycache__")
        )
        lines = commands(page)
        if lines:
            environment.run(f"{name}: its files", [environment.bin / "python", "-c", FILES], folder)
        for line in lines:
            why = next((why for start, why in LEFT_OUT.items() if line.startswith(start)), None)
            missing = next((shell for shell in ("zsh", "fish") if shell in line and shutil.which(shell) is None), None)
            if line in environment.seen and line.startswith("margindist compare"):
                why = "ran for a page above"
            if why or missing:
                print(f"left out         {name}: {line} ({why or f'{missing} is not installed'})")
            else:
                environment.seen.add(line)
                environment.run(f"{name}: {line}", line, folder)
        python = blocks(page, "python")
        if python:
            (folder / "page.py").write_text("\n".join(python), encoding="utf-8")
            environment.run(f"{name}: its Python", [environment.bin / "python", "page.py"], folder)


def check_examples(environment):
    """Run every example of the gallery."""
    folder = environment.empty_folder("gallery")
    for example in sorted((ROOT / "examples").glob("*.py")):
        shutil.copy(example, folder)
        environment.run(f"examples/{example.name}", [environment.bin / "python", example.name], folder)


def check_tests(environment, sources):
    """Collect the tests of the source distribution, without its package, and run a few."""
    folder = environment.empty_folder("sources")
    shutil.unpack_archive(sources, folder, filter="data")
    (unpacked,) = folder.iterdir()
    shutil.rmtree(unpacked / "margindist")
    pytest = [environment.bin / "python", "-m", "pytest", "-q"]
    environment.run("tests of the source distribution: collected", [*pytest, "--collect-only", "tests"], unpacked)
    environment.run("tests of the source distribution: a few", [*pytest, *FEW_TESTS], unpacked)


def main(folder, parts):
    """Run the parts; return the number of failures."""
    new = "build" in parts
    if new:
        build(folder)
    wheel = built(folder, ".whl")
    environment = Environment(folder, new)
    if new:  # the page on ONNX says that onnxruntime is a package of its own
        environment.install(f"{wheel}[{EXTRAS}]", "onnxruntime")
        shutil.rmtree(folder / "compiled", ignore_errors=True)
        environment.run("margindist warm-up", "margindist warm-up", folder)  # or every process compiles for itself
    if "readme" in parts:
        check_pages(environment, README)
    if "guide" in parts:
        check_pages(environment, GUIDE)
    if "gallery" in parts:
        check_examples(environment)
    if "tests" in parts:
        environment.install(f"{wheel}[test]")
        check_tests(environment, built(folder, ".tar.gz"))
    print(f"{len(environment.failed)} failed" if environment.failed else "All passed.")
    return len(environment.failed)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", nargs="?", type=Path, help="where to build and run; kept (default: a temporary one)")
    parser.add_argument("--only", nargs="+", choices=PARTS, default=PARTS, help="the parts to run (default: all)")
    options = parser.parse_args()
    if options.folder is None:
        with tempfile.TemporaryDirectory() as place:
            sys.exit(bool(main(Path(place), options.only)))
    options.folder.mkdir(parents=True, exist_ok=True)
    sys.exit(bool(main(options.folder.resolve(), options.only)))
