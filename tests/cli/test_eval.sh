# milkit eval from the outside: perplexity against transformers, windows, refusals.
. "$SOURCE/tests/cli/packages.sh"
make_package "$tiny" tiny -c 512 -b 64 --format mlmodelc

# near VALUE EXPECTED RELATIVE
near() {
    awk -v v="$1" -v x="$2" -v r="$3" 'BEGIN { d = v > x ? v - x : x - v; exit !(v != "" && d <= r * x) }'
}
field() {
    sed -n "s/.*\"$1\": \\([-0-9.e+]*\\).*/\\1/p" out.txt
}

# golden.json: windows of 256 from position 0; the first two have 255 predictions each with these sums
sums="1084.2432861328125 1083.49951171875"
windows=2
if is_sanitized; then # slow: one window; the whole text is left to other builds
    sums=1084.2432861328125
    windows=1
fi
expect 0 "predicted_tokens" "$MILKIT" eval -q tiny --text "$DATA/models/eval.txt" --tokens $((256 * windows)) --json
[ ! -s err.txt ] || fail "something on stderr: $(head -1 err.txt)"
expected=$(echo "$sums" | awk '{ for (i = 1; i <= NF; i++) sum += $i; print exp(sum / (255 * NF)) }')
near "$(field perplexity)" "$expected" 0.003 || fail "expected $expected, found $(field perplexity)"
[ "$(field predicted_tokens)" = $((255 * windows)) ] && [ "$(field tokens)" = $((256 * windows)) ] &&
    [ "$(field window)" = 256 ] || fail "counts: $(cat out.txt)"
near "$(awk -v n="$(field nll)" 'BEGIN { print exp(n) }')" "$(field perplexity)" 0.00001 || fail "perplexity is not exp(nll)"
if ! is_sanitized; then
    expect 0 "predicted_tokens" "$MILKIT" eval tiny --text "$DATA/models/eval.txt" --tokens 2000 --json
    near "$(field perplexity)" 58.38485509652226 0.003 || fail "expected 58.38485, found $(field perplexity)"
    echo "perplexity $(field perplexity), expected 58.384855"
fi

# the same for any number of threads, from stdin, and as a line for people
for n in 1 3; do
    expect 0 "" "$MILKIT" eval tiny --text "$DATA/models/eval.txt" --tokens 40 --json -t $n
    sed 's/, "seconds.*//' out.txt >t$n.txt
done
cmp -s t1.txt t3.txt || fail "perplexity depends on threads"
"$MILKIT" eval tiny --text - --tokens 40 --json <"$DATA/models/eval.txt" >out.txt 2>err.txt || fail "stdin: status"
sed 's/, "seconds.*//' out.txt | cmp -s - t1.txt || fail "stdin gives another result"
expect 0 "perplexity " "$MILKIT" eval tiny --text "$DATA/models/eval.txt" --tokens 40
[ "$(wc -l <out.txt)" -eq 1 ] || fail "more than one line"

# windows: one that covers everything, one of two tokens, a last one of a single token (which predicts nothing)
expect 0 "" "$MILKIT" eval tiny --text "$DATA/models/eval.txt" --tokens 60 --window 512 --json
[ "$(field predicted_tokens)" = 59 ] || fail "one window: $(cat out.txt)"
expect 0 "" "$MILKIT" eval tiny --text "$DATA/models/eval.txt" --tokens 11 --window 2 --json
[ "$(field predicted_tokens)" = 5 ] || fail "windows of two: $(cat out.txt)"

# refusals
expect 2 "expected --text FILE" "$MILKIT" eval tiny
expect 2 "package folder" "$MILKIT" eval --text x
expect 2 "window" "$MILKIT" eval tiny --text "$DATA/models/eval.txt" --window 1
expect 2 "512" "$MILKIT" eval tiny --text "$DATA/models/eval.txt" --window 513
expect 2 "--tokens" "$MILKIT" eval tiny --text "$DATA/models/eval.txt" --tokens -3
: >empty.txt
expect 2 "two tokens" "$MILKIT" eval tiny --text empty.txt
expect 1 "missing.txt" "$MILKIT" eval tiny --text missing.txt
expect 4 "checkpoint" "$MILKIT" eval "$tiny" --text "$DATA/models/eval.txt"
if [ -e /dev/full ]; then
    "$MILKIT" eval tiny --text "$DATA/models/eval.txt" --tokens 10 >/dev/full 2>err.txt
    [ $? -eq 1 ] || fail "full disk: expected status 1"
fi

# logits that are no numbers have no perplexity, and JSON has no such number
cp -r tiny nan
find nan -path '*lm_head*' -name weight.bin | while read -r file; do
    printf '\000\176' | dd of="$file" bs=1 seek=$(($(wc -c <"$file") - 2)) conv=notrunc 2>/dev/null
done
for how in "" --json; do
    # shellcheck disable=SC2086
    expect 5 "no finite likelihood" "$MILKIT" eval nan --text "$DATA/models/eval.txt" --tokens 10 $how
    [ ! -s out.txt ] || fail "a perplexity that is no number was printed"
done

# Ctrl-C
MILKIT_CPU=scalar "$MILKIT" eval tiny --text "$DATA/models/eval.txt" --window 16 -t 1 >out.txt 2>err.txt &
pid=$!
sleep 1
kill -INT $pid
wait $pid
got=$?
[ $got -eq 130 ] || fail "SIGINT: expected status 130, found $got"
[ ! -s out.txt ] || fail "an interrupted run printed a result"
finish
