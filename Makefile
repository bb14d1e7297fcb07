# The verbs of the workshop. Each one makes its own environment when it is missing or stale.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.complete
DOCS   := $(VENV)/.docs
CLUSTER := $(VENV)/.cluster
FRAMEWORKS := $(VENV)/.frameworks
EXTRAS := .venv-site
# One process a core, one torch thread a process: tests neither starve each other nor change their sums.
WORKERS ?= auto
ONE_THREAD := OMP_NUM_THREADS=1 MKL_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1
PIP := python -m pip install --quiet --disable-pip-version-check --no-compile -c constraints.txt
INSTALL := $(BIN)/$(PIP)
PACKAGES := python -c 'import sysconfig; print(sysconfig.get_path("purelib"))'
CHECK_PYTHON = $(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "Vestige needs Python 3.11 or newer; say which with 'make PYTHON=/path/to/python3.11 $(MAKECMDGOALS)'."; exit 1; }

.DEFAULT_GOAL := help
.PHONY: help extras demo test test-all test-cluster test-frameworks lint format bench docs lock clean

help:  ## show this list
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14

# The stamp is written last, so an install that was interrupted is done again.
$(STAMP): pyproject.toml constraints.txt
	@$(CHECK_PYTHON)
	@echo "Installing Vestige into $(VENV) (a few minutes the first time) ..."
	@rm -f $(STAMP)
	@$(PYTHON) -m venv $(VENV)
	@$(INSTALL) -e '.[dev,policy,private]'
	@touch $(STAMP)

# Where there is no Ray for this machine the tests that need it say so and skip.
$(CLUSTER): $(STAMP)
	@$(INSTALL) -e '.[cluster]' || echo "No Ray could be installed."
	@touch $(CLUSTER)

$(FRAMEWORKS): $(STAMP)
	@$(INSTALL) -e '.[frameworks]' || echo "The frameworks could not be installed."
	@$(INSTALL) --no-deps avalanche-lib dill || echo "Avalanche could not be installed."
	@touch $(FRAMEWORKS)

# Each installation settles all versions anew: for whoever runs all verbs, one for the documentation and the frameworks. It
# stands on the environment of the tests, which stays as it is: what is installed there is not installed again.
extras: $(STAMP)
	@$(PYTHON) -m venv --without-pip $(EXTRAS)
	@echo "import site; site.addsitedir('$$($(BIN)/$(PACKAGES))')" >"$$($(EXTRAS)/bin/$(PACKAGES))/base.pth"
	@$(EXTRAS)/bin/$(PIP) 'vestige[frameworks,docs]' && $(EXTRAS)/bin/$(PIP) --no-deps avalanche-lib dill \
	  && touch $(EXTRAS)/.complete $(EXTRAS)/.frameworks $(EXTRAS)/.docs || echo "Not everything could be installed at once; each verb tries what it needs."

demo: $(STAMP)  ## the main jobs on data that ships with the package, in under two minutes; writes demo-report/index.html
	@$(ONE_THREAD) $(BIN)/vestige demo

test: $(STAMP)  ## the tests that take seconds
	$(ONE_THREAD) $(BIN)/python -m pytest -n $(WORKERS) --dist worksteal -m "not slow and not cluster and not frameworks"

test-all: $(CLUSTER)  ## every test
	$(ONE_THREAD) $(BIN)/python -m pytest -n $(WORKERS) --dist worksteal -m "not cluster"
	$(ONE_THREAD) $(BIN)/python -m pytest -m cluster tests/runner tests/vestiges

# Ray gives its processes 30 s to start: they want the machine to themselves.
test-cluster: $(CLUSTER)  ## units on a Ray cluster of two machines, one of them lost in the middle
	$(ONE_THREAD) $(BIN)/python -m pytest -m cluster tests/runner tests/vestiges

test-frameworks: $(FRAMEWORKS)  ## the callbacks and metrics for other frameworks, beside the real ones
	$(ONE_THREAD) $(BIN)/python -m pytest -m frameworks tests/plugins

lint: $(STAMP)  ## formatting, lint, types, dead code
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/vulture

format: $(STAMP)  ## put every file into the house format
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

# A missed target is told at the end, when the page is written.
bench: $(STAMP)  ## speed against peers and floors, growth and memory of the main jobs, into BENCHMARKS.md
	@missed=0; $(ONE_THREAD) $(BIN)/python -m benchmarks --store || missed=1; \
	$(ONE_THREAD) $(BIN)/python -m benchmarks growth && $(BIN)/python -m benchmarks page && exit $$missed

# Needs uv. Every file that pip may fetch for these versions, by its hash, on any system.
lock:  ## write requirements.lock anew from pyproject.toml and constraints.txt
	uv pip compile --quiet --no-header --no-annotate --generate-hashes --universal --python-version 3.11.5 -c constraints.txt --extra policy --extra cluster pyproject.toml --output-file requirements.lock

$(DOCS): $(STAMP)
	@$(INSTALL) -e '.[docs]'
	@touch $(DOCS)

docs: $(DOCS)  ## the documentation, into build/site
	$(ONE_THREAD) $(BIN)/python docs/examples.py
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

clean:  ## remove the environment and every cache
	rm -rf $(VENV) $(EXTRAS) .venv-peers .venv-mi .venv-fqe .mypy_cache .ruff_cache .pytest_cache .hypothesis build
