# Residual streams beyond fp16 from the outside: what convert measures and scales, what it says of it, that `check --layers` sees
# through the scale in every family, and that check warns of values that fp16 does not hold.
. "$SOURCE/tests/cli/packages.sh"

# large.py FOLDER NAME FACTOR PARTS..: an F32 checkpoint whose tensors with these parts in their names are multiplied
cat >large.py <<'PYTHON'
import json, os, struct, sys
source, target, factor, parts = sys.argv[1], sys.argv[2], float(sys.argv[3]), sys.argv[4:]
os.makedirs(target)
open(target + "/config.json", "wb").write(open(source + "/config.json", "rb").read())
header, data, at = {}, [], 0
for name in sorted(os.listdir(source)):
    if not name.startswith("model") or not name.endswith(".safetensors"):
        continue
    file = open(source + "/" + name, "rb").read()
    n = struct.unpack("<Q", file[:8])[0]
    for tensor, t in json.loads(file[8 : 8 + n]).items():
        if tensor == "__metadata__":
            continue
        raw = file[8 + n + t["data_offsets"][0] : 8 + n + t["data_offsets"][1]]
        assert t["dtype"] == "F32"
        if any(p in tensor for p in parts):
            raw = struct.pack(f"<{len(raw) // 4}f", *(x * factor for x in struct.unpack(f"<{len(raw) // 4}f", raw)))
        header[tensor] = dict(t, data_offsets=[at, at + len(raw)])
        data.append(raw)
        at += len(raw)
text = json.dumps(header).encode()
open(target + "/model.safetensors", "wb").write(struct.pack("<Q", len(text)) + text + b"".join(data))
PYTHON
llama=$DATA/models/llama-bias
python3 large.py "$llama" large 8192 embed_tokens o_proj down_proj || exit 1
options="-c 64 -b 8 --format mlmodelc"

# measured, scaled, said: on stderr, in the report, in meta.yaml, by inspect
# shellcheck disable=SC2086
expect_stderr 0 "the residual stream reaches" "$MILKIT" convert large -o scaled $options --report report.json
grep -q "scaled by 0.25" err.txt || fail "what was chosen: $(cat err.txt)"
grep -qE '"residual":\{"scale":0.25,"largest":[0-9.]+,"layer":[0-9]+,"tokens":64\}' report.json || fail "report: $(head -c 600 report.json)"
grep -q "^    residual_scale: 0.25$" scaled/meta.yaml || fail "meta.yaml: $(cat scaled/meta.yaml)"
expect 0 "residual_scale" "$MILKIT" inspect scaled --json
tr -d '[:space:]' <out.txt | grep -q '"residual_scale":0.25' || fail "inspect: $(grep residual out.txt)"
expect 0 "verdict: pass" "$MILKIT" check scaled --hf large -n 8 --layers
grep -q fp16 err.txt && fail "a warning of a scaled package: $(cat err.txt)"
expect 0 "verdict: pass" "$MILKIT" check scaled --hf large -n 8 --precision fp16
# the same bits by batches and by single tokens, in chunks, by any level, with any number of threads
ids "$llama/golden.safetensors" batch64.ids >ids.txt
expect 0 "" "$MILKIT" logits scaled --tokens @ids.txt -o single.safetensors
expect 0 "" "$MILKIT" logits scaled --tokens @ids.txt --prefill -t 1 -o prefill.safetensors
compare same prefill.safetensors single.safetensors
expect 0 "" env MILKIT_CPU=scalar "$MILKIT" logits scaled --tokens @ids.txt --prefill -o scalar.safetensors
compare same scalar.safetensors single.safetensors
# shellcheck disable=SC2086
make_package large chunks $options --chunks 3
expect 0 "" "$MILKIT" logits chunks --tokens @ids.txt --prefill -o chunks.safetensors
compare same chunks.safetensors single.safetensors
# ids of the user's choice, and the scale given: the same package
# shellcheck disable=SC2086
make_package large by_ids $options --calibration @ids.txt
# shellcheck disable=SC2086
make_package large given $options --residual-scale 0.25
for other in by_ids given; do
    diff -r -x meta.yaml scaled $other >diff.txt || fail "$other: $(head -3 diff.txt)"
done

# turned off: not in meta.yaml, and check warns in the default precision, fp32 and fp16
# shellcheck disable=SC2086
make_package large off $options --residual-scale off
grep -q residual off/meta.yaml && fail "a scale that is off"
for precision in default fp32; do
    expect_stderr 0 "leave the range of fp16" "$MILKIT" check off --hf large -n 4 --precision $precision
    grep -q "residual-scale" err.txt || fail "no hint: $(cat err.txt)"
done
expect_stderr 5 "leave the range of fp16" "$MILKIT" check off --hf large -n 4 --precision fp16
expect 0 '"beyond_fp16": ' "$MILKIT" check off --hf large -n 4 --json
grep -qE '"range": \{"largest": [0-9.e+]+, "function": "(infer|prefill)", "variable": "[a-z0-9_]+", "beyond_fp16": [1-9]' out.txt ||
    fail "range: $(grep -o '"range.*' out.txt)"

# every family, palettes too: layers and their strength as the checkpoint has them
families="qwen3-gqa8 gemma4-window"
is_sanitized || families="qwen2-window mistral-window smollm3-list gemma3-linear qwen3_moe-mixed qwen3_5-equal qwen3_5_moe-random gemma4-window"
for model in $families; do
    folder=$DATA/models/$model
    rm -rf p
    # shellcheck disable=SC2086
    make_package "$folder" p $options --residual-scale 0.0625
    ids "$folder/golden.safetensors" five.ids >ids.txt
    expect 0 "verdict: pass" "$MILKIT" check p --hf "$folder" --tokens @ids.txt -n 8 --layers
done
# shellcheck disable=SC2086
make_package "$tiny" palettes $options --residual-scale 0.25 --lut-ffn 4,8 --lut-ffn-mixed 4.5
expect 0 "verdict: pass" "$MILKIT" check palettes --hf "$tiny" -n 8 --layers
# shellcheck disable=SC2086
make_package "$DATA/models/gemma3-linear" exact $options --residual-scale 0.25 --exact-norms
expect 0 "verdict: pass" "$MILKIT" check exact --hf "$DATA/models/gemma3-linear" --tokens 1,2,3,4,5,6,7,8,9 -n 8 --layers

for wrong in 0.3 2 0 "" nan 1e-9 -0.5 0.25x .; do
    expect 2 "--residual-scale: expected auto, off or a power of two" "$MILKIT" convert "$gqa8" -o o --residual-scale "$wrong"
done
expect 1 "missing.txt" "$MILKIT" convert "$tiny" -o o --calibration missing.txt
[ ! -e o ] || fail "a failed conversion left something"
finish
