#!/usr/bin/env bash
# kernel.sh [--cached]: makes the user-mode kernel of the boards with radios, once, and prints where it is. It takes about
# eight minutes of one processor. With --cached it makes nothing: it fails when there is none.
#
# From Debian's package of the kernel's source with the settings of `kernel.config` and the change of `kernel.patch`, and
# cached beside the images under a hash of all three.
set -euo pipefail
here=$(dirname "$(realpath "$0")")
source=linux-source-6.12

cache=${LAB_CACHE:-${XDG_CACHE_HOME:-${HOME:-/root}/.cache}/platform-lab}
[ "$(uname -m)" = x86_64 ] || { echo "a user-mode kernel runs on x86_64 only" >&2; exit 1; }
version=$(LANG=C apt-cache policy "$source" 2>/dev/null | sed -n 's/^  Candidate: //p')
case $version in
    "" | "(none)") echo "the package $source is not to be had here" >&2; exit 1 ;;
esac
kernel=$cache/user-mode-$(printf '%s\n' "$version" "$(cat "$here/kernel.config" "$here/kernel.patch")" | sha256sum | cut -c1-16)
if [ -e "$kernel" ]; then
    echo "$kernel"
    exit 0
fi
[ "${1:-}" != --cached ] || exit 1

missing=()
for program in gcc:gcc make:make flex:flex bison:bison bc:bc xz:xz-utils patch:patch; do
    command -v "${program%:*}" >/dev/null || missing+=("${program#*:}")
done
[ ${#missing[@]} = 0 ] || DEBIAN_FRONTEND=noninteractive apt-get install -qq -y --no-install-recommends "${missing[@]}" libc6-dev >/dev/null

# Only one at a time; whoever waited finds it made.
mkdir -p "$cache"
exec 9>"$cache/kernel.lock"
flock 9
if [ ! -e "$kernel" ]; then
    echo "making the user-mode kernel from $source $version; this happens once and takes eight minutes of one processor" >&2
    work=$cache/kernel.new
    rm -rf "$work"
    mkdir "$work"
    trap 'rm -rf "$work"' EXIT
    cd "$work"
    apt-get download -qq -o APT::Sandbox::User=root "$source=$version" >&2
    dpkg-deb -x "$source"_*.deb package
    tar -xf "package/usr/src/$source.tar.xz"
    cd "$source"
    patch -s -p1 <"$here/kernel.patch"
    {
        make -s ARCH=um defconfig
        ./scripts/kconfig/merge_config.sh -m .config "$here/kernel.config"
        make -s ARCH=um olddefconfig
    } >"$work/config.log"
    # A setting whose condition is not met is dropped without a word.
    for setting in $(sed -n 's/^\(CONFIG_[A-Z0-9_]*=y\)$/\1/p' "$here/kernel.config"); do
        grep -qx "$setting" .config || { echo "this kernel cannot have $setting" >&2; exit 1; }
    done
    make -s ARCH=um -j"$(nproc)" linux >"$work/make.log" 2>&1 || { tail -30 "$work/make.log" >&2; exit 1; }
    strip linux -o "$kernel.new"
    mv "$kernel.new" "$kernel"
fi
echo "$kernel"
