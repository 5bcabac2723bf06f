# Every command that a person or a machine runs on this tree.
#
#   make sandbox   the main job on this machine: fleet server, agent, machine server (ARGS="--help" for more)
#   make test      every test that needs no root; fetches PostgreSQL, client libraries and a browser once, or skips what uses them
#   make clients   existing client libraries, unmodified, call every operation of a real server and of a device's hotspot
#   make portal    the page behind the hotspot on this machine, with a device that is only played (ARGS="--leaves")
#   make look      the same in a real browser of a phone's size: what a person can do, pictures in target/portal
#   make check     formatting, lints, licences and bans
#   make bench     speed and memory, as ratios to limits measured in the same run; appended to docs/benchmarks.md
#   make swarm     10,000 simulated days of devices with faults, a million random configurations, a minute of nonsense for the
#                  doors (ARGS="--days 100"; ARGS=--fuzz is an hour of nothing but nonsense)
#   make lab       the agent as an installed service, on virtual boards that boot systemd; needs root (ARGS="update", "--radio")
#   make kills     500 kills of a real agent and its launcher in the middle of real updates (KILLS=50)
#   make build     the programs as they are shipped, into target/

SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
CARGO ?= cargo
ARGS ?=
KILLS ?= 500

.PHONY: help sandbox test lab check fmt clippy deny bench swarm build programs needs docs kills clients portal look

help:
	@sed -n 's/^#   //p' $(MAKEFILE_LIST)

# What a plain build needs beside cargo: a C compiler and a linker, for SQLite and for the cryptography.
needs:
	@packaging/needs.sh

# The agent is built alone, so that it links nothing that only the server or the tools want.
programs: needs
	@$(CARGO) build --quiet --package platform-agent
	@$(CARGO) build --quiet --package fleet --package platform-cli --package test-harness --bins

sandbox: programs
	@"$${CARGO_TARGET_DIR:-target}/debug/sandbox" $(ARGS)

test: programs
	packaging/test.sh

# Without root it says so and skips. ARGS=--kernel makes the user-mode kernel on which boards with radios are several times as fast.
lab:
	@[ "$$(id -u)" != 0 ] || packaging/needs.sh lab
	@[ "$$(id -u)" != 0 ] || $(MAKE) --no-print-directory programs
	@[ "$$(id -u)" != 0 ] || $(CARGO) build --quiet --package platform-agent --profile device
	@LAB_PROGRAMS="$${CARGO_TARGET_DIR:-target}/device" test-harness/lab/run.sh "$${CARGO_TARGET_DIR:-target}/debug/lab" $(ARGS)

# The libraries stay in a folder of their own beside what cargo builds, under the digest of what is wanted of them.
clients: needs
	@packaging/clients.sh

portal: needs
	@$(CARGO) run --quiet --package test-harness --example portal -- $(ARGS)

# Needs node and a Chromium (CHROMIUM names another one).
look: needs
	@$(CARGO) build --quiet --package test-harness --example portal
	@node test-harness/portal/look.mjs "$${CARGO_TARGET_DIR:-target}/debug/examples/portal" "$${CARGO_TARGET_DIR:-target}/portal"

check: fmt clippy deny

fmt:
	$(CARGO) fmt --all --check

clippy: needs
	$(CARGO) clippy --workspace --all-targets --quiet -- -D warnings

deny:
	@command -v cargo-deny >/dev/null || { echo 'cargo-deny is missing: cargo install cargo-deny --locked' >&2; exit 1; }
	$(CARGO) deny check bans licenses sources
	$(CARGO) deny --workspace check bans licenses sources

build: needs
	$(CARGO) build --package platform-agent --profile device
	$(CARGO) build --package fleet --package platform-cli --release

bench: build
	packaging/bench.sh $(ARGS)

swarm: needs
	$(CARGO) run --quiet --release --package test-harness --bin swarm -- $(ARGS)
	@echo 'Bugs on purpose, which it has to find:'
	@$(CARGO) run --quiet --release --package test-harness --features planted-bugs --bin swarm 2>/dev/null

# Real processes, real files: hundreds of kills in the middle of updates.
kills: needs programs
	$(CARGO) run --quiet --package test-harness --bin kills -- --count $(KILLS)

# The pages that are written from tables in the source.
docs:
	UPDATE_DOCS=1 $(CARGO) test --quiet --workspace -- generated
