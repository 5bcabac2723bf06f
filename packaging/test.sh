#!/usr/bin/env bash
# Runs every test and ends with one line that counts them. Expects the programs to be built (`make test` does that).
set -uo pipefail

# End-to-end tests mostly wait for real processes: more of them at once than there are processors.
export RUST_TEST_THREADS=${RUST_TEST_THREADS:-$((3 * $(nproc)))}

packaging/needs.sh test
eval "$(packaging/clients.sh --fetch)"

log=$(mktemp)
trap 'rm -f "$log"' EXIT
# Not through a pipe: a process that a failing test left behind would keep it open, and this would never end.
cargo test --workspace --no-fail-fast >"$log" 2>&1 &
tests=$!
tail --pid="$tests" -n +1 -f "$log" | grep --line-buffered -v -E '^(test .* ok|running 0 tests|)$'
wait "$tests"
status=$?

# A test that finds no means to run says `SKIPPED why` and returns: counted as skipped, not as passed.
awk -v status="$status" '
    # A binary of which nothing can run: nothing of it was counted as passed.
    /ALL SKIPPED / { skipped++; next }
    /^test result:/ { passed += $4; failed += $6; skipped += $8 }
    /SKIPPED / { passed--; skipped++ }
    /^error: could not compile/ { broken = 1 }
    END {
        if (status != 0 && failed == 0) failed = 1   # what did not compile or crashed counts as a failure
        printf "%d passed, %d failed, %d skipped\n", passed, failed, skipped
        exit (failed > 0 || broken || passed == 0)
    }' "$log"
