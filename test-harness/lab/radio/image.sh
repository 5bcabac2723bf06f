#!/usr/bin/env bash
# Makes what a virtual board with radios is started from, once, and prints the folder: kernel, initramfs, disk, and the
# Bluetooth library that the phone on this side is written with.
#
# A board with radios is a whole machine (qemu, without KVM), because radios need a kernel that has them. Its disk is the
# image of the containers (`../image.sh`) with a kernel and the network's programs added. Cached beside it, in the same way.
set -euo pipefail
here=$(dirname "$(realpath "$0")")
base=$("$here/../image.sh")

# What a product image with radios has: the agent's counterparts on the bus.
packages="network-manager wpasupplicant dnsmasq-base bluez iw rfkill wireless-regdb iputils-ping nftables polkitd python3 busybox"
# What only the lab needs: the access points of other people, and what speaks to a Bluetooth controller at a serial line.
packages="$packages hostapd python3-dbus python3-gi"
bumble=bumble==0.0.236
# Improv's public client, for a board with a second Bluetooth adapter.
improv="py-improv-ble-client==2.0.1 bleak==3.1.0 bleak-retry-connector==4.7.1"

cache=${LAB_CACHE:-${XDG_CACHE_HOME:-${HOME:-/root}/.cache}/platform-lab}
python=$(python3 --version)
key=$(printf '%s\n' "$base" "$packages" "$bumble" "$improv" "$python" "$(cat "$0" "$here/initramfs.sh" "$here"/guest/*)" | sha256sum | cut -c1-16)
image=$cache/radio-$key
if [ -e "$image/.complete" ]; then
    echo "$image"
    exit 0
fi

mirror=${MIRROR:-$(apt-get indextargets --format '$(SITE)' 'Created-By: Packages' 'Origin: Debian' 'Label: Debian' | head -1)}
mirror=${mirror:-http://deb.debian.org/debian}
suite=${SUITE:-bookworm}

# Only one at a time; whoever waited finds it made.
exec 9>"$cache/radio.lock"
flock 9
if [ -e "$image/.complete" ]; then
    echo "$image"
    exit 0
fi
echo "making the image of the boards with radios; this happens once and takes about two minutes" >&2
rm -rf "$image.new"
mkdir -p "$image.new"

# The part that takes long is kept for itself: it does not change with the lab's own files.
deep=$cache/radio-root-$(printf '%s\n' "$base" "$packages" "$suite" | sha256sum | cut -c1-16)
if [ ! -e "$deep/.complete" ]; then
    rm -rf "$deep" "$deep.new"
    cp -a "$base" "$deep.new"
    rm "$deep.new/.complete"
    inside() {
        unshare --mount --propagation private -- sh -c \
            'mount -t proc none "$0/proc"; mount --rbind /dev "$0/dev"; mount --bind /etc/resolv.conf "$0/etc/resolv.conf"; exec chroot "$0" "$@"' \
            "$deep.new" /usr/bin/env -i DEBIAN_FRONTEND=noninteractive LANG=C.UTF-8 PATH=/usr/sbin:/usr/bin:/sbin:/bin "$@" >&2
    }
    : >"$deep.new/etc/resolv.conf"
    # Nothing starts while it is installed.
    printf '#!/bin/sh\nexit 101\n' >"$deep.new/usr/sbin/policy-rc.d"
    chmod +x "$deep.new/usr/sbin/policy-rc.d"
    inside apt-get update -qq
    # shellcheck disable=SC2086
    inside apt-get install -qq -y --no-install-recommends $packages
    # The kernel without what would make an initramfs for it: ours is a hundredth of that.
    inside sh -c 'cd /root && apt-get download -qq -o APT::Sandbox::User=root "$(apt-cache depends linux-image-amd64 | sed -n "s/.*Depends: //p" | head -1)"'
    # Unpacked beside: its /lib is a folder, the image's a link.
    mkdir "$deep.new/kernel"
    dpkg-deb -x "$deep.new"/root/linux-image-*.deb "$deep.new/kernel"
    mv "$deep.new/kernel/lib/modules" "$deep.new/usr/lib/modules"
    mv "$deep.new"/kernel/boot/vmlinuz-* "$deep.new/boot/"
    rm -r "$deep.new/kernel" "$deep.new"/root/linux-image-*.deb
    rm -f "$deep.new/usr/sbin/policy-rc.d"
    rm -rf "$deep.new/var/cache/apt/"*.bin "$deep.new/var/cache/apt/archives/"*.deb "$deep.new/var/lib/apt/lists/"* "$deep.new/usr/share/doc" "$deep.new/usr/share/man"
    version=$(ls "$deep.new/lib/modules")
    # What such a board has no use for is two thirds of the modules.
    (cd "$deep.new/lib/modules/$version/kernel" && rm -rf sound drivers/gpu drivers/media drivers/infiniband drivers/scsi drivers/staging \
        drivers/iio drivers/net/ethernet drivers/isdn drivers/hid drivers/ata drivers/md drivers/mtd fs/xfs fs/btrfs fs/ocfs2 fs/gfs2)
    inside depmod "$version"
    touch "$deep.new/.complete"
    mv "$deep.new" "$deep"
fi

library=$cache/radio-python-$(printf '%s\n' "$bumble" "$python" | sha256sum | cut -c1-16)
if [ ! -e "$library" ]; then
    rm -rf "$library.new"
    python3 -m pip install --quiet --disable-pip-version-check --root-user-action ignore --target "$library.new" "$bumble" >&2
    mv "$library.new" "$library"
fi

client=$cache/radio-improv-$(printf '%s\n' "$improv" "$suite" | sha256sum | cut -c1-16)
if [ ! -e "$client" ]; then
    rm -rf "$client.new"
    # For the board's Python, not for the one here.
    theirs=$(basename "$(ls -d "$deep"/usr/lib/python3.[0-9]* | head -1)" | sed 's/python//')
    # shellcheck disable=SC2086
    python3 -m pip install --quiet --disable-pip-version-check --root-user-action ignore --target "$client.new" --only-binary=:all: \
        --implementation cp --python-version "$theirs" --platform manylinux2014_x86_64 --platform manylinux_2_28_x86_64 $improv >&2
    mv "$client.new" "$client"
fi

root=$image.new/root
cp -a "$deep" "$root"
rm "$root/.complete"
mkdir -p "$root/usr/local/lib/lab"
cp -a "$client" "$root/usr/local/lib/lab/improv"
version=$(ls "$root/lib/modules")
install -D -m 755 -t "$root/usr/local/lib/lab" "$here"/guest/*
cat >"$root/etc/systemd/system/lab-agent.service" <<'UNIT'
[Unit]
Description=The lab's way in
Before=NetworkManager.service
[Service]
ExecStartPre=/usr/local/lib/lab/lab-way
ExecStart=/usr/local/lib/lab/lab-way /usr/local/lib/lab/lab-agent.py
Restart=always
RestartSec=1
OOMScoreAdjust=-900
[Install]
WantedBy=multi-user.target
UNIT
ln -sf ../lab-agent.service "$root/etc/systemd/system/multi-user.target.wants/lab-agent.service"
# Access points are the lab's business, not the board's.
for unit in hostapd.service NetworkManager-wait-online.service serial-getty@ttyS0.service getty@tty1.service; do
    ln -sf /dev/null "$root/etc/systemd/system/$unit"
done
rm -f "$root/etc/resolv.conf"
"$here/initramfs.sh" "$root" "$version" "$image.new/initramfs"
cp "$root/boot/vmlinuz-$version" "$image.new/vmlinuz"
rm -rf "$root/boot/"*
truncate -s 2G "$image.new/disk"
mke2fs -q -t ext4 -d "$root" "$image.new/disk"
rm -rf "$root"
cp -a "$library" "$image.new/python"
touch "$image.new/.complete"
rm -rf "$image"
mv "$image.new" "$image"
echo "$image"
