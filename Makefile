# What a person does here, one line each. Every target installs what it needs, once.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
OLDEST := .venv-oldest

.PHONY: demo test test-oldest lint docs bench clean

demo: $(VENV)/.installed-cli  ## compare all methods on bundled data, write a report
	$(BIN)/margindist compare wdbc --quick --repeats 2 -o breast-cancer.html

test: lint  ## lint, import contract, unit tests, doctests
	OPENBLAS_NUM_THREADS=1 $(BIN)/python -m pytest -n 2  # two workers: more threads would only wait for each other

test-oldest: $(OLDEST)/.installed  ## the tests with the oldest versions that pyproject.toml declares
	OPENBLAS_NUM_THREADS=1 $(OLDEST)/bin/python -m pytest -n 2

lint: $(VENV)/.installed-test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports

docs: $(VENV)/.installed-docs
	$(BIN)/sphinx-build -W -b html docs docs/_build

bench: $(VENV)/.installed-test  ## needs MARGINDIST_DATA
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
	rm -rf $(VENV) $(OLDEST) docs/_build .pytest_cache .ruff_cache
