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

# ---- against another package, and against the checkpoint ----
text=$DATA/models/eval.txt
expect 0 "" "$MILKIT" eval tiny --text "$text" --tokens 40 --json --against tiny
[ "$(field compared_tokens)" = 39 ] && [ "$(field max_kl)" = 0 ] && [ "$(field top1_agreement)" = 1 ] ||
    fail "against itself: $(cat out.txt)"
sed 's/, "seconds.*/}/' out.txt >with.txt
sed 's/$/}/' t1.txt | cmp -s - with.txt || fail "the perplexity depends on --against"
expect 0 "among the best 5 in 100.00 %" "$MILKIT" eval tiny --text "$text" --tokens 40 --against "$tiny"
[ "$(wc -l <out.txt)" -eq 4 ] || fail "other than four lines: $(cat out.txt)"
# windows that are no multiple of the piece, a last one of a single token
expect 0 "" "$MILKIT" eval tiny --text "$text" --tokens 43 --window 21 --json --against "$tiny"
[ "$(field compared_tokens)" = 40 ] && [ "$(field not_finite)" = 0 ] || fail "windows: $(cat out.txt)"
awk -v k="$(field mean_kl)" -v c="$(field min_cosine)" 'BEGIN { exit !(k != "" && k < 1e-5 && k > -1e-9 && c > 0.99999) }' ||
    fail "fp16 against the checkpoint: $(cat out.txt)"
make_package "$tiny" lut3 -c 512 -b 64 --format mlmodelc --lut-ffn 3 --lut-method kmeans
for other in tiny "$tiny"; do
    expect 0 "" "$MILKIT" eval lut3 --text "$text" --tokens 120 --window 120 --json --against "$other"
    cp out.txt against.txt
    awk -v k="$(field mean_kl)" -v m="$(field max_kl)" -v a="$(field top1_agreement)" -v b="$(field top3_agreement)" \
        -v c="$(field top5_agreement)" 'BEGIN { exit !(k > 0.002 && k < 0.2 && m > k && a < b && b <= c && c <= 1 && a > 0.6) }' ||
        fail "3 bits against $other: $(cat against.txt)"
done
make_package "$gqa8" gqa8 -c 64 -b 16 --format mlmodelc
expect 5 "vocabulary size 2057" "$MILKIT" eval tiny --text "$text" --tokens 40 --window 40 --against "$gqa8"
expect 5 "vocabulary size 2057" "$MILKIT" eval tiny --text "$text" --tokens 40 --window 40 --against gqa8
expect 2 "its context holds 64" "$MILKIT" eval tiny --text "$text" --tokens 40 --against gqa8
expect 1 "found nothing" "$MILKIT" eval tiny --text "$text" --tokens 40 --against missing
expect 4 "config.json" "$MILKIT" eval tiny --text "$text" --tokens 40 --against .

# ---- the other families: perplexity within 0.5 % of transformers' (golden.json), with prefill's and infer's states alike ----
# family NAME CHECKPOINT TOKENS
family() {
    make_package "$2" "$1" -c 256 -b 64 --format mlmodelc
    expect 0 "" "$MILKIT" eval "$1" --text "$text" --tokens "$3" --json
    local want
    want=$(python3 -c 'import json, math, sys
windows = json.load(open(sys.argv[1]))["perplexity"]["predictions_and_nll_of_each_window"][:int(sys.argv[2]) // 256]
print(math.exp(sum(w[1] for w in windows) / sum(w[0] for w in windows)))' "$2/golden.json" "$3")
    near "$(field perplexity)" "$want" 0.005 || fail "$1: expected perplexity $want, found $(field perplexity)"
    echo "$1: perplexity $(field perplexity), expected $want"
}
if command -v python3 >/dev/null; then
    if is_sanitized; then
        family experts "$DATA/models/qwen3_5_moe-tiny" 256
    else
        family experts "$DATA/models/qwen3_5_moe-tiny" 1024
        if [ -n "$SHARED" ]; then
            family dense "$SHARED/models/qwen3_5-tiny" 1024
            family gemma "$SHARED/models/gemma4-tiny" 1024
        fi
    fi
else
    echo "skipped: no python3 to read golden.json"
fi

# refusals
expect 2 "expected --text FILE" "$MILKIT" eval tiny
expect 2 "package folder" "$MILKIT" eval --text x
expect 2 "window" "$MILKIT" eval tiny --text "$DATA/models/eval.txt" --window 1
expect 2 "512" "$MILKIT" eval tiny --text "$DATA/models/eval.txt" --window 513
expect 2 "--tokens" "$MILKIT" eval tiny --text "$DATA/models/eval.txt" --tokens -3
: >empty.txt
expect 4 "two tokens" "$MILKIT" eval tiny --text empty.txt
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
