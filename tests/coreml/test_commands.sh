#!/bin/bash
# --backend in the commands: the plain program refuses coreml, the one with the stand-in runs with it. MILKIT: the plain one; STANDIN: the other.
. "$SOURCE/tests/cli/packages.sh"
make_package "$tiny" tiny -c 64 -b 8 --format mlmodelc
core="--backend coreml"
run="--tokens 1,2,3,4,5,6,7,8,9,10 --ids -n 8 --greedy -q"

# ---- a build without Core ML ----
# shellcheck disable=SC2086
{
    for command in "run tiny $run" "logits tiny --tokens 1,2 -o x.st" "bench tiny -p 8 -n 1 -r 1" "check tiny --plan" \
        "check tiny --bench -n 1" "eval tiny --text $DATA/models/eval.txt" "predict tiny/*FFN*.mlmodelc --function infer --random" \
        "chat tiny -p Hello"; do
        expect 3 "built without Core ML" "$MILKIT" $command $core
    done
    expect 2 "expected engine or coreml, found 'abacus'" "$MILKIT" run tiny $run --backend abacus
    expect 2 "of --backend coreml alone" "$MILKIT" run tiny $run --compute-units all
    "$MILKIT" run tiny $run >plain.txt || fail "run"
    "$MILKIT" run tiny $run --backend engine >named.txt || fail "run --backend engine"
    cmp -s plain.txt named.txt || fail "--backend engine is not the default"

    # ---- with the stand-in ----
    expect 2 "found 'gpu'" "$STANDIN" run tiny $run $core --compute-units gpu
    expect 2 "precisions are of milkit's engine" "$STANDIN" run tiny $run $core --precision fp16
    "$STANDIN" run tiny $run $core >theirs.txt || fail "run by coreml"
    cmp -s plain.txt theirs.txt || fail "other tokens: $(cat plain.txt) $(cat theirs.txt)"
    for units in cpu-and-ane cpu-and-gpu cpu-only all; do
        expect 0 "" "$STANDIN" run tiny $run $core --compute-units $units
    done
    expect 0 "verdict: pass" "$STANDIN" check tiny --hf "$tiny" -n 8 $core
    expect 0 '"backends": "coreml"' "$STANDIN" bench tiny -p 8 -n 4 -r 1 -o jsonl $core
    expect 0 "perplexity" "$STANDIN" eval tiny --text "$DATA/models/eval.txt" $core
    expect 0 "" "$STANDIN" logits tiny --tokens 1,2,3 -o theirs.st $core
    "$STANDIN" logits tiny --tokens 1,2,3 -o ours.st -q || fail "logits"
    expect 3 "does not tell its plans" "$STANDIN" plan tiny $core
    infer=$(ls -d tiny/*FFN*.mlmodelc)
    expect 0 "output_hidden_states" "$STANDIN" predict "$infer" --function infer --random $core
    # one that only its source form has is compiled, and nothing of that is left
    make_package "$tiny" source -c 64 -b 8 --format mlpackage
    "$STANDIN" run source $run $core >source.txt || fail "run of .mlpackage"
    cmp -s plain.txt source.txt || fail "other tokens from .mlpackage"
    ls -d standin-* 2>/dev/null && fail "compiled models are left"

    # ---- failures, in words ----
    MILKIT_STANDIN=fail-load expect 1 "the Neural Engine's compiler refused the program" "$STANDIN" run tiny $run $core
    MILKIT_STANDIN=fail-predict expect 1 "the Neural Engine failed while it ran the program" "$STANDIN" run tiny $run $core
    MILKIT_STANDIN=raise expect 1 "the system raised" "$STANDIN" run tiny $run $core
    MILKIT_STANDIN=no-backings expect 0 "" "$STANDIN" run tiny $run $core

    # ---- plans ----
    expect 0 "as Core ML plans it" "$STANDIN" check tiny --plan $core
    grep -q "gather.*before the engine begins" out.txt || fail "no reason beside the plan: $(cat out.txt)"
    expect 0 '"device":	"engine"' "$STANDIN" check tiny --plan --json $core
    expect 0 "as Core ML plans it" "$STANDIN" check source --plan $core
    expect 2 "Core ML plans for this machine" "$STANDIN" check tiny --plan --chip M4 $core

    # ---- measured beside forecast ----
    expect 0 "decode, forecast for M4" "$MILKIT" check tiny --bench -n 4 --runs 1 --chip M4

    # ---- a report, and what it does to the fit ----
    CHIP="M4 Pro" MILKIT=$STANDIN RUNS=1 sh "$SOURCE/tools/mac_report.sh" tiny "$tiny" >report.txt 2>err.txt || fail "mac_report.sh"
    grep -q "^# verdict: pass" report.txt || fail "no check in the report"
    grep -q "^# .*as Core ML plans it" report.txt || fail "no plan in the report"
    expect 0 "9 points" "$MILKIT" forecast --fit report.txt
    grep -q "M4 Pro .*fitted; report.txt" out.txt || fail "the point is not in the listing: $(head -5 out.txt)"
    expect 0 "10 points" "$MILKIT" forecast --fit report.txt report.txt
    grep -v milkit_mac_report report.txt >empty.txt
    expect 4 "no measured point in it" "$MILKIT" forecast --fit empty.txt
    sed 's/"chip": "M4 Pro"/"chip": "M99"/' report.txt >chip.txt
    expect 2 "found 'M99'" "$MILKIT" forecast --fit chip.txt
    sed 's/"calls": [0-9]*/"calls": -1/' report.txt >calls.txt
    expect 4 "above 0" "$MILKIT" forecast --fit calls.txt
    CHIP="M4" MILKIT=$MILKIT RUNS=1 sh "$SOURCE/tools/mac_report.sh" tiny >without.txt 2>err.txt || fail "mac_report.sh without Core ML"
    grep -q "^# no point: chip 'M4', speed 'not measured'" without.txt || fail "a point without Core ML"
    grep -q "^# (status 3)" without.txt || fail "the refusal is not in the report"
}
exit $failed
