# A mapped file that another program cuts short while it is read: one message that names it and status 1, from every command
# that reads mappings, in whichever thread; no half-written output; finished parts of a conversion stay.
# shellcheck source=tests/cli/packages.sh
# labels: host
. "$SOURCE/tests/cli/packages.sh"
if [ ! -r /proc/self/maps ]; then
    echo "SKIPPED: there is no /proc/PID/maps here to tell when a file is mapped"
    exit 77
fi
make_package "$tiny" whole -c 96 -b 16 --format mlmodelc
mkfifo input
# A fast machine is still opening the package when its weights are found mapped, and may end before it reads its input.
trap '' PIPE

# start COMMAND...: runs it in the background with the fifo as its stdin, which is open as descriptor 5 then
start() {
    "$@" <input >out.txt 2>err.txt &
    pid=$!
    exec 5>input
}
# mapped FILE: waits until the process has it mapped
mapped() {
    local inode
    inode=$(stat -c %i "$1")
    for _ in $(seq 1000); do
        grep -q " $inode  *[^ ]" /proc/$pid/maps 2>/dev/null && return
        sleep 0.01
    done
    fail "$1 was not mapped: $(cat err.txt)"
}
# ends STATUS TEXT: closes the input, waits, and looks at the only message
ends() {
    exec 5>&-
    wait $pid
    local got=$?
    [ $got -eq "$1" ] || fail "expected status $1, found $got: $(tail -3 err.txt)"
    grep -qF -- "$2" err.txt || fail "expected '$2', found: $(tail -3 err.txt)"
    [ "$(grep -c 'error:' err.txt)" -eq 1 ] || fail "expected one message, found: $(cat err.txt)"
}

chunk=package/qwen_FFN_PF_chunk_01of01.mlmodelc/weights/weight.bin
cut="the file was cut short"
# with what is read last from stdin, the weights are mapped and nothing has run
fresh() {
    rm -rf package checkpoint
    cp -r whole package
    cp -r "$tiny" checkpoint
    chmod -R u+w checkpoint
}
for threads in 1 4; do
    fresh
    start "$MILKIT" run package -p - -t $threads
    mapped $chunk
    truncate -s 4096 $chunk
    echo "But, beloved" 2>/dev/null >&5
    ends 1 "$chunk: $cut"
    fresh
    start "$MILKIT" check package --hf checkpoint -p - -t $threads
    mapped checkpoint/model.safetensors
    mapped $chunk
    truncate -s 4096 checkpoint/model.safetensors
    echo "But, beloved" 2>/dev/null >&5
    ends 1 "checkpoint/model.safetensors: $cut"
done
fresh
start "$MILKIT" run package -p - -t 4
mapped package/qwen_embeddings.mlmodelc/weights/weight.bin
truncate -s 0 package/qwen_embeddings.mlmodelc/weights/weight.bin
echo "But, beloved" 2>/dev/null >&5
ends 1 "qwen_embeddings.mlmodelc/weights/weight.bin: $cut"
fresh
start "$MILKIT" eval package --text -
mapped $chunk
truncate -s 4096 $chunk
echo "But, beloved, we are persuaded better things of you" 2>/dev/null >&5
ends 1 "$chunk: $cut"
fresh
start "$MILKIT" chat package
mapped $chunk
truncate -s 4096 $chunk
echo "But, beloved" 2>/dev/null >&5
ends 1 "$chunk: $cut"
# a few bytes only: no page is missing, they read as zeros, and the result is not relied on
fresh
start "$MILKIT" run package -p -
mapped $chunk
truncate -s -2 $chunk
echo "But, beloved" 2>/dev/null >&5
ends 1 "$chunk: was cut short while it was read"
# replaced by another file, which is how files should be replaced: nothing happens
fresh
start "$MILKIT" run package -p - -n 4
mapped $chunk
head -c 100 $chunk >other && mv other $chunk
echo "But, beloved" 2>/dev/null >&5
exec 5>&-
wait $pid || fail "a file that was replaced: $(cat err.txt)"
# a signal from elsewhere stays what it is
fresh
start "$MILKIT" run package -p -
mapped $chunk
kill -BUS $pid
exec 5>&-
wait $pid 2>/dev/null
[ $? -eq 135 ] || is_sanitized || fail "SIGBUS from outside was taken for a file"

# ---- convert: finished parts stay, and a resumed run gives the same bytes ----
options="--lut-ffn 4,8 --lut-head 6 --lut-method kmeans --chunks 3 -c 96 -b 16"
rm -rf checkpoint
cp -rp "$tiny" checkpoint
chmod -R u+w checkpoint
cp -p checkpoint/model.safetensors model.safetensors
# shellcheck disable=SC2086
make_package checkpoint undisturbed $options

# converting BYTES: stops a conversion when a part is finished, truncates the checkpoint, and lets it go on
converting() {
    for try in 1 2 3 4 5 6; do
        rm -rf .cut.tmp-* cut
        # shellcheck disable=SC2086
        "$MILKIT" convert checkpoint -o cut -j $((try % 2 * 2 + 1)) $options >out.txt 2>err.txt </dev/null &
        pid=$!
        while kill -0 $pid 2>/dev/null && ! grep -qs '"files"' .cut.tmp-*/.finished.json; do sleep 0.005; done
        kill -STOP $pid 2>/dev/null
        truncate -s "$1" checkpoint/model.safetensors
        kill -CONT $pid 2>/dev/null
        wait $pid
        status=$?
        [ -d cut ] || return
        cp -p model.safetensors checkpoint/
    done
    fail "six conversions were over before they could be stopped"
}
for bytes in 8192 -1; do
    converting $bytes
    [ $status -eq 1 ] || fail "convert: expected status 1, found $status: $(cat err.txt)"
    grep -q "checkpoint/model.safetensors: .*was cut short.*finished parts are kept" err.txt || fail "convert: $(cat err.txt)"
    [ "$(grep -c 'error:' err.txt)" -eq 1 ] || fail "convert: expected one message, found: $(cat err.txt)"
    cp -p model.safetensors checkpoint/
    # shellcheck disable=SC2086
    expect_stderr 0 "finished before, kept" "$MILKIT" convert checkpoint -o cut --resume $options
    diff -r undisturbed cut >/dev/null || fail "what was resumed differs"
    [ -z "$(find . -name '.cut.tmp-*')" ] || fail "something is left beside the package"
done

# ---- nothing finished: nothing left ----
rm -rf cut
# the parts are built before the first one is written: stop as soon as the folder is there
for try in 1 2 3 4 5 6 7 8 9 10; do
    # shellcheck disable=SC2086
    "$MILKIT" convert checkpoint -o cut $options >out.txt 2>err.txt </dev/null &
    pid=$!
    while kill -0 $pid 2>/dev/null && ! ls -d .cut.tmp-* >/dev/null 2>&1; do sleep 0.002; done
    kill -STOP $pid 2>/dev/null
    grep -qs '"files"' .cut.tmp-*/.finished.json && was_late=1 || was_late=0
    truncate -s 8192 checkpoint/model.safetensors
    kill -CONT $pid 2>/dev/null
    wait $pid
    status=$?
    cp -p model.safetensors checkpoint/
    # the first part may have been on its way into the list of finished ones
    grep -q "finished parts are kept" err.txt && was_late=1
    [ $was_late -eq 0 ] && [ ! -d cut ] && break
    rm -rf cut .cut.tmp-*
done
[ $try -lt 10 ] || fail "no conversion could be stopped early enough"
[ $status -eq 1 ] || fail "convert: expected status 1, found $status: $(cat err.txt)"
[ -z "$(find . -name '.cut.tmp-*')" ] || fail "a folder without finished parts is left: $(find . -name '.cut.tmp-*')"
finish
