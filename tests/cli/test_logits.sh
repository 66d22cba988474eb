# milkit logits from the outside: numbers against transformers and against other tools' packages, the same bits whatever the
# threads, chunks and form; refusals.
. "$SOURCE/tests/cli/packages.sh"
make_package "$tiny" tiny -c 512 -b 64
make_package "$gqa8" gqa8 -c 512 -b 64 --chunks 3
golden=$tiny/golden.safetensors

# ---- against transformers ----
ids "$golden" long.ids >long.txt
ids "$golden" batch64.ids >batch64.txt
ids "$golden" five.ids >five.txt
expect 0 "" "$MILKIT" logits --force tiny --tokens @long.txt -o long.safetensors
[ ! -s out.txt ] || fail "logits wrote to stdout"
compare golden long.safetensors "$golden" long 0.99999 21
expect 0 "" "$MILKIT" logits --force tiny --tokens @batch64.txt --prefill -o batch64.safetensors
compare golden batch64.safetensors "$golden" batch64 0.99999 1
expect 0 "" "$MILKIT" logits --force tiny --tokens "$(cat five.txt)" -o five.safetensors
compare golden five.safetensors "$golden" five 0.99999 5
ids "$gqa8/golden.safetensors" long.ids >gqa8.txt
expect 0 "" "$MILKIT" logits --force gqa8 --tokens @gqa8.txt --prefill -o gqa8.safetensors
compare golden gqa8.safetensors "$gqa8/golden.safetensors" long 0.99999 14 # 3 batches and 11 tokens

# ---- the same bits ----
# (where it is slow, the shorter prompt)
is_sanitized && cp batch64.txt long.txt && expect 0 "" "$MILKIT" logits --force tiny --tokens @long.txt -o long.safetensors
expect 0 "" "$MILKIT" logits --force tiny --tokens @long.txt --prefill -o prefill.safetensors
compare same prefill.safetensors long.safetensors
for n in 1 2 3; do
    expect 0 "" "$MILKIT" logits --force tiny --tokens @batch64.txt -t $n -o t$n.safetensors
    cmp -s t$n.safetensors t1.safetensors || fail "$n threads give other bits than 1"
done
expect 0 "" env MILKIT_CPU=scalar "$MILKIT" logits --force tiny --tokens @batch64.txt --prefill -t 2 -o scalar.safetensors
compare same scalar.safetensors t1.safetensors
mkdir other
cp -r tiny/* other
rm -rf other/*.mlmodelc
expect 0 "" "$MILKIT" logits --force other --tokens @batch64.txt -t 1 -o other.safetensors
cmp -s other.safetensors t1.safetensors || fail "the two forms of a package give different bits"
expect 0 "" "$MILKIT" logits --force other/meta.yaml --tokens @five.txt -o other.safetensors
compare same other.safetensors five.safetensors

# ---- other precisions are near ----
expect 0 "" "$MILKIT" logits --force tiny --tokens @five.txt --precision fp32 -o fp32.safetensors
compare near fp32.safetensors five.safetensors 0.02
expect 0 "" "$MILKIT" logits --force tiny --tokens @five.txt --precision fp16 -o fp16.safetensors
compare near fp16.safetensors five.safetensors 0.1

# ---- refusals: one message, the status, nothing written ----
rm -f x.safetensors
expect 2 "expected --tokens IDS and -o FILE" "$MILKIT" logits --force tiny --tokens 1
expect 2 "expected --tokens IDS and -o FILE" "$MILKIT" logits --force tiny -o x.safetensors
expect 2 "package folder" "$MILKIT" logits --force --tokens 1 -o x.safetensors
expect 2 "unexpected argument" "$MILKIT" logits --force tiny gqa8 --tokens 1 -o x.safetensors
expect 2 "2057" "$MILKIT" logits --force tiny --tokens 1,2057 -o x.safetensors
expect 2 "expected token ids" "$MILKIT" logits --force tiny --tokens 1,two -o x.safetensors
expect 2 "expected token ids" "$MILKIT" logits --force tiny --tokens 1,-2 -o x.safetensors
expect 2 "no token id" "$MILKIT" logits --force tiny --tokens "" -o x.safetensors
expect 2 "precision" "$MILKIT" logits --force tiny --tokens 1 --precision int8 -o x.safetensors
expect 2 "threads" "$MILKIT" logits --force tiny --tokens 1 -t -1 -o x.safetensors
expect 2 "MILKIT_CPU" env MILKIT_CPU=mips "$MILKIT" logits --force tiny --tokens 1 -o x.safetensors
expect 1 "missing.txt" "$MILKIT" logits --force tiny --tokens @missing.txt -o x.safetensors
expect 1 "found nothing" "$MILKIT" logits --force nowhere --tokens 1 -o x.safetensors
expect 4 "checkpoint" "$MILKIT" logits --force "$tiny" --tokens 1 -o x.safetensors
seq 0 512 | tr '\n' ',' >many.txt
expect 6 "512" "$MILKIT" logits --force tiny --tokens @many.txt -o x.safetensors
grep -q 513 err.txt || fail "the message does not say how many tokens there are"
expect 1 "long.txt" "$MILKIT" logits --force tiny --tokens 1 -o long.txt/x.safetensors
[ -z "$(ls -d x.safetensors* 2>/dev/null)" ] || fail "a refused call left a file"

# ---- packages that another tool made ----
if [ -n "$SHARED" ]; then
    peers=$SHARED/peer-packages/anemll
    names="qwen3-fp16-1c-ctx256 qwen3-lut4-2c-ctx256 qwen3-lut8t-1c-ctx256-nodedup qwen3-monolithic-lut4-ctx256"
    is_sanitized && names=qwen3-lut4-2c-ctx256
    for name in $names; do
        ids "$peers/$name/golden.safetensors" tokens 100 >peer.txt
        ids "$peers/$name/golden.safetensors" tokens 134 >peer134.txt
        expect 0 "" "$MILKIT" logits --force "$peers/$name" --tokens @peer.txt -o infer.safetensors
        compare rows infer.safetensors "$peers/$name/golden.safetensors" infer100.logits 0 0.05 100
        echo "$name: $(cat compare.txt)"
        expect 0 "" "$MILKIT" logits --force "$peers/$name" --tokens @peer.txt --prefill -o prefill.safetensors
        compare rows prefill.safetensors "$peers/$name/golden.safetensors" prefill64_infer36.logits 64 0.05 36
        compare same prefill.safetensors infer.safetensors
        expect 0 "" "$MILKIT" logits --force "$peers/$name" --tokens @peer134.txt --prefill -o prefill.safetensors
        compare rows prefill.safetensors "$peers/$name/golden.safetensors" prefill128_infer6.logits 128 0.05 6
    done
    expect 3 "argmax" "$MILKIT" logits --force "$peers/qwen3-lut6-1c-ctx512-argmax" --tokens 1 -o x.safetensors
    expect 3 "shows no layers" "$MILKIT" check "$peers/qwen3-monolithic-lut4-ctx256" --hf "$SHARED/peer-packages/checkpoints/qwen3-a" --layers
    expect 3 "argmax" "$MILKIT" check "$peers/qwen3-lut6-1c-ctx512-argmax" --hf "$SHARED/peer-packages/checkpoints/qwen3-a"
    expect 0 "" "$MILKIT" plan "$peers/qwen3-monolithic-lut4-ctx256"
    expect 3 "argmax" "$MILKIT" eval "$peers/qwen3-lut6-1c-ctx512-argmax" --text "$DATA/models/eval.txt" --tokens 5
    expect 3 "argmax" "$MILKIT" run "$peers/qwen3-lut6-1c-ctx512-argmax" --tokens 1 --ids -n 1 --temp 0.5
    expect 0 "" "$MILKIT" run "$peers/qwen3-lut6-1c-ctx512-argmax" --tokens @peer.txt --ids -n 4
    grep -q ^[0-9]*,[0-9]*,[0-9]*,[0-9]*$ out.txt || fail "no four tokens: $(cat out.txt)"
else
    echo "skipped: other tools' packages need ../shared"
fi

# ---- rows of a recurrent state counted from the end: the same rows ----
make_package "$DATA/models/qwen3_5-equal" gated -c 64 -b 16 --format mlmodelc
cp -r gated counted
sed -i 's/\(layers_1_gdn_state_begin_0"), val = tensor<int32, \[3\]>(\)\[3, 0, 0\]/\1[-6, 0, 0]/' counted/*chunk*.mlmodelc/model.mil
[ "$(grep -c -- '-6, 0, 0' counted/*chunk*.mlmodelc/model.mil)" -eq 2 ] || fail "the begin of the rows was not edited"
for how in "" --prefill; do
    for package in gated counted; do
        # shellcheck disable=SC2086
        expect 0 "" "$MILKIT" logits --force $package $how --tokens "$(seq -s, 1 40)" -o $package.safetensors
    done
    cmp -s gated.safetensors counted.safetensors || fail "rows counted from the end $how: other logits"
done
finish
