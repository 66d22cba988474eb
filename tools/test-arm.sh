#!/bin/sh
# Builds everything for 64-bit Arm with Debian's cross compiler and runs the test suite under qemu: test-arm.sh [JOBS]
# Tests of what no processor decides (label host: options, files, downloads, terminals) are left out and counted; ALL=1 runs them, too.
# Without compiler, emulator or libraries it says so and does nothing.
set -eu
jobs=${1:-2}
# The libraries of install-deps.sh, for the other processor.
libraries=$(grep -o 'lib[a-z0-9-]*-dev' "$(dirname "$0")/install-deps.sh" | grep -v -e libc6 -e libclang)
needed="gcc-aarch64-linux-gnu libc6-dev-arm64-cross qemu-user-static libc6:arm64"
for library in $libraries; do
    needed="$needed $library:arm64"
done
missing=""
for package in $needed; do
    state=$(dpkg-query -W -f '${Status}' "$package" 2>/dev/null || true)
    case $state in
    *" installed") ;;
    *) missing="$missing $package" ;;
    esac
done
if [ -n "$missing" ]; then
    echo "skipped: not installed:$missing (dpkg --add-architecture arm64; apt-get update; apt-get install ..)"
    exit 0
fi
cmake --preset arm
cmake --build --preset arm -j "$jobs"
if [ -n "${ALL:-}" ]; then
    ctest --test-dir build/arm --output-on-failure --no-tests=error -LE tree -j "$jobs"
else
    left_out=$(ctest --test-dir build/arm -N -L host | sed -n 's/^Total Tests: //p')
    echo "left out: $left_out tests that do not depend on the processor (ALL=1 runs them)"
    ctest --preset arm -j "$jobs"
fi
