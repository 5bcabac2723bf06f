#!/usr/bin/env bash
# Makes sure that what a build needs is there, and with the word `lab` what the virtual boards need too; installs it as root with apt, otherwise prints the command that does.
set -euo pipefail

missing=()
command -v cc >/dev/null || missing+=(gcc libc6-dev)
command -v make >/dev/null || missing+=(make)
if [ "${1:-}" = lab ]; then
    command -v systemd-nspawn >/dev/null || missing+=(systemd-container)
    command -v mmdebstrap >/dev/null || missing+=(mmdebstrap)
    command -v ip >/dev/null || missing+=(iproute2)
    command -v openssl >/dev/null || missing+=(openssl)
    # For the boards with radios.
    command -v qemu-system-x86_64 >/dev/null || missing+=(qemu-system-x86)
    command -v busybox >/dev/null || missing+=(busybox-static)
    command -v cpio >/dev/null || missing+=(cpio)
    command -v mke2fs >/dev/null || missing+=(e2fsprogs)
    python3 -m pip --version >/dev/null 2>&1 || missing+=(python3 python3-pip)
fi
if [ ${#missing[@]} -gt 0 ]; then
    if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
        apt-get update -qq
        DEBIAN_FRONTEND=noninteractive apt-get install -qq -y --no-install-recommends "${missing[@]}" >/dev/null
    else
        echo "Missing: ${missing[*]}. Install them, on Debian or Ubuntu with:" >&2
        echo "    sudo apt-get install ${missing[*]}" >&2
        exit 1
    fi
fi
if ! command -v cargo >/dev/null; then
    echo "Missing: the Rust toolchain, 1.95 or newer. See https://rustup.rs, or your distribution's packages." >&2
    exit 1
fi
