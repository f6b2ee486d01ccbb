"""What the documentation says is true: parameters, code, walk-through."""

import importlib
import inspect
import json
import os
import re
import runpy
import shutil
import subprocess
import sys
import warnings
from pathlib import Path

import matplotlib.pyplot as plt
import pytest
from numpydoc.docscrape import ClassDoc, FunctionDoc
from sklearn.base import ClassifierMixin
from sklearn.exceptions import ConvergenceWarning

import margindist
import margindist.compare
import margindist.dask
import margindist.datasets
import margindist.margins
import margindist.methods
import margindist.models
import margindist.proof

ROOT = Path(__file__).parent.parent
PAGES = [
    ROOT / "README.md",
    ROOT / "docs" / "index.md",
    ROOT / "docs" / "beyond_one_machine.md",
    *sorted((ROOT / "docs" / "user_guide").glob("*.md")),
]
EXAMPLES = sorted((ROOT / "examples").glob("plot_*.py"))
MODULES = (
    margindist,
    margindist.dask,
    margindist.margins,
    margindist.datasets,
    margindist.compare,
    margindist.methods,
    margindist.models,
    margindist.proof,
)
PUBLIC = [getattr(module, name) for module in MODULES for name in getattr(module, "__all__", ())]
FUNCTIONS = [entry for entry in PUBLIC if inspect.isfunction(entry)]
CLASSES = [entry for entry in PUBLIC if inspect.isclass(entry)]
METHODS = [
    pytest.param(method, id=f"{cls.__name__}.{name}")
    for cls in CLASSES
    for name, method in inspect.getmembers(cls, lambda member: inspect.isfunction(member) or inspect.ismethod(member))
    if name[0] != "_" and method.__module__.startswith("margindist")
]


def documented(doc):
    """Return the documented parameters; "a, b : array" documents two."""
    return [name.strip(" *") for entry in doc["Parameters"] for name in entry.name.split(",")]


def taken(function):
    return [name for name in inspect.signature(function).parameters if name not in ("self", "cls")]


@pytest.mark.parametrize(
    "cls", [cls for cls in CLASSES if not issubclass(cls, Exception)], ids=lambda cls: cls.__name__
)
def test_documented_parameters_are_those_of_the_class(cls):
    assert documented(ClassDoc(cls)) == taken(cls)


@pytest.mark.parametrize("function", [*FUNCTIONS, *METHODS], ids=lambda function: function.__name__)
def test_documented_parameters_are_those_of_the_function(function):
    assert documented(FunctionDoc(function)) == taken(function)


@pytest.mark.parametrize(
    "cls", [cls for cls in CLASSES if issubclass(cls, ClassifierMixin)], ids=lambda cls: cls.__name__
)
def test_classifiers_document_fitted_attributes_and_give_an_example(cls):
    doc = ClassDoc(cls)
    assert "classes_" in [name.strip() for entry in doc["Attributes"] for name in entry.name.split(",")]
    assert any(line.startswith(">>>") for line in doc["Examples"])


def test_every_public_name_is_in_the_reference():
    listed = set(re.findall(r"^   (\w+)$", (ROOT / "docs" / "api.md").read_text(encoding="utf-8"), flags=re.M))
    assert {entry.__name__ for entry in PUBLIC} == listed


@pytest.mark.parametrize("page", PAGES, ids=lambda page: f"{page.parent.name}/{page.name}")
def test_python_on_a_page_runs(page, tmp_path, monkeypatch):
    """The blocks of a page run one after the other, in one namespace, as a reader would."""
    monkeypatch.chdir(tmp_path)
    blocks = re.findall(r"^```python\n(.*?)^```$", page.read_text(encoding="utf-8"), flags=re.M | re.S)
    assert blocks or page == ROOT / "docs" / "user_guide" / "index.md"
    namespace = {}
    for block in blocks:
        exec(compile(block, str(page), "exec"), namespace)
    plt.close("all")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: f"{page.parent.name}/{page.name}")
def test_sections_stand_once(page):
    headings = re.findall(r"^##+ .*", page.read_text(), flags=re.MULTILINE)
    assert len(headings) == len(set(headings))


@pytest.mark.parametrize("page", [ROOT / "README.md", ROOT / "CONTRIBUTING.md"], ids=lambda page: page.name)
def test_links_lead_to_files(page):
    for target in re.findall(r"\]\(([^)#]+)\)", page.read_text(encoding="utf-8")):
        assert target.startswith("http") or (ROOT / target).exists(), target


def test_walk_through_works_on_the_sources_as_they_are(tmp_path):
    """Write the files of "add an objective", and run the tests it ends with."""
    page = (ROOT / "docs" / "add_an_objective.md").read_text(encoding="utf-8")
    blocks = re.findall(r"^```\{code-block\} python\n:caption: (\S+)\n(.*?)^```$", page, flags=re.M | re.S)
    assert len(blocks) == 3
    for path, code in blocks:
        with open(tmp_path / path, "a", encoding="utf-8") as file:
            file.write("\n" + code)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), str(tmp_path)])}
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--rootdir", ".", "."]
    run = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stdout


def test_demo_draws_and_says_where(tmp_path, capsys):
    picture = tmp_path / "picture.png"
    runpy.run_path(str(ROOT / "examples" / "breast_cancer.py"))["main"](picture)
    plt.close("all")
    lines = capsys.readouterr().out.splitlines()
    assert picture.read_bytes().startswith(b"\x89PNG")
    assert str(picture) in lines[-1]
    figures = {line[:26].strip(): line[26:].split() for line in lines if line.startswith("  ")}
    _, svm, linear_svc = map(float, figures["test accuracy"])
    assert svm == linear_svc
    ldm, svm, linear_svc = map(float, figures["spread / mean"])
    assert ldm < svm == pytest.approx(linear_svc, abs=2e-3)


@pytest.fixture
def extensions(monkeypatch):
    """Make the documentation's own extensions importable."""
    monkeypatch.syspath_prepend(ROOT / "docs" / "_ext")
    return importlib.import_module


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: example.stem.removeprefix("plot_"))
def test_example_of_the_gallery_runs_to_its_certified_end(example, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("MARGINDIST_DATA", raising=False)
    with warnings.catch_warnings():
        warnings.simplefilter("error", ConvergenceWarning)
        runpy.run_path(str(example))
    assert plt.get_fignums()
    plt.close("all")


def test_gallery_lists_every_example(extensions):
    listed = extensions("gallery_order").QUESTIONS
    assert sorted(listed) == [example.stem.removeprefix("plot_") for example in EXAMPLES]


def test_benchmark_pages_show_what_the_results_have():
    results = json.loads((ROOT / "benchmarks" / "results.json").read_text(encoding="utf-8"))
    sources = "".join(path.read_text(encoding="utf-8") for path in (ROOT / "benchmarks").glob("bench_*.py"))
    shown = set()
    for page in (ROOT / "docs" / "benchmarks").glob("*.md"):
        for key, options in re.findall(r"^```\{benchmark\} (\S+)\n(.*?)^```$", page.read_text(), flags=re.M | re.S):
            shown.add(key)
            kept = results[key]
            assert f'"{kept["title"]}"' in sources, f"no benchmark measures {kept['title']!r} again"
            assert kept["rows"] and kept["command"].startswith("python -m benchmarks.")
            assert {"machine", "versions", "date"} <= kept.keys()
            columns = re.findall(r"^:(?:curves|dots|by|panels|rows): (.*)$", options, flags=re.M)
            assert {name.strip() for line in columns for name in line.split(",")} <= kept["rows"][0].keys()
    assert shown


def test_formulas_become_mathml_or_a_warning(extensions):
    pytest.importorskip("latex2mathml")
    pytest.importorskip("ziamath")
    translate = extensions("mathml").translate
    assert "<munder>" in translate(r"\arg\min_w \tfrac12 \Bigl\| w \Bigr\|^2", display=True)
    with pytest.raises(ValueError, match="not known"):
        translate(r"\unheardof x", display=False)


@pytest.fixture(scope="module")
def check_pages():
    return runpy.run_path(str(ROOT / "docs" / "check_pages.py"))["found_in_files"]


def test_check_of_pages_finds_requests_and_tex(check_pages, tmp_path):
    (tmp_path / "bad.html").write_text(
        '<script src="https://elsewhere.org/math.js"></script><p>Take \\(x\\) <code>\\frac12</code></p>'
        '<a href="https://elsewhere.org">a link is no request</a><img src="here.png"/>'
    )
    (tmp_path / "bad.css").write_text("@import url(//fonts.elsewhere.org/a.css); p { background: url('here.png') }")
    assert check_pages(tmp_path) == [
        "bad.html asks for https://elsewhere.org/math.js",
        "bad.html shows TeX: \\(",
        "bad.css asks for //fonts.elsewhere.org/a.css",
    ]


def test_built_pages_ask_nobody_and_show_no_tex(check_pages, tmp_path):
    """A small part of the documentation: pages with formulas, tables and references, by the real configuration."""
    needed = (
        "sphinx",
        "myst_parser",
        "pydata_sphinx_theme",
        "sphinx_design",
        "sphinx_gallery",
        "latex2mathml",
        "ziamath",
    )
    for package in needed:
        pytest.importorskip(package)
    from sphinx.cmd.build import build_main

    source, built = tmp_path / "source", tmp_path / "built"
    source.mkdir()
    for name in ("ldm.md", "odm.md", "online.md"):
        shutil.copy(ROOT / "docs" / "user_guide" / name, source / name)
    (source / "index.md").write_text(
        "# Part\n\n```{toctree}\nldm\nodm\nonline\n```\n\n```{eval-rst}\n.. autoclass:: margindist.ODMClassifier\n```\n"
    )
    arguments = ["-q", "-b", "html", "-c", str(ROOT / "docs"), "-D", "plot_gallery=0", str(source), str(built)]
    assert build_main(arguments) == 0
    page = (built / "ldm.html").read_text(encoding="utf-8")
    assert "<math" in page and "pydata-sphinx-theme" in page
    assert (built / "_static" / "STIXTwoMath-Regular.ttf").exists()
    assert check_pages(built) == []


def test_names_of_the_first_version_still_lead_to_the_modules():
    from margindist.experiments.compare import compare
    from margindist.experiments.store import Store

    assert compare is margindist.compare.compare
    assert Store.__module__ == "margindist.runs.store"
