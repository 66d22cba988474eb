#!/bin/bash
# Line coverage per folder of src after a test run: coverage.sh BUILD (configured with --coverage).
set -eu
cd "$(dirname "$0")/.."
build=$(realpath "$1")
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
source=$PWD
cd "$scratch"
find "$build" -path '*src*' -name '*.gcda' -print0 | xargs -0 -r gcov -n 2>/dev/null |
    awk -v root="$source/src/" '
        /^File / { file = $0; sub(/^File ./, "", file); sub(/.$/, "", file); next }
        /^Lines executed:/ {
            if (index(file, root) != 1) next
            name = substr(file, length(root) + 1)
            percent = $0; sub(/.*executed:/, "", percent); sub(/%.*/, "", percent)
            lines = $0; sub(/.* of /, "", lines)
            if (!(name in total) || percent * lines / 100 > hit[name]) { hit[name] = percent * lines / 100; total[name] = lines }
            file = ""
        }
        END {
            for (name in total) {
                folder = name; sub(/\/.*/, "", folder)
                folder_hit[folder] += hit[name]; folder_total[folder] += total[name]
            }
            for (folder in folder_total)
                printf "%-12s %5.1f %% of %d lines\n", folder, 100 * folder_hit[folder] / folder_total[folder], folder_total[folder]
        }' | sort
