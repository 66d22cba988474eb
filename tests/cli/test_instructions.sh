# How many instructions a fixed prompt and fixed single tokens take, counted by callgrind: a guard against slow drift that no noise of a
# machine moves. Within 3 % of tests/data/instructions.txt, in both directions, so that what was gained is held, too;
# UPDATE=1 renews the file (`UPDATE=1 ctest --preset ci -R cli.instructions`).
# The numbers are those of the release build with gcc 12 on x86-64; skipped elsewhere, and without valgrind.
# labels: host
. "$SOURCE/tests/cli/packages.sh"
expected=$SOURCE/tests/data/instructions.txt
skip() {
    echo "skipped: $*"
    cd / && rm -rf "$SCRATCH"
    exit 77
}
command -v valgrind >valgrind.txt || skip "valgrind is not installed"
[ "$(uname -m)" = x86_64 ] && [ -x "$MILKIT" ] || skip "not on x86-64"
grep -q '^CMAKE_BUILD_TYPE:[A-Z]*=Release$' "$BUILD/CMakeCache.txt" || skip "not a release build"
grep -qa 'GCC: (.*) 12\.' "$MILKIT" || skip "not built with gcc 12"
is_sanitized && skip "sanitizers"
grep -q avx2 /proc/cpuinfo || skip "no AVX2"

# The scalar level is slow: fewer tokens.
for weights in fp16 lut4; do
    options=
    [ $weights = fp16 ] || options="--lut-ffn 4,8 --lut-head 4,8 --lut-method kmeans"
    # shellcheck disable=SC2086
    make_package "$tiny" scalar_$weights -c 64 -b 4 --format mlmodelc $options
    # shellcheck disable=SC2086
    make_package "$tiny" avx2_$weights -c 64 -b 16 --format mlmodelc $options
done
# count LEVEL WEIGHTS TOKENS GENERATED: instructions inside calls of the session
count() {
    MILKIT_CPU=$1 valgrind -q --tool=callgrind --callgrind-out-file=counts.txt --toggle-collect=session_feed \
        "$MILKIT" run "$1_$2" --tokens "$3" -n "$4" --ids --greedy --ignore-eos -t 1 >out.txt 2>err.txt || {
        fail "callgrind: $1 $2: $(tail -3 err.txt)"
        return
    }
    sed -n 's/^totals: //p' counts.txt
}
{
    echo "# level weights what instructions; renewed by UPDATE=1 ctest --preset ci -R cli.instructions"
    for weights in fp16 lut4; do
        echo "scalar $weights prefill $(count scalar $weights 1,2,3,4 1)"
        echo "scalar $weights decode $(count scalar $weights 1 2)"
        echo "avx2 $weights prefill $(count avx2 $weights "$(seq -s, 1 32)" 1)"
        echo "avx2 $weights decode $(count avx2 $weights 1 8)"
    done
} >found.txt
if [ -n "${UPDATE:-}" ]; then
    cp found.txt "$expected"
    cat found.txt
    finish
fi
while read -r level weights what n; do
    [ "$level" != "#" ] || continue
    before=$(sed -n "s/^$level $weights $what //p" "$expected")
    if [ -z "$n" ] || [ -z "$before" ]; then
        fail "$level $weights $what: expected a number, found '$before' stored and '$n' counted"
    elif [ $((n > before ? n - before : before - n)) -gt $((before * 3 / 100)) ]; then
        fail "$level $weights $what: $n instructions, $before stored, $(((n - before) * 1000 / before)) thousandths more; where that is meant: UPDATE=1 ctest --preset ci -R cli.instructions"
    fi
done <found.txt
[ "$(wc -l <found.txt)" -eq "$(wc -l <"$expected")" ] || fail "other rows are stored than counted"
finish
