#!/usr/bin/env bash
# Runs the lab: `make lab`. Everything it starts lives in process, mount and network namespaces of its own, so that
# nothing of it is left behind, however it ends.
set -euo pipefail
here=$(dirname "$0")
lab=$1
shift

skip() {
    echo "SKIPPED the whole lab: $*" >&2
    echo "0 passed, 0 failed, all skipped"
    exit 0
}
[ "$(id -u)" = 0 ] || skip "it boots systemd in containers, which needs root: sudo make lab"
for program in systemd-nspawn mmdebstrap nsenter unshare ip; do
    command -v "$program" >/dev/null || skip "$program is missing: packaging/needs.sh lab"
done
case " $* " in
    *" --list "*) exec "$lab" --list ;;
    *" --kernel "*) exec "$here/radio/kernel.sh" ;;
esac
image=$("$here/image.sh") || skip "the board's image could not be made: is a Debian mirror within reach?"

# The boards with radios are machines of their own: without what they need, the others are tried alone, and it is said. Under a
# user-mode kernel where one is in the cache, else under qemu.
radio=()
kernel=
case " $* " in
    *" --machine qemu "*) ;;
    *" --machine user-mode "*) kernel=$("$here/radio/kernel.sh") || skip "the user-mode kernel could not be made" ;;
    *" --machine "*) skip "--machine is qemu or user-mode" ;;
    *) kernel=$("$here/radio/kernel.sh" --cached) && command -v nft >/dev/null || kernel= ;;
esac
if { [ -n "$kernel" ] || command -v qemu-system-x86_64 >/dev/null; } && path=$("$here/radio/image.sh"); then
    radio=(--radio-image "$path")
    if [ -n "$kernel" ]; then
        radio+=(--user-mode-kernel "$kernel")
        echo "the boards with radios run under a user-mode kernel" >&2
    else
        echo "the boards with radios run under qemu; faster ones: make lab ARGS=--kernel, once" >&2
    fi
else
    echo "SKIPPED the boards with radios: qemu-system-x86_64 is missing, or the image could not be made" >&2
fi

case " $* " in
    *" arm64-"* | *" --arm64 "*)
        [ -x "${LAB_ARM64:-}/platform-agent" ] || skip "LAB_ARM64 names no folder with agent, launcher and stand-in-server built for arm64"
        command -v qemu-system-aarch64 >/dev/null || skip "qemu-system-aarch64 is missing"
        path=$("$here/radio/image-arm64.sh") || skip "the image for arm64 could not be made"
        radio+=(--arm64-image "$path")
        ;;
esac

exec unshare --mount --propagation private --net --pid --fork --kill-child --mount-proc -- \
    sh -c 'ip link set lo up; exec "$@"' lab "$lab" --image "$image" "${radio[@]}" "$@"
