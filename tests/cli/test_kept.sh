# A checkpoint where run and chat expect a package: converted once, kept, listed, removed.
# labels: host
. "$SOURCE/tests/cli/packages.sh"
export MILKIT_CACHE=$PWD/kept HF_HUB_CACHE=$PWD/hub
cp -r "$tiny" checkpoint
chmod -R u+w checkpoint

expect 0 "0 packages" "$MILKIT" list
expect 0 "converting it once" "$MILKIT" run checkpoint -p "Once upon" --greedy -n 6
cp out.txt first.txt
[ "$(find kept -name meta.yaml | wc -l)" = 1 ] || fail "expected one kept package"
expect 0 "" "$MILKIT" run checkpoint -p "Once upon" --greedy -n 6
grep -q "converting" err.txt && fail "converted twice"
cmp -s out.txt first.txt || fail "the kept package answers otherwise"
# the kept package is a package of its settings
make_package "$tiny" package -c 512 --lut-ffn 6,8 --lut-head 8,8 --format mlmodelc
expect 0 "" "$MILKIT" run package -p "Once upon" --greedy -n 6
cmp -s out.txt first.txt || fail "the kept package answers otherwise than one of the same widths"
expect 0 "checkpoint" "$MILKIT" list
expect 0 '"lut-ffn\": \"6,8\"' "$MILKIT" list --json
python3 -c 'import json,sys; assert len(json.load(open("out.txt"))) == 1' || fail "list --json is not JSON"
expect 0 "" "$MILKIT" chat checkpoint -p "hello" --greedy -n 4
grep -q "converting" err.txt && fail "chat converts what run has kept"
# another checkpoint in the same place is another package
touch -d 2001-01-01 checkpoint/config.json
expect 0 "converting it once" "$MILKIT" run checkpoint --tokens 1,2 --ids -n 1 --greedy
[ "$(find kept -name meta.yaml | wc -l)" = 2 ] || fail "expected a second package"
expect 0 "" "$MILKIT" rm checkpoint
[ "$(find kept -name meta.yaml | wc -l)" = 0 ] || fail "expected both to be removed"
expect 1 "no kept package of this name" "$MILKIT" rm checkpoint
expect 2 "expected the names" "$MILKIT" rm
expect 2 "found both" "$MILKIT" rm x --all
# by the name of the hub
commit=0123456789abcdef0123456789abcdef01234567
mkdir -p hub/models--org--tiny/refs hub/models--org--tiny/snapshots
printf %s $commit >hub/models--org--tiny/refs/main
mv checkpoint hub/models--org--tiny/snapshots/$commit
expect 0 "org/tiny is a checkpoint" "$MILKIT" run org/tiny --tokens 1,2 --ids -n 1 --greedy
expect 0 "org/tiny" "$MILKIT" list
# a GGUF file
expect 0 "is a checkpoint" "$MILKIT" run "$DATA/gguf/llama-small.Q8_0.gguf" --tokens 1,2 --ids -n 1 --greedy
expect 0 "" "$MILKIT" run "$DATA/gguf/llama-small.Q8_0.gguf" --tokens 1,2 --ids -n 1 --greedy
grep -q "converting" err.txt && fail "a GGUF file is converted twice"
# its context is the model's own, where that is below 4096
grep -rq "context_length: 2048" kept --include=meta.yaml || fail "a context that is not the GGUF's: $(grep -rh context_length: kept --include=meta.yaml)"
# a conversion that fails or is interrupted is not in the list
cp -r "$tiny" broken
chmod -R u+w broken
head -c 100000 "$tiny/model.safetensors" >broken/model.safetensors
expect 4 "model.safetensors" "$MILKIT" run broken --tokens 1 -n 1
expect 0 "" "$MILKIT" list --json
grep -q broken out.txt && fail "a failed conversion is listed"
expect 0 "" "$MILKIT" rm --all
expect 0 "0 packages" "$MILKIT" list
# what else is in the folder is none of ours
mkdir -p kept/other
echo '{"source": 5}' >kept/other/source.json
echo x >kept/file
expect 0 "0 packages" "$MILKIT" list
expect 0 "" "$MILKIT" rm --all
[ -e kept/other/source.json ] && [ -e kept/file ] || fail "something else was removed"
# neither checkpoint nor package
mkdir empty
expect 4 "" "$MILKIT" run empty --tokens 1 -n 1
finish
