# milkit convert of Qwen3.5 checkpoints: layouts, the package's own description, options; refusals leave nothing.
set -u
rm -rf "$SCRATCH"
mkdir -p "$SCRATCH"
cd "$SCRATCH" || exit 1
failed=0
models=$DATA/models

fail() {
    echo "FAILED: $*"
    failed=1
}

# line "text": meta.yaml of the package in $package has it
line() {
    grep -qF -- "$1" "$package/meta.yaml" || fail "$package: expected '$1' in meta.yaml"
}

package=wrapper
"$MILKIT" convert "$models/qwen3_5_moe-tiny" -o wrapper -c 96 -b 32 --chunks 2 2>err.txt || fail "$(cat err.txt)"
grep -q 'left out: .*\(mtp\|model.visual\)\.' err.txt || fail "vision and mtp tensors are not named"
line "architecture: qwen3_5"
line "model_prefix: qwen35"
line "recurrent_state: true"
line "prefill_full_batches_only: true"
line "gdn_chunk_size: 32"
line "moe: {experts: 16, experts_per_token: 4, evaluation: dense}"
line "layer_types: [linear, linear, linear, full]"
line "shape: [2, 1, 96, 64]"
line "shape: [12, 32, 32]"
line "shape: [3, 3, 256]"
for part in embeddings FFN_PF_chunk_01of02 FFN_PF_chunk_02of02 lm_head; do
    [ -d "wrapper/qwen35_$part.mlpackage" ] || fail "no qwen35_$part.mlpackage"
    [ -d "wrapper/qwen35_$part.mlmodelc" ] || fail "no qwen35_$part.mlmodelc"
done
for name in model_model_kv_cache_0 model_model_gdn_state_0 model_model_conv_state_0; do
    grep -q "$name" wrapper/qwen35_FFN_PF_chunk_01of02.mlmodelc/metadata.json || fail "no state $name"
done

package=each
"$MILKIT" convert "$models/qwen3_5_moe-random" -o each -c 64 -b 48 2>err.txt || fail "$(cat err.txt)"
line "gdn_chunk_size: 16"
package=dense
"$MILKIT" convert "$models/qwen3_5-equal" -o dense -c 64 -b 64 --gdn-chunk 8 2>err.txt || fail "$(cat err.txt)"
line "gdn_chunk_size: 8"
grep -q '^ *moe:' dense/meta.yaml && fail "a dense package has experts"
"$MILKIT" convert "$models/qwen3_5-equal" -o again -c 64 -b 64 --gdn-chunk 8 -j 1 2>err.txt || fail "$(cat err.txt)"
for part in embeddings FFN_PF_chunk_01of01 lm_head; do
    cmp -s "dense/qwen35_$part.mlmodelc/weights/weight.bin" "again/qwen35_$part.mlmodelc/weights/weight.bin" ||
        fail "$part: other weights with one thread"
done

# Options for exact graphs: what they write, and a word where they change nothing.
mil=qwen35_FFN_PF_chunk_01of01.mlmodelc/model.mil
"$MILKIT" convert "$models/qwen3_5_moe-random" -o exact -c 64 -b 16 --format mlmodelc --exact-norms --exact-topk 2>err.txt ||
    fail "$(cat err.txt)"
grep -q "changes\? nothing" err.txt && fail "a word about options that count: $(cat err.txt)"
grep -q weight_rest exact/$mil || fail "--exact-norms has no second constants"
grep -q "logical_or" exact/$mil || fail "--exact-topk does not count experts"
grep -q weight_rest each/$mil && fail "norms have two constants without --exact-norms"
grep -q "logical_or" each/$mil && fail "the threshold has bool logic"
"$MILKIT" convert "$models/qwen3_5-equal" -o plain -c 64 -b 16 --only head --exact-topk 2>err.txt || fail "$(cat err.txt)"
grep -q "choice of experts changes nothing" err.txt || fail "no word about experts that are not there: $(cat err.txt)"
"$MILKIT" convert "$models/gemma4-window" -o plain2 -c 64 -b 8 --only head --exact-norms 2>err.txt || fail "$(cat err.txt)"
grep -q "exact norms change nothing" err.txt || fail "no word about norms with one constant: $(cat err.txt)"

"$MILKIT" convert "$models/qwen3_5-equal" -o no -c 64 -b 64 --gdn-chunk 24 2>err.txt
[ $? -eq 2 ] || fail "a chunk of 24 is accepted"
grep -q "power of two" err.txt || fail "the message about chunks: $(cat err.txt)"
mkdir edited
cp "$models/qwen3_5-equal/model.safetensors" edited/
sed 's/"full_attention"/"sliding_attention"/' "$models/qwen3_5-equal/config.json" >edited/config.json
"$MILKIT" convert edited -o no 2>err.txt
[ $? -eq 3 ] || fail "an unknown layer type is accepted"
grep -q "sliding_attention for layer 3" err.txt || fail "the message about layer types: $(cat err.txt)"
[ ! -e no ] || fail "a refused call made an output"
exit $failed
