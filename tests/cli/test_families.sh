# Every family that is a row of the decoders' traits, from the outside: each one's own settings in its package and its
# meta.yaml, the numbers of the published model code, the same bits by batches and by single tokens, `check --layers`, the
# commands, and widths. With the other checkpoints of ../shared where they are.
. "$SOURCE/tests/cli/packages.sh"

prompts="one five batch64 long longer"
is_sanitized && prompts="five batch64"

# family FOLDER OPTIONS...: package p of the checkpoint, in batches of 16, against its golden numbers
family() {
    local folder=$1 golden=$1/golden.safetensors name p pairs=
    name=$(basename "$folder")
    shift
    rm -rf p
    make_package "$folder" p -c 512 -b 16 "$@"
    for p in $prompts; do
        ids "$golden" $p.ids >$p.txt
        expect 0 "" "$MILKIT" logits p --tokens @$p.txt --force -o $p.safetensors
        expect 0 "" "$MILKIT" logits p --tokens @$p.txt --prefill --force -o prefill.safetensors
        compare same prefill.safetensors $p.safetensors
        pairs="$pairs $p.safetensors $p"
    done
    # shellcheck disable=SC2086
    compare quantiles 0.9999 0.99999 0.05 "$golden" $pairs
    echo "$name: $(cat compare.txt)"
    ids "$golden" batch64.ids >ids.txt
    expect 0 "verdict: pass" "$MILKIT" check p --hf "$folder" --tokens @ids.txt -n 8 --layers
}
# line "text": p's meta.yaml has it
line() {
    grep -qF -- "$1" p/meta.yaml || fail "expected '$1' in meta.yaml"
}
no_line() {
    grep -qF -- "$1" p/meta.yaml && fail "unexpected '$1' in meta.yaml"
}
# has_part NAME: in both forms
has_part() {
    [ -d "p/$1.mlmodelc" ] && [ -d "p/$1.mlpackage" ] || fail "no part $1"
}
llama=$DATA/models/llama-rope3

# ---- the packages and what they say of themselves ----
family "$DATA/models/llama-bias" --chunks 3
line "architecture: llama"
line "model_prefix: llama"
line "split_lm_head: 8"
no_line layer_types
no_line states
for part in embeddings FFN_PF_chunk_01of03 FFN_PF_chunk_03of03 lm_head; do
    has_part llama_$part
done
grep -q 'mlp_down_proj_bias' p/llama_FFN_PF_chunk_02of03.mlmodelc/model.mil || fail "no biases of the MLP"

family "$llama" --chunks 2 --format mlmodelc
# The state, the functions and the ports that ANEMLL's runtimes ask for.
"$MILKIT" inspect p/llama_FFN_PF_chunk_02of02.mlmodelc >inspect.txt || fail "inspect"
for text in infer prefill hidden_states position_ids causal_mask current_pos output_hidden_states model_model_kv_cache_0 \
    "8, 1, 512, 32"; do
    grep -qF -- "$text" inspect.txt || fail "no $text in the chunk: $(cat inspect.txt)"
done
"$MILKIT" inspect p/llama_lm_head.mlmodelc >inspect.txt || fail "inspect"
grep -q logits8 inspect.txt || fail "no logits8"
grep -q logits9 inspect.txt && fail "more than 8 parts of the head"

family "$DATA/models/qwen2-window" --chunks 2
line "architecture: qwen2"
line "model_prefix: qwen25"
line "split_lm_head: 16"
line "local_attention_window: 24"
line "layer_types: [full, full, sliding, sliding]"
# A chunk without layers that slide has no mask for them.
grep -q local_keys p/qwen25_FFN_PF_chunk_01of02.mlmodelc/model.mil && fail "a window where none is"
grep -q local_keys p/qwen25_FFN_PF_chunk_02of02.mlmodelc/model.mil || fail "no window where one is"

family "$DATA/models/mistral-window"
line "architecture: mistral"
line "local_attention_window: 32"

family "$DATA/models/smollm3-list" --chunks 6 --format mlpackage
line "architecture: smollm3"

# Gemma 3: a wrapper's layout, two caches, one of which shifts by blocks
gemma3=$DATA/models/gemma3-linear
family "$gemma3" --chunks 3
line "architecture: gemma3"
line "model_prefix: gemma3"
line "split_lm_head: 16"
line "local_attention_window: 24"
line "local_cache_length: 56"
line "layer_types: [sliding, sliding, full, sliding, sliding, full]"
line "shape: [4, 4, 56, 32]"
line "shape: [2, 4, 512, 32]"
no_line sliding_window
family "$gemma3" --exact-norms --format mlmodelc
grep -q weight_rest p/gemma3_FFN_PF_chunk_01of01.mlmodelc/model.mil || fail "norms of one constant"
# short contexts: all positions in both caches
rm -rf p
make_package "$gemma3" p -c 80 -b 28 --chunks 2 --format mlmodelc
no_line local_cache_length
ids "$gemma3/golden.safetensors" batch64.ids >ids.txt
expect 0 "verdict: pass" "$MILKIT" check p --hf "$gemma3" --tokens @ids.txt -n 8 --layers
# ANEMLL's form: its functions and states; the same numbers by single tokens, and by batches behind the window, too
rm -rf p
make_package "$gemma3" p -c 512 -b 8 --chunks 2 --anemll-rotate
line "sliding_window: 24"
line "shape: [8, 2, 24, 32]"
line "shape: [4, 2, 512, 32]"
no_line local_cache_length
"$MILKIT" inspect p/gemma3_FFN_PF_chunk_01of02.mlmodelc >inspect.txt || fail "inspect"
for text in "function infer (default)" "function prefill:" "function infer_rotate:" "function prefill_rotate:"     "com.anemll.functions: infer,prefill,infer_rotate,prefill_rotate"     "model_model_kv_cache_local  tensor<fp16, [8, 2, 24, 32]>" "model_model_kv_cache_global  tensor<fp16, [4, 2, 512, 32]>"; do
    grep -qF -- "$text" inspect.txt || fail "no $text: $(cat inspect.txt)"
done
p=long
is_sanitized && p=batch64
ids "$gemma3/golden.safetensors" $p.ids >ids.txt
expect 0 "" "$MILKIT" logits p --tokens @ids.txt --force -o single.safetensors
compare quantiles 0.9999 0.99999 0.05 "$gemma3/golden.safetensors" single.safetensors $p
expect 0 "" "$MILKIT" logits p --tokens @ids.txt --prefill --force -o prefill.safetensors
compare golden prefill.safetensors "$gemma3/golden.safetensors" $p 0.9999 1
expect 0 "verdict: pass" "$MILKIT" check p --hf "$gemma3" --tokens @ids.txt -n 8 --layers
expect 2 "the window of 24 positions of a rotating cache has to be a multiple of it, found 16" \
    "$MILKIT" convert "$gemma3" -o no -c 512 -b 16 --anemll-rotate
expect_stderr 0 "the rotating caches change nothing: llama has none" "$MILKIT" convert "$llama" -o no --only head --anemll-rotate
rm -rf no

# Experts: every second layer, weights as they come out of the softmax, `num_local_experts`; the engine computes the chosen ones
moe=$DATA/models/qwen3_moe-mixed
family "$moe" --chunks 2 --format mlmodelc
line "architecture: qwen3_moe"
line "model_prefix: qwen3moe"
line "moe: {experts: 6, experts_per_token: 3, evaluation: dense}"
expect 0 "" "$MILKIT" plan p
[ "$(grep -c ' experts down ' out.txt)" -eq 4 ] || fail "expected experts of 2 layers in two functions: $(cat out.txt)"
expect_stderr 0 "all 6 experts of a layer for every token, of which 3 count" "$MILKIT" convert "$moe" -o no --only meta
rm -rf no
family "$moe" --exact-topk --format mlmodelc
# Behind the first group of convolutions and in a layer of its own: the list of plain layers wins over the step
mkdir plain
ln -s "$moe"/model.safetensors plain/
sed 's/"mlp_only_layers": \[\]/"mlp_only_layers": [1]/' "$moe/config.json" >plain/config.json
expect 4 "model.layers.1.mlp.gate_proj.weight is missing" "$MILKIT" convert plain -o no
sed 's/"mlp_only_layers": \[\]/"mlp_only_layers": [5]/' "$moe/config.json" >plain/config.json
expect 4 "expected numbers of layers below 5" "$MILKIT" convert plain -o no
sed 's/"num_experts_per_tok": 3/"num_experts_per_tok": 7/' "$moe/config.json" >plain/config.json
expect 4 "num_experts_per_tok 7 is more than num_experts 6" "$MILKIT" convert plain -o no

# ---- commands and widths: random weights are further from their checkpoint than the limits of trained ones ----
make_package "$llama" lut --lut-embeddings 8 --lut-ffn 6,8 --lut-head 6 -c 128 -b 16
ids "$llama/golden.safetensors" five.ids >five.txt
expect 0 "" "$MILKIT" run lut --tokens @five.txt -n 8 --greedy --ids
expect 0 "verdict: pass" "$MILKIT" check lut --hf "$llama" --tokens @five.txt -n 40 --layers --min-cosine 0.95 --max-kl 0.1
# width FLOOR OPTIONS...
width() {
    local floor=$1 golden=$DATA/models/smollm3-list/golden.safetensors
    shift
    rm -rf p
    make_package "$DATA/models/smollm3-list" p -c 128 -b 16 --format mlmodelc "$@"
    expect 0 "" "$MILKIT" logits p --tokens @ids.txt --force -o single.safetensors
    expect 0 "" "$MILKIT" logits p --tokens @ids.txt --prefill --force -o prefill.safetensors
    compare same prefill.safetensors single.safetensors
    compare golden single.safetensors "$golden" batch64 "$floor" 64
}
ids "$DATA/models/smollm3-list/golden.safetensors" batch64.ids >ids.txt
width 0.99 --lut-ffn 8
width 0.8 --lut-ffn 4 --lut-method kmeans
width 0.99 --quant-ffn int8
width 0.8 --quant-ffn int4,32
width 0.8 --lut-ffn 4 --lut-ffn-mixed 5 --calibration @ids.txt

# ---- text: trained weights and a tokenizer under another family's name, whose model code makes little sense of them ----
mkdir text
ln -s "$tiny"/model.safetensors "$tiny"/tokenizer* "$tiny"/generation_config.json text/
for type in llama mistral smollm3; do
    sed "s/\"model_type\": \"qwen3\"/\"model_type\": \"$type\"/" "$tiny/config.json" >text/config.json
    rm -rf p
    make_package text p -c 256 -b 16 --format mlmodelc
    line "architecture: $type"
    expect 0 "" "$MILKIT" chat p -p 'And it came' --greedy -n 8
    expect 0 "" "$MILKIT" run p -p 'And it came' --greedy -n 8
    expect 0 "among the best 5 in 100.00 %" "$MILKIT" eval p --text "$DATA/models/eval.txt" --tokens 40 --against text
done

# ---- RoPE whose frequencies change with the length ----
mkdir edited
ln -s "$llama"/model* edited/
sed 's/"rope_type": "llama3"/"rope_type": "dynamic"/; s/"max_position_embeddings": 2048/"max_position_embeddings": 256/' \
    "$llama/config.json" >edited/config.json
expect 3 "expected a context of at most 256, found 512" "$MILKIT" convert edited -o no
[ ! -e no ] || fail "a refused conversion left something"
rm -rf p
make_package edited p -c 256 -b 16 --format mlmodelc
expect 0 "verdict: pass" "$MILKIT" check p --hf edited --tokens @five.txt -n 16
# what Gemma 3 has no form for
rm edited/*
ln -s "$gemma3"/model* edited/
for key in attn_logit_softcapping use_bidirectional_attention; do
    sed "s/\"attention_bias\": false/\"attention_bias\": false, \"$key\": true/; /\"attn_logit_softcapping\": null/d" \
        "$gemma3/config.json" >edited/config.json
    expect 3 $key "$MILKIT" convert edited -o no
done
sed 's/"final_logit_softcapping": null/"final_logit_softcapping": 5.0/' "$gemma3/config.json" >edited/config.json
rm -rf p
make_package edited p -c 128 -b 16 --format mlmodelc
line "final_logit_softcap: 5.0"
expect 0 "verdict: pass" "$MILKIT" check p --hf edited --tokens @five.txt -n 16
# a window that layer_types asks for and the switch denies
sed 's/"use_sliding_window": true/"use_sliding_window": false, "layer_types": ["sliding_attention", "full_attention", "full_attention", "full_attention"]/' \
    "$DATA/models/qwen2-window/config.json" >edited/config.json
expect 3 "sliding_attention for layer 0" "$MILKIT" convert edited -o no

# ---- the other checkpoints ----
if [ -n "$SHARED" ] && ! is_sanitized; then
    for name in llama-k256 llama-small llama-tied qwen2-tied qwen2-yarn mistral-full smollm3-nope gemma3-plain \
        gemma3-resaved; do
        family "$SHARED/models/$name" --format mlmodelc
    done
    # One position of `batch64` (21) has two experts so near to each other that rounding chooses the other one.
    prompts="one five long longer"
    family "$SHARED/models/qwen3_moe-split" --format mlmodelc
else
    echo "skipped: the checkpoints of ../shared"
fi
finish
