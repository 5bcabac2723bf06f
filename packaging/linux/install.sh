#!/bin/sh
# Makes this device one of the fleet at @ADDRESS@.
#
#   curl -fsSL @ADDRESS@/install.sh -o install.sh && sudo -E sh install.sh
#
# Takes its identity from an existing @CREDENTIALS@, or fetches it with
#   @ENV@_API_KEY_ID, @ENV@_API_KEY, @ENV@_PART_ID        (from the environment, never from the command line)
# What it fetches is run only if the release keys below have signed it. Safe to run twice. What is given on the command
# line goes to `@AGENT@ --install`: --root DIR, --into DIR, --force. Also read from the environment:
#   @ENV@_VERSION      a channel or a version (default stable)
#   @ENV@_AGENT_FILE, @ENV@_LAUNCHER_FILE    programs that you have verified yourself, instead of fetched ones
set -eu
LC_ALL=C
export LC_ALL

ADDRESS="@ADDRESS@"
# Of root document @ROOT_NUMBER@: KEYID:KEY, and how many of them must have signed.
RELEASE_KEYS="@RELEASE_KEYS@"
RELEASE_THRESHOLD=@RELEASE_THRESHOLD@
CHANNEL_KEYS="@CHANNEL_KEYS@"
CHANNEL_THRESHOLD=@CHANNEL_THRESHOLD@
AGENT=@AGENT@
LAUNCHER=@LAUNCHER@
CREDENTIALS=@CREDENTIALS@

# Longest document and program, in bytes, and how long each may take, in seconds.
DOCUMENT_BYTES=65536
PROGRAM_BYTES=268435456
DOCUMENT_SECONDS=60
PROGRAM_SECONDS=3600

fail() {
    echo "install: $*" >&2
    exit 1
}

# The whole script is read before anything of it is run: a connection that breaks in the middle runs nothing.
main() {
    version=${@ENV@_VERSION:-stable}
    into=""
    previous=""
    for word in "$@"; do
        [ "$previous" != --into ] || into=$word
        case $word in --into=*) into=${word#--into=} ;; esac
        previous=$word
    done

    [ -n "$into" ] || [ "$(id -u)" = 0 ] || fail "needs root: run it with sudo -E, which keeps @ENV@_API_KEY"
    command -v curl >/dev/null || fail "curl is missing: install it, on Debian or Ubuntu with: apt-get install curl"
    [ -n "$into" ] || [ -d /run/systemd/system ] || fail "systemd does not run this machine: install with --into, or by hand (docs/install.md)"

    case $ADDRESS in
        https://?* | http://127.0.0.1 | http://127.0.0.1[:/]* | http://localhost | http://localhost[:/]* | "http://[::1]"*) ;;
        *) fail "$ADDRESS is plain http, over which everybody in between could read the key and change this script: get it from an https address" ;;
    esac
    [ -n "$into" ] || check_kernel

    # Nobody else reads the key, the credentials or a program that is not verified yet.
    mask=$(umask)
    umask 077
    work=$(workplace)
    trap 'rm -rf "$work"' EXIT
    trap 'exit 130' INT
    trap 'exit 143' TERM HUP

    platform=$(platform)
    identity "$into$CREDENTIALS"

    agent_version=""
    if [ -n "${@ENV@_AGENT_FILE:-}" ]; then
        cp "$@ENV@_AGENT_FILE" "$work/$AGENT"
        [ -n "${@ENV@_LAUNCHER_FILE:-}" ] || fail "@ENV@_AGENT_FILE needs @ENV@_LAUNCHER_FILE beside it"
        cp "$@ENV@_LAUNCHER_FILE" "$work/$LAUNCHER"
    else
        check_openssl
        fetch_program "$AGENT" "$version" "$platform"
        agent_version=$found_version
        fetch_program "$LAUNCHER" "$version" "$platform"
    fi
    umask "$mask"
    chmod 755 "$work/$AGENT" "$work/$LAUNCHER"
    check_libc "$work/$AGENT"
    said=$("$work/$AGENT" --version 2>&1) || fail "$AGENT $agent_version does not run on this machine, which needs glibc: $said"
    echo "install: $said"
    "$work/$AGENT" --install --launcher "$work/$LAUNCHER" "$@"
}

# ── This machine ─────────────────────────────────────────────────────────────────────────────────────────────────────

# A folder of our own from which programs may be executed.
workplace() {
    for place in "${TMPDIR:-/var/tmp}" /tmp /opt /root; do
        folder=$(mktemp -d "$place/@BRAND@-install.XXXXXX" 2>/dev/null) || continue
        printf '#!/bin/sh\n' >"$folder/try"
        chmod 700 "$folder/try"
        if "$folder/try" 2>/dev/null; then
            rm "$folder/try"
            echo "$folder"
            return
        fi
        rm -rf "$folder"
    done
    fail "no folder found from which programs may be run: set TMPDIR to one that is not mounted noexec"
}

# By the programs of this machine and not by its kernel: a 64-bit kernel runs 32-bit systems too.
platform() {
    [ "$(uname -s)" = Linux ] || fail "this is $(uname -s), and there are only programs for Linux"
    bits=$(od -An -tu1 -j4 -N1 /bin/sh | tr -d ' ')
    case $(uname -m):$bits in
        x86_64:2 | amd64:2) echo linux/amd64 ;;
        aarch64:2 | arm64:2) echo linux/arm64 ;;
        aarch64:1 | arm64:1 | armv7*:1 | armv8*:1) echo linux/arm ;;
        *) fail "there are no programs for $(uname -m) with a ${bits:+$((bits * 32))-bit }system: amd64, arm64 and armv7 are known" ;;
    esac
}

# Processes are watched by means that Linux has since 5.4.
check_kernel() {
    release=$(uname -r)
    major=${release%%.*}
    minor=${release#*.}
    minor=${minor%%[!0-9]*}
    case $major:$minor in *[!0-9:]* | :* | *:) return 0 ;; esac
    [ "$major" -gt 5 ] || { [ "$major" = 5 ] && [ "$minor" -ge 4 ]; } ||
        fail "this system has Linux $release, and the agent needs 5.4 or later: update the system"
}

# The newest version of the C library that the program asks for, compared with the one that is here.
check_libc() {
    needed=$(tr -c '[:alnum:]_.' '\n' <"$1" | sed -n 's/^GLIBC_2\.\([0-9]*\).*/\1/p' | sort -n | tail -n 1)
    [ -n "$needed" ] || return 0
    here=$(getconf GNU_LIBC_VERSION 2>/dev/null | sed -n 's/^glibc 2\.\([0-9]*\).*/\1/p')
    # Small systems do not say: then the program's own first words decide.
    [ -n "$here" ] || return 0
    [ "$here" -ge "$needed" ] || fail "this system has glibc 2.$here, and the program needs 2.$needed: update the system, or have a program built for it"
}

# ── Identity ─────────────────────────────────────────────────────────────────────────────────────────────────────────

# With a key and a part: fetches the credentials. Without: the file must be there.
identity() {
    file=$1
    part=${@ENV@_PART_ID:-}
    if [ -z "${@ENV@_API_KEY_ID:-}${@ENV@_API_KEY:-}$part" ]; then
        [ -f "$file" ] || fail "$file is not there: set @ENV@_API_KEY_ID, @ENV@_API_KEY and @ENV@_PART_ID, or put the file there (\`@BRAND@ part credentials\` gives it)"
        chmod 600 "$file"
        echo "install: the identity in $file is used"
        return
    fi
    for name in API_KEY_ID API_KEY PART_ID; do
        eval "value=\${@ENV@_$name:-}"
        [ -n "$value" ] || fail "@ENV@_$name is not set; all three are needed: @ENV@_API_KEY_ID, @ENV@_API_KEY, @ENV@_PART_ID"
        case $value in *[!A-Za-z0-9._-]*) fail "@ENV@_$name has signs that no id or key has" ;; esac
    done
    if [ -f "$file" ] && ! grep -qF "\"$part\"" "$file"; then
        fail "$file is there and names another part than $part: remove it if this device is to become that one"
    fi
    # The key goes over standard input: every user may read the arguments of a command.
    status=$(printf 'header = "key_id: %s"\nheader = "key: %s"\n' "$@ENV@_API_KEY_ID" "$@ENV@_API_KEY" |
        curl -sS -K - --max-time "$DOCUMENT_SECONDS" --max-filesize "$DOCUMENT_BYTES" -o "$work/credentials" \
            -w '%{http_code}' "$ADDRESS/install/credentials?part=$part") || fail "$ADDRESS cannot be reached"
    [ "$status" = 200 ] || fail "the fleet server gave no credentials for part $part: $(head -c 300 "$work/credentials")"
    grep -q '"cloud"' "$work/credentials" || fail "$ADDRESS answered with something that is no credentials file"
    if [ -f "$file" ] && cmp -s "$work/credentials" "$file"; then
        chmod 600 "$file"
        echo "install: the identity in $file is up to date"
        return
    fi
    folder=${file%/*}
    (umask 022 && mkdir -p "$folder")
    # Beside its place, so that it appears whole; never readable by others.
    cp "$work/credentials" "$folder/.@BRAND@.json.new"
    chmod 600 "$folder/.@BRAND@.json.new"
    sync
    mv "$folder/.@BRAND@.json.new" "$file"
    rm -f "$work/credentials"
    echo "install: written $file for part $part"
}

# ── Signed releases ──────────────────────────────────────────────────────────────────────────────────────────────────

# ed25519 over a message needs OpenSSL 3. There is no second way on purpose: what cannot be verified is not run.
check_openssl() {
    remedy="install OpenSSL 3 (Debian, Ubuntu: apt-get install openssl), or verify on another machine with \`@BRAND@-fleet release verify\` and give the programs as @ENV@_AGENT_FILE and @ENV@_LAUNCHER_FILE"
    command -v openssl >/dev/null || fail "openssl is missing, without which no signature can be verified: $remedy"
    openssl pkeyutl -help 2>&1 | grep -q -- -rawin || fail "$(openssl version) cannot verify ed25519 signatures: $remedy"
}

# bytes HEX: the bytes that these digits mean.
bytes() {
    digits=$1
    while [ -n "$digits" ]; do
        rest=${digits#??}
        # shellcheck disable=SC2059 # the format is the byte
        printf "\\$(printf '%03o' "0x${digits%"$rest"}")"
        digits=$rest
    done
}

# verify FILE KEYS THRESHOLD: sets $signed to the text that enough of the keys have signed.
verify() {
    document=$(cat "$1")
    signatures=${document%%'],"signed":'*}
    signed=${document#*'],"signed":'}
    [ "$signatures" != "$document" ] || fail "$ADDRESS answered with something that is no signed document"
    signed=${signed%\}}
    printf '%s' "$signed" >"$work/signed"
    valid=0
    for entry in $2; do
        id=${entry%%:*}
        signature=$(printf '%s' "$signatures" | tr '{' '\n' | sed -n "s/^\"keyid\":\"$id\",\"sig\":\"\([0-9a-f]*\)\"}.*/\1/p" | head -n 1)
        [ "${#signature}" = 128 ] || continue
        # What stands before the key in a SubjectPublicKeyInfo of ed25519.
        bytes "302a300506032b6570032100${entry#*:}" >"$work/key"
        bytes "$signature" >"$work/signature"
        if openssl pkeyutl -verify -pubin -keyform DER -inkey "$work/key" -rawin -in "$work/signed" \
            -sigfile "$work/signature" >/dev/null 2>&1; then
            valid=$((valid + 1))
        fi
    done
    [ "$valid" -ge "$3" ] || fail "$4 is not genuine: $valid of the $3 signatures that are needed count. Fetch this script again if the keys were changed; otherwise do not trust $ADDRESS"
    expires=$(printf '%s' "$signed" | sed -n 's/^{"_type":"[a-z]*","expires":"\([0-9TZ:-]*\)".*/\1/p')
    now=$(date -u +%Y-%m-%dT%H:%M:%SZ)
    [ -n "$expires" ] && expr "x$now" '<' "x$expires" >/dev/null || fail "$4 has expired ($expires; this machine's clock says $now): sign it anew"
}

# fetch_document ADDRESS FILE WHAT
fetch_document() {
    curl -fsS --max-time "$DOCUMENT_SECONDS" --max-filesize "$DOCUMENT_BYTES" -o "$2" "$ADDRESS/releases/v1/$1" ||
        fail "$3 could not be fetched from $ADDRESS: publish it there, or try again"
}

# fetch_program PRODUCT VERSION PLATFORM: puts the verified program into the work folder; sets $found_version.
fetch_program() {
    product=$1
    found_version=$2
    case $2 in *[!A-Za-z0-9.+_-]* | '') fail "\"$2\" is neither a channel nor a version" ;; esac
    case $2 in
        [0-9]*.*) ;;
        *)
            fetch_document "channel/$2.json" "$work/channel" "channel $2"
            verify "$work/channel" "$CHANNEL_KEYS" "$CHANNEL_THRESHOLD" "channel $2"
            case $signed in '{"_type":"snapshot",'*) ;; *) fail "channel $2 is another kind of document" ;; esac
            case $signed in *"\"name\":\"$2\""*) ;; *) fail "channel $2 is another channel" ;; esac
            found_version=$(printf '%s' "$signed" | tr '{,' '\n\n' | sed -n "s|^\"$product/\([0-9A-Za-z.+-]*\)\.json\":.*|\1|p" | head -n 1)
            [ -n "$found_version" ] || fail "channel $2 has no $product: sign and publish one (docs/releases.md)"
            ;;
    esac
    fetch_document "release/$product/$found_version.json" "$work/release" "$product $found_version"
    verify "$work/release" "$RELEASE_KEYS" "$RELEASE_THRESHOLD" "$product $found_version"
    case $signed in '{"_type":"targets",'*) ;; *) fail "$product $found_version is another kind of document" ;; esac
    case $signed in
        *",\"product\":\"$product\",\"product_version\":\"$found_version\","*) ;;
        *) fail "$product $found_version is the document of something else" ;;
    esac
    # {"PLATFORM":{"custom":{"format":"raw","path":"/…"},"hashes":{"sha256":"…"},"length":N}; with xz, what is inside too.
    case $signed in *"\"$3\":{\"custom\":"*) ;; *) fail "$product $found_version was not made for $3" ;; esac
    target=${signed#*"\"$3\":{\"custom\":{"}
    format=$(printf '%s' "$target" | sed -n 's/^"format":"\([a-z]*\)".*/\1/p')
    path=$(printf '%s' "$target" | sed -n 's/^"format":"[a-z]*","path":"\(\/[A-Za-z0-9._~+/-]*\)".*/\1/p')
    case $path in '' | *..*) fail "$product $found_version names no usable path" ;; esac
    packed="$work/$product"
    case $format in
        raw)
            sha256=$(printf '%s' "$target" | sed -n 's/^[^}]*},"hashes":{"sha256":"\([0-9a-f]*\)"},"length":[0-9]*}.*/\1/p')
            ;;
        xz)
            command -v xz >/dev/null || fail "$product is packed with xz, which is missing: apt-get install xz-utils"
            packed="$work/$product.xz"
            inside=$(printf '%s' "$target" | sed -n 's/^[^}]*"unpacked":{"hashes":{"sha256":"\([0-9a-f]*\)"}.*/\1/p')
            sha256=$(printf '%s' "$target" | sed -n 's/^[^}]*"unpacked":{"hashes":{[^}]*},"length":[0-9]*}},"hashes":{"sha256":"\([0-9a-f]*\)"}.*/\1/p')
            ;;
        *) fail "$product $found_version is packed as \"$format\", which this script does not know" ;;
    esac
    echo "install: fetching $product $found_version"
    curl -fsS --max-time "$PROGRAM_SECONDS" --max-filesize "$PROGRAM_BYTES" -o "$packed" "$ADDRESS$path" ||
        fail "$product $found_version could not be fetched from $ADDRESS: try again"
    check_digest "$packed" "$sha256"
    if [ "$format" = xz ]; then
        # Bounded memory, and no more than the largest program: what is signed can still be a mistake.
        xz -dc --memlimit-decompress=16MiB "$packed" | head -c "$PROGRAM_BYTES" >"$work/$product"
        rm -f "$packed"
        check_digest "$work/$product" "$inside"
    fi
}

check_digest() {
    found=$(openssl dgst -sha256 -r "$1" | cut -c1-64)
    [ "${#2}" = 64 ] && [ "$found" = "$2" ] || fail "${1##*/} does not match its signed digest: try again; if it stays so, look for a proxy in between"
}

main "$@"
