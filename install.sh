#!/bin/sh
# Installs the program `toolcrib` for the current user, without root:
#
#     curl -fsSL https://github.com/toolcrib/toolcrib/releases/latest/download/install.sh | sh
#
# TOOLCRIB_VERSION   a version such as 0.2.0; by default the latest
# TOOLCRIB_BIN_DIR   where the program goes; by default ~/.local/bin
# TOOLCRIB_RELEASES  the address of the releases, for a mirror
#
# To uninstall, remove that one file. Your ledgers stay where they are.
set -eu

fail() {
    echo "install.sh: $*" >&2
    exit 1
}

fetch() {
    if command -v curl >/dev/null 2>&1; then
        curl --fail --silent --show-error --location --retry 2 --output "$2" "$1"
    elif command -v wget >/dev/null 2>&1; then
        wget --quiet --tries=3 --output-document="$2" "$1"
    else
        fail "curl or wget is needed"
    fi
}

# All in a function that is called in the last line: a script that arrives only in part then does nothing.
main() {
    releases=${TOOLCRIB_RELEASES:-https://github.com/toolcrib/toolcrib/releases}
    folder=${TOOLCRIB_BIN_DIR:-${HOME:?is not set, so name a folder in TOOLCRIB_BIN_DIR}/.local/bin}

    [ "$(uname -s)" = Linux ] || fail "there is a program for Linux only, and this is $(uname -s)"
    case $(uname -m) in
    x86_64 | amd64) machine=x86_64 ;;
    aarch64 | arm64) machine=aarch64 ;;
    *) fail "there are programs for x86_64 and aarch64, and this is $(uname -m)" ;;
    esac
    if [ -n "${TOOLCRIB_VERSION:-}" ]; then
        from=$releases/download/v${TOOLCRIB_VERSION#v}
    else
        from=$releases/latest/download
    fi

    temporary=$(mktemp -d)
    trap 'rm -rf "$temporary"' EXIT
    trap 'exit 130' INT HUP TERM
    fetch "$from/SHA256SUMS" "$temporary/SHA256SUMS" || fail "$from/SHA256SUMS cannot be fetched"
    name=$(sed -n "s/^[0-9a-f]\{64\}  \(toolcrib-[^/]*-$machine-linux\.tar\.gz\)\$/\1/p" "$temporary/SHA256SUMS")
    [ -n "$name" ] || fail "this release has no program for $machine"
    fetch "$from/$name" "$temporary/$name" || fail "$from/$name cannot be fetched"
    (cd "$temporary" && grep "  $name\$" SHA256SUMS | sha256sum -c - >/dev/null 2>&1) ||
        fail "$name is not what SHA256SUMS says: the download is damaged or was replaced, and nothing was installed"

    tar -xzf "$temporary/$name" -C "$temporary"
    program=$temporary/${name%.tar.gz}/toolcrib
    version=$("$program" --version) || fail "the program does not start on this machine"
    mkdir -p "$folder"
    # Written beside its place, then moved: a running program is not changed, and there is never half of one.
    cp "$program" "$folder/.toolcrib-$$"
    trap 'rm -rf "$temporary" "$folder/.toolcrib-$$"' EXIT
    chmod 755 "$folder/.toolcrib-$$"
    mv -f "$folder/.toolcrib-$$" "$folder/toolcrib"
    echo "$version is in $folder/toolcrib"
    case :$PATH: in
    *:"$folder":*) ;;
    *) echo "Put $folder on your PATH." ;;
    esac
}

main
