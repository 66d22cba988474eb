#!/bin/bash
# The checks of the tree find what they are for: test_checks.sh SOURCE_FOLDER builds small bad trees and expects each to
# be refused with the right line, and a good one to pass.
set -eu
source=$(realpath "$1")
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
n_bad=0

# expect STATUS TEXT COMMAND...: the exit status, and a text in the output
expect() {
    local want=$1 text=$2 status=0 output
    shift 2
    output=$("$@" 2>&1) || status=$?
    if [ "$status" != "$want" ] || [[ $output != *"$text"* ]]; then
        echo "expected status $want and \"$text\", found status $status and:"
        echo "$output"
        n_bad=$((n_bad + 1))
    fi
}
# The folders are those of the tree itself.
includes() {
    mkdir -p tree/docs
    [ -f tree/CMakeLists.txt ] || cp "$source/CMakeLists.txt" tree
    [ -f tree/docs/architecture.md ] || cp "$source/docs/architecture.md" tree/docs
    expect "$1" "$2" bash "$source/tests/tree/check_includes.sh" "$folder/tree"
}
# put FILE LINE: a fresh tree with one file
put() {
    rm -rf tree
    mkdir -p "tree/$(dirname "$1")"
    printf '%s\n' "$2" >"tree/$1"
}

put src/mil/a.c '#include "base/mem.h"'
includes 0 "1 files checked, 0 violations"
put src/mil/a.c '#include "coreml.pb-c.h"'
includes 0 "0 violations"
put src/base/a.h '#include "format/json.h"'
includes 1 'src/base/a.h:1: "format/json.h": base may include only: nothing'
put src/reference/a.c ' #  include "mil/mil.h"'
includes 1 'reference may include only'
put src/format/a.c '#include "coreml.pb-c.h"'
includes 1 'expected "folder/file.h"'
put src/base/a.c '#include "mem.h"'
includes 1 'expected "folder/file.h"'
put src/base/a.c '#include "base/../mil/mil.h"'
includes 1 'expected "folder/file.h"'
put src/cli/a.c '#include "engine/engine_int.h"'
includes 1 'an internal header of another folder'
put src/engine/a.c '#include "engine/engine_int.h"'
includes 0 "0 violations"
put src/cli/a.c '#include "engine/plan.h"'
includes 1 'an internal header of another folder'
put src/cli/a.c '#include "engine/engine.h"'
includes 1 'engine is included by src/runtime/backend_engine.c alone'
put src/runtime/backend_engine.c '#include "engine/engine.h"'
includes 0 "0 violations"
put src/kernel/a_avx2.c '#include <immintrin.h>'
includes 1 'src/kernel/a_avx2.c: expected #if defined(__x86_64__)'
put src/kernel/a_avx2.c $'#if defined(__x86_64__)\n#include <immintrin.h>\n#endif'
includes 0 "0 violations"
put src/measure/a.c 'int n = engine_state_count(s);'
includes 1 'src/measure/a.c:1: a name of engine: engine_state_count'
put src/cli/a.h 'int p = ENGINE_FP16, is_backend_engine_x;'
includes 1 'a name of engine: ENGINE_FP16'
put src/cli/cmd_run.c '#include "engine/engine.h"'
includes 1 'cmd_run.c is a client of the library'
put src/cli/cmd_run.c '#include "cli/x.h"'
echo '#include "runtime/model.h"' >tree/src/cli/x.h
includes 1 'src/cli/x.h: "runtime/model.h": cmd_run.c is a client'
put src/cli/cmd_run.c '#include "base/mem.h"'
includes 0 "0 violations"
put src/cli/main.c 'int x;'
includes 1 'a client src/cli/cmd_chat.c, which is not there'
put src/misc/a.c 'int x;'
includes 1 'src/misc: CMakeLists.txt has no milkit_folder(misc)'
put src/base/readme 'nothing'
includes 1 'no source files found'
# edit FILE SCRIPT: a file of the tree beside a good source file, changed by sed
edit() {
    put src/mil/a.c 'int x;'
    mkdir -p tree/docs
    sed -E "$2" "$source/$1" >"tree/$1"
    ! cmp -s "$source/$1" "tree/$1"
}
edit CMakeLists.txt 's/(folder\(arch USES base format) mil/\1/'
includes 1 'docs/architecture.md: arch may include base format mil, CMakeLists.txt says base format'
edit CMakeLists.txt 's/(folder\(cli USES base) format/\1/'
includes 1 'docs/architecture.md: cli may include'
edit docs/architecture.md '/^\| quant /d'
includes 1 'docs/architecture.md: no row for the folder quant'
edit docs/architecture.md 's/^\| quant /| quantity /'
includes 1 'docs/architecture.md: a row for quantity'

if command -v git >/dev/null; then
    words() {
        git -C tree init -q
        git -C tree add -A
        expect "$1" "$2" bash "$source/tests/tree/check_words.sh" "$folder/tree"
    }
    put src/a.c 'int x; /* see src/base/mem.h and https://example.org/home/page */'
    words 0 "1 files checked"
    put src/a.c '/* TO''DO later */'
    words 1 "src/a.c:1:"
    put README.md 'lies in /ho''me/someone/x'
    words 1 "README.md:1:"
    put tests/data/x/README.md 'from /wo''rk/shared'
    words 1 "tests/data/x/README.md:1:"
    put tests/data/x/text.txt 'TO''DO is a word of this text'
    words 0 "1 files checked"
fi
if command -v python3 >/dev/null; then
    order() {
        expect "$1" "$2" bash "$source/tests/tree/check_order.sh" "$folder/tree"
    }
    # order_of LINE: a function with an effect, one without, and a body
    order_of() {
        put src/a.c "struct b;
int *op(struct b *b, int *x);
int look(const struct b *b, const char *name);
struct arg { const char *name; int *v; };
#define ARG(n, x) {n, x}
int *f(struct b *b, int *x)
{
$1
}"
    }
    order_of 'return op(b, op(b, x)); /* op(op(b, x), op(b, x)) */'
    order 0 "1 files checked, 0 violations"
    order_of 'return op(op(b, x), op(b, x));'
    order 1 "src/a.c:8: op() and op()"
    order_of 'int *y = op(b, x), *z = op(b, x); return look(b, "op(b, op(") ? op(b, y) : op(b, z);'
    order 0 "0 violations"
    order_of 'return op(look(b, 0) + look(b, 0), op(b, x));'
    order 0 "0 violations"
    order_of 'const struct arg args[] = {ARG("x", x), ARG("y", op(b, x)), ARG("z", op(b, x))};'
    order 1 "src/a.c:8: op() and op()"
    order_of 'struct arg a = {.name = "n", .v = op(b, op(b, x))}, c = {"n", op(b, x)};'
    order 0 "0 violations"
    order_of 'return *op(b, x) + *op(b, x) > 0;'
    order 1 "src/a.c:8: op() and op()"
    order_of 'if (op(b, x) && op(b, x)) return op(b, x); while (op(b, x)) op(b, x);'
    order 0 "0 violations"
fi
if command -v python3 >/dev/null; then
    options() {
        expect "$1" "$2" bash "$source/tests/tree/check_options.sh" "$folder/tree"
    }
    put src/convert/a.c 'const char *s = "give another folder, or --force";'
    options 1 'src/convert/a.c:1: option name in "give'
    put src/api/a.c 'const char *s = "--only: expected a part";'
    options 1 '1 option names'
    put src/runtime/a.c 'const char *s = "see milkit check -h";'
    options 1 '1 option names'
    put src/cli/a.c 'const char *s = "--force";'
    options 0 '0 option names'
    put src/convert/a.c 'char c = 0x22; const char *s = "a--b, -- and \"-x\""; /* "--force" */ // "--force"'
    options 0 '0 option names'
fi
folders() {
    expect "$1" "$2" bash "$source/tests/tree/check_folders.sh" "$folder/tree"
}
put src/a/x.c 'int x;'
for i in 1 2 3 4 5 6; do
    mkdir -p tree/src/b$i
    echo 'int y;' >tree/src/b$i/y.c
done
folders 0 "7 folders, 7 lines"
echo 'int z;' >tree/src/a/z.c
folders 1 "src/a: 25.0 % of the lines, at most 16"
if command -v python3 >/dev/null; then
    twice() {
        expect "$1" "$2" bash "$source/tests/tree/check_twice.sh" "$folder/tree"
    }
    # lines N WORD: N different lines of code
    lines() {
        for ((i = 0; i < $1; i++)); do echo "    $2 += f$i(x);"; done
    }
    put src/a/x.c "$(lines 8 a)"
    lines 7 a >tree/src/a/y.c
    twice 0 "2 files checked, 0 places twice"
    { echo '/* a */'; lines 4 a; echo; lines 8 a | tail -4; } >tree/src/a/y.c
    twice 1 "src/a/y.c:2: the same 8 lines as src/a/x.c:1"
    lines 8 a | sed 's/f\([0-9]\)(x)/x * f\1(x)/' >tree/src/a/y.c
    twice 0 "0 places twice"
    put src/a/x.c "$(for i in 0 1 2 3 4 5 6 7 8; do echo "    {0x1, 0x2},"; done)"
    cp tree/src/a/x.c tree/src/a/y.c
    twice 0 "0 places twice"
    # the same but for names: each always for the same other one, and few of them
    put src/a/x.c "$(lines 8 a)"
    lines 8 b >tree/src/a/y.c
    twice 1 "src/a/y.c:1: the same 8 lines as src/a/x.c:1 with b for a"
    sed -E 's/f[0-4]\(x/g&/' tree/src/a/x.c >tree/src/a/y.c
    twice 1 "with gf0 for f0, gf1 for f1, gf2 for f2, gf3 for f3, gf4 for f4"
    sed -E 's/f[0-5]\(x/g&/' tree/src/a/x.c >tree/src/a/y.c
    twice 0 "0 places twice"
    sed -E 's/a/b/; 3s/b/c/' tree/src/a/x.c >tree/src/a/y.c
    twice 0 "0 places twice"
    put src/cli/cmd_template.c "$(lines 8 a)"
    lines 8 b >tree/src/cli/cmd_tokenize.c
    twice 0 "0 places twice"
    lines 7 b >tree/src/cli/cmd_tokenize.c
    twice 1 "src/cli/cmd_template.c and src/cli/cmd_tokenize.c are no longer alike: take them out of ALIKE"
fi
if command -v python3 >/dev/null && command -v cc >/dev/null && command -v ar >/dev/null; then
    # library NAME FILE CODE...: an archive
    library() {
        local name=$1 objects=
        shift
        rm -f "libx_$name.a"
        while [ $# -gt 0 ]; do
            printf '%s\n' "$2" >"$1.c"
            cc -c "$1.c" -o "$1.c.o"
            objects="$objects $1.c.o"
            shift 2
        done
        ar rcs "libx_$name.a" $objects
    }
    put src/a/x.h 'int x;'
    calls() {
        expect "$1" "$2" bash "$source/tests/tree/check_calls.sh" "$folder/tree" nm libx_*.a
    }
    library low a 'int b(void); int a(void) { return b(); }' b 'int b(void) { return 1; }'
    library high c 'int a(void); int c(void) { return a(); }'
    calls 0 "3 files, 2 pairs of caller and called, 0 circles"
    library low a 'int b(void); int a(void) { return b(); }' b 'int c(void); int b(void) { return c(); }'
    calls 1 "circle of 3 files (calls): high/c.c low/a.c low/b.c"
    library low a 'int b; int a(void) { return b; }' b 'int a(void); int (*b2)(void) = a;'
    calls 0 "0 circles"
    library low a 'extern int (*b)(void); int a(void) { return b(); }' b 'int a(void); int (*b)(void) = a;'
    calls 1 "low/b.c -> low/a.c: a"
    # circles of includes, through folders and files of rows
    library low a 'int a;'
    library high c 'int c;'
    put src/a/x.h '#include "b/y.def"'
    mkdir -p tree/src/b
    echo '#include "b/z.h"' >tree/src/b/y.def
    echo '#include "b/z.h"' >tree/src/b/z.h
    calls 0 "3 files with headers, 2 includes, 0 circles"
    echo ' # include "a/x.h"' >>tree/src/b/z.h
    calls 1 "circle of 3 files (includes): a/x.h b/y.def b/z.h"
fi
echo "$n_bad surprises"
[ "$n_bad" = 0 ]
