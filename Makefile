# What a person does here, one line each. Every target installs what it needs, once.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
OLDEST := .venv-oldest

.PHONY: demo reproduce test test-oldest lint docs docs-check wheel-check bench clean

demo: $(VENV)/.installed-cli  ## compare all methods on bundled data, write a report
	$(BIN)/margindist compare wdbc --quick --repeats 2 -o breast-cancer.html

reproduce: $(VENV)/.installed-cli  ## a little of every table and figure of the papers, in under ten minutes
	$(BIN)/python -m reproduction --quick

test: lint  ## lint, import contract, unit tests, doctests
	# Two workers: more threads would only wait for each other. A file stays with one, so that less is compiled twice.
	OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 --dist loadfile

test-oldest: $(OLDEST)/.installed  ## the tests with the oldest versions that pyproject.toml declares
	OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 $(OLDEST)/bin/python -m pytest -n 2 --dist loadfile

lint: $(VENV)/.installed-test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports

docs: $(VENV)/.installed-docs  ## the documentation, in docs/_build; runs the examples of the gallery that changed
	OPENBLAS_NUM_THREADS=1 $(BIN)/sphinx-build -W -b html docs docs/_build

docs-check: docs  ## open every page in Chromium: no request, no raw TeX, no console error, fits a phone
	$(BIN)/python docs/check_pages.py docs/_build

wheel-check:  ## every command, page and example from the wheel, in a new environment; the sdist's tests against it
	$(PYTHON) docs/check_commands.py

bench: $(VENV)/.installed-test  ## measure, keep the results in benchmarks/results.json; needs MARGINDIST_DATA
	$(BIN)/python -m benchmarks

$(VENV)/bin/python:
	$(PYTHON) -m venv $(VENV)

$(VENV)/.installed-%: $(VENV)/bin/python pyproject.toml
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e ".[$*]"
	touch $@

$(OLDEST)/.installed: constraints/oldest.txt pyproject.toml
	$(PYTHON) -m venv --clear $(OLDEST)
	$(OLDEST)/bin/python -m pip install --quiet --disable-pip-version-check -e ".[test]" -c constraints/oldest.txt
	touch $@

clean:
	rm -rf $(VENV) $(OLDEST) docs/_build docs/gallery docs/generated .pytest_cache .ruff_cache
