#!/usr/bin/env bash
# Makes what a board with an arm64 processor and radios is started from, once, and prints the folder. Nothing of it is run while it
# is made: the packages are unpacked, and what their scripts would have written is taken from the image of this machine's kind.
#
# Beside what ../run.sh needs: modprobe and depmod (kmod), qemu-system-aarch64, rsync. Cached as the others are.
set -euo pipefail
PATH=$PATH:/usr/sbin:/sbin
here=$(dirname "$(realpath "$0")")
base=$("$here/image.sh")
suite=${SUITE:-bookworm}
cache=${LAB_CACHE:-${XDG_CACHE_HOME:-${HOME:-/root}/.cache}/platform-lab}
packages=$(sed -n 's/^packages=\([^$]*\)$/\1/p' "$here/../image.sh")
more=$(sed -n 's/^packages="\(\$packages \)\?\([^$]*\)"$/\2/p' "$here/image.sh" | tr '\n' ' ')
packages="${packages//,/ } $more polkitd apt login passwd util-linux mount bash coreutils dash sed grep gzip tar findutils hostname mawk base-files base-passwd debianutils ncurses-base bsdutils sysvinit-utils libpam-runtime init-system-helpers perl-base"
key=$(printf '%s\n' "$base" "$packages" "$(cat "$0" "$here/initramfs.sh" "$here"/guest/*)" | sha256sum | cut -c1-16)
image=$cache/radio-arm64-$key
if [ -e "$image/.complete" ]; then
    echo "$image"
    exit 0
fi
mirror=${MIRROR:-$(apt-get indextargets --format '$(SITE)' 'Created-By: Packages' 'Origin: Debian' 'Label: Debian' | head -1)}
mirror=${mirror:-http://deb.debian.org/debian}
exec 9>"$cache/radio-arm64.lock"
flock 9
echo "making the image of the boards with an arm64 processor; this happens once and takes about three minutes" >&2

theirs=$(ls -d "$cache"/radio-root-* | head -1)
deep=$cache/radio-arm64-root-$(printf '%s\n' "$theirs" "$packages" "$suite" | sha256sum | cut -c1-16)
if [ ! -e "$deep/.complete" ]; then
    rm -rf "$deep" "$deep.new"
    mmdebstrap --quiet --variant=extract --architectures=arm64 --include="$(tr -s ' ' , <<<"$packages" | sed 's/,$//')" --skip=check/qemu \
        --aptopt='Apt::Install-Recommends "false"' --dpkgopt='path-exclude=/usr/share/man/*' --dpkgopt='path-exclude=/usr/share/doc/*' \
        --dpkgopt='path-exclude=/usr/share/locale/*' "$suite" "$deep.new" \
        "deb $mirror $suite main" "deb $mirror $suite-updates main" "deb $mirror-security $suite-security main" >&2
    # As usrmerge would.
    for folder in bin sbin lib; do
        if [ ! -L "$deep.new/$folder" ]; then
            rsync -a "$deep.new/$folder/" "$deep.new/usr/$folder/"
            rm -rf "${deep:?}.new/$folder"
            ln -s "usr/$folder" "$deep.new/$folder"
        fi
    done
    rsync -a --exclude ld.so.cache --exclude ld.so.conf.d "$theirs/etc/" "$deep.new/etc/"
    rsync -a --exclude dpkg --exclude apt "$theirs/var/" "$deep.new/var/"
    mkdir -p "$deep.new"/{proc,sys,dev,run,tmp,root}
    chmod 1777 "$deep.new/tmp"
    [ -e "$deep.new/usr/bin/awk" ] || ln -s mawk "$deep.new/usr/bin/awk"
    (cd "$theirs" && find usr bin sbin -xtype l -o -type l -lname '/etc/alternatives/*' 2>/dev/null) | while read -r link; do
        if [ ! -e "$deep.new/$link" ] && [ ! -L "$deep.new/$link" ]; then
            mkdir -p "$deep.new/$(dirname "$link")"
            cp -P "$theirs/$link" "$deep.new/$link"
        fi
    done
    # The kernel, and a busybox for its first steps.
    mkdir -p "$deep.new/lists"/{etc/apt/preferences.d,etc/apt/apt.conf.d,state/lists/partial,cache/archives/partial} "$deep.new/kernel"
    : >"$deep.new/lists/status"
    printf 'deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] %s %s main\n' "$mirror" "$suite" >"$deep.new/lists/etc/apt/sources.list"
    options=(-o Dir="$deep.new/lists" -o Dir::Etc="$deep.new/lists/etc/apt" -o Dir::State="$deep.new/lists/state" -o Dir::State::status="$deep.new/lists/status"
        -o Dir::Cache="$deep.new/lists/cache" -o APT::Architecture=arm64 -o APT::Architectures=arm64 -o APT::Sandbox::User=root)
    apt-get "${options[@]}" update -qq >&2
    kernel=$(apt-cache "${options[@]}" depends linux-image-arm64 | sed -n 's/.*Depends: //p' | head -1)
    (cd "$deep.new/kernel" && apt-get "${options[@]}" download -qq "$kernel" busybox-static >&2)
    for package in "$deep.new"/kernel/*.deb; do dpkg-deb -x "$package" "$deep.new/kernel"; done
    mv "$deep.new/kernel/lib/modules" "$deep.new/usr/lib/modules"
    mkdir -p "$deep.new/boot"
    mv "$deep.new"/kernel/boot/vmlinuz-* "$deep.new/boot/"
    mv "$deep.new/kernel/bin/busybox" "$deep.new/boot/busybox"
    rm -r "$deep.new/kernel" "$deep.new/lists"
    version=$(ls "$deep.new/usr/lib/modules")
    (cd "$deep.new/usr/lib/modules/$version/kernel" && rm -rf sound drivers/gpu drivers/media drivers/infiniband drivers/scsi drivers/staging \
        drivers/iio drivers/net/ethernet drivers/isdn drivers/hid drivers/ata drivers/md drivers/mtd fs/xfs fs/btrfs fs/ocfs2 fs/gfs2)
    depmod --basedir "$deep.new" "$version"
    rm -rf "$deep.new/var/cache/apt/"*.bin "$deep.new/var/lib/apt/lists/"*
    touch "$deep.new/.complete"
    mv "$deep.new" "$deep"
fi

rm -rf "$image.new"
mkdir -p "$image.new"
root=$image.new/root
cp -a "$deep" "$root"
rm "$root/.complete"
version=$(ls "$root/usr/lib/modules")
install -D -m 755 -t "$root/usr/local/lib/lab" "$here"/guest/*
sed -n "/^cat .*lab-agent.service/,/^UNIT/p" "$here/image.sh" | sed '1d;$d' >"$root/etc/systemd/system/lab-agent.service"
ln -sf ../lab-agent.service "$root/etc/systemd/system/multi-user.target.wants/lab-agent.service"
for unit in hostapd.service NetworkManager-wait-online.service serial-getty@ttyAMA0.service getty@tty1.service; do
    ln -sf /dev/null "$root/etc/systemd/system/$unit"
done
rm -f "$root/etc/resolv.conf"
"$here/initramfs.sh" "$root" "$version" "$image.new/initramfs" "$root/boot/busybox"
cp "$root/boot/vmlinuz-$version" "$image.new/vmlinuz"
rm -rf "$root/boot/"*
truncate -s 2G "$image.new/disk"
mke2fs -q -t ext4 -d "$root" "$image.new/disk"
rm -rf "$root"
cp -a "$base/python" "$image.new/python"
touch "$image.new/arm64" "$image.new/.complete"
rm -rf "$image"
mv "$image.new" "$image"
echo "$image"
