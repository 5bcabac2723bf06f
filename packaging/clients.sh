#!/usr/bin/env bash
# Lets unmodified client libraries call a real fleet server, and the provisioning service of a device. Fetches them once,
# into a folder beside what cargo builds, under the digest of what is wanted of them.
#
#   clients.sh --fetch      only fetches, and prints the variables that name what is there now; says what could not be had
set -euo pipefail

cache=$(realpath -m "${CARGO_TARGET_DIR:-target}/clients")

# The folder of a list of libraries, made by the rest of the command if it is not there. A partly made one is not kept.
library() {
    local list=$1 kind=$2 folder
    folder="$cache/$kind-$(cat "$list" "${@:3}" | sha256sum | cut -c 1-12)"
    if [ ! -e "$folder/ready" ]; then
        rm -rf "$folder"
        mkdir -p "$folder"
        if ! "$kind" "$folder" "$list" "${@:3}" >&2; then
            rm -rf "$folder"
            echo "clients.sh: cannot fetch what $list wants" >&2
            return 1
        fi
        touch "$folder/ready"
    fi
    echo "$folder"
}

# What these want themselves is what these tests have passed with. Where this kind of machine or this Python has no such
# files, it is as new as they allow.
python() {
    python3 -m venv "$1" || return
    local pip=("$1/bin/pip" install --quiet --disable-pip-version-check --timeout 15 --retries 2 --requirement "$2")
    "${pip[@]}" --constraint "$3" --only-binary :all: || "${pip[@]}"
}

# What is locked, with its digests, and nothing of it is run while it is installed.
node() {
    cp "${2%-lock.json}.json" "$2" "$1/" &&
        npm ci --silent --no-audit --no-fund --ignore-scripts --fetch-retries=1 --fetch-timeout=60000 --prefix "$1"
}

if folder=$(library fleet/tests/clients/python/requirements.txt python fleet/tests/clients/python/constraints.txt); then
    export CLIENT_PYTHON="$folder/bin/python"
fi
if folder=$(library fleet/tests/clients/typescript/package-lock.json node); then
    export CLIENT_NODE="$folder"
fi
CLIENT_BROWSER=$(command -v chromium || command -v chromium-browser || command -v google-chrome) || CLIENT_BROWSER=
export CLIENT_BROWSER

if [ "${1:-}" = --fetch ]; then
    declare -p CLIENT_PYTHON CLIENT_NODE CLIENT_BROWSER 2>/dev/null || true
    exit
fi

"${CARGO:-cargo}" test --quiet --package fleet --test clients

portal=test-harness/portal/clients
folder=$(library "$portal/package-lock.json" node)
cp "$portal"/*.mjs "$folder"
"${CARGO:-cargo}" build --quiet --package test-harness --example portal
command node "$folder/every_method.mjs" "$(realpath -m "${CARGO_TARGET_DIR:-target}")/debug/examples/portal"
