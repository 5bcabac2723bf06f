#!/usr/bin/env bash
# initramfs.sh ROOT VERSION FILE [BUSYBOX]: the smallest that finds the board's disk: a static busybox and the modules for it.
set -euo pipefail
PATH=$PATH:/usr/sbin:/sbin
root=$(realpath "$1") version=$2 file=$(realpath -m "$3") busybox=${4:-$(command -v busybox)}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir -p "$work"/{bin,dev,proc,sys,root,modules}
cp "$busybox" "$work/bin/busybox"
number=100
for module in virtio_pci virtio_mmio virtio_blk virtio_console ext4; do
    modprobe --dirname "$root" --set-version "$version" --show-depends "$module" 2>/dev/null | sed -n "s|^insmod $root\\([^ ]*\\).*|\\1|p"
done | awk '!seen[$0]++' | while read -r path; do
    number=$((number + 1))
    name=$number-$(basename "$path")
    path=$root$path
    case $path in
        *.xz) xz -dc "$path" >"$work/modules/${name%.xz}" ;;
        *.zst) zstd -qdc "$path" >"$work/modules/${name%.zst}" ;;
        *) cp "$path" "$work/modules/$name" ;;
    esac
done
cat >"$work/init" <<'INIT'
#!/bin/busybox sh
b=/bin/busybox
$b mount -t devtmpfs none /dev
$b mount -t proc none /proc
$b mount -t sysfs none /sys
for module in /modules/*; do $b insmod "$module"; done
tries=0
while [ ! -b /dev/vda ] && [ $tries -lt 600 ]; do $b sleep 0.05; tries=$((tries + 1)); done
$b mount -t ext4 -o rw,noatime /dev/vda /root
$b mount --move /dev /root/dev
$b umount /proc /sys
exec $b switch_root /root /sbin/init
INIT
chmod +x "$work/init"
(cd "$work" && find . | cpio --create --format newc --quiet | gzip -1) >"$file"
