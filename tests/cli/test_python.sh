# The Python binding over the library of this build: tests/python/check_binding.py.
. "$SOURCE/tests/cli/packages.sh"

library=$BUILD/libmilkit.so.0
if is_sanitized; then
    echo "skipped: the interpreter is not built with the sanitizer's run time"
    exit 77
fi
if [ "$MILKIT" != "$BUILD/milkit" ]; then
    echo "skipped: the library is built for another processor"
    exit 77
fi
python3 -c 'import numpy' 2>/dev/null || {
    echo "skipped: python3-numpy is not installed"
    exit 77
}

make_package "$tiny" tiny -c 64 -b 16
MILKIT_LIBRARY=$library PYTHONPATH=$SOURCE/python PYTHONDONTWRITEBYTECODE=1 \
    python3 "$SOURCE/tests/python/check_binding.py" "$MILKIT" "$DATA" tiny "$SHARED" || fail "the binding"

# Without the library one message says what to do.
MILKIT_LIBRARY=$SCRATCH/nowhere.so PYTHONPATH=$SOURCE/python PYTHONDONTWRITEBYTECODE=1 python3 -c 'import milkit' 2>err.txt && fail "no library, no error"
grep -q "MILKIT_LIBRARY" err.txt || fail "the message does not say how the library is found"

# coremltools imported first is too late, and said.
mkdir -p early/coremltools
: >early/coremltools/__init__.py
MILKIT_LIBRARY=$library PYTHONPATH=$SOURCE/python:early PYTHONDONTWRITEBYTECODE=1 \
    python3 -c 'import coremltools, milkit.coremltools.install' 2>err.txt && fail "installed after coremltools"
grep -q "before coremltools" err.txt || fail "too late is not said"
# The wheel has all it needs inside.
python3 "$SOURCE/tools/wheel.py" "$library" wheel >out.txt 2>err.txt || fail "wheel: $(tail -1 err.txt)"
python3 -c 'import sys, zipfile; z = zipfile.ZipFile(sys.argv[1]); assert z.testzip() is None; z.extractall("unpacked")' wheel/*.whl || fail "the wheel is not a ZIP file"
env -u MILKIT_LIBRARY PYTHONPATH=unpacked python3 -c '
import milkit, sys
assert "unpacked" in milkit.__file__
with open("/proc/self/maps") as f:
    maps = f.read()
for name in open("unpacked/milkit/preload.txt").read().split() + ["libmilkit.so.0"]:
    assert "unpacked/milkit/" + name in maps, name
print(milkit.Model(sys.argv[1]).predict({"x": [[1] * 6], "y": [[2] * 6]}))' "$DATA/ops/add_int32.mlpackage" >out.txt 2>err.txt || fail "the wheel: $(tail -2 err.txt)"
grep -q '\[\[3, 3, 3, 3, 3, 3\]\]' out.txt || fail "the wheel predicts $(cat out.txt)"
grep -q 'libmilkit.so.0,sha256=' unpacked/milkit-*.dist-info/RECORD || fail "RECORD does not list the library"
exit $failed
