#!/usr/bin/env bash
# Makes the virtual board's root folder from Debian packages, once, and prints where it is.
#
# Needs root, mmdebstrap and a Debian mirror (the machine's own, or MIRROR). Cached outside the tree under a name that
# is a hash of everything that goes into it; LAB_CACHE moves the cache.
set -euo pipefail

suite=${SUITE:-bookworm}
# What a small product image has, and what the agent's installer asks for. No kernel: the boards are containers.
packages=systemd,systemd-sysv,dbus,udev,kmod,libpam-systemd,ca-certificates,curl,openssl,iproute2,procps

cache=${LAB_CACHE:-${XDG_CACHE_HOME:-${HOME:-/root}/.cache}/platform-lab}
key=$(printf '%s\n' "$suite" "$packages" "$(cat "$0")" | sha256sum | cut -c1-16)
root=$cache/board-$key
if [ -e "$root/.complete" ]; then
    echo "$root"
    exit 0
fi

# The machine's own mirror, as its package manager knows it.
mirror=${MIRROR:-$(apt-get indextargets --format '$(SITE)' 'Created-By: Packages' 'Origin: Debian' 'Label: Debian' | head -1)}
mirror=${mirror:-http://deb.debian.org/debian}
echo "making the board's image from $mirror; this happens once and takes about two minutes" >&2
mkdir -p "$cache"
# Only one at a time; whoever waited finds it made.
exec 9>"$cache/lock"
flock 9
if [ ! -e "$root/.complete" ]; then
    rm -rf "$root.new"
    mmdebstrap --quiet --mode=root --variant=minbase --include="$packages" \
        --dpkgopt='path-exclude=/usr/share/man/*' \
        --dpkgopt='path-exclude=/usr/share/doc/*' \
        --dpkgopt='path-exclude=/usr/share/locale/*' \
        --aptopt='Apt::Install-Recommends "false"' \
        "$suite" "$root.new" \
        "deb $mirror $suite main" "deb $mirror $suite-updates main" "deb $mirror-security $suite-security main" >&2
    echo board >"$root.new/etc/hostname"
    echo '127.0.0.1 localhost board' >"$root.new/etc/hosts"
    rm -f "$root.new/etc/resolv.conf"
    # Each boot is a machine of its own.
    : >"$root.new/etc/machine-id"
    for unit in apt-daily.timer apt-daily-upgrade.timer dpkg-db-backup.timer e2scrub_all.timer fstrim.timer \
        systemd-pstore.service modprobe@drm.service systemd-networkd-wait-online.service; do
        ln -sf /dev/null "$root.new/etc/systemd/system/$unit"
    done
    rm -rf "$root.new/var/cache/apt/archives/"*.deb "$root.new/var/lib/apt/lists/"*
    touch "$root.new/.complete"
    rm -rf "$root"
    mv "$root.new" "$root"
fi
echo "$root"
