#!/usr/bin/env bash
# Makes sure that what a build needs is there; installs it as root with apt, otherwise prints the command that does. With
# the word `lab` what the virtual boards need too; with the word `test` what tests use: the rest runs without it.
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
    { command -v modprobe || [ -x /sbin/modprobe ]; } >/dev/null || missing+=(kmod)
    command -v mke2fs >/dev/null || missing+=(e2fsprogs)
    { command -v nft || [ -x /usr/sbin/nft ]; } >/dev/null || missing+=(nftables)
    python3 -m pip --version >/dev/null 2>&1 || missing+=(python3 python3-pip)
fi
# Each on its own: what one distribution lacks does not keep the others out.
wanted=()
if [ "${1:-}" = test ]; then
    command -v initdb >/dev/null || compgen -G '/usr/lib/postgresql/*/bin/initdb' >/dev/null || wanted+=(postgresql)
    python3 -c 'import ensurepip, venv' >/dev/null 2>&1 || wanted+=(python3-venv)
    command -v npm >/dev/null || wanted+=(npm)
    command -v chromium >/dev/null || command -v chromium-browser >/dev/null || command -v google-chrome >/dev/null || wanted+=(chromium)
    { command -v haproxy || [ -x /usr/sbin/haproxy ]; } >/dev/null || wanted+=(haproxy)
    # That completions and man pages are what these programs take them for.
    for shell in bash zsh fish; do
        command -v "$shell" >/dev/null || wanted+=("$shell")
    done
    command -v groff >/dev/null || wanted+=(groff-base)
fi
if [ $((${#missing[@]} + ${#wanted[@]})) -gt 0 ]; then
    if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
        install() { DEBIAN_FRONTEND=noninteractive apt-get install -qq -y --no-install-recommends "$@" >/dev/null; }
        # A mirror that changes meanwhile, or a network that stutters, has a second chance.
        for _ in first second; do
            apt-get update -qq || true
            if [ ${#missing[@]} = 0 ] || install "${missing[@]}"; then missing=(); fi
            refused=()
            for package in "${wanted[@]}"; do
                install "$package" || refused+=("$package")
            done
            wanted=("${refused[@]}")
            [ $((${#missing[@]} + ${#wanted[@]})) -gt 0 ] || break
        done
        for package in "${wanted[@]}"; do
            echo "Not to be had: $package. The tests that use it are skipped." >&2
        done
        [ ${#missing[@]} = 0 ] || exit 1
    else
        echo "Missing: ${missing[*]} ${wanted[*]}. Install them, on Debian or Ubuntu with:" >&2
        echo "    sudo apt-get install ${missing[*]} ${wanted[*]}" >&2
        [ ${#missing[@]} = 0 ] || exit 1
    fi
fi
if ! command -v cargo >/dev/null; then
    echo "Missing: the Rust toolchain, 1.95 or newer. See https://rustup.rs, or your distribution's packages." >&2
    exit 1
fi
