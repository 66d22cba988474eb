#!/bin/bash
# milkit check: a package agrees with its checkpoint, damage on either side is seen, wrong pairs are refused.
set -u
rm -rf "$SCRATCH"
mkdir -p "$SCRATCH"
cd "$SCRATCH" || exit 1
failed=0
models=$DATA/models

fail() {
    echo "FAILED: $*"
    failed=1
}

# expect STATUS "text of stderr" COMMAND...
expect() {
    local status=$1 text=$2
    shift 2
    "$@" >out.txt 2>err.txt
    local got=$?
    [ $got -eq "$status" ] || fail "expected status $status, found $got: $* ($(tail -1 err.txt))"
    [ -z "$text" ] || grep -qF -- "$text" err.txt || fail "expected '$text' from: $* ($(tail -1 err.txt))"
}

# prints "TEXT": the last output must hold it
prints() {
    grep -qF -- "$1" out.txt || fail "expected '$1' in the output, found: $(tail -3 out.txt)"
}

# put FILE OFFSET BYTES (as printf takes them); a negative offset counts from the end
put() {
    local at=$2
    [ "$at" -ge 0 ] || at=$(($(stat -c %s "$1") + at))
    # shellcheck disable=SC2059
    printf "$3" | dd of="$1" bs=1 seek="$at" conv=notrunc 2>/dev/null
}

for name in tiny gqa8 bias; do
    expect 0 "MB of weights" "$MILKIT" convert "$models/qwen3-$name" -o $name -c 128 -b 16 --chunks 2
done

# ---- packages that agree ----
for name in tiny gqa8 bias; do
    expect 0 "" "$MILKIT" check $name --hf "$models/qwen3-$name" -n 12 --min-cosine 0.99999
    prints "verdict: pass"
    # the prompt of our own is longer than a batch: 24 tokens, the last one at position 23
    prints "13 positions after a prompt of 24 tokens"
    [ "$(grep -cE '^ +(2[3-9]|3[0-5]) ' out.txt)" -eq 13 ] || fail "$name: expected rows 23 to 35"
done
expect 0 "" "$MILKIT" check tiny --hf "$models/qwen3-tiny" -p "And it came to pass" -n 4 --bench -t 2
prints "prefill was not run"
prints "decode: "
prints 'generated: "'
expect 0 "" "$MILKIT" check bias --hf "$models/qwen3-bias" --tokens 1,2,3 -n 0
prints "1 positions after a prompt of 3 tokens"
# no more tokens than the context holds
expect 0 "only 28 of 50 tokens" "$MILKIT" check bias --hf "$models/qwen3-bias" --tokens "$(seq -s, 100)" -n 50
prints "29 positions"

expect 0 "" "$MILKIT" check tiny --hf "$models/qwen3-tiny" -n 5 --json --bench
cp out.txt pass.json
grep -q '"verdict": "pass"' pass.json || fail "no verdict in the JSON"
expect 5 "outside the limits" "$MILKIT" check tiny --hf "$models/qwen3-tiny" -n 2 --json --max-difference 0
cp out.txt fail.json
if command -v python3 >/dev/null; then
    python3 - <<'PYTHON' || fail "the JSON is not as expected"
import json
p = json.load(open("pass.json"))
assert p["schema"] == 1 and p["verdict"] == "pass" and p["failures"] == []
assert p["prompt_tokens"] == 24 == len(p["prompt"]) and p["prefill_calls"] == 1 and len(p["generated"]) == 5
rows = p["positions"]
assert [r["position"] for r in rows] == list(range(23, 29))
assert [r["token"] for r in rows] == p["prompt"][-1:] + p["generated"]
assert [r["reference_top"] for r in rows[:-1]] == p["generated"]
assert all(0.9999 < r["cosine"] < 1.000001 and -1e-9 < r["kl"] < 1e-3 for r in rows)
s = p["summary"]
assert s["positions"] == 6 and s["not_finite"] == 0
assert s["min_cosine"] == min(r["cosine"] for r in rows)
assert s["max_abs_difference"] == max(r["max_abs_difference"] for r in rows)
assert abs(s["mean_kl"] - sum(r["kl"] for r in rows) / 6) < 1e-12
assert s["top1_counted"] == sum(r["margin"] > 0.05 for r in rows) and s["top1_agreement"] == 1
assert p["limits"]["min_cosine"] == 0.9999 and p["limits"]["max_abs_difference"] is None
assert p["bench"]["prefill_tokens"] == 16 and p["bench"]["decode_tokens"] == 13
bench = p["bench"]
assert bench["runs"] == 5
for what in "prefill", "decode":
    slowest, median, fastest = (bench[what + "_tokens_per_second" + x] for x in ("_slowest", "", "_fastest"))
    assert 0 < slowest <= median <= fastest
assert p["form"] == "mlmodelc"
other = p["other_form"]
assert other["form"] == "mlpackage" and other["same_bits"] == 6 and other["summary"] == s
f = json.load(open("fail.json"))
assert f["verdict"] == "fail" and len(f["failures"]) == 1 and "differs" in f["failures"][0]
PYTHON
else
    echo "skipped: no python3 to read the JSON"
fi

# ---- both forms are run: one that is wrong is found, whichever it is; one alone is named ----
grep -q "form: .mlmodelc; .mlpackage gives the same bits" <("$MILKIT" check gqa8 --hf "$models/qwen3-gqa8" -n 2) ||
    fail "the two forms are not named"
for form in mlmodelc mlpackage; do
    rm -rf one both
    cp -r gqa8 both
    cp -r gqa8 one
    # weight files of the two forms may be one file
    find both -path "*lm_head*.$form/*" -name weight.bin | while read -r file; do
        cp "$file" copy && mv copy "$file"
        put "$file" -200 '\000\076\000\276\000\076\000\276\000\076\000\276\000\076\000\276\000\076\000\276'
    done
    expect 5 ".$form: cosine" "$MILKIT" check both --hf "$models/qwen3-gqa8" -n 8
    prints "; .mlpackage differs at"
    rm -rf one/*.$form
    expect 0 "" "$MILKIT" check one --hf "$models/qwen3-gqa8" -n 2
    prints "verdict: pass"
    grep -qE "^form: \.(mlmodelc|mlpackage)$" out.txt || fail "the form is not named: $(cat out.txt)"
    grep -q "^form: .$form" out.txt && fail "a form is named that is not there"
done

# ---- the speed alone ----
expect 0 "" "$MILKIT" check bias --bench --runs 3 -n 4
prints "verdict: none (nothing is compared without --hf)"
prints "(median of 3 runs, "
grep -q "KL" out.txt && fail "something was compared without a checkpoint"
expect 0 "" "$MILKIT" check tiny --bench --json -p "And it came to pass" -n 3
prints '"verdict": "none"'
grep -q '"positions"' out.txt && fail "positions without a checkpoint"

# ---- damage ----
# The checkpoint's last tensor is the final norm: its last number becomes 100, in a copy.
cp -r "$models/qwen3-gqa8" damaged
chmod -R u+w damaged
put damaged/model.safetensors -2 '\100\126'
expect 5 "outside the limits: cosine" "$MILKIT" check gqa8 --hf damaged -n 8
prints "verdict: FAIL"
expect 0 "MB of weights" "$MILKIT" convert damaged -o damaged-package -c 128 -b 16
expect 5 "outside the limits: cosine" "$MILKIT" check damaged-package --hf "$models/qwen3-gqa8" -n 8 --json
prints '"verdict": "fail"'
expect 0 "" "$MILKIT" check damaged-package --hf damaged -n 8
# Limits that allow anything
expect 0 "" "$MILKIT" check damaged-package --hf "$models/qwen3-gqa8" -n 8 --min-cosine -1 --max-kl 1000 --min-top1 0 \
    --min-layer-cosine -1 --min-added-cosine -1 --min-gain -1000 --max-gain 1000
# Numbers that are none: in the checkpoint it is a bad file, in the package a failed check.
put damaged/model.safetensors -2 '\000\176'
expect 4 "not finite" "$MILKIT" check gqa8 --hf damaged -n 2
cp -r gqa8 nan
head=$(find nan -path '*lm_head*' -name weight.bin | head -1)
[ -n "$head" ] || fail "no weight file of the head"
find nan -path '*lm_head*' -name weight.bin | while read -r file; do put "$file" -2 '\000\176'; done
expect 5 "not finite at 3 positions" "$MILKIT" check nan --hf "$models/qwen3-gqa8" -n 2
prints "not finite"
expect 5 "not finite at 3 positions" "$MILKIT" check nan --hf "$models/qwen3-gqa8" -n 2 --json
prints '"min_cosine": null'

# ---- wrong calls and wrong pairs ----
expect 2 "--hf CHECKPOINT" "$MILKIT" check tiny
expect 2 "--runs" "$MILKIT" check tiny --bench --runs 0
expect 2 "--min-gain and --max-gain" "$MILKIT" check tiny --hf "$models/qwen3-tiny" --min-gain 2 --max-gain 1
expect 2 "expected a package folder" "$MILKIT" check --hf "$models/qwen3-tiny"
expect 0 "" "$MILKIT" check tiny --plan
grep -q "segment" out.txt || fail "check --plan shows no segments"
expect 5 "vocabulary size 413, but 300" "$MILKIT" check bias --hf "$models/qwen3-gqa8"
expect 1 "found nothing" "$MILKIT" check bias --hf missing
expect 2 "only one of" "$MILKIT" check tiny --hf "$models/qwen3-tiny" -p a --tokens 1
expect 2 "has no tokenizer.json" "$MILKIT" check bias --hf "$models/qwen3-bias" -p a
expect 2 "an id below 413" "$MILKIT" check bias --hf "$models/qwen3-bias" --tokens 1,413
expect 2 "the prompt is empty" "$MILKIT" check tiny --hf "$models/qwen3-tiny" -p ""
# a limit near 1 is not printed as 1
expect 5 "is below 0.9999999999" "$MILKIT" check tiny --hf "$models/qwen3-tiny" -n 2 --min-cosine 0.9999999999
grep -q "cosine >= 0.9999999999, " out.txt || fail "the limit is printed short: $(grep limits out.txt)"
expect 2 "--min-cosine" "$MILKIT" check tiny --hf "$models/qwen3-tiny" --min-cosine 2
expect 2 "-n: expected" "$MILKIT" check tiny --hf "$models/qwen3-tiny" -n -2
expect 6 "context holds 128" "$MILKIT" check bias --hf "$models/qwen3-bias" --tokens "$(seq -s, 129)"

cd / && rm -rf "$SCRATCH"
exit $failed
