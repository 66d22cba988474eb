# milkit check --layers: a wrong layer and a wrong state are found by name, in every family; limits by width; packages of
# other converters show the borders of their chunks.
# labels: host
. "$SOURCE/tests/cli/packages.sh"
models=$DATA/models

prints() {
    grep -qF -- "$1" out.txt || fail "expected '$1' in the output, found: $(head -3 out.txt)"
}
# rows PATTERN N: so many lines of the last output
rows() {
    local n
    n=$(grep -cE -- "$1" out.txt)
    [ "$n" -eq "$2" ] || fail "expected $2 lines like '$1', found $n"
}

make_package "$gqa8" qwen3 -c 96 -b 16 --chunks 2
make_package "$models/qwen3_5-equal" dense -c 96 -b 16 --chunks 3 --format mlmodelc
make_package "$models/qwen3_5_moe-random" experts -c 96 -b 16 --format mlpackage
make_package "$models/gemma4-window" window -c 96 -b 8 --chunks 2 --format mlmodelc

# ---- all is well ----
expect 0 "verdict: pass" "$MILKIT" check qwen3 --hf "$gqa8" --layers -n 4
prints "layer 2 (full)"
rows '^layer ' 3
rows '^model_model_kv_cache_0 ' 6
expect 0 "verdict: pass" "$MILKIT" check dense --hf "$models/qwen3_5-equal" --layers -n 4
rows '^layer [012] .linear. ' 3
rows '^layer 3 .full. ' 1
rows '^(embeddings|final norm) ' 2
rows 'model_model_gdn_state_0 +[012]  memory ' 3
rows 'model_model_conv_state_0 +[012]  window ' 3
rows 'model_model_kv_cache_0 +3  (keys|values) ' 2
expect 0 "verdict: pass" "$MILKIT" check experts --hf "$models/qwen3_5_moe-random" --layers -n 4
rows '^layer ' 5
rows '^model_model' 10
expect 0 "verdict: pass" "$MILKIT" check window --hf "$models/gemma4-window" --layers -n 30
rows '^layer [0134] .sliding. ' 4
rows '^layer [256] .full. ' 3
rows '^model_model_kv_cache_local ' 6
rows '^model_model_kv_cache_global ' 2
rows 'does not show' 0
# without --layers nothing of it
expect 0 "verdict: pass" "$MILKIT" check dense --hf "$models/qwen3_5-equal" -n 1
rows '^layer ' 0

# the same numbers in the JSON
expect 0 "" "$MILKIT" check dense --hf "$models/qwen3_5-equal" --layers -n 4 --json
cp out.txt layers.json
if command -v python3 >/dev/null; then
    python3 - <<'PYTHON' || fail "the JSON is not as expected"
import json
p = json.load(open("layers.json"))
assert [l["layer"] for l in p["layers"]] == list(range(-1, 5))
assert [l["type"] for l in p["layers"]] == ["embeddings", "linear", "linear", "linear", "full", "final norm"]
# prompt of 24 (one batch and 8), 4 generated; the norm's row of the batch's last token alone
assert [l["rows"] for l in p["layers"]] == [28] * 5 + [13]
assert all(l["not_finite"] == 0 and 0.999 < l["min_cosine"] <= l["mean_cosine"] < 1.000001 for l in p["layers"])
assert all(0 <= l["max_relative_error"] < 0.05 for l in p["layers"])
assert p["layers"][0]["min_added_cosine"] is None and p["layers"][2]["min_added_cosine"] > 0.99
assert len(p["states"]) == 8 and all(s["cosine"] > 0.999 and s["relative_error"] < 0.02 for s in p["states"])
assert {s["what"] for s in p["states"]} == {"keys", "values", "memory", "window"}
assert p["limits"]["min_layer_cosine"] == 0.9999 and p["limits"]["of"] == "fp16 weights"
PYTHON
else
    echo "skipped: no python3 to read the JSON"
fi

# ---- a wrong layer ----
# damage CHECKPOINT TENSOR: a copy named wrong with some numbers of a tensor changed
damage() {
    rm -rf wrong
    cp -r "$1" wrong
    chmod -R u+w wrong
    python3 - "$2" <<'PYTHON'
import json, struct, sys
path = "wrong/model.safetensors"
b = bytearray(open(path, "rb").read())
n = struct.unpack("<Q", b[:8])[0]
t = json.loads(b[8:8 + n])[sys.argv[1]]
begin, end = (8 + n + x for x in t["data_offsets"])
size = {"F32": 4, "F16": 2, "BF16": 2}[t["dtype"]]
for at in range(begin + size - 1, end, 3 * size):
    b[at] ^= 0x80 # the sign of every third number
open(path, "wb").write(b)
PYTHON
}
# found "TEXT" PACKAGE CHECKPOINT: the verdict names the place
found() {
    expect 5 "$1" "$MILKIT" check "$2" --hf "$3" --layers -n 4
    prints "verdict: FAIL"
}
if command -v python3 >/dev/null; then
    damage "$models/qwen3_5-equal" model.layers.1.mlp.down_proj.weight
    found "layer 1 (linear) is the first one outside the limits" dense wrong
    found "the memory of layer 2 in model_model_gdn_state_0" dense wrong
    damage "$models/qwen3_5-equal" model.layers.2.linear_attn.in_proj_qkv.weight
    found "layer 2 (linear) is the first one" dense wrong
    grep -qF "of layer 2 in model_model_" err.txt || fail "no state of layer 2: $(cat err.txt)"
    damage "$models/qwen3_5-equal" model.layers.3.self_attn.k_proj.weight
    found "layer 3 (full) is the first one" dense wrong
    grep -qF "the keys of layer 3 in model_model_kv_cache_0" err.txt || fail "no keys of layer 3: $(cat err.txt)"
    damage "$models/qwen3_5_moe-random" model.layers.4.mlp.shared_expert.down_proj.weight
    found "layer 4 (linear) is the first one" experts wrong
    damage "$models/gemma4-window" model.layers.3.self_attn.v_proj.weight
    found "layer 3 (sliding) is the first one" window wrong
    grep -qF "the values of layer 3 in model_model_kv_cache_local" err.txt || fail "no values: $(cat err.txt)"
    damage "$models/gemma4-window" model.norm.weight
    found "final norm is the first one" window wrong
    damage "$gqa8" model.layers.0.self_attn.o_proj.weight
    found "layer 0 (full) is the first one" qwen3 wrong
    damage "$gqa8" model.embed_tokens.weight
    found "embeddings is the first one" qwen3 wrong
    # Limits that allow anything
    expect 0 "verdict: pass" "$MILKIT" check qwen3 --hf wrong --layers -n 2 --min-cosine -1 --max-kl 1000 --min-top1 0 \
        --min-layer-cosine -1 --min-added-cosine -1 --min-gain -1000 --max-gain 1000
else
    echo "skipped: no python3 to damage a checkpoint"
fi
# numbers that are none
cp -r qwen3 nan
chunk=$(find nan -path '*chunk_02*' -name weight.bin | head -1)
[ -n "$chunk" ] || fail "no weight file of the second chunk"
find nan -path '*chunk_02*' -name weight.bin | while read -r file; do
    printf '\000\176' | dd of="$file" bs=1 seek=$(($(stat -c %s "$file") - 2)) conv=notrunc 2>/dev/null
done
expect 5 "is the first one that is not finite" "$MILKIT" check nan --hf "$gqa8" --layers -n 2
prints "not finite"

# ---- packages of others: names that say nothing ----
cp -r dense other
find other -path '*chunk*' -name model.mil | while read -r file; do
    sed -i 's/layers_\([0-9]*\)_output/v\1/g' "$file"
done
expect 0 "verdict: pass" "$MILKIT" check other --hf "$models/qwen3_5-equal" --layers -n 2
rows 'the package does not show it' 2
rows '^layer [12] .linear. +0\.9' 2
rows '^model_model' 8

# ---- limits by width ----
for width in 8 6 4 3; do
    make_package "$models/qwen3_5_moe-tiny" lut$width -c 96 -b 16 --lut-ffn $width --lut-head $width --lut-method kmeans --format mlmodelc
    expect 0 "limits of $width-bit weights" "$MILKIT" check lut$width --hf "$models/qwen3_5_moe-tiny" --layers -n 24
done
# a width's own limits are of no use to a finer one: 3 bits are outside those of 8
expect 5 "outside the limits" "$MILKIT" check lut3 --hf "$models/qwen3_5_moe-tiny" -n 8 --min-cosine 0.9995 --max-kl 0.001
make_package "$models/qwen3_5_moe-tiny" int8 -c 96 -b 16 --quant-ffn int8 --format mlmodelc
expect 0 "limits of 8-bit weights" "$MILKIT" check int8 --hf "$models/qwen3_5_moe-tiny" --layers -n 8

expect 2 "--min-layer-cosine" "$MILKIT" check qwen3 --hf "$gqa8" --layers --min-layer-cosine 2
finish
