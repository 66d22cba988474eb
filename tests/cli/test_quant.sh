# milkit convert to palettes and integers from the outside: names, warnings, refusals, the same bytes whoever writes them,
# failing writes.
. "$SOURCE/tests/cli/packages.sh"
bias=$DATA/models/qwen3-bias

# Neither the output nor a temporary folder of it may exist.
nothing_left() {
    local found
    found=$(ls -A "${2:-.}" | grep -F "$1" | head -1)
    [ -z "$found" ] || fail "left behind: $found"
}

same() {
    diff -r "$1" "$2" >/dev/null || fail "$1 and $2 differ"
}

# ---- usage ----
expect 2 "--lut-ffn: expected 1, 2, 3, 4, 6 or 8 bits" "$MILKIT" convert "$bias" -o o --lut-ffn 5
expect 2 "--lut-head" "$MILKIT" convert "$bias" -o o --lut-head 4,x
expect 2 "--lut-head" "$MILKIT" convert "$bias" -o o --lut3 9
expect 2 "--quant-ffn" "$MILKIT" convert "$bias" -o o --quant-ffn int3
expect 2 "expected one of them" "$MILKIT" convert "$bias" -o o --quant-ffn int8 --lut-ffn 4
expect 2 "--lut-method" "$MILKIT" convert "$bias" -o o --lut-method finest
expect 2 "--chunks" "$MILKIT" convert "$bias" -o o --chunks many
expect 2 "--only" "$MILKIT" convert "$bias" -o o --only tail
nothing_left o.tmp
[ ! -e o ] || fail "a refused call made an output"

# ---- names and warnings ----
expect_stderr 0 "relative squared error" "$MILKIT" convert "$bias" -o luts --lut-ffn 3 --lut-head 6,4 --lut-method kmeans --report luts.json
for name in qwen_embeddings qwen_FFN_PF_lut3_chunk_01of01 qwen_lm_head_lut6; do
    [ -d luts/$name.mlmodelc ] && [ -d luts/$name.mlpackage ] || fail "$name is missing"
done
grep -q 'lut_ffn: 3$' luts/meta.yaml && grep -q 'lut_lmhead_per_channel: 4$' luts/meta.yaml || fail "meta.yaml"
grep -q '"bits_per_weight"' luts.json || fail "the report says nothing"
grep -q 'warning' err.txt && grep 'warning' err.txt | grep -qv tokenizer && fail "a warning about palettes: $(cat err.txt)"
expect 1 "is not a folder" "$MILKIT" convert "$bias" -o luts2 --only meta --report "$bias/config.json/luts.json"
[ ! -e luts2 ] || fail "a package without its report"
expect_stderr 0 "MB of weights" "$MILKIT" convert "$bias" -o luts2 --only meta --report ./luts2/luts.json
[ -s luts2/luts.json ] || fail "no report in the package"
rm -rf luts2
expect_stderr 0 "Neural Engine computes linear int8 weights wrongly" "$MILKIT" convert "$bias" -o ints --quant-ffn int8 --quant-head int4,16
grep -q "int4 blocks do not compile" err.txt || fail "no warning about int4"
[ -d ints/qwen_FFN_PF_int8_chunk_01of01.mlmodelc ] && [ -d ints/qwen_lm_head_int4.mlmodelc ] || fail "names of integer parts"
grep -q 'quant_ffn: int8$' ints/meta.yaml && grep -q 'quant_lmhead: int4,16$' ints/meta.yaml || fail "quant_ keys"
expect_stderr 0 "embedding table is quantized" "$MILKIT" convert "$bias" -o table --lut-embeddings 8
"$MILKIT" inspect luts/qwen_FFN_PF_lut3_chunk_01of01.mlmodelc >out.txt 2>err.txt || fail "inspect: $(cat err.txt)"
rm -rf ints table

# ---- the same bytes for any number of threads, in parts and as a whole ----
options="--lut-ffn 4,8 --lut-head 6 --lut-method kmeans --chunks 2"
# shellcheck disable=SC2086
for n in 1 2 3; do
    expect_stderr 0 "MB of weights" "$MILKIT" convert "$bias" -o "threads$n" -j $n $options
done
same threads1 threads2
same threads1 threads3
# shellcheck disable=SC2086
for level in scalar avx2 avx512; do
    if MILKIT_CPU=$level "$MILKIT" tokenize "$tiny" hi >/dev/null 2>&1; then
        expect_stderr 0 "MB of weights" env MILKIT_CPU=$level "$MILKIT" convert "$bias" -o level $options
        same threads1 level
        rm -rf level
    else
        echo "skipped: level $level is not in this processor"
    fi
done
# shellcheck disable=SC2086
expect 2 "MILKIT_CPU" env MILKIT_CPU=mips "$MILKIT" convert "$bias" -o level $options
[ -e level ] && fail "an unknown level leaves a package"
mkdir joined
# shellcheck disable=SC2086
for part in embeddings chunk:1 chunk:2 head meta; do
    expect_stderr 0 "MB of weights" "$MILKIT" convert "$bias" -o "one" --only $part $options
    cp -r one/* joined/ && rm -rf one
done
same threads1 joined
rm -rf threads* joined

# ---- two at a time ----
options="--lut-ffn 4,8 --lut-head 6 --lut-method kmeans --chunks 3"
# shellcheck disable=SC2086
expect_stderr 0 "MB of weights" "$MILKIT" convert "$tiny" -o whole $options
# In one place: one of them says so, the other finishes.
# shellcheck disable=SC2086
"$MILKIT" convert "$tiny" -o both $options >/dev/null 2>first.txt &
pid=$!
# shellcheck disable=SC2086
"$MILKIT" convert "$tiny" -o both $options >/dev/null 2>second.txt
second=$?
wait $pid
first=$?
[ $first -eq 0 ] || [ $second -eq 0 ] || fail "two at a time: neither finished: $(cat first.txt second.txt)"
same whole both
rm -rf both
nothing_left both

# ---- writes that fail ----
# What a refused write leaves: nothing, or finished parts alone, which is said, and which a run that resumes makes whole.
stopped() {
    local folder=${1%/*} name=${1##*/} left
    left=$(find "$folder" -maxdepth 1 -name ".$name.tmp*")
    [ ! -e "$1" ] || fail "a package is there after a failure"
    if [ -z "$left" ]; then
        ! grep -q -- "--resume" err.txt || fail "nothing is left to resume: $(tail -1 err.txt)"
        return 1
    fi
    grep -q "finished parts are kept" err.txt || fail "left without a word: $left"
    [ -f "$left/.finished.json" ] && [ ! -f "$left/meta.yaml" ] || fail "not only finished parts: $(ls -A "$left")"
}
# A limit on the size of files in every place: whatever write hits it, the run says so.
largest=$(find whole -type f -printf '%k\n' | sort -n | tail -1)
for limit in 1 2 5 12 30 60 100 150 220 300 400 $((largest - 8)); do
    (
        ulimit -f "$limit"
        # shellcheck disable=SC2086
        expect 1 "can't write" "$MILKIT" convert "$tiny" -o limited $options
        exit $failed
    ) || failed=1
    stopped ./limited && rm -rf .limited.tmp*
done
# With small embeddings the head is what is refused, when all else is finished.
small="$options --lut-embeddings 2 --format mlmodelc"
# shellcheck disable=SC2086
expect_stderr 0 "MB of weights" "$MILKIT" convert "$tiny" -o small $small --lut-head 8
largest=$(find small -type f -printf '%k\n' | sort -n | tail -1)
(
    ulimit -f $((largest - 8))
    # shellcheck disable=SC2086
    expect 1 "finished parts are kept (4 of 5), --resume" "$MILKIT" convert "$tiny" -q -o limited $small --lut-head 8
    exit $failed
) || failed=1
stopped ./limited || fail "no refused write came after a finished part"
# shellcheck disable=SC2086
expect_stderr 0 "4 of 5 parts were finished before" "$MILKIT" convert "$tiny" -o limited --resume $small --lut-head 8
same small limited
rm -rf small limited
if [ "$(id -u)" = 0 ] && mkdir -p disk && mount -t tmpfs -o size=100m tmpfs disk 2>/dev/null; then
    # Filled up but for some room, in steps through the whole output.
    total=$(du -sk whole | cut -f1)
    for room in 4 40 200 500 800 1100 1500 $((total - 200)) $((total - 24)); do
        rm -rf disk/*
        # Enough is free when the run begins: the rest fills up while it works.
        fallocate -l 20m disk/filler 2>/dev/null || break
        available=$(df --output=avail -k disk | tail -1)
        # shellcheck disable=SC2086
        "$MILKIT" convert "$tiny" -o disk/package $options >/dev/null 2>err.txt &
        pid=$!
        fallocate -l $(((available - room) * 1024)) disk/more 2>/dev/null
        wait $pid
        got=$?
        if [ $got -eq 0 ]; then
            same whole disk/package
        else
            grep -qE "can't|left" err.txt || fail "disk with $room KB: no reason: $(cat err.txt)"
            stopped disk/package || continue
            rm -f disk/more disk/filler
            # shellcheck disable=SC2086
            expect_stderr 0 "finished before, kept" "$MILKIT" convert "$tiny" -o disk/package --resume $options
            same whole disk/package
        fi
    done
    # The room that is asked for is in proportion to what is written, not to what disks have.
    umount disk && mount -t tmpfs -o size=8m tmpfs disk
    expect_stderr 0 "MB of weights" "$MILKIT" convert "$bias" -o disk/small
    umount disk
else
    echo "skipped: a disk that fills up needs root and mount"
fi
finish
