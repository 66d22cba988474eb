# milkit check: at each width that has a verdict, a package that is right passes, and each planted fault fails: a layer that is
# too strong or too weak, keys and values swapped, positions off by one, experts mixed up. Where nothing can fail there is no
# verdict.
# shellcheck source=tests/cli/packages.sh
# labels: host
. "$SOURCE/tests/cli/packages.sh"
models=$DATA/models
if ! command -v python3 >/dev/null; then
    echo "SKIPPED: no python3 to plant faults"
    exit 77
fi

# plant FROM TO KIND TENSOR [TENSOR or FACTOR]: a copy of a checkpoint with a fault
plant() {
    rm -rf "$2"
    cp -r "$1" "$2"
    chmod -R u+w "$2"
    python3 - "$2" "${@:3}" <<'PYTHON'
import json, struct, sys
folder, kind, names = sys.argv[1], sys.argv[2], sys.argv[3:]
path = folder + "/model.safetensors"
b = bytearray(open(path, "rb").read())
n = struct.unpack("<Q", b[:8])[0]
header = json.loads(b[8:8 + n])
place = lambda name: slice(*(8 + n + x for x in header[name]["data_offsets"]))
if kind == "scale":
    factor = float(names.pop())
    for name in names:
        at, dtype = place(name), header[name]["dtype"]
        if dtype == "BF16":
            halves = struct.unpack("<%dH" % ((at.stop - at.start) // 2), b[at])
            floats = struct.unpack("<%df" % len(halves), struct.pack("<%dI" % len(halves), *(x << 16 for x in halves)))
            words = struct.unpack("<%dI" % len(floats), struct.pack("<%df" % len(floats), *(x * factor for x in floats)))
            b[at] = struct.pack("<%dH" % len(words), *(x >> 16 for x in words))
        else:
            code = {"F32": "f", "F16": "e"}[dtype]
            numbers = struct.unpack("<%d%s" % ((at.stop - at.start) // struct.calcsize(code), code), b[at])
            b[at] = struct.pack("<%d%s" % (len(numbers), code), *(x * factor for x in numbers))
elif kind == "swap":
    first, second = map(place, names)
    assert header[names[0]]["shape"] == header[names[1]]["shape"]
    b[first], b[second] = b[second], b[first]
elif kind == "rotate":
    at = place(names[0])
    row = (at.stop - at.start) // header[names[0]]["shape"][0]
    b[at] = b[at][row:] + b[at][:row]
open(path, "wb").write(b)
PYTHON
}

# shift FROM TO FUNCTION...: a copy of a package where these functions take cos and sin of the next position
shift_positions() {
    rm -rf "$2"
    cp -r "$1" "$2"
    python3 - "${@:2}" <<'PYTHON'
import glob, sys
n = 0
for path in glob.glob(sys.argv[1] + "/*chunk*.mlmodelc/model.mil"):
    text = open(path).read()
    parts = text.split("func ")
    for i, part in enumerate(parts):
        if i == 0 or part.split("<")[0] not in sys.argv[2:]:
            continue
        n += part.count("indices = position_ids")
        part = part.replace("indices = position_ids", "indices = position_next")
        shape = part.split(" position_ids")[0].rsplit("tensor<", 1)[1]
        part = part.replace("{\n", "{\n"
            "            tensor<int32, [1]> position_one = const()[name = string(\"position_one\"), "
            "val = tensor<int32, [1]>([1])];\n"
            "            tensor<" + shape + " position_next = add(x = position_ids, y = position_one)"
            "[name = string(\"position_next\")];\n", 1)
        parts[i] = part
    open(path, "w").write("func ".join(parts))
assert n > 0
PYTHON
}

# fails "TEXT" PACKAGE CHECKPOINT: the verdict, and what it says
fails() {
    expect 5 "$1" "$MILKIT" check "$2" --hf "$3" -n 16
    grep -qF "verdict: FAIL" out.txt || fail "$2 and $3: no verdict: $(tail -1 out.txt)"
}

# the last layer but one, so that there is a layer behind it
layer=model.layers.3
down=$layer.mlp.down_proj.weight out=$layer.self_attn.o_proj.weight
plant "$tiny" strong scale $down $out 1.5
plant "$tiny" weak scale $down $out 0.6667
plant "$tiny" swapped swap $layer.self_attn.k_proj.weight $layer.self_attn.v_proj.weight
plant "$models/qwen3_5_moe-tiny" mixed rotate model.language_model.layers.1.mlp.gate.weight

for width in 16 8 6 4 3 int4,32; do
    case $width in
    16) options="" ;;
    int*) options="--quant-ffn $width --quant-head $width" ;;
    *) options="--lut-ffn $width --lut-head $width --lut-method kmeans" ;;
    esac
    # shellcheck disable=SC2086
    make_package "$tiny" dense -c 64 -b 16 --format mlmodelc --force $options
    for precision in default fp16; do
        expect 0 "verdict: pass" "$MILKIT" check dense --hf "$tiny" -n 16 --precision $precision
    done
    # The fault is on the reference's side, which is as good: what is too strong there is too weak in the package.
    fails "layer 3 (full) is the first one outside the limits" dense strong
    fails "layer 3 (full) is the first one outside the limits" dense weak
    fails "the keys of layer 3 in model_model_kv_cache_0" dense swapped
    shift_positions dense shifted infer prefill
    fails "the keys of layer" shifted "$tiny"
    shift_positions dense shifted infer
    fails "the keys of layer" shifted "$tiny"
    case $width in int*) continue ;; esac
    # shellcheck disable=SC2086
    make_package "$models/qwen3_5_moe-tiny" experts -c 64 -b 16 --format mlmodelc --force $options
    expect 0 "verdict: pass" "$MILKIT" check experts --hf "$models/qwen3_5_moe-tiny" -n 16
    fails "layer 1 (linear) is the first one outside the limits" experts mixed
done

# ---- widths at which nothing could fail ----
for width in 2 1; do
    make_package "$tiny" dense -c 64 -b 16 --format mlmodelc --force --lut-ffn $width --lut-head $width --lut-method kmeans
    expect 0 "verdict: none (no verdict at this width)" "$MILKIT" check dense --hf "$tiny" -n 8
    expect 0 '"verdict": "none"' "$MILKIT" check dense --hf "$tiny" -n 8 --json
    # what is given counts
    expect 5 "outside the limits: cosine" "$MILKIT" check dense --hf "$tiny" -n 8 --min-cosine 0.9999
    expect 0 "verdict: pass" "$MILKIT" check dense --hf "$tiny" -n 8 --max-kl 100
done
finish
