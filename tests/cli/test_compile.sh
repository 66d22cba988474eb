# milkit compile: Apple's bytes from the outside, refusals, nothing left behind.
set -u
rm -rf "$SCRATCH"
mkdir -p "$SCRATCH"
cd "$SCRATCH" || exit 1
failed=0
pairs=$DATA/corpus/pairs

fail() {
    echo "FAILED: $*"
    failed=1
}

expect() {
    local status=$1 text=$2
    shift 2
    "$@" >out.txt 2>err.txt
    local got=$?
    [ $got -eq "$status" ] || fail "expected status $status, found $got: $* ($(tail -1 err.txt))"
    grep -qF -- "$text" err.txt || fail "expected '$text' from: $* ($(tail -1 err.txt))"
}

package=$pairs/unified_palette_2bit/unified_palette_2bit.mlpackage
apple=$pairs/unified_palette_2bit/apple.mlmodelc
expect 0 "wrote X.mlmodelc" "$MILKIT" compile "$package" -o X.mlmodelc
cmp X.mlmodelc/weights/weight.bin "$apple/weights/weight.bin" || fail "weights differ"
cmp X.mlmodelc/analytics/coremldata.bin "$apple/analytics/coremldata.bin" || fail "analytics differ"
# line 2 holds the compiler's versions
cmp <(sed 2d X.mlmodelc/model.mil) <(sed 2d "$apple/model.mil") || fail "model.mil differs"
cmp <(find X.mlmodelc -type f | sed 's#^[^/]*##' | sort) <(find "$apple" -type f | sed "s#^$apple##" | sort) ||
    fail "other files than Apple's"

expect 1 "exists" "$MILKIT" compile "$package" -o X.mlmodelc
expect 0 "" "$MILKIT" compile "$package" -o X.mlmodelc --force
expect 0 "wrote unified_palette_2bit.mlmodelc" "$MILKIT" compile "$package"
expect 2 "compiled already" "$MILKIT" compile X.mlmodelc -o Y.mlmodelc
expect 2 "expected a .mlpackage" "$MILKIT" compile
expect 1 "no such file" "$MILKIT" compile none.mlpackage -o Y.mlmodelc
cp -r "$package" damaged.mlpackage
chmod -R u+w damaged.mlpackage
truncate -s 900 damaged.mlpackage/Data/com.apple.CoreML/weights/weight.bin
expect 4 "weight.bin" "$MILKIT" compile damaged.mlpackage -o Y.mlmodelc
found=$(ls -A | grep -F Y.mlmodelc | head -1)
[ -z "$found" ] || fail "left behind: $found"

exit $failed
