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
