# milkit plan from the outside: listings of packages and single models; what damaged packages say, in every command that
# opens one.
. "$SOURCE/tests/cli/packages.sh"
make_package "$tiny" tiny -c 64 -b 8 --chunks 2

# ---- listings ----
expect 0 "chunk 2 of 2" "$MILKIT" plan tiny
[ ! -s err.txt ] || fail "something on stderr: $(head -1 err.txt)"
for word in "embeddings, 1 token" "embeddings, 8 tokens" "function infer" "function prefill" "LM head" "attention" "rms norm" \
    "rope" "silu mul" "linear" "no devices"; do
    grep -qF "$word" out.txt || fail "no '$word' in the listing"
done
[ "$(grep -c '  attention ' out.txt)" -eq 10 ] || fail "expected 5 layers of attention in two functions"
grep -q '%' out.txt && fail "shares of the time without a measurement"
expect 0 "%" "$MILKIT" plan tiny --measure
chunk=tiny/qwen_FFN_PF_chunk_01of02
expect 0 "function prefill" "$MILKIT" plan $chunk.mlmodelc
cp out.txt compiled.txt
expect 0 "function infer" "$MILKIT" plan $chunk.mlpackage
cmp -s out.txt compiled.txt || fail "the two forms have different plans"
expect 0 "function infer" "$MILKIT" plan $chunk.mlpackage --function infer
grep -q prefill out.txt && fail "--function shows others, too"
expect 0 "layer norm" "$MILKIT" plan $chunk.mlpackage --function infer --precision fp32
expect 0 "round" "$MILKIT" plan $chunk.mlpackage --function infer --precision fp16
expect 0 "gather" "$MILKIT" plan tiny/qwen_embeddings.mlpackage

expect 2 "no function decode" "$MILKIT" plan $chunk.mlpackage --function decode
expect 2 "expected one model" "$MILKIT" plan tiny --function infer
expect 2 "expected" "$MILKIT" plan
expect 2 "precision" "$MILKIT" plan tiny --precision double
expect 2 "precision" "$MILKIT" plan $chunk.mlpackage --precision double
expect 1 "found nothing" "$MILKIT" plan nowhere
expect 3 "while_loop" "$MILKIT" plan "$DATA/packages/while_loop_fp16.mlpackage"
expect 3 "neural network" "$MILKIT" plan "$DATA/packages/neuralnetwork.mlmodel"
if [ -e /dev/full ]; then
    "$MILKIT" plan tiny >/dev/full 2>err.txt
    [ $? -eq 1 ] || fail "full disk: expected status 1"
fi

# ---- what functions cost together ----
# Each of the four functions of two chunks is within the limit of 4 GiB, all of them are not.
cp -r tiny greedy
rm -rf greedy/*.mlpackage
for chunk in greedy/qwen_FFN_PF_chunk_0?of02.mlmodelc; do
    sed -i -e '/^    func /a\
            tensor<int32, [1]> reps_400m = const()[name = string("reps_400m"), val = tensor<int32, [1]>([400000000])];\
            tensor<int32, [1]> axis_400m = const()[name = string("axis_400m"), val = tensor<int32, [1]>([0])];\
            bool keep_400m = const()[name = string("keep_400m"), val = bool(true)];\
            tensor<int32, [400000000]> wide_400m = tile(reps = reps_400m, x = current_pos)[name = string("wide_400m")];\
            tensor<int32, [400000000]> sum_400m = add(x = wide_400m, y = wide_400m)[name = string("sum_400m")];\
            tensor<int32, [1]> pos_400m = reduce_max(axes = axis_400m, keep_dims = keep_400m, x = sum_400m)[name = string("pos_400m")];' \
        -e 's/ add(x = current_pos/ add(x = pos_400m/' $chunk/model.mil
done
expect 6 "beside the functions before it" "$MILKIT" plan greedy
expect 6 "MILKIT_LIMIT" "$MILKIT" run greedy --tokens 1 -n 1
expect 0 "function prefill" "$MILKIT" plan greedy/qwen_FFN_PF_chunk_01of02.mlmodelc

# ---- damaged packages ----
rm -rf tiny/*.mlpackage
break_package() {
    rm -rf broken
    cp -r tiny broken
}
# refused TEXT: run, logits and plan refuse the broken package with status 4 and the text
refused() {
    expect 4 "$1" "$MILKIT" plan broken
    expect 4 "$1" "$MILKIT" run broken -p And -n 1
    expect 4 "$1" "$MILKIT" logits broken --tokens 1 -o x.safetensors
    [ ! -e x.safetensors ] || fail "a damaged package gave logits"
}
pointer() {
    printf 'version https://git-lfs.github.com/spec/v1\noid sha256:%064d\nsize 12345\n' 7 >"$1"
}
first=broken/qwen_FFN_PF_chunk_01of02.mlmodelc

break_package
truncate -s 5000 $first/weights/weight.bin
refused weight.bin
break_package
rm $first/weights/weight.bin
refused weight.bin
break_package
pointer $first/weights/weight.bin
refused LFS
break_package
pointer $first/model.mil
refused LFS
break_package
truncate -s 20 $first/coremldata.bin
refused coremldata.bin
break_package
: >$first/coremldata.bin
refused coremldata.bin
break_package
head -c 100 /dev/zero >$first/coremldata.bin
refused coremldata.bin
break_package
truncate -s $(($(wc -c <$first/model.mil) / 2)) $first/model.mil
refused model.mil
break_package
sed -i 's/layer_norm(/layer_morn(/' $first/model.mil
expect 3 layer_morn "$MILKIT" plan broken
# embeddings that answer a batch with one row, which the chunk would read beyond
edit_embeddings() { # edit_embeddings TYPE OPS: hidden_states by OPS of all_rows
    sed -i -e 's/> hidden_states = gather/> all_rows = gather/' -e 's/\[name = string("hidden_states")\];/[name = string("all_rows")];/' \
        broken/qwen_embeddings.mlmodelc/model.mil
    printf '%s\n' "$2" >broken/ops.txt
    sed -i '/> all_rows = gather/r broken/ops.txt' broken/qwen_embeddings.mlmodelc/model.mil
    grep -q "$1 hidden_states" broken/qwen_embeddings.mlmodelc/model.mil || fail "the embeddings were not edited"
}
break_package
edit_embeddings 'tensor<fp16, \[1, 1, 192\]>' 'tensor<int32, [3]> first = const()[name = string("first"), val = tensor<int32, [3]>([0, 0, 0])];
tensor<int32, [3]> last = const()[name = string("last"), val = tensor<int32, [3]>([1, 1, 192])];
tensor<fp16, [1, 1, 192]> hidden_states = slice_by_index(begin = first, end = last, x = all_rows)[name = string("hidden_states")];'
refused "expected floats [1, 8, 192], found fp16 [1, 1, 192]"
# a gain of 192 elements that is a view of one
break_package
edit_embeddings 'tensor<fp16, \[1, ?, 192\]>' 'tensor<fp16, [1]> one = const()[name = string("one"), val = tensor<fp16, [1]>([0x1p+0])];
tensor<int32, [1]> reps = const()[name = string("reps"), val = tensor<int32, [1]>([192])];
tensor<fp16, [192]> gain = tile(reps = reps, x = one)[name = string("gain")];
tensor<int32, [1]> axes = const()[name = string("axes"), val = tensor<int32, [1]>([-1])];
fp16 epsilon = const()[name = string("epsilon"), val = fp16(0x1p-10)];
tensor<fp16, [1, ?, 192]> hidden_states = layer_norm(axes = axes, epsilon = epsilon, gamma = gain, x = all_rows)[name = string("hidden_states")];'
refused "gamma must be a constant"
break_package
rm -r broken/qwen_FFN_PF_chunk_02of02.mlmodelc
refused "chunk 2 of 2"
break_package
rm -r broken/qwen_lm_head.mlmodelc
refused "LM head"
break_package
rm -r broken/qwen_lm_head.mlmodelc
cp -r broken/qwen_embeddings.mlmodelc broken/qwen_lm_head.mlmodelc
refused "hidden_states"
break_package
rm -r broken/qwen_FFN_PF_chunk_02of02.mlmodelc
cp -r broken/qwen_lm_head.mlmodelc broken/qwen_FFN_PF_chunk_02of02.mlmodelc
refused "no function infer"
break_package # swapped chunks, and one of them twice
mv broken/qwen_FFN_PF_chunk_02of02.mlmodelc broken/other.mlmodelc
cp -r broken/qwen_FFN_PF_chunk_01of02.mlmodelc broken/qwen_FFN_PF_chunk_02of02.mlmodelc
refused "chunk_02of02.mlmodelc: expected chunk 2, found chunk 1"
rm -r broken/qwen_FFN_PF_chunk_01of02.mlmodelc
mv broken/other.mlmodelc broken/qwen_FFN_PF_chunk_01of02.mlmodelc
refused "chunk_01of02.mlmodelc: expected chunk 1, found chunk 2"
for file in broken/qwen_FFN_PF_chunk_0?of02.mlmodelc/coremldata.bin; do
    sed -i 's/com\.anemll\.chunk_no/com.other_.chunk_no/' "$file"
done
refused "chunk_01of02.mlmodelc: expected the layers from 0 on"
break_package # the last chunk's prefill returns a batch where meta.yaml promises the last token's row
rm -r broken/qwen_FFN_PF_chunk_02of02.mlmodelc
cp -r broken/qwen_FFN_PF_chunk_01of02.mlmodelc broken/qwen_FFN_PF_chunk_02of02.mlmodelc
sed -i 's/com\.anemll\.\(chunk_no\|layers\)/com.other_.\1/' broken/qwen_FFN_PF_chunk_02of02.mlmodelc/coremldata.bin
sed -i 's/com\.anemll\.\(chunk_no\|layers\)/com.other_.\1/' broken/qwen_FFN_PF_chunk_02of02.mlmodelc/coremldata.bin
refused "expected floats [1, 1, 192], found fp16 [1, 8, 192]"
break_package
sed -i 's/vocab_size: 2057/vocab_size: 2058/' broken/meta.yaml
refused vocab_size
break_package
sed -i 's/batch_size: 8/batch_size: 16/' broken/meta.yaml
refused "16"
break_package
sed -i 's/num_chunks: 2/num_chunks: 200/' broken/meta.yaml
refused num_chunks
break_package
printf 'model_info: [\n' >broken/meta.yaml
refused meta.yaml
break_package
sed -i 's/context_length: 64/context_length: 60/' broken/meta.yaml # fewer positions than the cache has: fine
expect 0 "" "$MILKIT" run broken -p And -n 1 --greedy
break_package
printf '{"model": ' >broken/tokenizer.json
expect 4 tokenizer.json "$MILKIT" run broken -p And -n 1
expect 4 tokenizer.json "$MILKIT" eval broken --text "$DATA/models/eval.txt" --tokens 5
break_package
printf '{"eos_token_id": [' >broken/generation_config.json
refused generation_config.json
break_package
printf '    monolithic_model: x.mlmodelc\n' >broken/extra.txt
sed -i '/num_chunks/r broken/extra.txt' broken/meta.yaml
sed -i 's/^ *monolithic_model/    monolithic_model/' broken/meta.yaml
refused "no model for the whole (model_type monolithic): expected x as"
# meta.yaml against the models: a line each, and the package runs
warned() { # a change to meta.yaml, what is said
    break_package
    sed -i "$1" broken/meta.yaml
    expect 0 "" "$MILKIT" run broken -p And -n 1 --greedy
    [ "$(grep -c warning err.txt)" = 1 ] && grep -qF "$2" err.txt || fail "expected one warning with '$2': $(cat err.txt)"
}
warned 's/context_length: 64/context_length: 96/' "meta.yaml: context_length 96, but broken/qwen_FFN_PF_chunk_01of02.mlmodelc has 64 columns"
warned 's/context_length: 64/context_length: 60/' "meta.yaml: context_length 60, but"
warned 's/split_lm_head: 16/split_lm_head: 8/' "meta.yaml: split_lm_head 8, but broken/qwen_lm_head.mlmodelc has 16 parts"
warned 's/^\( *\)split_lm_head: 16/&\n\1argmax_in_model: true/' "meta.yaml: argmax_in_model true, but broken/qwen_lm_head.mlmodelc gives logits"
warned 's/hidden_size: 192/hidden_size: 193/' "meta.yaml: hidden_size 193, but"
finish
