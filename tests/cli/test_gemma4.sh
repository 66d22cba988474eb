# milkit and Gemma 4 from the outside: layouts, meta.yaml, numbers against transformers with both local caches, the same
# bits by batches and by single tokens wherever blocks and windows begin; what is refused leaves nothing.
. "$SOURCE/tests/cli/packages.sh"
models=$DATA/models
window=$models/gemma4-window
resaved=$models/gemma4-resaved

# line PACKAGE "text": its meta.yaml has it
line() {
    grep -qF -- "$2" "$1/meta.yaml" || fail "$1: expected '$2' in meta.yaml"
}

# ---- the packages ----
make_package "$window" blocks -c 512 -b 8
make_package "$window" full -c 304 -b 144 --chunks 3
make_package "$resaved" resaved -c 320 -b 16 --format mlmodelc
line blocks "architecture: gemma4"
line blocks "model_prefix: gemma4"
line blocks "local_attention_window: 16"
line blocks "local_cache_length: 32"
line blocks "final_logit_softcap: 30.0"
line blocks "per_layer_inputs: 112"
line blocks "kv_shared_layers: {4: 3, 5: 2, 6: 2}"
line blocks "layer_types: [sliding, sliding, full, sliding, sliding, full, full]"
line blocks "shape: [3, 2, 32, 32]"
line blocks "shape: [1, 2, 512, 64]"
line full "shape: [3, 2, 304, 32]"
grep -q local_cache_length full/meta.yaml && fail "a cache of full length has a length of its own"
line resaved "shape: [3, 2, 80, 24]"
line resaved "shape: [1, 2, 320, 40]"
for part in embeddings FFN_PF_chunk_01of03 FFN_PF_chunk_02of03 FFN_PF_chunk_03of03 lm_head; do
    [ -d "full/gemma4_$part.mlpackage" ] || fail "no gemma4_$part.mlpackage"
    [ -d "full/gemma4_$part.mlmodelc" ] || fail "no gemma4_$part.mlmodelc"
done
grep -q per_layer_inputs full/gemma4_FFN_PF_chunk_02of03.mlmodelc/metadata.json || fail "no fifth input"
make_package "$window" again -c 512 -b 8 -j 1
for part in embeddings FFN_PF_chunk_01of01 lm_head; do
    cmp -s "blocks/gemma4_$part.mlmodelc/weights/weight.bin" "again/gemma4_$part.mlmodelc/weights/weight.bin" ||
        fail "$part: other weights with one thread"
done

# ---- against transformers, and batches against single tokens ----
prompts="one five batch64 long"
lengths="1 7 8 9 15 16 17 23 24 25 31 32 33 39 40"
if is_sanitized; then
    prompts="five batch64"
    lengths="8 17 25"
fi
for p in $prompts; do
    for package in blocks full resaved; do
        golden=$window/golden.safetensors
        [ $package = resaved ] && golden=$resaved/golden.safetensors
        ids "$golden" $p.ids >$p.txt
        expect 0 "" "$MILKIT" logits --force $package --tokens @$p.txt -o $package-$p.safetensors
        compare golden $package-$p.safetensors "$golden" $p 0.9998 1
        expect 0 "" "$MILKIT" logits --force $package --tokens @$p.txt --prefill -o prefill.safetensors
        compare same prefill.safetensors $package-$p.safetensors
    done
    # other slots, so other sums, but the same numbers
    compare near blocks-$p.safetensors full-$p.safetensors 0.05
done
# every length up to 5 blocks
for n in $lengths; do
    expect 0 "" "$MILKIT" logits --force blocks --tokens "$(ids "$window/golden.safetensors" batch64.ids $n)" --prefill -o prefill.safetensors
    compare same prefill.safetensors blocks-batch64.safetensors
done
ids "$window/golden.safetensors" five.ids >five.txt
expect 0 "verdict: pass" "$MILKIT" check blocks --hf "$window" --tokens @five.txt -n 32 --min-cosine 0.9998
expect 0 "verdict: pass" "$MILKIT" check full --hf "$window" --tokens @five.txt -n 32 --min-cosine 0.9998

# ---- refusals ----
mkdir edited
ln -s "$window/model.safetensors" edited/
for key in attention_k_eq_v enable_moe_block; do
    sed "s/\"$key\": false/\"$key\": true/" "$window/config.json" >edited/config.json
    expect 3 $key "$MILKIT" convert edited -o no
done
sed 's/"use_bidirectional_attention": null/"use_bidirectional_attention": "vision"/' "$window/config.json" >edited/config.json
expect 3 use_bidirectional_attention "$MILKIT" convert edited -o no
sed 's/"hidden_size_per_layer_input": 16/"hidden_size_per_layer_input": 0/' "$window/config.json" >edited/config.json
expect 3 hidden_size_per_layer_input "$MILKIT" convert edited -o no
sed 's/"model_type": "gemma4_text"/"model_type": "gemma4_vision"/' "$window/config.json" >edited/config.json
expect 3 "vision" "$MILKIT" convert edited -o no
[ ! -e no ] || fail "a refused call made an output"

# ---- the published layout ----
if [ -n "$SHARED" ]; then
    "$MILKIT" convert "$SHARED/models/gemma4-tiny" -o tiny -c 256 2>err.txt || fail "$(cat err.txt)"
    grep -q 'left out: .*model.embed_vision.*model.vision_tower' err.txt || fail "vision tensors are not named: $(cat err.txt)"
    line tiny "kv_shared_layers: {5: 4, 6: 4, 7: 3}"
    expect 0 "verdict: pass" "$MILKIT" check tiny --hf "$SHARED/models/gemma4-tiny" -n 40
fi
finish
