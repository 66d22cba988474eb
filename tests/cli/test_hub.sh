# Every command that takes a checkpoint or a package finds it by its name in the local Hugging Face cache.
# labels: host
. "$SOURCE/tests/cli/packages.sh"
commit=0123456789abcdef0123456789abcdef01234567
export HF_HUB_CACHE=$PWD/hub
model=$HF_HUB_CACHE/models--org--tiny
mkdir -p "$model/refs" "$model/snapshots"
printf %s "$commit" >"$model/refs/main"
cp -r "$tiny" "$model/snapshots/$commit"
cp -r "$DATA/models/eval.txt" text.txt

expect 0 "" "$MILKIT" convert org/tiny -o package -c 64 --format mlmodelc -q
expect 0 "" "$MILKIT" check package --hf org/tiny --tokens 1,2,3 -n 0
expect 0 "" "$MILKIT" check package --hf "org/tiny@$commit" --tokens 1,2,3 -n 0
expect 0 "" "$MILKIT" eval package --text text.txt --tokens 8 --window 8 --against org/tiny -q
expect 0 "" "$MILKIT" tokenize org/tiny "two words" --ids
expect 0 "tensors" "$MILKIT" inspect org/tiny
echo '{"messages": [{"role": "user", "content": "x"}]}' >messages.json
if "$MILKIT" template "$tiny" --text <messages.json >expected.txt 2>&1; then
    "$MILKIT" template org/tiny --text <messages.json >got.txt 2>&1
    cmp -s expected.txt got.txt || fail "template of org/tiny: $(cat got.txt)"
fi

# a package by its name
mkdir -p "$HF_HUB_CACHE/models--org--package/refs" "$HF_HUB_CACHE/models--org--package/snapshots"
printf %s "$commit" >"$HF_HUB_CACHE/models--org--package/refs/main"
mv package "$HF_HUB_CACHE/models--org--package/snapshots/$commit"
expect 0 "" "$MILKIT" run org/package --tokens 1,2 --ids -n 2 --greedy
expect 0 "" "$MILKIT" logits org/package --tokens 1,2 -o logits.safetensors
expect 0 "" "$MILKIT" plan org/package
expect 0 "" "$MILKIT" eval org/package --text text.txt --tokens 8 --window 8 --against org/package -q
expect 0 "" "$MILKIT" check org/package --hf org/tiny --tokens 1,2,3 -n 0
expect 0 "" "$MILKIT" tokenize org/package "two words" --ids

# a folder of that name comes first
mkdir -p org
cp -r "$gqa8" org/tiny
expect 0 "" "$MILKIT" inspect org/tiny --json
grep -q '"path":.*"org/tiny"' out.txt || fail "expected the folder org/tiny"
rm -r org

# what is not there is named with the place where it was sought
for command in "convert org/none -o x" "check org/package --hf org/none --tokens 1" "tokenize org/none x" "inspect org/none" \
    "template org/none" "eval org/package --text text.txt --tokens 8 --window 8 --against org/none" "run org/none --tokens 1" \
    "logits org/none --tokens 1 -o x" "plan org/none" "chat org/none"; do
    expect 1 "org/none: no file or folder of this name, and no such model in the cache $HF_HUB_CACHE" "$MILKIT" $command
done
finish
