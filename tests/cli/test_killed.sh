# A conversion that is killed (kill -9) at moments spread over its work, and resumed: the same bytes as without. Moments
# are told by the files that have appeared, not by a clock; the unit test failing_writes kills at system calls.
# shellcheck source=tests/cli/packages.sh
# labels: host
. "$SOURCE/tests/cli/packages.sh"
options="--lut-ffn 4,8 --lut-head 6 --lut-method kmeans --chunks 3"

count_files() {
    find . -path './.killed.tmp-*' -type f 2>/dev/null | wc -l
}

# run_until N THREADS: a run that is killed once N files are there; false when it ended before
run_until() {
    # shellcheck disable=SC2086
    "$MILKIT" convert "$tiny" -o killed --resume -j "$2" $options >/dev/null 2>err.txt &
    local pid=$!
    while kill -0 $pid 2>/dev/null && [ "$(count_files)" -lt "$1" ]; do sleep 0.01; done
    kill -9 $pid 2>/dev/null
    wait $pid 2>/dev/null
    [ $? -eq 137 ]
}

# Resumes, compares, and makes room for the next one.
finish_run() {
    if [ ! -d killed ]; then
        # shellcheck disable=SC2086
        expect 0 "MB of weights" "$MILKIT" convert "$tiny" -o killed --resume -j "$1" $options
    fi
    diff -r whole killed >/dev/null || fail "$2: the package differs from an undisturbed one"
    rm -rf killed
    [ -z "$(find . -name '*killed*')" ] || fail "$2: something is left beside the package"
}

# shellcheck disable=SC2086
make_package "$tiny" whole -j 1 $options
total=$(find whole -type f | wc -l)

# ---- ten moments, by themselves ----
seed=7
kills=0
for run in 1 2 3 4 5 6 7 8 9 10; do
    seed=$(((seed * 1103515245 + 12345) % 2147483648))
    moment=$((1 + seed / 65536 % total))
    run_until $moment $((run % 3 + 1)) && kills=$((kills + 1))
    finish_run $(((run + 1) % 3 + 1)) "killed at $moment of $total files"
done
echo "$kills of 10 runs were killed before they ended"

# ---- one run after another, each a little further ----
kills=0
for run in 1 2 3 4 5 6 7 8 9 10; do
    [ -d killed ] && break
    run_until $((run * total / 11 + 1)) $((run % 3 + 1)) && kills=$((kills + 1))
done
finish_run 2 "killed $kills times"

# ---- what a killed run left does not disturb one that begins anew ----
run_until $((total / 2)) 2
rm -rf killed
# shellcheck disable=SC2086
expect 0 "MB of weights" "$MILKIT" convert "$tiny" -o killed $options
finish_run 1 "from the start after a killed run"

finish
