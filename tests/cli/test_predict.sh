# milkit predict from the outside: tensors in and out, states, random inputs, times, and what can be wrong.
. "$SOURCE/tests/cli/packages.sh"

make_package "$tiny" tiny -c 64 -b 16
head=tiny/qwen_lm_head.mlmodelc
chunk=tiny/qwen_FFN_PF_chunk_01of01.mlpackage

# ---- random inputs: the same seed gives the same bytes, in both forms of the model ----
expect 0 "logits1 F16 [1, 1, " "$MILKIT" predict --force "$head" --random --seed 3 -o a.safetensors
expect 0 "" "$MILKIT" predict --force tiny/qwen_lm_head.mlpackage --random --seed 3 -o b.safetensors -t 1
cmp a.safetensors b.safetensors || fail "the two forms of a model differ"
cp a.safetensors a3.safetensors
expect 0 "" "$MILKIT" predict --force "$head" --random --seed 4 -o b.safetensors
cmp -s a.safetensors b.safetensors && fail "another seed gives the same outputs"

# ---- what comes out of one part goes into the next; states are files ----
expect 0 "hidden_states" "$MILKIT" predict --force tiny/qwen_embeddings.mlmodelc --random -o x.safetensors
expect 0 "" "$MILKIT" predict --force "$head" --in x.safetensors --out y.safetensors
expect 0 "output_hidden_states" "$MILKIT" predict --force "$chunk" --function infer --random -o 1.safetensors --state-out s1.safetensors
expect 0 "" "$MILKIT" predict --force "$chunk" --function infer --random -o 2.safetensors --state-in s1.safetensors --state-out s2.safetensors
expect 0 "" "$MILKIT" predict --force "$chunk" --function infer --random -o 3.safetensors --repeat 2 --state-out s3.safetensors
cmp 2.safetensors 3.safetensors || fail "a state out of a file is not the state that went on"
cmp s2.safetensors s3.safetensors || fail "states after two calls differ"
cmp -s s1.safetensors s2.safetensors && [ "$(stat -c %s s1.safetensors)" -lt 1000 ] && fail "the state is empty"

# ---- to stdout ----
"$MILKIT" predict --force "$head" --random --seed 3 -o - >b.safetensors 2>err.txt || fail "-o -: $(cat err.txt)"
cmp a3.safetensors b.safetensors || fail "-o - gives other bytes than a file"
[ -e ./- ] && fail "-o - has made a file"
expect 2 "both go to stdout" "$MILKIT" predict --force "$head" --random -o - --json

# ---- names command no terminal, and JSON is valid ----
cp -r tiny/qwen_lm_head.mlpackage evil.mlpackage
LC_ALL=C sed -i "s/logits1/$(printf 'a\033[2J\302\233')/g" evil.mlpackage/Data/com.apple.CoreML/model.mlmodel
expect 0 "a?[2J? F16" "$MILKIT" predict --force evil.mlpackage --random
"$MILKIT" predict --force evil.mlpackage --random --json >out.txt 2>err.txt || fail "a name with control characters: $(cat err.txt)"
LC_ALL=C grep -q "$(printf '[\033\302\233]')" out.txt && fail "JSON with control characters: $(od -c out.txt | head -5)"
python3 -c 'import json; assert json.load(open("out.txt"))["outputs"][0]["name"] == "a\u001b[2J\u009b"' || fail "JSON: $(cat out.txt)"

# ---- JSON and times ----
expect 0 '"schema": 1' "$MILKIT" predict --force "$head" --random --repeat 3 --json
python3 -c 'import json; d = json.load(open("out.txt")); assert d["runs"] == 3 and d["outputs"][0]["dtype"] == "F16"' ||
    fail "predict --json: $(cat out.txt)"
expect 0 "median" "$MILKIT" predict --force "$head" --random --repeat 3

# ---- what can be wrong ----
expect 2 "needs the input hidden_states" "$MILKIT" predict --force "$head"
expect 2 "no input" "$MILKIT" predict --force tiny/qwen_embeddings.mlmodelc --in y.safetensors
expect 2 "no function train" "$MILKIT" predict --force "$head" --function train --random
expect 2 "has no state" "$MILKIT" predict --force "$head" --random --state-out s.safetensors
expect 2 "one of them" "$MILKIT" predict --force "$head" --random --in x.safetensors
expect 2 "repeat" "$MILKIT" predict --force "$head" --random --repeat 0
expect 2 "expected a model" "$MILKIT" predict
for wrong in tiny/config.json tiny "$SOURCE/README.md"; do
    "$MILKIT" predict --force "$wrong" --random >out.txt 2>err.txt && fail "predict $wrong: no error"
    grep -qF -- "$wrong" err.txt || fail "predict $wrong: the message does not name it"
done
for precision in default fp32 fp16; do
    expect 0 "logits1" "$MILKIT" predict --force "$head" --random --precision $precision
done
finish

# ---- pictures, labels, defaults and shapes: models that coremltools wrote ----
features=$SOURCE/tests/data/features
python3 - <<'EOF'
import struct, zlib
def png(path, width, height, color, rows):
    chunk = lambda kind, data: struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
    body = zlib.compress(b"".join(b"\0" + bytes(r) for r in rows))
    open(path, "wb").write(b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, color, 0, 0, 0)) + chunk(b"IDAT", body) + chunk(b"IEND", b""))
png("rgb.png", 4, 2, 2, [[i * 7 for i in range(12)], [i * 3 for i in range(12)]])
png("gray.png", 4, 2, 0, [[0, 1, 2, 3], [100, 253, 254, 255]])
png("small.png", 1, 1, 2, [[1, 2, 3]])
EOF
cat >pixels.py <<'EOF'
import sys, zlib, struct
data = open(sys.argv[1], "rb").read()
at, body = 8, b""
while at < len(data):
    n, kind = struct.unpack(">I4s", data[at:at + 8])
    if kind == b"IHDR":
        width, height, depth, color = struct.unpack(">IIBB", data[at + 8:at + 18])
    if kind == b"IDAT":
        body += data[at + 8:at + 8 + n]
    at += 12 + n
raw, step = zlib.decompress(body), {0: 1, 2: 3}[color]
rows, last = [], bytes(width * step)
for y in range(height):
    kind, line = raw[y * (width * step + 1)], bytearray(raw[y * (width * step + 1) + 1:(y + 1) * (width * step + 1)])
    for i in range(len(line)):
        a = line[i - step] if i >= step else 0
        b, c = last[i], last[i - step] if i >= step else 0
        p = a + b - c
        paeth = min((abs(p - a), 0, a), (abs(p - b), 1, b), (abs(p - c), 2, c))[2]
        line[i] = (line[i] + [0, a, b, (a + b) // 2, paeth][kind]) & 255
    rows.append(list(line))
    last = bytes(line)
print(rows)
EOF
for layout in rgb bgr; do
    expect 0 "y F32 [1, 3, 2, 4]" "$MILKIT" predict --force "$features/image_$layout.mlpackage" -i rgb.png -o y.png
    expect 0 "" "$MILKIT" predict --force "$features/image_$layout.mlpackage" --image x=rgb.png -o z.png
    cmp y.png z.png || fail "an image by name and one alone differ"
    found=$(python3 pixels.py y.png)
    wanted=$(python3 -c "
bgr = '$layout' == 'bgr'
x = [[i * 7 for i in range(12)], [i * 3 for i in range(12)]]
def y(v, c):
    k = 2 - c if bgr else c
    return min(255, max(0, (2 * v + [1, 0, -3][k]) * (k + 1)))
print([[y(v, i % 3) for i, v in enumerate(r)] for r in x])")
    [ "$found" = "$wanted" ] || fail "$layout: expected $wanted, found $found"
done
expect 0 "" "$MILKIT" predict --force "$features/image_gray.mlpackage" -i gray.png -o y.png
[ "$(python3 pixels.py y.png)" = "[[0, 2, 2, 4], [100, 254, 254, 255]]" ] || fail "gray: $(python3 pixels.py y.png)"
expect 4 "found a coloured one" "$MILKIT" predict "$features/image_gray.mlpackage" -i rgb.png
expect 2 "found the shape [1, 3, 1, 1]" "$MILKIT" predict "$features/image_rgb.mlpackage" -i small.png
expect 2 "the function has no image y" "$MILKIT" predict "$features/image_rgb.mlpackage" --image y=rgb.png
expect 2 "expected NAME=FILE" "$MILKIT" predict "$features/image_rgb.mlpackage" --image rgb.png
expect 2 "one image among its inputs, found 0" "$MILKIT" predict "$features/optional.mlpackage" -i rgb.png
expect 2 "one image among its outputs, found 0" "$MILKIT" predict --force "$features/optional.mlpackage" --random -o y.png
head -c 40 rgb.png >cut.png
"$MILKIT" predict "$features/image_rgb.mlpackage" -i cut.png >out.txt 2>err.txt && fail "a picture that ends early: no error"
grep -q "cut.png" err.txt || fail "a picture that ends early: $(cat err.txt)"
expect 1 "none.png" "$MILKIT" predict "$features/image_rgb.mlpackage" -i none.png

expect 0 'classLabel "' "$MILKIT" predict "$features/classifier_text.mlpackage" --random
grep -q 'classLabel_probs F32 \[3\] {"' out.txt || fail "scores by label: $(cat out.txt)"
expect 0 '"label": ' "$MILKIT" predict "$features/classifier_text.mlpackage" --random --json
python3 -c 'import json
label, scores = json.load(open("out.txt"))["outputs"]
assert set(scores["scores"]) == {"cat", "dog", "a \"bird\""} and label["label"] == max(scores["scores"], key=scores["scores"].get)' ||
    fail "a classifier as JSON: $(cat out.txt)"
expect 0 "y F32 [1, 2]" "$MILKIT" predict "$features/enumerated.mlpackage" --random
expect 0 "y F32 [1, 3]" "$MILKIT" predict "$features/ranged.mlpackage" --random
expect 3 "" "$MILKIT" compile "$features/classifier_text.mlpackage" -o c.mlmodelc
expect 0 "function main: 1 steps" "$MILKIT" predict "$features/optional.mlpackage" --plan
expect 0 '"steps"' "$MILKIT" predict "$features/optional.mlpackage" --plan --json
