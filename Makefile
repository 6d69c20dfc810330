# What a person or CI does here. `make help` lists it; CI runs `make check` and `make test`, nothing else.
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
MAKEFLAGS += --no-print-directory

STEP := tools/step
CARGO_DENY = $$(tools/cargo-tool cargo-deny 0.20.2)
MDBOOK = $$(tools/cargo-tool mdbook 0.5.4 --no-default-features --features search)
CARGO_FUZZ = $$(tools/cargo-tool cargo-fuzz 0.13.2)
# Starts a control plane, or a node, once for a whole run.
TESTBED := cargo run --quiet -p oooi-testkit --bin testbed --
# Tests that wait more than they work.
SIDE_BY_SIDE := tools/tests/side_by_side.py --at-once 3
PYTHON_TESTS := python3 -B -m unittest discover --quiet --start-directory
# DHCP's parser hears every station of the VLAN: it gets half of the two minutes. The longest wins.
FUZZ_SECONDS ?= 6
FUZZ_SECONDS_dhcp_message ?= 60

##@ Use

.PHONY: run
run: ## the lab: an isolated VLAN in network namespaces, and nodes that boot through it
	@echo "building oooi (a few minutes the first time) …"
	@cargo build -p oooi
	target/debug/oooi lab

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

.PHONY: reference
reference: ## write the reference of kinds, commands and metrics into docs/reference
	cargo run --quiet -p oooi -- reference --output-dir docs/reference

.PHONY: docs
docs: ## the documentation as a book: target/book/index.html; a dead link is an error
	tools/book/links.py
	tools/book/mentions.py
	$(MDBOOK) build docs

# Where it is built, and what becomes of it.
IMAGE_TARGET := $(CURDIR)/target
IMAGE := dist/oooi-amd64.tar

.PHONY: image
image: ## build the image, static and from scratch: dist/oooi-amd64.tar
	$(STEP) "release binary (static, musl)" deploy/image/build amd64 $(IMAGE_TARGET)
	$(STEP) "image" deploy/image/pack $(IMAGE_TARGET)/x86_64-unknown-linux-musl/release/oooi $(IMAGE)

##@ Deploy

# The operator's image, that of Envoy where it is another than usual, what renders and applies, and what is applied:
# default, ha or openshift.
IMG ?= localhost/oooi:dev
KUBECTL ?= kubectl
OVERLAY ?= default
MANIFESTS = deploy/manifests $(OVERLAY) "$(IMG)" "$(ENVOY_IMAGE)" $(KUBECTL)

.PHONY: install
install: ## the definitions, into the cluster of the kubeconfig
	@deploy/supported $(KUBECTL)
	$(KUBECTL) apply --server-side -f deploy/crds

.PHONY: uninstall
uninstall: ## the definitions go, last of all: what of their kinds is left goes only while an operator runs
	$(KUBECTL) delete --ignore-not-found -f deploy/crds

.PHONY: deploy
deploy: install ## the definitions and the operator; IMG=… its image, ENVOY_IMAGE=…, OVERLAY=ha or openshift
	$(MANIFESTS) | $(KUBECTL) apply --server-side -f -

.PHONY: undeploy
undeploy: ## the operator goes; delete Infras and EgressIPAMs before, see docs/operations.md
	$(MANIFESTS) | $(KUBECTL) delete --ignore-not-found -f -

##@ Release

# Architectures of an archive or a release.
ARCHS ?= amd64 arm64 ppc64le s390x

.PHONY: image-archive
image-archive: ## one archive of the image for import without a registry: dist/oooi-image.tar; ARCHS="amd64 arm64"
	@testbed/packages $(if $(filter-out amd64,$(ARCHS)),cross,build)
	for arch in $(ARCHS); do \
	  binary="$$(deploy/image/build $$arch)"; \
	  deploy/image/pack "$$binary" dist/images/oooi-$$arch.tar $$arch "$(IMG)"; \
	done
	SOURCE_DATE_EPOCH="$$(deploy/image/epoch)" python3 -B deploy/image/join.py --output dist/oooi-image.tar $(ARCHS:%=dist/images/oooi-%.tar)

.PHONY: bundle
bundle: testbed ## the bundle for OLM: dist/bundle; IMG and ENVOY_IMAGE by digest
	@testbed/packages deploy
	deploy/olm/generate --kubectl "$$(testbed/build --where)/bin/kubectl" --output dist/bundle \
	  --image "$(IMG)" --envoy-image "$(ENVOY_IMAGE)"

.PHONY: release
release: testbed ## archives, image, chart, bundle, definitions, bill of materials and checksums: dist/release; ARCHS=amd64
	@testbed/packages deploy $(if $(filter-out amd64,$(ARCHS)),cross)
	deploy/release $(ARCHS)

##@ Test

.PHONY: test
test: ## unit, cluster, net and node tests and a little fuzzing, in turn; as root on Debian it installs the packages that it needs
	$(STEP) "room on the disk" tools/room.py
	$(STEP) "packages" testbed/packages build deploy node clients fuzz
	$(STEP) "testbed" testbed/build
	$(STEP) "build the tests" cargo test --workspace --test '*' --lib --bins --no-run
	$(MAKE) test-unit test-deploy test-cluster test-net test-node fuzz

.PHONY: test-unit
test-unit: ## what needs neither root nor a cluster, in under a minute
	$(STEP) "unit tests" cargo test --quiet --workspace
	$(STEP) "unit tests of the testbed" $(PYTHON_TESTS) testbed
	$(STEP) "unit tests of the tools" $(PYTHON_TESTS) tools/tests
	$(STEP) "unit tests of the image" $(PYTHON_TESTS) deploy/image
	$(STEP) "unit tests of the book" $(PYTHON_TESTS) tools/book
	$(STEP) "unit tests of the benchmarks" $(PYTHON_TESTS) bench
	$(STEP) "shell blocks of the documentation" tools/book/blocks.py

.PHONY: test-deploy
test-deploy: testbed ## chart, overlays, bundle, alerts and dashboard: compared, checked, installed on a real API server, held to a live scrape
	@testbed/packages deploy
	@# Its metrics are what the dashboard and the alerts ask for.
	cargo build --quiet -p oooi
	$(STEP) "chart, bundle and alerts" /usr/bin/python3 -B -m unittest discover --quiet --start-directory deploy/tests
	$(STEP) "installation and scrape" $(TESTBED) run -- /usr/bin/python3 -B -m unittest discover --quiet --start-directory deploy/tests \
	  --pattern 'cluster_*.py'

.PHONY: test-cluster
test-cluster: testbed ## against a real API server and controller manager (no root)
	@# Nodes, EgressIPAMs, the resolvers of OpenShift and webhooks belong to no namespace: two tests of them at once
	@# would see each other's.
	$(STEP) "cluster tests" $(TESTBED) run -- $(SIDE_BY_SIDE) --in-turn 'egress|status' \
	  --in-turn 'operator/cluster_(rights|serving|hosted_cluster|drift)' cargo test --quiet --workspace --test 'cluster*'
	$(STEP) "shell blocks that need a cluster" env PATH="$$(testbed/build --where)/bin:$$PATH" $(TESTBED) run -- tools/book/blocks.py --have cluster

.PHONY: test-net
test-net: testbed ## the servers against real clients, peers and Envoy, in network namespaces (root)
	@testbed/packages clients
	@# The servers that these tests start and kill are examples of their crates.
	cargo build --quiet -p oooi-dhcp -p oooi-dns --examples
	@# Some of these work hard: a third one at once would starve clients that have their own deadlines.
	$(STEP) "network tests" env OOOI_ENVOY="$$(testbed/build --where)/bin/envoy" \
	  $(SIDE_BY_SIDE:3=2) cargo test --quiet --workspace --test 'net*'

# To optimise and link as for a release takes a quarter of an hour on two cores, and changes nothing that these tests
# look at.
test-node e2e: export CARGO_PROFILE_RELEASE_LTO := off
test-node e2e: export CARGO_PROFILE_RELEASE_OPT_LEVEL := 1
test-node e2e: export CARGO_PROFILE_RELEASE_CODEGEN_UNITS := 16
# What breaks includes the wall clock. An image with such a part is not for people: it has a place of its own.
test-node e2e: IMAGE_TARGET := $(CURDIR)/target/with-clock
test-node e2e: IMAGE := dist/test/oooi-amd64.tar
test-node e2e: export LINK_WITH := $(CURDIR)/testbed/wall_clock.c

.PHONY: test-node
test-node: testbed image ## on a real node: kubelet, containerd, Multus, kube-proxy, kube-router (root)
	@testbed/packages node clients
	$(STEP) "node tests" $(TESTBED) run --node -- cargo test --quiet --workspace --test 'node*'

# By default nginx ends a silent relay after ten minutes, and Envoy after an hour: 3660 outlasts it, and all the rest of
# `make e2e`.
QUIET_SECONDS ?= 660
QUIET_TEST := upgraded_connections_and_watches_outlive_a_long_silence
QUIET := env OOOI_QUIET_SECONDS="$(QUIET_SECONDS)" OOOI_ENVOY="$$(testbed/build --where)/bin/envoy"
QUIET_NATIVE := cargo test --quiet -p oooi-proxy --test net_native
QUIET_ENVOY := cargo test --quiet -p oooi-xds --test net_envoy
END_TO_END := cargo test --quiet -p oooi-e2e --test node_join --test faults

.PHONY: e2e
e2e: testbed image ## the end-to-end part alone; writes what was lost by each fault to docs/reliability.md; QUIET_SECONDS=3660 for a longer silence (root)
	@testbed/packages node clients
	$(STEP) "build the tests" sh -c '$(END_TO_END) --no-run && $(QUIET_NATIVE) --no-run && $(QUIET_ENVOY) --no-run'
	@# The silence is waited for beside the rest: it takes no time of its own, and no CPU.
	@# Groups of their own: what runs in the background does not hear an interrupt.
	@set -m; \
	$(STEP) "silence of $(QUIET_SECONDS) s, built-in engine" $(QUIET) $(QUIET_NATIVE) $(QUIET_TEST) & native=$$!; \
	$(STEP) "silence of $(QUIET_SECONDS) s, Envoy" $(QUIET) $(QUIET_ENVOY) $(QUIET_TEST) & envoy=$$!; \
	set +m; failed=0; \
	trap 'kill -- -$$native -$$envoy 2>/dev/null || true' EXIT; trap 'exit 130' INT; trap 'exit 143' TERM; \
	$(STEP) "end to end" $(TESTBED) run --node -- env RELIABILITY="$(CURDIR)/docs/reliability.md" \
	  $(END_TO_END) -- --nocapture || failed=1; \
	wait $$native || failed=1; \
	wait $$envoy || failed=1; \
	exit $$failed

SOAK_SECONDS ?= 600

.PHONY: soak
soak: ## ten minutes of nodes, endpoints and configuration that come and go: nothing grows; SOAK_SECONDS=120 for less (root)
	cargo build --quiet -p oooi
	$(STEP) "soak of $(SOAK_SECONDS) s" env SOAK_SECONDS="$(SOAK_SECONDS)" OOOI="$(CURDIR)/target/debug/oooi" \
	  cargo test --quiet -p oooi-e2e --test soak -- --nocapture

.PHONY: fuzz
fuzz: ## every parser of untrusted bytes, two minutes in all; FUZZ_SECONDS=600 for longer
	@testbed/packages fuzz
	$(STEP) "build the fuzz targets" env RUSTC_BOOTSTRAP=1 $(CARGO_FUZZ) build
	@for target in $$($(CARGO_FUZZ) list); do \
	  seconds=$(FUZZ_SECONDS); \
	  if [ $$target = dhcp_message ] && [ $$seconds -lt $(FUZZ_SECONDS_dhcp_message) ]; then seconds=$(FUZZ_SECONDS_dhcp_message); fi; \
	  $(STEP) "fuzz $$target" env RUSTC_BOOTSTRAP=1 $(CARGO_FUZZ) run $$target -- \
	    -max_total_time=$$seconds -verbosity=0 -print_final_stats=1; \
	done

.PHONY: conformance
conformance: testbed ## hold our types against VENDOR_CRDS=dir, and apply every manifest in SEEDS=dir
	@test -n "$(VENDOR_CRDS)" -a -n "$(SEEDS)" || { echo "usage: make conformance VENDOR_CRDS=dir SEEDS=dir" >&2; exit 2; }
	VENDOR_CRDS="$(abspath $(VENDOR_CRDS))" SEEDS="$(abspath $(SEEDS))" \
	  $(TESTBED) run -- cargo test -p oooi-api --test conformance -- --nocapture

##@ Measure

.PHONY: bench
bench: bench-dhcp bench-dns bench-proxy bench-xds bench-operator bench-egress bench-footprint bench-manager ## side by side with the peers, into docs/performance.md; BENCH=--quick for two minutes each

.PHONY: bench-dhcp
bench-dhcp: ## DHCP: CPU per lease beside Kea, dhcpd, dnsmasq and a bare responder (root)
	@testbed/packages bench
	cargo build --quiet --release -p oooi-dhcp --example serve --example dhcp_floor --example dhcp_load
	bench/dhcp.py $(BENCH)

.PHONY: bench-dns
bench-dns: ## DNS: CPU per query beside knot, unbound, CoreDNS, dnsmasq and a bare echo
	@testbed/packages clients bench
	cd bench/coredns && CGO_ENABLED=0 go build -trimpath -buildvcs=false -ldflags "-s -w" -o ../../target/bench/coredns .
	cargo build --quiet --release -p oooi-dns --example dns_serve --example dns_echo
	bench/dns.py $(BENCH)

.PHONY: bench-proxy
bench-proxy: testbed ## the gateway: CPU per connection, request and gigabyte beside Envoy, HAProxy, nginx, sniproxy and a bare relay
	@testbed/packages bench
	cd bench/load && go build -trimpath -buildvcs=false -o ../../target/bench/load .
	cargo build --quiet --release -p oooi-proxy --example gateway --example relay_floor
	bench/proxy.py --envoy "$$(testbed/build --where)/bin/envoy" $(BENCH)

.PHONY: bench-xds
bench-xds: testbed ## the control plane of Envoy: 10 to 1,000 backends built, pushed and changed, with a real Envoy
	cargo build --quiet --release -p oooi-xds --example xds_scale
	bench/xds.py --envoy "$$(testbed/build --where)/bin/envoy" $(BENCH)

.PHONY: bench-footprint
bench-footprint: testbed image ## memory of all that a hosted cluster needs, beside CoreDNS, Kea or dnsmasq, and Envoy (root)
	@testbed/packages clients bench
	cd bench/coredns && CGO_ENABLED=0 go build -trimpath -buildvcs=false -ldflags "-s -w" -o ../../target/bench/coredns .
	cd bench/load && go build -trimpath -buildvcs=false -o ../../target/bench/load .
	bench/footprint.py --envoy "$$(testbed/build --where)/bin/envoy" $(BENCH)

.PHONY: bench-manager
bench-manager: testbed image ## memory of the manager with 100 Infras, beside the least that one in Go takes
	cd bench/manager && CGO_ENABLED=0 go build -trimpath -buildvcs=false -ldflags "-s -w" -o ../../target/bench/manager .
	$(TESTBED) run -- bench/manager.py --testbed "$$(testbed/build --where)" $(BENCH)

.PHONY: bench-regress
bench-regress: ## instructions of the hot functions beside bench/baseline.json; more than 5 % growth fails; REGRESS=--write
	@testbed/packages bench
	for crate in dhcp dns proxy xds egress; do cargo build --quiet --release -p oooi-$$crate --example hot_$$crate; done
	bench/regress.py $(REGRESS)

.PHONY: bench-operator
bench-operator: testbed ## the operator: 10, 100 and 1,000 Infras on the test control plane, beside a bare client's writes
	cargo build --quiet -p oooi-testkit --bin testbed
	cargo build --quiet --release -p oooi-operator --example many_infras
	bench/operator.py --testbed target/debug/testbed $(BENCH)

.PHONY: bench-egress
bench-egress: testbed ## egress addresses: 500 namespaces, 3 networks and 100 nodes on the test control plane
	cargo build --quiet -p oooi-testkit --bin testbed
	cargo build --quiet --release -p oooi-operator --example many_namespaces
	bench/egress.py --testbed target/debug/testbed $(BENCH)

##@ Check

.PHONY: check
check: ## formatting, lints, licences and sources, generated files, documentation
	$(STEP) "rustfmt" cargo fmt --all --check
	$(STEP) "clippy" cargo clippy --quiet --workspace --all-targets -- -D warnings
	@# Tests that need a cluster or root are not among `--all-targets`.
	$(STEP) "clippy, all tests" cargo clippy --quiet --workspace --test '*' -- -D warnings
	$(STEP) "cargo-deny" $(MAKE) deny
	$(STEP) "generated files" $(MAKE) fresh
	$(STEP) "documentation" $(MAKE) docs

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
	@cargo run --quiet -p oooi -- reference --output-dir target/fresh/reference
	@diff -r docs/reference target/fresh/reference || { echo "docs/reference is not what the code says: run 'make reference'" >&2; exit 1; }

##@ Testbed

.PHONY: testbed
testbed: ## build the real parts (Kubernetes, Multus, Envoy, ...) once into a cache outside the checkout
	@testbed/packages build
	@testbed/build >/dev/null

.PHONY: testbed-up
testbed-up: testbed ## leave a cluster running for a person, and print its kubeconfig
	$(TESTBED) up

.PHONY: testbed-status
testbed-status: ## show that cluster
	$(TESTBED) status

.PHONY: testbed-down
testbed-down: ## end it
	$(TESTBED) down
