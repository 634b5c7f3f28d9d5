# Everything runs in .venv, made from requirements.lock: the first target takes a minute or two, later ones start at once.
#   make help          what there is
#   make test          what CI runs
#   make PYTHON=...    which Python makes .venv; 3.11 or later

SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DELETE_ON_ERROR:
.DEFAULT_GOAL := help

VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.made-from-lock
DOCTESTED := __init__.py testing.py commands progress dataflow snapshots autoscale graphs incremental sql actors integrations
ARGS ?=
# Processes that run tests side by side: of three, two begin with those on Ray, which mostly wait. 0: one after the other in one process.
WORKERS ?= 3
# Of tests with many cases those run that are this commit's turn. TURN= runs all, TURN=<a commit's name> what ran there.
TURN ?= commit
# A test that hangs where Python's signals do not come (in Ray's C++) ends its process, prints all stacks and counts as failed.
LAST_RESORT := -o faulthandler_timeout=900 -o faulthandler_exit_on_timeout=true

# Python 3.11 is what the lock was tried with; else the first one that is not older.
ifndef PYTHON
PYTHON := $(shell for python in python3.11 python3 python3.12 python3.13; do \
	"$$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1 && { echo "$$python"; break; }; done)
endif

# Bytecode is kept: every actor of every job of the tests is a process that imports rayad, 0.3 of a second slower where it has to compile it.
unexport PYTHONPATH PYTHONHOME PYTHONDONTWRITEBYTECODE
export RAY_USAGE_STATS_ENABLED := 0

.PHONY: help venv demo test soak workers chaos simulate fuzz lint lowest bench docs lock clean

help: ## Show the targets
	@sed -nE 's/^([a-z]+):.*## (.*)/make \1\t\2/p' $(MAKEFILE_LIST) | expand -t 14

venv: $(STAMP) ## Make .venv from the lock, with the project in it as an editable install
	@echo "$(BIN)/python is ready"

demo: $(STAMP) ## Run the demo: flights, from Spark through a dataflow on Ray
	$(BIN)/python examples/flights.py $(ARGS)

test: lint ## Lint, then every test: cores, simulation, cluster, notebooks, doctests; ARGS="-k frontier" for some
	RAYAD_SECOND_TRY=1 RAYAD_WARM_WORKERS=1 RAYAD_TURN=$(TURN) $(BIN)/python -m pytest -n $(WORKERS) -m "not soak" --durations 20 $(LAST_RESORT) --doctest-modules tests $(DOCTESTED:%=src/rayad/%) $(ARGS)

soak: workers ## The tests on Ray with workers, then those that take hours: large programs and quick benchmarks on Ray, all simulated cases of rescaling, more examples
	HYPOTHESIS_PROFILE=soak $(BIN)/python -m pytest -m "soak or thorough" tests $(ARGS)

workers: $(STAMP) ## The tests on Ray once more, with workers that replicas share
	RAYAD_PLACEMENT=workers $(BIN)/python -m pytest -m "not soak" tests/cluster $(ARGS)

simulate: $(STAMP) ## Simulated runs with faults, in every second one replicas come and go, then of coordinators; ARGS="--seeds 1000 --rescales", COORDINATORS=100
	$(BIN)/python -m tests.simulation $(ARGS)
	$(BIN)/python -m tests.simulation.coordinator --seeds $(or $(COORDINATORS),2000)

fuzz: $(STAMP) ## Random programs with crashes, rescales and resumes against a sequential model; ARGS="--runs 10000 --seed 1", ARGS="--shrink 17"
	$(BIN)/python -m tests.fuzz $(ARGS)

chaos: $(STAMP) ## Kill and stop the processes of jobs on real Ray, and compare with the model; ARGS="--kills 500 --seed 1", "--machines 3"
	$(BIN)/python -m tests.chaos $(ARGS)

lint: $(STAMP) ## Ruff, mypy --strict, and who may import whom
	$(BIN)/python -m ruff check .
	$(BIN)/python -m mypy
	$(BIN)/lint-imports --no-logo --cache-dir .cache/import-linter

lowest: ## Some tests with the lowest and with the newest of every range in pyproject.toml; ARGS="--end lowest tests/dataflow"
	"$(PYTHON)" scripts/ranges.py $(ARGS)

bench: $(STAMP) ## Run the benchmarks
	$(BIN)/python -m benchmarks $(ARGS)

docs: $(STAMP) ## Build the documentation as a site: out/site/index.html
	$(BIN)/python -m pip install --quiet --constraint requirements.lock --requirement docs/requirements.txt
	$(BIN)/python -m sphinx -W --keep-going -q -b html docs out/site

lock: ## Write requirements.lock anew from pyproject.toml, in a fresh environment
	scripts/lock.sh "$(PYTHON)"

clean: ## Remove the environment, caches and builds
	rm -rf $(VENV) .cache .mypy_cache .pytest_cache .ruff_cache .hypothesis build dist src/*.egg-info
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

$(STAMP): requirements.lock pyproject.toml
	@if [ -z "$(PYTHON)" ] || ! "$(PYTHON)" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then \
		echo "Rayad needs Python 3.11 or later, but $(if $(PYTHON),'$(PYTHON)' is $$("$(PYTHON)" --version 2>&1 || true),no python3 on PATH is one)." >&2; \
		echo "Install Python 3.11 (with its venv module) and say where it is: make $(MAKECMDGOALS) PYTHON=/path/to/python3.11" >&2; \
		exit 1; \
	fi
	@[ -x $(BIN)/python ] || "$(PYTHON)" -m venv $(VENV) || { \
		rm -rf $(VENV); echo "'$(PYTHON) -m venv' failed; on Debian and Ubuntu install the package python3-venv" >&2; exit 1; }
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -r requirements.lock
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
	@touch $(STAMP)
