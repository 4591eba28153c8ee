# `make demo` and `make test` need only Python 3.11, Go and the packages that they name if one is missing.
SHELL := /bin/bash
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin

.DEFAULT_GOAL := help
.PHONY: help crds crd-check demo demo-down

help: ## List the targets
	@grep -hE '^[a-z0-9-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 20

$(VENV)/.installed: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --disable-pip-version-check --quiet --constraint constraints.txt --editable '.[gateway,dev]'
	touch $@

demo: $(VENV)/.installed ## Bring up a cluster, serve a real model, edit it under traffic
	$(BIN)/python -m e2e.demo

demo-down: $(VENV)/.installed ## Remove the demo's cluster from this machine
	$(BIN)/python -m e2e.cluster down

# The chart has a copy: Helm reads no file outside the chart.
CRD_FOLDERS := crds charts/tailbound/files/crds

crds: $(VENV)/.installed ## Write the CRDs from the models
	for folder in $(CRD_FOLDERS); do $(BIN)/python -m tailbound.api.crdgen $$folder || exit; done

crd-check: $(VENV)/.installed ## Fail if a checked-in CRD is stale
	for folder in $(CRD_FOLDERS); do $(BIN)/python -m tailbound.api.crdgen --check $$folder || exit; done
