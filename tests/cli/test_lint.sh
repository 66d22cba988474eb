# milkit lint: findings of packages of each family, targets, statuses, the line at the end of a conversion.
set -u
rm -rf "$SCRATCH"
mkdir -p "$SCRATCH"
cd "$SCRATCH" || exit 1
failed=0

fail() {
    echo "FAILED: $*"
    failed=1
}

# expect STATUS TEXT COMMAND...: the status, and TEXT on stdout or stderr
expect() {
    local status=$1 text=$2
    shift 2
    "$@" >out.txt 2>err.txt
    local got=$?
    [ $got -eq "$status" ] || fail "$*: expected status $status, found $got: $(tail -1 err.txt)"
    grep -qF -- "$text" out.txt err.txt || fail "$*: expected '$text', found: $(head -2 out.txt) $(tail -1 err.txt)"
}

# ids SEVERITY REPORT: the rules with findings of that severity
ids() {
    tr -d '\t\n' <"$2" | grep -oE '"id":"ANE[0-9]+","severity":"'"$1"'"' | grep -oE 'ANE[0-9]+' | sort -u | tr '\n' ' ' | sed 's/ $//'
}

# family NAME ERRORS WARNINGS NOTES: a package of a test model has these and no others. docs/device.md says why each is there.
family() {
    "$MILKIT" convert "$DATA/models/$1" -o "$1" -c 256 -b 64 >log.txt 2>&1 || fail "convert $1: $(tail -1 log.txt)"
    grep -q "for the Neural Engine: " log.txt || fail "$1: no line of lint at the end of the conversion"
    "$MILKIT" lint "$1" --json >"$1.json" || fail "lint $1"
    [ "$(ids error "$1.json")" = "$2" ] || fail "$1: errors $(ids error "$1.json"), expected $2"
    [ "$(ids warning "$1.json")" = "$3" ] || fail "$1: warnings $(ids warning "$1.json"), expected $3"
    [ "$(ids note "$1.json")" = "$4" ] || fail "$1: notes $(ids note "$1.json"), expected $4"
}

family qwen3-tiny "" "" "ANE012 ANE018 ANE051"
# heads of 16 numbers, which no published model has
family llama-bias "" ANE040 "ANE012 ANE053"
family qwen3_moe-mixed "" "" "ANE012 ANE018 ANE051"
# one head and short axes, which no published model of the family has
family qwen3_5-equal ANE044 ANE040 "ANE012 ANE018 ANE042 ANE051"
family gemma3-linear "" "" "ANE010 ANE011 ANE012 ANE015 ANE018 ANE022 ANE043 ANE051"
family gemma4-window "" ANE005 "ANE010 ANE011 ANE012 ANE015 ANE018 ANE022 ANE043 ANE051"

# both forms say the same; a single model can be looked at, too
"$MILKIT" lint qwen3-tiny/qwen_FFN_PF_chunk_01of01.mlpackage --json >source.json || fail "lint of a .mlpackage"
"$MILKIT" lint qwen3-tiny/qwen_FFN_PF_chunk_01of01.mlmodelc --json >compiled.json || fail "lint of a .mlmodelc"
sed -E 's/\.ml(package|modelc)//' source.json >a.json
sed -E 's/\.ml(package|modelc)//' compiled.json >b.json
cmp -s a.json b.json || fail "the two forms of a model differ: $(diff a.json b.json | head -3)"

# packages of other tools; docs/device.md judges them
# others NAME ERRORS WARNINGS
others() {
    "$MILKIT" lint "$SHARED/peer-packages/$1" --json >others.json || fail "lint $1"
    [ "$(ids error others.json)" = "$2" ] || fail "$1: errors $(ids error others.json), expected $2"
    [ "$(ids warning others.json)" = "$3" ] || fail "$1: warnings $(ids warning others.json), expected $3"
}
if [ -n "$SHARED" ] && [ -d "$SHARED/peer-packages/anemll" ]; then
    others anemll/qwen3-fp16-1c-ctx256 "" ANE016
    others anemll/qwen3-lut4-2c-ctx256 "" ANE016
    others anemll/qwen3-lut8t-1c-ctx256-nodedup "" "ANE016 ANE035"
    others anemll/qwen3-lut6-1c-ctx512-argmax "" "ANE011 ANE012 ANE013 ANE016"
    others apple-style/stateful-fp16 "" "ANE005 ANE016 ANE065"
    others apple-style/stateful-int4-block32 ANE030 "ANE005 ANE016 ANE032 ANE065"
    others apple-style/stateful-int8-channel-asym "" "ANE005 ANE016 ANE031 ANE065"
    others apple-style/stateful-lut4-group16-scale ANE039 "ANE005 ANE016 ANE033 ANE035 ANE065"
    others old/spec7_int8.mlpackage "" ANE031
else
    echo "skipped: packages of other tools (needs ../shared)"
fi

cases=$DATA/lint
expect 0 "ANE002 warning" "$MILKIT" lint "$cases/ANE002.mil"
expect 0 "ANE002 error" "$MILKIT" lint "$cases/ANE002.mil" --chip M1
expect 0 "chip: A18 Pro" "$MILKIT" lint "$cases/ANE002.mil" --chip a18-pro
expect 5 "1 finding that do" "$MILKIT" lint "$cases/ANE002.mil" --chip M1 --strict
expect 0 "0 errors" "$MILKIT" lint "$cases/ANE002.mil" --chip M4 --strict
expect 0 "system: iOS 26" "$MILKIT" lint "$cases/ANE045.mil" --os "iOS 26"
expect 0 "ANE045 warning" "$MILKIT" lint "$cases/ANE045.mil" --os ios
expect 0 "1.5e-2" "$MILKIT" lint --explain ane016
expect 2 "ANE001 and on" "$MILKIT" lint --explain ANE999
expect 2 "found 'M99'" "$MILKIT" lint "$cases/ANE002.mil" --chip M99
expect 2 "expected a package" "$MILKIT" lint
expect 1 "no such file" "$MILKIT" lint none
expect 4 "expected a model or a package" "$MILKIT" lint "$cases"
expect 4 "" "$MILKIT" lint "$DATA/models/qwen3-tiny/config.json"

expect 0 "ANE063 not judged" "$MILKIT" lint qwen3-tiny

exit $failed
