#!/bin/bash
# Faults planted into coreml.m, one at a time: the short form of test_coreml must find each. check_planted.sh SOURCE_FOLDER BUILD_FOLDER SCRATCH
set -u
source=$1 build=$2 scratch=$3
failed=0
mkdir -p "$scratch"
command -v ninja >/dev/null && [ -f "$build/build.ninja" ] || { echo "skipped: the build is not ninja's"; exit 77; }
compile=$(cd "$build" && ninja -t commands tests/coreml/coreml.o | tail -1)
link=$(cd "$build" && ninja -t commands coreml_test_coreml | tail -1)
faulty=$scratch/coreml.m program=$scratch/test_planted

# The build's own two commands, with other files.
build() {
    local c=${compile//$source\/src\/coreml\/coreml.m/$faulty} l=$link
    c=${c//$build\/tests\/coreml\/coreml.o/$scratch/coreml.o}
    l=${l/-o tests\/coreml\/coreml_test_coreml/-o $program}
    l=${l/ tests\/coreml\/coreml.o / $scratch/coreml.o }
    (cd "$build" && bash -c "$c" && bash -c "$l") >"$scratch/build.txt" 2>&1 && [ -x "$program" ] ||
        { echo "FAILED: $1 does not build: $(head -3 "$scratch/build.txt")"; exit 1; }
}
# plant NAME SED: a fault that is found
plant() {
    sed -E "$2" "$source/src/coreml/coreml.m" >"$faulty"
    cmp -s "$faulty" "$source/src/coreml/coreml.m" && { echo "FAILED: $1 is not planted"; failed=1; return; }
    build "$1"
    if (cd "$scratch" && "$program" short) >"$scratch/$1.txt" 2>&1; then
        echo "FAILED: $1 is not found"
        failed=1
    else
        echo "$1: $(grep -m 1 -oE 'error: .*|difference at .*|[0-9]+ != [0-9]+|expected .*' "$scratch/$1.txt")"
    fi
}
cp "$source/src/coreml/coreml.m" "$faulty"
build "the file as it is"
(cd "$scratch" && "$program" short) >"$scratch/as_it_is.txt" 2>&1 || { echo "FAILED: the file as it is fails"; exit 1; }

plant leaked_state 's/\[s->state release\];$/;/'
plant leaked_model 's/\[m->model release\];/;/'
plant outputs_as_one_block 's/layout_copy\(from, .*\);/memcpy(c->out[i], bytes, n * type_bytes(type));/'
plant strides_of_the_shape 's/l->strides\[i\] = \[\[strides .*integerValue\];/l->strides[i] = 0;/'
plant states_as_one_block 's/at \+= row % l->dims\[i\] \* l->strides\[i\];/at += row % l->dims[i] * (i == l->rank - 2 ? length : l->strides[i]);/'
plant backings_believed 's/if \(array != c->backings\[i\]\) \{/if (0) {/'
exit $failed
