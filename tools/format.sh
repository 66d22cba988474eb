#!/bin/bash
# Formats the C files of the tree with clang-format 14, or with --check lists those that are not formatted.
# Exit status 77 when there is no clang-format 14: other versions disagree with it.
set -euo pipefail
cd "$(dirname "$0")/.."

program=""
for candidate in clang-format-14 clang-format; do
    if command -v "$candidate" >/dev/null && "$candidate" --version | grep -q 'version 14\.'; then
        program=$candidate
        break
    fi
done
if [ -z "$program" ]; then
    echo "clang-format 14 not found"
    exit 77
fi

folders=()
for folder in src include tests bench; do
    [ -d "$folder" ] && folders+=("$folder")
done
mapfile -d '' files < <(find "${folders[@]}" -path tests/data -prune -o -path tests/fuzz/corpus -prune -o \
    -type f \( -name '*.c' -o -name '*.h' \) -print0 | sort -z)
if [ "${#files[@]}" = 0 ]; then
    echo "no C files found"
    exit 1
fi

if [ "${1:-}" != --check ]; then
    "$program" -i "${files[@]}"
    exit 0
fi
bad=$("$program" --dry-run "${files[@]}" 2>&1 | sed -nE 's/^([^:]+):[0-9]+:.*\[-Wclang-format-violations\]$/\1/p' | sort -u)
if [ -n "$bad" ]; then
    echo "not formatted (make format):"
    echo "$bad"
    exit 1
fi
echo "${#files[@]} files checked"
