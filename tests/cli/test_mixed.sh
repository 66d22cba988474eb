# milkit convert --lut-ffn-mixed: refusals, the mean of bits, what meta.yaml and the report say, the same bytes for any number
# of threads, chunks, parts and after an interruption, and packages that run.
. "${0%/*}/packages.sh"
# Sanitized builds are forty times slower: they leave out what adds no new code.
threads="2 3" models="qwen3_5_moe-random qwen3_5-equal gemma4-window" parts="embeddings chunk:1 chunk:2 head,meta"
if is_sanitized; then
    threads=3 models=qwen3_5_moe-random parts=
fi
options="--lut-ffn 4,8 --lut-ffn-mixed 4.6 --calibration odd.txt -c 64 -b 8"

# These letters are single bytes for the tokenizer, with ids that the small vocabularies have.
printf 'ZQXJKVZQWXJ#7Q9ZK4XVJQZ%%W8KXQ3ZJ&VK6Q' >odd.txt
with_tokenizer() {
    cp -r "$DATA/models/$1" "$1"
    chmod -R u+w "$1"
    cp "$tiny/tokenizer.json" "$1/"
}
with_tokenizer qwen3-bias

# ---- refusals ----
expect 2 "needs --lut-ffn N" "$MILKIT" convert qwen3-bias -o o --lut-ffn-mixed 4.5
expect 2 "needs --lut-ffn N" "$MILKIT" convert qwen3-bias -o o --quant-ffn int8 --lut-ffn-mixed 4.5
expect 2 "no width above 8 bits" "$MILKIT" convert qwen3-bias -o o --lut-ffn 8 --lut-ffn-mixed 8
for bits in 3.9 6.1 4.5x 4.5.5 0x5 5e0 x -5 nan ""; do
    expect 2 "expected a mean of 4 to 6 bits" "$MILKIT" convert qwen3-bias -o o --lut-ffn 4 "--lut-ffn-mixed=$bits"
done
expect 2 "only --lut-ffn-mixed, --lut-method activation, fisher, feedback and best, and --residual-scale auto measure" "$MILKIT" convert qwen3-bias -o o --lut-ffn 4 \
    --lut-method kmeans --calibration odd.txt --residual-scale off
expect 1 "missing.txt" "$MILKIT" convert qwen3-bias -o o --lut-ffn 4 --lut-ffn-mixed 4.5 --calibration missing.txt
# What can be refused without measuring is refused before it.
expect 2 "there is 1 chunk" "$MILKIT" convert qwen3-bias -o o --lut-ffn 4 --lut-ffn-mixed 4.5 --only chunk:2 --calibration missing.txt
expect 1 "is not a folder" "$MILKIT" convert qwen3-bias -o "$DATA/models/eval.txt/o" --lut-ffn 4 --lut-ffn-mixed 4.5 --calibration missing.txt
printf 'Z' >one.txt
expect 4 "expected a text of some words" "$MILKIT" convert qwen3-bias -o o --lut-ffn 4 --lut-ffn-mixed 4.5 --calibration one.txt
expect 2 "below 413" "$MILKIT" convert qwen3-bias -o o --lut-ffn 4 --lut-ffn-mixed 4.5
expect 1 "tokenizer is needed" "$MILKIT" convert "$gqa8" -o o --lut-ffn 4 --lut-ffn-mixed 4.5
# Ids instead of a text.
printf '7' >one.ids
printf '7, x' >bad.ids
printf '7 299 300' >large.ids
expect 4 "found 1 token" "$MILKIT" convert "$gqa8" -o o --lut-ffn 4 --lut-ffn-mixed 4.5 --calibration @one.ids
expect 4 "found 'x'" "$MILKIT" convert "$gqa8" -o o --lut-ffn 4 --lut-ffn-mixed 4.5 --calibration @bad.ids
expect 2 "below 300" "$MILKIT" convert "$gqa8" -o o --lut-ffn 4 --lut-ffn-mixed 4.5 --calibration @large.ids
expect 1 "missing.ids" "$MILKIT" convert "$gqa8" -o o --lut-ffn 4 --lut-ffn-mixed 4.5 --calibration @missing.ids
[ -z "$(find . -maxdepth 1 -name 'o' -o -maxdepth 1 -name '.o.tmp*')" ] || fail "a refused call left something"

# ---- ids ----
# The ids of a text choose what the text chooses.
"$MILKIT" tokenize "$tiny" "$(cat odd.txt)" --special --ids >odd.ids || fail "no ids of the text"
# shellcheck disable=SC2086
expect_stderr 0 "weights of the layers have 6 bits" "$MILKIT" convert qwen3-bias -o by_text $options
# shellcheck disable=SC2086
expect_stderr 0 "weights of the layers have 6 bits" "$MILKIT" convert qwen3-bias -o by_ids $options --calibration @odd.ids
[ -f by_ids/meta.yaml ] && diff -r by_text by_ids >out.txt || fail "ids and their text choose otherwise: $(head -3 out.txt)"
rm -rf by_text by_ids
printf '3 5 7 11 13 17 19 23 29 31 37 41' >some.ids
expect_stderr 0 "weights of the layers have" "$MILKIT" convert "$gqa8" -o no_tokenizer --lut-ffn 4 --lut-ffn-mixed 4.5 --calibration @some.ids
rm -rf no_tokenizer

# ---- the package and what is said about it ----
# shellcheck disable=SC2086
expect 0 "weights of the layers have 6 bits" "$MILKIT" convert qwen3-bias -o mixed -j 1 $options -v --report mixed.json
[ "$(grep -c "its layer's output has error" err.txt)" -eq 28 ] || fail "not every weight is spoken of"
grep -q '^ *lut_ffn: 4$' mixed/meta.yaml && grep -q '^ *lut_ffn_mixed: 4.60$' mixed/meta.yaml || fail "keys of meta.yaml"
[ -d mixed/qwen_FFN_PF_lut4_chunk_01of01.mlmodelc ] || fail "the name of the part"
mean=$(sed -n 's/.*"mean_bits":\([0-9.]*\).*/\1/p' mixed.json)
awk "BEGIN { exit !($mean > 4.4 && $mean <= 4.6) }" || fail "mean of $mean bits"
# The report's widths, element by element, have that mean; so have the packed bytes.
sed 's/{"name":/\n&/g' mixed.json | sed -n 's/.*"rows":\([0-9]*\),"columns":\([0-9]*\).*"bits":\([0-9]*\),.*/\1 \2 \3/p' >widths.txt
awk -v mean="$mean" '{ n += $1 * $2; bits += $1 * $2 * $3; wide += $3 == 6 }
    END { d = bits / n - mean; exit !(NR == 28 && wide > 0 && wide < 28 && d * d < 1e-12) }' widths.txt || fail "widths of the report"
grep -q '"narrow":0,' mixed.json && fail "an error of zero with 4 bits"
uint6=$(grep -c 'constexpr_lut_to_dense.*uint6' mixed/qwen_FFN_PF_lut4_chunk_01of01.mlmodelc/model.mil)
[ "$uint6" -gt 0 ] || fail "no weight of 6 bits in the program"
expect 0 "4.6" "$MILKIT" inspect --json mixed/meta.yaml
expect 0 "" "$MILKIT" run mixed -p ZQXJ -n 4 --greedy --ids
expect 0 "perplexity" "$MILKIT" eval mixed --text odd.txt
# shellcheck disable=SC2086
expect 0 "MB of weights" "$MILKIT" convert qwen3-bias -o narrow $options --lut-ffn-mixed 4
"$MILKIT" convert qwen3-bias -o plain --lut-ffn 4,8 --lut-method kmeans -c 64 -b 8 >out.txt 2>err.txt
diff -r narrow/qwen_FFN_PF_lut4_chunk_01of01.mlmodelc plain/qwen_FFN_PF_lut4_chunk_01of01.mlmodelc >/dev/null ||
    fail "a mean of 4 bits is not 4 bits"

# ---- the same bytes ----
# shellcheck disable=SC2086
for n in $threads; do
    expect 0 "MB of weights" "$MILKIT" convert qwen3-bias -o "threads$n" -j $n $options
    diff -r mixed "threads$n" >/dev/null || fail "output depends on threads ($n)"
done
# shellcheck disable=SC2086
expect 0 "MB of weights" "$MILKIT" convert qwen3-bias -o chunks $options --chunks 2
mkdir joined
# shellcheck disable=SC2086
for part in $parts; do
    expect 0 "MB of weights" "$MILKIT" convert qwen3-bias -o one --only $part $options --chunks 2
    cp -r one/* joined/ && rm -rf one
done
[ -z "$parts" ] || diff -r chunks joined >/dev/null || fail "parts made alone differ"
# The widths are the same for any number of chunks.
cat chunks/qwen_FFN_PF_lut4_chunk_0?of02.mlmodelc/model.mil | grep -c 'constexpr_lut_to_dense.*uint6' >of_chunks.txt
[ "$(cat of_chunks.txt)" -eq "$uint6" ] || fail "chunks have other widths: $(cat of_chunks.txt) and $uint6"

# ---- killed, then resumed: finished parts are kept as long as the choice is the same ----
kill_after_chunk() {
    # shellcheck disable=SC2086
    "$MILKIT" convert qwen3-bias -o killed -j 1 $options --chunks 2 >/dev/null 2>err.txt &
    local pid=$!
    while kill -0 $pid 2>/dev/null && [ -z "$(find . -path './.killed.tmp-*chunk_02*' -name 'weight.bin*')" ]; do sleep 0.01; done
    kill -9 $pid 2>/dev/null
    wait $pid 2>/dev/null
}
if [ -n "$parts" ]; then
    kill_after_chunk
    if [ ! -d killed ]; then
        # shellcheck disable=SC2086
        expect 0 "chunk_01of02: finished before, kept" "$MILKIT" convert qwen3-bias -o killed --resume $options --chunks 2
    fi
    diff -r chunks killed >/dev/null || fail "a resumed package differs"
    rm -rf killed
    # Another choice takes nothing from it.
    printf 'Q7XZ' >other.txt
    kill_after_chunk
    rm -rf killed
    # shellcheck disable=SC2086
    expect 0 "MB of weights" "$MILKIT" convert qwen3-bias -o killed --resume $options --calibration other.txt --chunks 2
    # shellcheck disable=SC2086
    expect 0 "MB of weights" "$MILKIT" convert qwen3-bias -o fresh $options --calibration other.txt --chunks 2
    diff -r fresh killed >/dev/null || fail "parts of another choice were kept"
    rm -rf .killed.tmp-*
fi

# ---- the other families: views of packed experts, halves of a projection, shared keys ----
for model in $models; do
    with_tokenizer $model
    # shellcheck disable=SC2086
    expect 0 "weights of the layers have 6 bits" "$MILKIT" convert $model -o other $options --report other.json --force
    grep -q '"narrow":0,' other.json && fail "$model: an error of zero with 4 bits"
    expect 0 "" "$MILKIT" run other -p ZQXJ -n 4 --greedy --ids
done
finish
