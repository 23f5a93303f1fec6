# Every target sets up what it needs; only Python (3.11 or newer, with venv) and make must be there.
#
#   make run           the demo: an embedded cluster, nfs_subdir on a local directory, three claims
#   make test          all tests; those that need a control plane or an NFS server run where these are
#   make e2e           only the tests against the real control plane and the real NFS server
#   make lint          ruff, mypy, import-linter
#   make bench         volumes per second against a real API server, beside the Go reference where Go is installed
#                      (BENCH_ARGS="--claims 500 --workers 8"); and what a hung backend costs another
#   make controlplane  build etcd, kube-apiserver and kube-controller-manager into the user's cache (needs Go; half an hour, once)
#   make docs          the documentation site, into site/
#   make clean         remove what the targets made in this directory

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check
CACHE := $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/prov-host
KUBERNETES_VERSION = $(shell awk '$$1 == "k8s.io/kubernetes" {print $$2}' tests/controlplane/go.mod)

.DEFAULT_GOAL := help
.PHONY: help run test e2e lint bench controlplane docs clean
.DELETE_ON_ERROR:

help:
	@sed -n '2,/^$$/s/^# \{0,1\}//p' Makefile

# The stamps make a second call quick. They depend on pyproject.toml alone: the installation is editable.
$(VENV)/.pip:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "prov-host needs Python 3.11 or newer; $(PYTHON) is $$($(PYTHON) --version 2>&1). Try: make PYTHON=python3.12 ..."; exit 1; }
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV) || { echo "could not make $(VENV); on Debian and Ubuntu: apt-get install python3-venv"; exit 1; }
	@echo "installing into $(VENV): takes a minute or two the first time, and seconds from then on ..."
	@$(PIP) install --quiet --upgrade 'pip>=25.1'  # --group
	@touch $@

$(VENV)/.run: $(VENV)/.pip pyproject.toml
	@$(PIP) install --quiet --editable .
	@touch $@

$(VENV)/.dev: $(VENV)/.pip pyproject.toml
	@$(PIP) install --quiet --editable . --group dev
	@touch $@ $(VENV)/.run

$(VENV)/.docs: $(VENV)/.pip pyproject.toml
	@$(PIP) install --quiet --editable . --group docs
	@touch $@ $(VENV)/.run

run: $(VENV)/.run
	@$(BIN)/prov-host demo

test: $(VENV)/.dev
	@$(BIN)/pytest $(PYTEST_ARGS)

e2e: $(VENV)/.dev
	@$(BIN)/pytest tests/controlplane tests/e2e $(PYTEST_ARGS)

lint: $(VENV)/.dev
	@$(BIN)/ruff check
	@$(BIN)/ruff format --check
	@$(BIN)/mypy
	@$(BIN)/lint-imports

bench: $(VENV)/.dev
	@$(BIN)/python bench/provision.py $(if $(shell command -v go),--peer) $(BENCH_ARGS)
	@$(BIN)/python bench/isolation.py
	@$(BIN)/python bench/removal.py

controlplane:
	@command -v go >/dev/null || { echo "make controlplane needs Go (see the go line of tests/controlplane/go.mod for the version)"; exit 1; }
	@tests/controlplane/build "$(CACHE)/controlplane-$(KUBERNETES_VERSION)-built" "$(KUBERNETES_VERSION)"

docs: $(VENV)/.docs
	@$(BIN)/mkdocs build --strict

clean:
	rm -rf $(VENV) site dist build .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
