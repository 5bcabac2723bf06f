#!/usr/bin/env bash
# Boards with radios by hand: `test-harness/lab/radio.sh` alone prints what it can do.
set -euo pipefail
here=$(dirname "$(realpath "$0")")
program=${CARGO_TARGET_DIR:-$here/../../target}/debug/radio
[ -e "$program" ] || { echo "not built yet: cargo build -p test-harness --bin radio" >&2; exit 1; }
image=$("$here/radio/image.sh")
kernel=$("$here/radio/kernel.sh" --cached) || kernel=
[ "${LAB_MACHINE:-}" != qemu ] || kernel=
exec "$program" --image "$image" ${kernel:+--user-mode-kernel "$kernel"} "$@"
