# milkit inspect: every kind of path, for people and as JSON.
# labels: host
set -u
rm -rf "$SCRATCH"
mkdir -p "$SCRATCH"
cd "$SCRATCH" || exit 1
failed=0
pairs=$DATA/corpus/pairs

fail() {
    echo "FAILED: $*"
    failed=1
}

# shows TEXT PATH: the report and the JSON object hold TEXT, status 0
shows() {
    "$MILKIT" inspect "$2" >out.txt 2>err.txt || fail "$2: $(tail -1 err.txt)"
    grep -qF -- "$1" out.txt || fail "$2: expected '$1' in the report: $(head -3 out.txt)"
    "$MILKIT" inspect "$2" --json >out.json 2>err.txt || fail "$2 --json: $(tail -1 err.txt)"
    grep -qF '"schema":	1' out.json || fail "$2: no schema in the JSON"
    if command -v python3 >/dev/null; then
        python3 -c 'import json; json.load(open("out.json"))' || fail "$2: not JSON"
    fi
}

# refuses STATUS TEXT PATH
refuses() {
    "$MILKIT" inspect "$3" >out.txt 2>err.txt
    local got=$?
    [ $got -eq "$1" ] || fail "$3: expected status $1, found $got"
    grep -qF -- "$2" err.txt || fail "$3: expected '$2', found $(tail -1 err.txt)"
}

package=$pairs/unified_palette_2bit/unified_palette_2bit.mlpackage
shows "input   audio_input  tensor<fp32, [1, 576]>" "$package"
shows "constexpr_lut_to_dense" "$package"
shows "Core ML program (mlmodelc), specification version 7" "$pairs/unified_palette_2bit/apple.mlmodelc"
shows "1 int8 4 bytes" "$pairs/quantized-constexpr/input.mlmodel"
shows "function second: CoreML8, 1 operations" "$DATA/corpus/text-only/flexible-multifunction/model.mil"
shows "records, " "$package/Data/com.apple.CoreML/weights/weight.bin"
shows "checkpoint of model_type qwen3" "$DATA/models/qwen3-tiny"
shows "model.norm.weight  BF16 [192]" "$DATA/models/qwen3-tiny/model.safetensors"
shows "model-00002-of-00003.safetensors" "$DATA/models/qwen3-bias"
cp -r "$DATA/models/qwen3-bias" partial && chmod -R u+w partial && rm partial/model-00002-of-00003.safetensors
shows "can't be read from model-00002-of-00003.safetensors" partial
shows "<|im_end|>" "$DATA/models/qwen3-tiny/tokenizer.json"

mkdir package
cp -r "$package" package/
printf 'model_info:\n  name: x\n  parameters:\n    context_length: 128\n' >package/meta.yaml
shows "1 models, weights" package
shows "context_length: 128" package
shows "context_length: 128" package/meta.yaml

# a model whose weights were left behind can still be looked at
cp -r "$package" lonely.mlpackage
chmod -R u+w lonely.mlpackage
rm lonely.mlpackage/Data/com.apple.CoreML/weights/weight.bin
shows "weight.bin: not there" lonely.mlpackage

mkdir empty
refuses 1 "no such file or folder" none
refuses 4 "neither a model" empty
printf 'program(x' >bad.mil
refuses 4 "bad.mil:1:9: expected the version" bad.mil
"$MILKIT" inspect >out.txt 2>err.txt
[ $? -eq 2 ] || fail "expected status 2 without a path"

exit $failed

# ---- what differs between two models ----
ops=$SOURCE/tests/data/ops
features=$SOURCE/tests/data/features
model=$(for m in "$ops"/*.mlpackage; do [ -s "$m/Data/com.apple.CoreML/weights/weight.bin" ] && echo "$m" && break; done)
expect 0 "same program, weights and metadata" "$MILKIT" inspect "$model" --diff "$model"
"$MILKIT" compile "$model" -o same.mlmodelc -q || fail "compile $model"
expect 0 "same program, weights and metadata" "$MILKIT" inspect same.mlmodelc --diff "$model"
expect 0 "main, op mul: 0 in the first alone, 0 in the second alone" "$MILKIT" inspect "$features/image_bgr.mlpackage" --diff "$features/image_gray.mlpackage"
grep -q "main, input x: tensor<fp32, \[1, 1, 2, 4\]> -> tensor<fp32, \[1, 3, 2, 4\]>" out.txt || fail "inputs that differ: $(cat out.txt)"
cp -r "$model" changed.mlpackage
python3 - changed.mlpackage <<'EOF'
import sys
path = sys.argv[1] + "/Data/com.apple.CoreML/weights/weight.bin"
data = bytearray(open(path, "rb").read())
data[-1] ^= 1  # the last element of the last weight, or its padding
for i in range(len(data) - 64, len(data)):
    data[i] ^= 1
open(path, "wb").write(data)
EOF
"$MILKIT" inspect changed.mlpackage --diff "$model" --json >out.txt 2>err.txt || fail "inspect --diff --json: $(cat err.txt)"
python3 -c 'import json
d = json.load(open("out.txt"))
assert d["schema"] == 1 and not d["same"] and not d["metadata"] and not d["functions"] and not d["operations"], d
assert len(d["weights"]) == 1 and 0 < d["weights"][0]["differ"] <= d["weights"][0]["elements"], d' || fail "a changed weight: $(cat out.txt)"
expect 1 "nothing.mlpackage" "$MILKIT" inspect "$model" --diff nothing.mlpackage
