# Shared by the script tests that run packages: sourced, not run. Sets up SCRATCH, expect, fail, make_package.
set -u
export HF_HUB_OFFLINE=1 # no test reaches for the network
rm -rf "$SCRATCH"
mkdir -p "$SCRATCH"
cd "$SCRATCH" || exit 1
failed=0
tiny=$DATA/models/qwen3-tiny
gqa8=$DATA/models/qwen3-gqa8

fail() {
    echo "FAILED: $*"
    failed=1
}

# expect STATUS "text" COMMAND...: runs it (stdout in out.txt, stderr in err.txt); stderr, or stdout when the status is 0,
# must hold the text
expect() {
    local status=$1 text=$2
    shift 2
    "$@" >out.txt 2>err.txt </dev/null
    local got=$?
    [ $got -eq "$status" ] || fail "expected status $status, found $got: $* ($(tail -1 err.txt))"
    [ -n "$text" ] || return
    if [ "$status" -eq 0 ]; then
        grep -qF -- "$text" out.txt err.txt || fail "expected '$text' from: $*"
    else
        grep -qF -- "$text" err.txt || fail "expected '$text' from: $* ($(tail -1 err.txt))"
        [ "$(wc -l <err.txt)" -le 3 ] || fail "more than one message from: $*"
    fi
}

# expect_stderr STATUS "text" COMMAND...: expect, and the text stands on stderr whatever the status
expect_stderr() {
    expect "$@"
    grep -qF -- "$2" err.txt || fail "expected '$2' on stderr from: ${*:3}"
}

# make_package CHECKPOINT NAME OPTIONS...
make_package() {
    local checkpoint=$1 name=$2
    shift 2
    "$MILKIT" convert "$checkpoint" -o "$name" "$@" >out.txt 2>err.txt || {
        cat err.txt
        exit 1
    }
}

# compare MODE ARGUMENTS...: tests/support/compare_logits.c
compare() {
    "$COMPARE" "$@" >compare.txt || fail "compare $*: $(cat compare.txt)"
}

# ids GOLDEN KEY [N]
ids() {
    "$COMPARE" ids "$@"
}

is_sanitized() {
    grep -qa __asan_init "$MILKIT" || grep -qa __tsan_init "$MILKIT"
}

finish() {
    cd / && rm -rf "$SCRATCH"
    exit $failed
}
