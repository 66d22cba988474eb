#!/bin/bash
# Runs every libFuzzer target of a build folder: fuzz.sh BUILD SECONDS. Seeds are tests/fuzz/corpus/<name>, which is
# only read; new inputs are kept in BUILD/corpus/<name> and crashes in BUILD/found/<name>.
set -u
cd "$(dirname "$0")/.."
build=$1 seconds=$2
n_run=0 n_bad=0
for target in "$build"/tests/fuzz_*; do
    [ -f "$target" ] && [ -x "$target" ] || continue
    name=${target##*/fuzz_}
    mkdir -p "$build/corpus/$name" "$build/found/$name"
    echo "== $name"
    n_run=$((n_run + 1))
    if ! "$target" -max_total_time="$seconds" -timeout=10 -rss_limit_mb=2048 -print_final_stats=1 \
        -artifact_prefix="$build/found/$name/" "$build/corpus/$name" "tests/fuzz/corpus/$name" 2>"$build/found/$name.log"; then
        n_bad=$((n_bad + 1))
        tail -n 40 "$build/found/$name.log"
    else
        grep -E 'stat::(number_of_executed_units|average_exec_per_sec)' "$build/found/$name.log"
    fi
done
echo "$n_run targets run, $n_bad with findings"
[ "$n_run" -gt 0 ] && [ "$n_bad" = 0 ]
