#!/usr/bin/env bash
# Lets unmodified client libraries call a real fleet server. Fetches them once, into a folder beside what cargo builds.
set -euo pipefail

tests=fleet/tests/clients
wanted=$(sha256sum "$tests/requirements.txt" | cut -c 1-12)
folder=$(realpath -m "${CARGO_TARGET_DIR:-target}/clients/python-$wanted")
if [ ! -e "$folder/ready" ]; then
    command -v python3 >/dev/null || { echo "Missing: python3, with its venv module" >&2; exit 1; }
    rm -rf "$folder"
    python3 -m venv "$folder"
    "$folder/bin/pip" install --quiet --disable-pip-version-check --requirement "$tests/requirements.txt"
    touch "$folder/ready"
fi
CLIENT_PYTHON="$folder/bin/python" "${CARGO:-cargo}" test --quiet --package fleet --test clients -- --ignored
