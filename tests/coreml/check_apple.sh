#!/bin/bash
# src/coreml/coreml.m as Apple's compiler sees it: types, and that each part which a system of the deployment target may lack is asked
# for first. With a guard taken out the check must fail. check_apple.sh CLANG SOURCE_FOLDER SCRATCH
set -u
clang=$1 source=$2 scratch=$3
failed=0
mkdir -p "$scratch"

check() { # FILE
    "$clang" -target arm64-apple-macosx13.0 -fsyntax-only -ffreestanding -fblocks -std=gnu11 -Wall -Wextra -Wunguarded-availability -Werror \
        -isystem "$source/tests/coreml/apple" -isystem "$source/tests/coreml/include" -I"$source/src" "$1"
}
if ! "$clang" -target arm64-apple-macosx13.0 -x c -fsyntax-only /dev/null 2>/dev/null; then
    echo "skipped: $clang knows no Apple target"
    exit 77
fi
check "$source/src/coreml/coreml.m" || { echo "FAILED: coreml.m for Apple's target"; failed=1; }

# Each guard in turn.
n=$(grep -c 'IF_MACOS_[0-9_]* {' "$source/src/coreml/coreml.m")
for i in $(seq 1 "$n"); do
    awk -v which="$i" '/IF_MACOS_[0-9_]* \{/ { if (++k == which) sub(/IF_MACOS_[0-9_]*/, "if (1)") } { print }' \
        "$source/src/coreml/coreml.m" >"$scratch/guard.m"
    check "$scratch/guard.m" >"$scratch/guard.txt" 2>&1 && { echo "FAILED: guard $i taken out, and nothing is said"; failed=1; }
    grep -q 'only available on macOS' "$scratch/guard.txt" || { echo "FAILED: guard $i: $(head -1 "$scratch/guard.txt")"; failed=1; }
done
[ "$n" -gt 0 ] || { echo "FAILED: no guards"; failed=1; }

# A stand-in that is wrong could hide a name that is wrong: what coreml.m asks of Core ML is what is listed, from the documentation.
grep -oE '\bML[A-Z][A-Za-z0-9]*' "$source/src/coreml/coreml.m" | sort -u >"$scratch/names.txt"
if ! diff "$source/tests/coreml/names.txt" "$scratch/names.txt"; then
    echo "FAILED: names of Core ML that tests/coreml/names.txt does not list, or no longer used"
    failed=1
fi
echo "$n guards, $(wc -l <"$scratch/names.txt") names"
exit $failed
