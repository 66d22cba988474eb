# What is known of the Neural Engine: expected devices, forecasts, and its arithmetic emulated for whole packages.
. "$SOURCE/tests/cli/packages.sh"
make_package "$tiny" tiny -c 64 -b 8 --format mlmodelc

# ---- devices ----
expect 0 "1 segment" "$MILKIT" check tiny --plan
grep -q "gather.*before the engine begins" out.txt || fail "check --plan: no word about lookups: $(head -3 out.txt)"
expect 0 '"device":	"processor"' "$MILKIT" check tiny --plan --chip "M5 Max" --json
expect 0 "indices are int32" "$MILKIT" check "$DATA/lint/ANE013.mil" --plan
expect 0 "has no int32 arithmetic" "$MILKIT" check "$DATA/lint/ANE011.mil" --plan
# a little work is not worth entering the engine
expect 0 "0 ops on the engine" "$MILKIT" check "$DATA/lint/ANE017.fixed.mil" --plan
expect 2 "found 'M99'" "$MILKIT" check tiny --plan --chip M99
expect 2 "expected a package" "$MILKIT" check --plan
expect 1 "no such file" "$MILKIT" check none --plan

# ---- forecasts ----
expect 0 "leaving one out, the fit errs by" "$MILKIT" forecast tiny --chip "M5 Max"
grep -q extrapolated out.txt && fail "a chip of the fit is said to be extrapolated"
expect 0 "extrapolated: no fitted measurement is of this chip" "$MILKIT" forecast tiny --chip M4
expect 0 "older chip than those of the fit" "$MILKIT" forecast tiny --chip M1
expect 0 "not forecast: nobody has published the TFLOPS" "$MILKIT" forecast tiny --chip M2
expect 0 "0.67" "$MILKIT" forecast tiny --chip "A18 Pro"
expect 0 '"high":' "$MILKIT" forecast tiny --chip a18pro --json
expect 0 "8 points: error 2." "$MILKIT" forecast --fit
grep -q "leaving one out 5.5 % median, 24.7 % worst" out.txt || fail "forecast --fit: $(head -2 out.txt)"
expect 0 '"ms_per_call":	1.43' "$MILKIT" forecast --fit --json
expect 2 "expected a chip" "$MILKIT" forecast tiny
expect 2 "expected a package" "$MILKIT" forecast --chip M4

# ---- arithmetic ----
# same bits whatever the threads and the instruction set
"$MILKIT" logits tiny --tokens 1,2,3,4,5,6,7,8,9,10,11 -o one.st --precision ane -t 1 2>err.txt || fail "logits: $(tail -1 err.txt)"
grep -q "emulated from published measurements" err.txt || fail "nothing says that numbers are emulated: $(head -1 err.txt)"
"$MILKIT" logits tiny --tokens 1,2,3,4,5,6,7,8,9,10,11 -o two.st --precision ane -t 2 -q || fail "two threads"
cmp -s one.st two.st || fail "one thread and two give other bits"
MILKIT_CPU=scalar "$MILKIT" logits tiny --tokens 1,2,3,4,5,6,7,8,9,10,11 -o plain.st --precision ane -q || fail "plain C"
cmp -s one.st plain.st || fail "plain C gives other bits"
"$MILKIT" logits tiny --tokens 1,2,3,4,5,6,7,8,9,10,11 -o default.st -q
cmp -s one.st default.st && fail "the emulation changes nothing"
# each switch that acts on such a package does something
for switch in norm=fp16 tables=exact sums=m1 sums=exact small=keep; do
    "$MILKIT" logits tiny --tokens 1,2,3,4,5,6,7,8,9,10,11 -o switch.st --precision ane --ane-model $switch -q --force || fail "$switch"
    cmp -s one.st switch.st && fail "$switch changes nothing"
done
# far from garbage: the emulation errs by a few thousandths
expect 0 "verdict: none" "$MILKIT" check tiny --hf "$tiny" --precision ane -n 4
expect 0 "verdict: pass" "$MILKIT" check tiny --hf "$tiny" --precision ane -n 4 --min-cosine 0.995 --max-kl 0.01 --min-top1 0.9 --min-layer-cosine 0.995 --min-added-cosine 0.98
expect 0 "perplexity" "$MILKIT" eval tiny --text "$DATA/models/eval.txt" --tokens 16 --window 16 --precision ane
expect 0 "" "$MILKIT" run tiny -p And -n 4 --greedy --precision ane --ane-model norm=fp16
for family in qwen3_5-equal gemma3-linear qwen3_5_moe-tiny; do
    make_package "$DATA/models/$family" $family -c 64 -b 8 --format mlmodelc
    expect 0 "" "$MILKIT" check $family --hf "$DATA/models/$family" --precision ane -n 2
done
make_package "$tiny" integers -c 64 -b 8 --format mlmodelc --quant-ffn int8
"$MILKIT" logits integers --tokens 1,2,3 -o after.st --precision ane -q
"$MILKIT" logits integers --tokens 1,2,3 -o before.st --precision ane --ane-model scales=before -q
cmp -s after.st before.st && fail "where scales are applied changes nothing"
expect 2 "expected some of sums=" "$MILKIT" run tiny -p And -n 1 --precision ane --ane-model norm=half
expect 2 "ane alone" "$MILKIT" run tiny -p And -n 1 --ane-model norm=fp16
expect 2 "expected default, fp32, fp16 or ane" "$MILKIT" run tiny -p And -n 1 --precision double
# a session belongs to its switches
"$MILKIT" run tiny -p And -n 2 --greedy --precision ane --prompt-cache session -q >/dev/null || fail "a session"
expect 4 "another precision" "$MILKIT" run tiny -p And -n 2 --greedy --precision ane --ane-model norm=fp16 --prompt-cache session

exit $failed
