#!/usr/bin/env bash
# Measures the shipped programs and appends the table to docs/benchmarks.md. Expects `make build`.
set -euo pipefail
target=${CARGO_TARGET_DIR:-target}
cargo build --quiet --release --package limits --bins
cargo build --quiet --release --package test-harness --bin stand-in-server --example portal
exec "$target/release/bench" --agent "$target/device/platform-agent" --record docs/benchmarks.md "$@"
