# What a person or CI does here. `make help` lists it; CI runs `make check` and `make test`, nothing else.
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
MAKEFLAGS += --no-print-directory

STEP := tools/step
CARGO_DENY = $$(tools/cargo-tool cargo-deny 0.20.2)
CARGO_FUZZ = $$(tools/cargo-tool cargo-fuzz 0.13.2)
# The control plane of the cluster tests is started once a run and handed to all of them.
WITH_CLUSTER := cargo run --quiet -p oooi-testkit --bin testbed -- run --
FUZZ_SECONDS ?= 20

##@ Use

.PHONY: help
help: ## list the targets
	@awk 'BEGIN { FS = ":.*## " } \
	  /^##@ / { printf "\n%s\n", substr($$0, 5) } \
	  /^[a-z0-9-]+:.*## / { printf "  %-16s %s\n", $$1, $$2 }' Makefile

.PHONY: build
build: ## build the binary for development: target/debug/oooi
	cargo build -p oooi

.PHONY: crds
crds: ## write the custom resource definitions into deploy/crds
	cargo run --quiet -p oooi -- crds --output-dir deploy/crds

.PHONY: image
image: ## build the image, static and from scratch: dist/oooi-amd64.tar
	$(STEP) "release binary (musl)" cargo build --release --target x86_64-unknown-linux-musl -p oooi
	$(STEP) "image" python3 deploy/image/oci.py oooi target/x86_64-unknown-linux-musl/release/oooi dist/oooi-amd64.tar

##@ Test

.PHONY: test
test: ## everything: unit, cluster, network and node tests (root, for network namespaces)
	$(STEP) "packages" testbed/packages build node clients
	$(STEP) "testbed" testbed/build
	$(STEP) "build the tests" cargo test --workspace --all-targets --no-run
	$(MAKE) test-unit test-cluster test-net test-node

.PHONY: test-unit
test-unit: ## what needs neither root nor a cluster, in under a minute
	$(STEP) "unit tests" cargo test --workspace
	$(STEP) "image tests" python3 -m unittest discover --quiet --start-directory deploy/image

.PHONY: test-cluster
test-cluster: testbed ## against a real API server and controller manager (no root)
	$(STEP) "cluster tests" $(WITH_CLUSTER) cargo test --workspace --test 'cluster*'

.PHONY: test-net
test-net: ## the servers against real clients in network namespaces (root)
	testbed/packages clients
	$(STEP) "network tests" cargo test --workspace --test 'net*'

.PHONY: test-node
test-node: testbed image ## on a real node: kubelet, containerd, Multus, kube-router (root)
	testbed/packages node
	$(STEP) "node tests" cargo test --workspace --test 'node*' -- --test-threads 1

.PHONY: conformance
conformance: testbed ## hold our types against VENDOR_CRDS=dir, and apply every manifest in SEEDS=dir
	@test -n "$(VENDOR_CRDS)" -a -n "$(SEEDS)" || { echo "usage: make conformance VENDOR_CRDS=dir SEEDS=dir" >&2; exit 2; }
	VENDOR_CRDS="$(abspath $(VENDOR_CRDS))" SEEDS="$(abspath $(SEEDS))" \
	  $(WITH_CLUSTER) cargo test -p oooi-api --test conformance -- --nocapture

##@ Check

.PHONY: check
check: ## formatting, lints, licences and sources, generated files
	$(STEP) "rustfmt" cargo fmt --all --check
	$(STEP) "clippy" cargo clippy --workspace --all-targets --quiet -- -D warnings
	$(STEP) "cargo-deny" $(MAKE) deny
	$(STEP) "generated files" $(MAKE) fresh

.PHONY: deny
deny:
	$(CARGO_DENY) --log-level error check bans licenses sources
	@# The advisory database lives outside the package registries: a site that cannot reach it is told so.
	@if $(CARGO_DENY) --log-level off fetch db >/dev/null 2>&1; then $(CARGO_DENY) --log-level error check advisories; \
	else echo "advisories were NOT checked: their database cannot be reached from here"; fi

.PHONY: fresh
fresh:
	@rm -rf target/fresh && cargo run --quiet -p oooi -- crds --output-dir target/fresh/crds
	@diff -r deploy/crds target/fresh/crds || { echo "deploy/crds is not what the types say: run 'make crds'" >&2; exit 1; }

##@ Testbed

.PHONY: testbed
testbed: ## build the real parts (Kubernetes, Multus, Envoy, ...) once into a cache outside the checkout
	@testbed/packages build
	@testbed/build >/dev/null

.PHONY: testbed-up
testbed-up: testbed ## leave a cluster running for a person, and print its kubeconfig
	cargo run --quiet -p oooi-testkit --bin testbed -- up

.PHONY: testbed-status
testbed-status: ## show that cluster
	cargo run --quiet -p oooi-testkit --bin testbed -- status

.PHONY: testbed-down
testbed-down: ## end it
	cargo run --quiet -p oooi-testkit --bin testbed -- down
