#!/bin/sh
# Installs what building and testing milkit needs, on Debian 12 and its relatives; as root or through sudo.
# Does nothing when all of it is there.
set -eu

packages="gcc libc6-dev make cmake ninja-build pkg-config
libcjson-dev libyaml-dev libprotobuf-c-dev protobuf-c-compiler libpcre2-dev libutf8proc-dev libedit-dev libxxhash-dev libcmocka-dev
clang clang-format libclang-rt-14-dev python3 tmux"

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
