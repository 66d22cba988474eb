# Qwen3.5 packages of any batch and chunk: each one runs and gives the same bits by batches and token by token; what the
# matcher of the delta rule finds decides how fast a function is, never whether it runs.
. "$SOURCE/tests/cli/packages.sh"
equal=$DATA/models/qwen3_5-equal

# tokens N: ids of the vocabulary of 300
tokens() {
    seq "$1" | awk '{ printf "%s%d", (NR > 1 ? "," : ""), 37 * $1 % 300 }'
}
# same_bits PACKAGE N: N tokens in both call sequences
same_bits() {
    tokens "$2" >ids.txt
    expect 0 "" "$MILKIT" logits --force "$1" --tokens @ids.txt -o single.safetensors
    expect 0 "" "$MILKIT" logits --force "$1" --tokens @ids.txt --prefill -o prefill.safetensors
    compare same prefill.safetensors single.safetensors
}
# batch N OPTIONS...: a package of batches of N tokens, recognised and the same bits
batch() {
    rm -rf any
    make_package "$equal" any -c 640 -b "$@"
    expect 0 "" "$MILKIT" plan any
    [ "$(grep -c ' gated delta ' out.txt)" -eq 6 ] || fail "-b $*: expected 3 layers of the delta rule in two functions"
    same_bits any $(($1 + 3))
}

# ---- any number of chunks in a batch: the limits that matchers once had, and the smallest chunks ----
for n in 31 33 65; do
    batch $n
done
batch 64 --gdn-chunk 2
batch 64 --gdn-chunk 1
if ! is_sanitized; then
    batch 300
fi

# ---- a prefill that no pattern matches: an op between the new state and its update ----
rm -rf any
make_package "$equal" any -c 128 -b 16 --format mlmodelc
same_bits any 19
cp prefill.safetensors matched.safetensors
program=any/qwen35_FFN_PF_chunk_01of01.mlmodelc/model.mil
line=$(grep -n 'func prefill' $program | cut -d: -f1)
sed -i "$line,\$s/^\\( *tensor<fp16, \\[3, 32, 48\\]>\\) \\(squeeze_[0-9]*\\) = squeeze(\\(.*\\))\\[name = .*/\\1 \\2_apart = squeeze(\\3)[name = string(\"\\2_apart\")];\n\\1 \\2 = identity(x = \\2_apart)[name = string(\"\\2\")];/" $program
[ "$(grep -c '_apart = squeeze' $program)" -eq 3 ] || fail "the prefill was not edited"
expect 0 "" "$MILKIT" plan any
[ "$(grep -c ' gated delta ' out.txt)" -eq 3 ] || fail "expected the delta rule in infer alone"
expect 0 "" "$MILKIT" logits --force any --tokens @ids.txt --prefill -o unmatched.safetensors
compare near unmatched.safetensors matched.safetensors 0.02
expect 0 "" "$MILKIT" run any --tokens @ids.txt -n 4 --greedy --ids
for mode in fp32 fp16; do
    expect 0 "" "$MILKIT" logits --force any --tokens @ids.txt --prefill --precision $mode -o other.safetensors
    compare near other.safetensors matched.safetensors 0.1
done

# ---- a conversion tries what it wrote ----
tried="a batch and a token through the new package"
expect_stderr 0 "$tried" "$MILKIT" convert "$equal" -o tried -c 128 -b 65 -v
expect 0 "" "$MILKIT" convert "$equal" -o not-tried -c 128 -b 65 -v --no-verify
grep -qF "$tried" err.txt && fail "--no-verify tries the package"
expect 0 "" "$MILKIT" convert "$equal" -o part -c 128 -b 65 -v --only head,meta
grep -qF "$tried" err.txt && fail "a part alone is tried"
# an engine that can't be had stands for a package that it can't run
expect 2 "--no-verify leaves this out" env MILKIT_LIMIT=none "$MILKIT" convert "$equal" -o refused -c 128 -b 65
[ -z "$(ls -A | grep refused)" ] || fail "a package that does not run was left behind"
expect 0 "" env MILKIT_LIMIT=none "$MILKIT" convert "$equal" -o refused -c 128 -b 65 --no-verify
finish
