#!/usr/bin/env bash
# Lets unmodified client libraries call a real fleet server, and the provisioning service of a device. Fetches them once,
# into a folder beside what cargo builds.
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

portal=test-harness/portal/clients
wanted=$(sha256sum "$portal/package.json" | cut -c 1-12)
folder=$(realpath -m "${CARGO_TARGET_DIR:-target}/clients/node-$wanted")
command -v npm >/dev/null || { echo "Missing: node and npm" >&2; exit 1; }
mkdir -p "$folder"
cp "$portal"/* "$folder"
if [ ! -e "$folder/ready" ]; then
    npm install --silent --no-audit --no-fund --no-package-lock --prefix "$folder"
    touch "$folder/ready"
fi
"${CARGO:-cargo}" build --quiet --package test-harness --example portal
node "$folder/every_method.mjs" "$(realpath -m "${CARGO_TARGET_DIR:-target}")/debug/examples/portal"
