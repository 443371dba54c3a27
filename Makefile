# `make demo` and `make test` are all a newcomer needs; both make .venv first, with plain venv and pip.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
RUNS := $(VENV)/.runs
READY := $(VENV)/.ready
SHARED ?= ../shared
export PIP_DISABLE_PIP_VERSION_CHECK := 1

TORCH := .venv-torch
TENSORFLOW := .venv-tensorflow
HOROVOD := .venv-horovod
DEEPSPEED := .venv-deepspeed
WHEELS := .venv-wheels

.PHONY: web lint-web test-web bench-web screenshots demo test test-slow test-api test-torch test-ssh test-containers test-kubernetes test-frameworks chaos lint bench bench-policies bench-tables clean system-packages help

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

# Without Node.js everything but the dashboard works: web/build.py says what to do.
web: ## build the dashboard into src/swell/web/static
	$(PYTHON) web/build.py

lint-web: ## type-check and lint the dashboard, where there is Node.js
	@if command -v npm >/dev/null; then cd web && { [ node_modules/.package-lock.json -nt package-lock.json ] || npm ci; } && npm run --silent check; \
	else echo "lint-web: left out, there is no npm here"; fi

demo: $(RUNS) ## set everything up and watch seven trainings share four slots
	$(BIN)/swell demo

test: $(READY) lint ## everything that runs in under ten minutes on two cores
	$(BIN)/python -m pytest -n 2 --dist worksteal --timeout 300 \
		-m 'not slow and not perf and not torch and not frameworks and not web and not ssh and not containers and not kubernetes' tests

test-slow: $(READY) ## the long versions: 20,000 examples a property, 1,000 resizes
	SWELL_EXAMPLES=20000 $(BIN)/python -m pytest -n 2 --dist worksteal -m 'slow and not torch and not frameworks and not web and not ssh and not containers and not kubernetes' tests

test-api: $(READY) ## 20,000 requests by Schemathesis with all checks, 20,000 that are malformed over a socket
	SWELL_EXAMPLES=20000 $(BIN)/python -m pytest -s tests/integration/api/test_schemathesis.py tests/integration/api/test_malformed.py

chaos: $(READY) ## 1,000 kills of daemons and 500 of shims over 5,000 jobs, every crash point, the gibibyte of log
	SWELL_CHAOS=full $(BIN)/python -m pytest -s -m chaos tests/chaos
	SWELL_CHAOS=full $(BIN)/python -m pytest -s tests/integration/daemon/test_trouble.py
	SWELL_FAULT_SEEDS=10000 $(BIN)/python -m pytest -n 2 tests/faults

# Frameworks live in environments of their own; torch is pinned first, or what depends on it would bring another.
$(TORCH)/.ready: tests/torch/requirements.txt
	$(PYTHON) -m venv $(TORCH)
	$(TORCH)/bin/pip install -q torch==2.13.0 numpy
	$(TORCH)/bin/pip install -q -r $<
	@touch $@

$(TENSORFLOW)/.ready:
	$(PYTHON) -m venv $(TENSORFLOW)
	$(TENSORFLOW)/bin/pip install -q tensorflow-cpu==2.21.* tf-keras==2.21.*
	@touch $@

$(HOROVOD)/.ready:
	$(PYTHON) -m venv $(HOROVOD)
	$(HOROVOD)/bin/pip install -q torch==2.13.0 numpy 'setuptools<81' wheel cffi cloudpickle psutil pyyaml packaging
	tests/frameworks/build_horovod.sh $(HOROVOD)/bin/python $(WHEELS)
	$(HOROVOD)/bin/pip install -q --no-deps $(WHEELS)/horovod-0.28.1-*.whl
	@touch $@

# DeepSpeed compiles a part of itself at its first use on CPUs; the tests are not made to wait for that.
$(DEEPSPEED)/.ready:
	$(PYTHON) -m venv $(DEEPSPEED)
	$(DEEPSPEED)/bin/pip install -q torch==2.13.0 numpy setuptools wheel ninja packaging psutil py-cpuinfo
	DS_BUILD_OPS=0 $(DEEPSPEED)/bin/pip install -q --no-build-isolation deepspeed==0.19.8
	PATH="$(abspath $(DEEPSPEED))/bin:$$PATH" TORCH_EXTENSIONS_DIR="$(abspath $(DEEPSPEED))/extensions" \
		$(DEEPSPEED)/bin/python -c 'from deepspeed.comm.torch import build_shm_op; build_shm_op()'
	@touch $@

test-torch: $(READY) $(TORCH)/.ready ## PyTorch, Lightning and Hugging Face, in an environment of their own (0.9 GB)
	$(BIN)/python -m pytest -n 2 --dist loadfile -m torch tests/torch

test-containers: $(READY) ## jobs with an image: real podman and runc; needs root. Makes its images once (2 minutes)
	$(BIN)/python -m pytest -m containers --timeout 300 tests/containers

test-ssh: $(READY) ## machines over SSH: real sshd in network namespaces; needs root, openssh-server and iproute2
	$(BIN)/python -m pytest -n 3 --dist worksteal --timeout 300 -m ssh tests/ssh

test-web: $(READY) web ## the dashboard in a real browser (Chromium), against a real daemon
	$(BIN)/pip install -q -e '.[web-test]'
	$(BIN)/python -m pytest -m web tests/web

bench-web: $(READY) web ## measure the dashboard: first paint, lag, what pages cost, frames of the lanes
	$(BIN)/pip install -q -e '.[web-test]'
	PYTHONPATH=tests $(BIN)/python -m web.measure

screenshots: $(READY) web ## pictures of every view into docs/images: look at them before committing
	$(BIN)/pip install -q -e '.[web-test]'
	SWELL_IMAGES=docs/images $(BIN)/python -m pytest -m web tests/web/test_pictures.py

test-kubernetes: $(READY) ## pods of a real cluster, which it starts (root; skipped with a reason where that cannot be)
	PYTHONPATH=tests $(BIN)/python -m kubernetes

test-frameworks: $(READY) $(TENSORFLOW)/.ready $(HOROVOD)/.ready $(DEEPSPEED)/.ready ## TensorFlow, Horovod and DeepSpeed (3.6 GB; builds Horovod once)
	$(BIN)/python -m pytest -m frameworks tests/frameworks

lint: $(READY) lint-web ## ruff, mypy strict, import contracts
	$(BIN)/ruff check src tests benchmarks examples
	$(BIN)/ruff format --check src tests benchmarks examples
	$(BIN)/mypy
	for example in examples/*-*/*.py; do $(BIN)/mypy "$$example" || exit 1; done
	$(BIN)/lint-imports

bench: $(READY) ## measure, compare with tests/perf/thresholds.json, write out/figures
	$(BIN)/python -m pytest -m perf tests/perf

bench-policies: $(READY) ## what the default policy must show, against its bars (half an hour); QUICK=1: a sample
	$(BIN)/python -m benchmarks.policies.required --data $(SHARED)/data $(if $(QUICK),--quick --out out/required.md)

bench-tables: $(READY) ## every policy on the public workloads; tables for docs/figures/simulator.md (hours)
	$(BIN)/python -m benchmarks.policies --data $(SHARED)/data

system-packages: ## Debian packages that the tests use; needs root
	apt-get update -qq
	DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends postgresql gcc libc6-dev chromium \
		openssh-server openssh-client iproute2 openmpi-bin prometheus podman runc busybox-static debootstrap \
		etcd-server containerd containernetworking-plugins iptables conntrack openssl curl python3

clean:
	rm -rf $(VENV) .venv-* .mypy_cache .ruff_cache .pytest_cache .hypothesis out dist build web/node_modules src/swell/web/static
