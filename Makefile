# Everything goes through one virtual environment. Variables you may set:
#   VENV    where it is                     make test VENV=/path/to/venv
#   PYTHON  what makes it                   make setup PYTHON=python3.12
#   TORCH   which torch goes in             make setup TORCH=torch==2.14.1
#   PIP_ARGS  further options for pip       make setup PIP_ARGS="--index-url URL"
#   EXTRAS  which extras of the package     make setup EXTRAS=dev,zoo
#   PYTEST_ARGS  further options for pytest make test PYTEST_ARGS="-x tests/passes"
VENV ?= .venv
PYTHON ?= python3
TORCH ?= torch==2.13.0
PIP_ARGS ?=
EXTRAS ?= dev,zoo,train
JOBS ?= 2
PYTEST_ARGS ?=

SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:

BIN := $(VENV)/bin
STAMP := $(VENV)/.passwright-ready
SPEC := $(VENV)/.passwright-spec
TYPED := build/typed/passwright
FOLDERS := passes features scheduler training data
# One thread a worker: two workers with a thread pool each would fight for two cores.
PYTEST := OMP_NUM_THREADS=1 $(BIN)/pytest

.PHONY: help setup system demo test test-all gpu-test lint format typecheck readme wheel clean FORCE

help: ## List what can be made
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{printf "  make %-10s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: $(STAMP) ## Make the virtual environment with torch, the package, its tools and the public models

# Tests of what is not there are skipped, and say so.
system: ## Install the Debian packages that tests start: Chromium and PostgreSQL (as root)
	@if ! command -v chromedriver >/dev/null || ! command -v pg_ctlcluster >/dev/null; then \
	    apt-get update -qq && apt-get install -yqq chromium chromium-driver postgresql >/dev/null; fi

demo: setup ## Set up, then run the main job on real models and print one table
	$(BIN)/passwright demo

test: setup ## Set up, then run the tests (CPU, under 10 minutes on two cores)
	$(PYTEST) -n $(JOBS) --dist loadfile $(PYTEST_ARGS)

test-all: setup ## The tests with the slow ones
	$(PYTEST) -n $(JOBS) --dist loadfile -m "not gpu" $(PYTEST_ARGS)

gpu-test: setup ## The tests that need a CUDA device
	$(PYTEST) -m gpu $(PYTEST_ARGS)

lint: setup ## Ruff's checks, its format, and mypy --strict
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(MAKE) --no-print-directory typecheck

format: setup ## Let ruff fix and format the code
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

# mypy cannot follow the import hook of an editable install whose folders have other names than the
# packages, so it reads the same files through links that spell the package name.
typecheck: setup $(addprefix $(TYPED)/,$(FOLDERS)) ## mypy --strict alone
	MYPYPATH=build/typed $(BIN)/mypy -p passwright

$(TYPED)/%:
	@mkdir -p $(TYPED)
	@ln -sfn ../../../$* $@

readme: setup ## Write the tables of README and docs from the runs in data/reports
	$(BIN)/python -m passwright.training.readme README.md docs/headroom.md docs/inductor-ir.md docs/measuring.md docs/learning.md data/RECORDS.md || true

wheel: setup ## Build the wheel and the source archive into dist/
	$(BIN)/python -m build

clean: ## Remove what was built and cached (not the virtual environment)
	rm -rf build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find . -path ./.venv -prune -o -type d -name __pycache__ -exec rm -rf {} +

# Done once; again when the package's metadata, the pins or the wanted torch change.
# A torch for CUDA brings the Triton it was built with; for a CPU's torch it is the pinned one, whose
# interpreter and compiler the tests of the kernels use.
# PYTHONWARNINGS keeps back the warning that setuptools has for every editable install.
$(STAMP): pyproject.toml constraints.txt $(SPEC)
	@echo "Setting up $(VENV); the first time takes a few minutes."
	$(BIN)/python -m pip install --quiet --upgrade pip
	grep -Ev '^(torch|triton)==' constraints.txt > $(VENV)/constraints.txt
	$(BIN)/python -m pip install --quiet $(PIP_ARGS) -c $(VENV)/constraints.txt "$(TORCH)"
	$(BIN)/python -m pip freeze --exclude passwright | grep -Ei '^(torch|triton)==' >> $(VENV)/constraints.txt
	grep -q '^triton==' $(VENV)/constraints.txt || grep '^triton==' constraints.txt >> $(VENV)/constraints.txt
	PYTHONWARNINGS=ignore $(BIN)/python -m pip install --quiet $(PIP_ARGS) -c $(VENV)/constraints.txt -e ".[$(EXTRAS)]"
	@touch $@

$(SPEC): FORCE
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@echo '$(TORCH) $(EXTRAS) $(PIP_ARGS)' | cmp -s - $@ || echo '$(TORCH) $(EXTRAS) $(PIP_ARGS)' > $@
