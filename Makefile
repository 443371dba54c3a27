# `make demo` and `make test` are all a newcomer needs; both make .venv first, with plain venv and pip.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
RUNS := $(VENV)/.runs
READY := $(VENV)/.ready
export PIP_DISABLE_PIP_VERSION_CHECK := 1

.PHONY: demo test lint bench clean system-packages help

help:
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 24

# What Swell needs to run, then what its tests need: `make demo` waits for the first only.
$(RUNS): pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install -q -e .
	@touch $@

$(READY): $(RUNS)
	$(BIN)/pip install -q -e '.[dev]'
	@touch $@

demo: $(RUNS) ## set everything up and watch six trainings share four slots
	$(BIN)/swell demo

test: $(READY) lint ## everything that runs in under ten minutes on two cores
	$(BIN)/python -m pytest -n 2 -m 'not slow and not perf and not torch and not frameworks' tests

lint: $(READY) ## ruff, mypy strict, import contracts
	$(BIN)/ruff check src tests
	$(BIN)/ruff format --check src tests
	$(BIN)/mypy
	$(BIN)/lint-imports

bench: $(READY) ## measure, compare with tests/perf/thresholds.json, write out/figures
	$(BIN)/python -m pytest -m perf tests/perf

system-packages: ## Debian packages that the tests use; needs root
	apt-get update -qq
	DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends postgresql gcc libc6-dev

clean:
	rm -rf $(VENV) .venv-* .mypy_cache .ruff_cache .pytest_cache .hypothesis out dist build
