#!/bin/sh
# Installs what building milkit needs, on Debian 12 and its relatives, with --dev what its tests need, too; as root or through
# sudo. Does nothing when all of it is there.
set -eu

packages="gcc libc6-dev make cmake ninja-build pkg-config scdoc
libcjson-dev libyaml-dev libprotobuf-c-dev protobuf-c-compiler libpcre2-dev libutf8proc-dev libedit-dev libxxhash-dev
libcurl4-openssl-dev libssl-dev libmicrohttpd-dev libpng-dev"
case ${1:-} in
--dev) packages="$packages libcmocka-dev g++ dpkg-dev clang clang-format libclang-rt-14-dev python3 curl python3-numpy tmux valgrind
file libgnustep-base-dev libblocksruntime-dev" ;;
"") ;;
*)
    echo "usage: install-deps.sh [--dev]" >&2
    exit 2
    ;;
esac

missing=""
for package in $packages; do
    state=$(dpkg-query -W -f '${Status}' "$package" 2>/dev/null || true)
    case $state in
    *" installed") ;;
    *) missing="$missing $package" ;;
    esac
done
if [ -z "$missing" ]; then
    echo "all packages are installed"
    exit 0
fi

as_root=""
if [ "$(id -u)" != 0 ]; then
    as_root=sudo
fi
$as_root apt-get update
# shellcheck disable=SC2086
$as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends $missing
