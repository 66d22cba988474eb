# Where output goes: folders above it are made, an empty folder is taken, - is stdout where a stream makes sense; what --json
# prints is one object with a schema; -v tells the choices; the installed names.
# labels: host
. "$SOURCE/tests/cli/packages.sh"
make_package "$tiny" tiny -c 64 -b 8

# ---- folders above ----
expect 0 "" "$MILKIT" convert "$tiny" -o deep/er/package -c 64 -b 8 -q --report deep/report/r.json
diff -r tiny deep/er/package >diff.txt || fail "a package in a new folder differs: $(head -1 diff.txt)"
expect 0 "" "$MILKIT" logits tiny --tokens 1,2 -o logs/one/x.safetensors
expect 0 "" "$MILKIT" compile tiny/qwen_lm_head.mlpackage -o compiled/here/x.mlmodelc -q
[ -s deep/report/r.json ] && [ -s logs/one/x.safetensors ] && [ -d compiled/here/x.mlmodelc ] || fail "an output in a new folder"
grep -q '"schema":1' deep/report/r.json || fail "no schema in the report of convert"
# what failed leaves nothing, the folders neither
expect 4 "" "$MILKIT" convert "$DATA/models/qwen3-tiny/config.json" -o none/at/all -q
expect 4 "" "$MILKIT" compile "$DATA/models/eval.txt" -o none/at/all -q
expect 6 "" "$MILKIT" logits tiny --tokens "$(seq -s, 1 70)" -o none/at/all
[ ! -e none ] || fail "folders of a failed output remain"
: >file
expect 1 "file is not a folder" "$MILKIT" convert "$tiny" -o file/x/package -q
expect 1 "file is not a folder" "$MILKIT" convert "$tiny" -o out -q --report file/x/r.json
expect 1 "file" "$MILKIT" logits tiny --tokens 1 -o file/x/y
[ ! -e out ] || fail "a conversion whose report can't be written"

# ---- an empty folder ----
mkdir taken compiled/taken full
echo mine >full/file
expect 0 "" "$MILKIT" convert "$tiny" -o taken -c 64 -b 8 -q
diff -r tiny taken >diff.txt || fail "a package in an empty folder differs: $(head -1 diff.txt)"
expect 0 "" "$MILKIT" compile tiny/qwen_lm_head.mlpackage -o compiled/taken -q
for force in "" --force; do # what --force would not replace is not offered to it
    # shellcheck disable=SC2086
    expect 1 "full: exists and is not a package" "$MILKIT" convert "$tiny" -o full -c 64 -b 8 -q $force
    grep -q "to replace it" err.txt && fail "--force is offered for a folder with files"
    # shellcheck disable=SC2086
    expect 1 "full/file: exists and is not a folder" "$MILKIT" convert "$tiny" -o full/file -c 64 -b 8 -q $force
    grep -q "to replace it" err.txt && fail "--force is offered for a file in a package's place"
    # shellcheck disable=SC2086
    expect 1 "full: exists and is not a compiled model" "$MILKIT" compile tiny/qwen_lm_head.mlpackage -o full -q $force
    # shellcheck disable=SC2086
    expect 1 "full/file: exists and is not a folder" "$MILKIT" compile tiny/qwen_lm_head.mlpackage -o full/file -q $force
done
expect 1 "exists; give another name, or --force to replace it" "$MILKIT" compile tiny/qwen_lm_head.mlpackage -o compiled/taken -q
expect 0 "" "$MILKIT" compile tiny/qwen_lm_head.mlpackage -o compiled/taken -q --force
expect 1 "exists; give another name, or --force to replace it" "$MILKIT" convert "$tiny" -o taken -c 64 -b 8 -q
[ "$(cat full/file)" = mine ] || fail "a folder with files was touched"

# ---- streams ----
"$MILKIT" logits tiny --tokens 1,2 -o - >stream.safetensors 2>err.txt || fail "logits -o -: $(tail -1 err.txt)"
cmp -s stream.safetensors logs/one/x.safetensors || fail "logits -o - gives other bytes"
if [ -w /dev/full ]; then
    "$MILKIT" logits tiny --tokens 1,2 -o - >/dev/full 2>err.txt
    [ $? -eq 1 ] && grep -q "No space left" err.txt || fail "logits -o - on a full disk"
fi
expect 0 '"tensors_used":' "$MILKIT" convert "$tiny" -o streamed -c 64 -b 8 -q --report -
cp out.txt report.json

# ---- what is there already ----
# refused WHAT COMMAND...: a file that is there stays, --force replaces it
refused() {
    local file=$1
    shift
    echo mine >"$file"
    expect 1 "$file: exists; give another name, or --force to replace it" "$@"
    [ "$(cat "$file")" = mine ] || fail "replaced without a word: $*"
    expect 0 "" "$@" --force
    [ "$(head -c 4 "$file")" != mine ] || fail "--force replaces nothing: $*"
}
refused there.safetensors "$MILKIT" logits tiny --tokens 1,2 -o there.safetensors
head=tiny/qwen_lm_head.mlmodelc
chunk=tiny/qwen_FFN_PF_chunk_01of01.mlmodelc
refused there.out "$MILKIT" predict $head --random -o there.out
refused there.state "$MILKIT" predict $chunk --random --state-out there.state
mkdir reported
echo mine >there.json
expect 1 "there.json: exists" "$MILKIT" convert "$tiny" -o reported -c 64 -b 8 -q --report there.json
[ "$(cat there.json)" = mine ] && [ -z "$(ls reported)" ] || fail "a conversion whose report is there"
expect 0 "" "$MILKIT" convert "$tiny" -o reported -c 64 -b 8 -q --report there.json --force
grep -q schema there.json || fail "convert --force --report"
ln -s nowhere dangling
expect 1 "exists" "$MILKIT" logits tiny --tokens 1,2 -o dangling
[ ! -e nowhere ] || fail "an output through a link to nothing"
# a name that means stdout elsewhere
expect 2 "a package is a folder" "$MILKIT" convert "$tiny" -o - -c 64 -b 8
expect 2 "a bundle is a folder" "$MILKIT" compile tiny/qwen_lm_head.mlpackage -o -
expect 2 "does not go to stdout" "$MILKIT" predict $chunk --random --state-out -
[ ! -e - ] || fail "something is called -"
for seed in 99999999999999999999 -99999999999999999999 9223372036854775808; do
    expect 2 "expected a whole number from -9223372036854775808 to 9223372036854775807, found '$seed'" "$MILKIT" run tiny -p And --seed $seed
done
expect 2 "expected a whole number, found" "$MILKIT" run tiny -p And --seed 1e3

# ---- JSON ----
# is_json FILE: one object with "schema": 1
is_json() {
    tr -d ' \n\t' <"$1" | grep -q '^{"schema":1,.*}$' || fail "not an object with a schema: $(head -c 100 "$1")"
    ! command -v python3 >/dev/null || python3 -c 'import json, sys; assert json.load(open(sys.argv[1]))["schema"] == 1' "$1" 2>err.txt ||
        fail "$1: $(tail -1 err.txt)"
}
is_json report.json
run="run tiny -p And -n 8 --ignore-eos"
for call in "$run --greedy --json" "$run --seed 3 --temp 2 --json" "run tiny --tokens 1,2 --ids -n 3 --json" "plan tiny --json" "plan tiny --json --measure" \
    "plan tiny/qwen_lm_head.mlpackage --json" "logits tiny --tokens 1,2,3 --json" "logits tiny --tokens 1,2,3 --json -o x.safetensors" \
    "check tiny --hf $tiny --tokens 1,2 -n 1 --json" "eval tiny --text $DATA/models/eval.txt --tokens 16 --window 16 --json -q" \
    "inspect tiny --json"; do
    # shellcheck disable=SC2086
    expect 0 "" "$MILKIT" $call
    cp out.txt answer.json
    is_json answer.json
    [ ! -s err.txt ] || fail "something on stderr from: $call"
done
# the same tokens and the same text as without --json
# shellcheck disable=SC2086
expect 0 "" "$MILKIT" $run --greedy --ids
list=$(sed 's/,/, /g' out.txt)
# shellcheck disable=SC2086
expect 0 "\"generated\": [$list]" "$MILKIT" $run --greedy --json
grep -qF '"stopped": "length"' out.txt || fail "run --json: why it stopped"
grep -qF '"sampling": {"greedy": true' out.txt || fail "run --json: sampling"
if command -v python3 >/dev/null; then
    cp out.txt answer.json
    # shellcheck disable=SC2086
    "$MILKIT" $run --greedy >text.txt
    python3 - <<'P' 2>err.txt || fail "run --json: another text than on stdout"
import json
assert json.load(open("answer.json"))["text"] + "\n" == open("text.txt", encoding="utf-8").read()
P
    "$MILKIT" logits tiny --tokens 5,6,7 --json >logits.json
    "$MILKIT" plan tiny --json >plan.json
    "$MILKIT" plan tiny >plan.txt
    python3 - <<'P' 2>err.txt || fail "logits --json, plan --json: $(tail -1 err.txt)"
import json
answer = json.load(open("logits.json"))
assert [p["position"] for p in answer["positions"]] == [0, 1, 2] and answer["tokens"] == [5, 6, 7]
for p in answer["positions"]:
    row = p["logits"]
    assert len(row) == answer["vocab_size"]
    order = sorted(range(len(row)), key=lambda i: (-row[i], i))[:5]
    assert [b["id"] for b in p["best"]] == order and [b["logit"] for b in p["best"]] == [row[i] for i in order]
plan = json.load(open("plan.json"))
assert [f["part"] for f in plan["functions"]] == ["embeddings", "chunk", "head"] * 2
assert sum(len(f["steps"]) for f in plan["functions"]) == sum(" -> " in line for line in open("plan.txt"))
assert all("share" not in s for f in plan["functions"] for s in f["steps"])
P
fi
# the seed of a run makes the run again
# shellcheck disable=SC2086
expect 0 "" "$MILKIT" $run --temp 1.5 --json
seed=$(sed -n 's/.*"seed": \([0-9]*\).*/\1/p' out.txt)
first=$(sed -n 's/.*"generated": \(\[[^]]*\]\).*/\1/p' out.txt)
# shellcheck disable=SC2086
expect 0 "\"generated\": $first" "$MILKIT" $run --temp 1.5 --seed "$seed" --json
expect 2 "both go to stdout" "$MILKIT" logits tiny --tokens 1 -o - --json

# ---- -v tells what was chosen ----
# shellcheck disable=SC2086
expect_stderr 0 "seed $seed, temperature 1.5" "$MILKIT" $run --temp 1.5 --seed "$seed" -v
expect_stderr 0 "tokens are chosen: greedy" "$MILKIT" run tiny -p And -n 1 --greedy -v
expect_stderr 0 "kernels" "$MILKIT" run tiny -p And -n 1 --greedy -v
expect_stderr 0 "tokens are chosen: greedy" "$MILKIT" chat tiny --no-template -p And -n 1 --greedy -v
expect_stderr 0 "context 64, batch 8" "$MILKIT" convert "$tiny" -o chosen -c 64 -b 8 -v

# ---- cmake --install: the program and the names of the format's own tools ----
if command -v cmake >/dev/null && [ -f "$(dirname "$MILKIT")/cmake_install.cmake" ]; then
    DESTDIR=$PWD/root cmake --install "$(dirname "$MILKIT")" --prefix /opt/milkit >install.txt 2>&1 || fail "cmake --install: $(tail -1 install.txt)"
    bin=$PWD/root/opt/milkit/bin
    [ -x "$bin/milkit" ] && [ -L "$bin/coreml_convert" ] && [ -L "$bin/coreml_check" ] || fail "installed: $(ls "$bin")"
    expect 0 "" "$bin/coreml_convert" "$tiny" -o installed -c 64 -b 8 -q
    diff -r tiny installed >diff.txt || fail "coreml_convert writes another package: $(head -1 diff.txt)"
    expect 0 "verdict: pass" "$bin/coreml_check" installed --hf "$tiny" --tokens 1,2,3 -n 2
    expect 0 "CHECKPOINT -o DIR" "$bin/coreml_convert" --help
    expect 2 "milkit help check" "$bin/coreml_check"
    mv root moved
    expect 0 "milkit" moved/opt/milkit/bin/milkit --version
    expect 0 "verdict: pass" moved/opt/milkit/bin/coreml_check installed --hf "$tiny" --tokens 1,2,3 -n 2
fi
finish
