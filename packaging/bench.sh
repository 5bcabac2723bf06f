#!/usr/bin/env bash
# Measures the shipped programs and appends the table to docs/benchmarks.md. Expects `make build`.
set -euo pipefail
cargo build --quiet --release --package limits --package test-harness --bins
exec target/release/bench --agent target/device/platform-agent --record docs/benchmarks.md "$@"
