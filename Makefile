# `make demo` and `make test` need Linux, root, Python 3.11 and Go 1.21 or newer. On Debian they install the packages
# that are missing; everything else is built from source or fetched from package registries, once.
SHELL := /bin/bash
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
PACKAGES := buildah busybox-static ca-certificates containernetworking-plugins iproute2 mmdebstrap mount nftables \
            procps python3-venv runc util-linux
INSTALLED := $(VENV)/.installed
# The chart has a copy: Helm reads no file outside the chart.
CRD_FOLDERS := crds charts/tailbound/files/crds
# What is slow runs at the lowest priority beside the rest; its lines appear as they come, so no --output-sync: that
# would hold back what a long build says until it ends.
BESIDE := $(MAKE) --no-print-directory
# Tests run in as many processes as there are cores. Those of the second kind mostly wait, so that half as many more
# fit; each process has an API server of its own, which bounds them. tests/integration/conftest.py says which tests
# have to share a process.
ACROSS := -n auto --dist load
PLANES := $(shell processes=$$(( $$(nproc) * 3 / 2 )); echo $$(( processes < 4 ? processes : 4 )))
ACROSS_PLANES := -n $(PLANES)

# Where bytecode is not kept, each process that tests start compiles what it imports, and pytest rewrites each test.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help demo demo-down test packages binaries servers images quick checks tested suites lint types contracts crds crd-check unit runtime \
        integration e2e test-security test-servers fuzz release test-harness soak explore mutants cluster-up cluster-down bench-rollout bench-batching bench-runtime bench-models bench-start bench-gpu conformance bench-autoscale bench-shedding bench-fleet

help: ## List the targets
	@grep -hE '^[a-z0-9-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 20

demo: $(INSTALLED) ## Bring up a cluster, serve a real model, edit it under traffic
	@$(BESIDE) --jobs=2 binaries images
	@$(BIN)/python -m e2e.demo

demo-down: cluster-down ## Remove the demo's cluster from this machine

test: $(INSTALLED) ## Everything below; our own cluster is gone afterwards. T=NAME: only the tests of this name
ifdef T
	@$(BIN)/python -m tests.one "$(T)"
else
	@$(BESIDE) --jobs=4 binaries images checks tested
	@status=0; $(MAKE) --no-print-directory e2e || status=$$?; \
	 [ -n "$$KUBECONFIG" ] || $(MAKE) --no-print-directory cluster-down || status=$$?; exit $$status
	@echo "make test: ok"
endif

quick: $(INSTALLED) ## What needs no cluster: lint types contracts crd-check, and beside them unit runtime
	@$(BESIDE) --jobs=2 checks suites

# Types take a minute of one core, which the tests leave free while they wait.
checks:
	@for part in lint types contracts crd-check; do $(MAKE) --no-print-directory $$part || exit; done

# Only scenarios wait for the images.
tested: suites binaries servers
	@$(MAKE) --no-print-directory integration

suites:
	@for part in unit runtime; do $(MAKE) --no-print-directory $$part || exit; done

lint: $(INSTALLED) ## Style of the code
	$(BIN)/ruff check
	$(BIN)/ruff format --check

types: $(INSTALLED) ## Types, strictly
	$(BIN)/mypy operator/tailbound runtime_image/tailbound_runtime e2e tests

contracts: $(INSTALLED) ## Which package may import which
	PYTHONPATH=operator:runtime_image $(BIN)/lint-imports

crds: $(INSTALLED) ## Write the CRDs from the models
	for folder in $(CRD_FOLDERS); do $(BIN)/python -m tailbound.api.crdgen $$folder || exit; done

crd-check: $(INSTALLED) ## The checked-in CRDs are those of the models
	for folder in $(CRD_FOLDERS); do $(BIN)/python -m tailbound.api.crdgen --check $$folder || exit; done

unit: $(INSTALLED) ## Pure parts
	$(BIN)/python -m pytest tests/unit -q $(ACROSS)

mutants: $(INSTALLED) ## Edits that each break one guarantee are caught by the tests; ONLY="WORD…" tries some
	$(BIN)/python -m tests.mutants $(ONLY)

explore: export HYPOTHESIS_PROFILE = nightly
explore: $(INSTALLED) ## New examples for the property machines of rollouts for MINUTES, 60 if not given; simulations in full
	$(BIN)/python -m tests.unit.reconcile.explore $(or $(MINUTES),60)
	$(BIN)/python -m pytest tests/unit -q $(ACROSS)

runtime: $(INSTALLED) ## The model server, by itself
	@$(BIN)/python -m tests.runtime.engine_packages
	$(BIN)/python -m pytest tests/runtime -q $(ACROSS)

integration: $(INSTALLED) ## Against a real API server
	$(BIN)/python -m pytest tests/integration -q $(ACROSS_PLANES) --durations=15

e2e: cluster-up ## Every scenario, on the cluster that KUBECONFIG names or else on our own
	$(BIN)/python -m e2e.scenarios -q

test-security: cluster-up ## Attacks of strangers on the cluster that KUBECONFIG names or else on our own; what neighbours lost, as JSON
	@$(BIN)/python -m e2e.security

test-servers: $(INSTALLED) ## Servers of other projects and large engines of ours, for real: what they answer, and lose in a drain; T=NAME: only one
	@PYTHONPATH=operator:runtime_image $(BIN)/python -m tests.servers $(T)

fuzz: $(INSTALLED) binaries ## Mutated requests and generated objects, COUNT of each, 10000 if not given; SEED=N repeats a run
	@PYTHONPATH=operator:runtime_image $(BIN)/python -m tests.fuzz --count $(or $(COUNT),10000) $(if $(SEED),--seed $(SEED))

release: $(INSTALLED) ## Every Python package of the images with its hash, and an SBOM of each, in build/release; ENGINES=… as for the image
	@[ -d build/release-tools ] || $(PYTHON) -m venv build/release-tools
	@build/release-tools/bin/pip install --quiet --disable-pip-version-check cyclonedx-bom==7.5.0
	@mkdir -p build/release
	@build/release-tools/bin/python -m e2e.release build/release $(ENGINES)
	@cat build/release/SHA256SUMS

test-harness: binaries images ## The API server of the tests, and our own cluster brought up and down, as a second one
	$(BIN)/python -m pytest e2e/cluster -q

soak: cluster-up ## Traffic that rises and falls for MINUTES, 100 if not given, with pods that follow it
	TAILBOUND_SOAK_MINUTES=$(or $(MINUTES),100) $(BIN)/python -m e2e.scenarios -q -rP -k follow_a_ramp

cluster-up: $(INSTALLED) ## Bring up our own cluster with the present images, unless KUBECONFIG names one
ifdef KUBECONFIG
	@echo "using the cluster of $(KUBECONFIG)"
else
	@$(BIN)/python -m e2e.cluster up
	@$(BIN)/python -m e2e.cluster load-image
endif

cluster-down: $(INSTALLED) ## Remove our own cluster from this machine
	@$(BIN)/python -m e2e.cluster down

binaries: $(INSTALLED) ## Build the cluster's programs into the cache
	@nice -n 19 $(BIN)/python -m e2e.cluster build binaries

servers: $(INSTALLED) ## Build what integration tests run besides into the cache
	@nice -n 19 $(BIN)/python -m e2e.cluster build servers

images: $(INSTALLED) ## Build the container images into the cache
	@nice -n 19 $(BIN)/python -m e2e.cluster build images

# Two packages bring the modules opentelemetry.proto.*, xds-protos older ones: whichever pip writes last counts.
$(INSTALLED): pyproject.toml constraints.txt | packages
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --disable-pip-version-check --quiet --constraint constraints.txt --editable '.[gateway,dev]'
	$(BIN)/pip install --disable-pip-version-check --quiet --constraint constraints.txt --force-reinstall --no-deps \
	  opentelemetry-proto
	@touch $@

packages: ## Install the Debian packages that are missing
	@type dpkg-query >/dev/null 2>&1 || exit 0; missing=; \
	 for package in $(PACKAGES); do \
	   [ "$$(dpkg-query --show --showformat='$${db:Status-Status}' $$package 2>/dev/null)" = installed ] \
	     || missing="$$missing $$package"; \
	 done; \
	 [ -z "$$missing" ] && exit 0; \
	 echo "installing$$missing"; \
	 apt-get update --quiet=2 && \
	 DEBIAN_FRONTEND=noninteractive apt-get install --quiet=2 --yes --no-install-recommends $$missing

bench-rollout: cluster-up ## Canary verdict against the rules of other projects, simulated, and seconds to weight 0 on our own cluster
	$(BIN)/python -m e2e.bench.rollout

bench-batching: $(INSTALLED) ## Throughput of the model server with dynamic batching against none
	$(BIN)/python -m e2e.bench.batching

bench-fleet: servers ## What SERVICES services, 300 if not given, and ROLLOUTS at once, 30, cost the operator
	$(BIN)/python -m e2e.bench.fleet $(or $(SERVICES),300) $(or $(ROLLOUTS),30) $(or $(SHOWN),1000)

conformance: $(INSTALLED) ## The model server's answers beside those of the real Triton, from PyPI: writes the table of differences
	[ -d build/triton ] || $(BIN)/python -m venv build/triton
	build/triton/bin/pip install -q nvidia-pytriton==0.7.0 numpy==1.26.4
	TRITON=$(CURDIR)/build/triton $(BIN)/python -m pytest tests/conformance -q

bench-runtime: $(INSTALLED) ## CPU time of a request to the model server, beside that of the model itself
	$(BIN)/python -m e2e.bench.runtime

bench-models: $(INSTALLED) ## Share of a real model's throughput that the model server keeps at 64 connections, and its liveness
	$(BIN)/python -m e2e.bench.real_models

bench-start: $(INSTALLED) ## From start to ready, and memory at rest, of the model server, MLServer and Triton
	PYTHONPATH=operator:runtime_image $(BIN)/python -m e2e.bench.start

bench-gpu: ## Share of a GPU's throughput that the model server keeps, and its P99; with the python3 that has onnxruntime-gpu
	PYTHONPATH=$(CURDIR):$(CURDIR)/runtime_image $(or $(PYTHON),python3) -m e2e.bench.gpu

bench-shedding: $(INSTALLED) ## Late and refused requests after shocks, with waiting and with shedding, simulated
	$(BIN)/python -m e2e.bench.shedding

bench-autoscale: $(INSTALLED) ## Late requests and replica-hours of scaling, simulated; TRACE=FILE SCALE=X for one of your own
	$(BIN)/python -m e2e.bench.autoscale $(if $(TRACE),--trace "$(TRACE)") $(if $(SCALE),--scale $(SCALE))
