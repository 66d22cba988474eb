# milkit pull against a hub of its own (tests/support/hub_server.py): what is downloaded, what goes wrong, what is never told.
# labels: host
. "$SOURCE/tests/cli/packages.sh"
command -v python3 >/dev/null || { echo "skipped: no python3"; exit 77; }
commit=0123456789abcdef0123456789abcdef01234567
export HF_HUB_CACHE=$PWD/cache HF_HUB_DOWNLOAD_TIMEOUT=2 HOME=$PWD
unset HF_TOKEN HF_TOKEN_PATH HF_HOME HF_HUB_OFFLINE http_proxy https_proxy all_proxy HTTP_PROXY HTTPS_PROXY ALL_PROXY
export no_proxy=127.0.0.1,localhost

# ---- models: the tiny checkpoint whole and in shards, and a copy for each fault ----
mkdir -p repos/org
cp -r "$tiny" repos/org/tiny
mkdir -p repos/org/tiny/onnx repos/org/tiny/additional_chat_templates
echo junk >repos/org/tiny/pytorch_model.bin
echo junk >repos/org/tiny/onnx/model.onnx
echo junk >repos/org/tiny/consolidated.safetensors
echo "{{ messages }}" >repos/org/tiny/additional_chat_templates/tool_use.jinja
[ -f repos/org/tiny/model.safetensors ] || fail "the checkpoint has no model.safetensors"
for fault in private gated busy busylong cut wrong wrongonce slow stall norange evil empty garbage loop error404 evilindex more \
    errors; do
    cp -r repos/org/tiny "repos/org/x-$fault"
done
rm repos/org/x-empty/*.safetensors
cp -r repos/org/tiny repos/org/sharded
mv repos/org/sharded/model.safetensors repos/org/sharded/model-00001-of-00002.safetensors
head -c 1000 "$tiny/model.safetensors" >repos/org/sharded/model-00002-of-00002.safetensors
echo junk >repos/org/sharded/model-00003-of-00003.safetensors
echo '{"weight_map": {"a": "model-00001-of-00002.safetensors", "b": "model-00001-of-00002.safetensors",
    "c": "model-00002-of-00002.safetensors"}}' >repos/org/sharded/model.safetensors.index.json
echo '{"weight_map": {"a": "../../../../outside.safetensors"}}' >repos/org/x-evilindex/model.safetensors.index.json
mkdir repos/org/ggufs repos/org/gguf
head -c 5000 "$tiny/model.safetensors" >repos/org/ggufs/m-Q4_K_M.gguf
head -c 6000 "$tiny/model.safetensors" >repos/org/ggufs/m-Q8_0-00001-of-00002.gguf
head -c 7000 "$tiny/model.safetensors" >repos/org/ggufs/m-Q8_0-00002-of-00002.gguf
cp repos/org/ggufs/m-Q4_K_M.gguf repos/org/gguf/only.gguf

python3 "$SOURCE/tests/support/hub_server.py" repos log.txt ports.txt 2>server.txt &
server=$!
trap 'kill $server 2>/dev/null' EXIT
for _ in $(seq 100); do
    [ -f ports.txt ] && break
    sleep 0.1
done
read -r hub_port _ <ports.txt || fail "the hub does not listen: $(cat server.txt)"
export HF_ENDPOINT=http://127.0.0.1:$hub_port/
snapshots=cache/models--org--tiny/snapshots/$commit
restart_cache() { rm -rf cache log.txt; }

# same FOLDER: the snapshot's files are those of the repository folder
same_as() {
    local name
    for name in $(cd "$1" && find . -type l); do
        cmp -s "$1/$name" "$2/$name" || fail "$1/$name differs from $2"
    done
}

# ---- what comes ----
expect 0 "$snapshots" "$MILKIT" pull org/tiny
same_as "$snapshots" repos/org/tiny
[ -f "$snapshots/additional_chat_templates/tool_use.jinja" ] || fail "expected the templates' folder"
[ -f "$snapshots/tokenizer.json" ] && [ -f "$snapshots/config.json" ] || fail "expected configuration and tokenizer"
grep -qE 'pytorch|onnx|consolidated' log.txt && fail "files were asked for that nobody needs: $(cat log.txt)"
[ "$(cat cache/models--org--tiny/refs/main)" = $commit ] || fail "expected the ref of main"
grep -q 'store GET /org/tiny/model.safetensors token=no' log.txt || fail "expected the weights from the store"
ls cache/models--org--tiny/blobs | grep -q incomplete && fail "an incomplete file is left"
# a second pull asks for the list and nothing else
rm log.txt
expect 0 "$snapshots" "$MILKIT" pull org/tiny
[ "$(wc -l <log.txt)" = 1 ] || fail "a second pull asks more than once: $(cat log.txt)"
# the cache as other commands read it, without a word to the hub
kill -STOP $server
expect 0 "tensors" "$MILKIT" inspect org/tiny
expect 0 "" "$MILKIT" convert org/tiny -o package -c 64 --format mlmodelc -q --no-verify
kill -CONT $server
# revisions
expect 0 "" "$MILKIT" pull "org/tiny@refs/pr/1"
[ "$(cat cache/models--org--tiny/refs/refs/pr/1)" = $commit ] || fail "expected the ref refs/pr/1"
expect 1 "no such revision" "$MILKIT" pull org/tiny@elsewhere
expect 0 "" "$MILKIT" pull "org/tiny@$commit"
# shards: those of the index
expect 0 "" "$MILKIT" pull org/sharded
[ -f cache/models--org--sharded/snapshots/$commit/model-00002-of-00002.safetensors ] || fail "expected the second shard"
[ -e cache/models--org--sharded/snapshots/$commit/model-00003-of-00003.safetensors ] && fail "a shard that no index names"
# an incomplete snapshot is completed by the command that needs it
rm cache/models--org--sharded/snapshots/$commit/model-00001*
"$MILKIT" convert org/sharded -o other -c 64 -q --no-verify >/dev/null 2>&1
[ -f cache/models--org--sharded/snapshots/$commit/model-00001-of-00002.safetensors ] || fail "expected the missing shard again"
# chosen files
restart_cache
expect 0 "" "$MILKIT" pull org/tiny --file '*.bin'
[ "$(find cache/models--org--tiny/snapshots -type l)" = "cache/models--org--tiny/snapshots/$commit/pytorch_model.bin" ] ||
    fail "expected one file"
expect 1 "the repository has no file *.xyz" "$MILKIT" pull org/tiny --file '*.xyz'
# GGUF: the only one, one of several by its tag, split ones
expect 0 "snapshots/$commit/only.gguf" "$MILKIT" pull org/gguf
expect 2 "choose one with org/ggufs:TAG" "$MILKIT" pull org/ggufs
expect 0 "snapshots/$commit/m-Q8_0-00001-of-00002.gguf" "$MILKIT" pull org/ggufs:q8_0
[ -f cache/models--org--ggufs/snapshots/$commit/m-Q8_0-00002-of-00002.gguf ] || fail "expected both parts"
expect 1 "no GGUF file with Q2_K in its name" "$MILKIT" pull org/ggufs:Q2_K

# ---- what goes wrong ----
expect 1 "the hub knows no such model" "$MILKIT" pull org/none
expect 2 "expected the name of a model" "$MILKIT" pull none
expect 2 "expected the name of a model" "$MILKIT" pull ../org/tiny
expect 2 "expected the name of a model" "$MILKIT" pull
expect 1 "HF_TOKEN must hold a token" "$MILKIT" pull org/x-private
expect 1 "access must be asked for" "$MILKIT" pull org/x-gated
expect 1 "asks to come back in 120 minutes" "$MILKIT" pull org/x-busylong
expect 0 "" "$MILKIT" pull org/x-busy
expect 0 "" "$MILKIT" pull org/x-errors
expect 3 "found none in the repository" "$MILKIT" pull org/x-empty
expect 4 "" "$MILKIT" pull org/x-garbage
expect 1 "too many redirects" "$MILKIT" pull org/x-loop
expect 1 "not found (status 404" "$MILKIT" pull org/x-error404
for name in cut norange stall slow wrongonce; do
    expect 0 "" "$MILKIT" pull org/x-$name
    same_as cache/models--org--x-$name/snapshots/$commit repos/org/tiny
done
grep -q 'store GET /org/x-cut/model.safetensors token=no range=bytes=[1-9]' log.txt || fail "expected the rest to be asked for"
expect 5 "expected the SHA-256" "$MILKIT" pull org/x-wrong
[ -e cache/models--org--x-wrong/snapshots/$commit ] && fail "a snapshot with wrong bytes"
expect 5 "the server sends more" "$MILKIT" pull org/x-more
# nothing outside the model's folder, whatever names the server has
expect 0 "" "$MILKIT" pull org/x-evil
expect 1 "which the repository does not have" "$MILKIT" pull org/x-evilindex
[ -z "$(find . /tmp -maxdepth 1 -name '*evil*' -not -name '*x-evil*' 2>/dev/null)" ] || fail "a file outside the cache"
[ -z "$(find cache -name '*evil*' -not -name '*x-evil*')" ] || fail "a name of the server's in the cache: $(find cache -name '*evil*')"
find cache -type l -printf '%l\n' | grep -vE '^(\.\./)+blobs/([0-9a-f]{40}|[0-9a-f]{64})$' && fail "a link that leads elsewhere"
# the network
HF_HUB_OFFLINE=1 expect 1 "HF_HUB_OFFLINE is set" "$MILKIT" pull org/tiny
HF_ENDPOINT=http://127.0.0.1:1 expect 1 "after 3 attempts" "$MILKIT" pull org/tiny
HF_ENDPOINT=ftp://127.0.0.1 expect 2 "expected an address of http or https" "$MILKIT" pull org/tiny
http_proxy=$HF_ENDPOINT HF_ENDPOINT=http://elsewhere:1 no_proxy= expect 1 "status 404" "$MILKIT" pull org/none

# ---- the token: it works, and nobody hears it ----
restart_cache
HF_TOKEN=hf_right expect 0 "" "$MILKIT" pull org/x-private -v
grep -q 'hf_right' out.txt err.txt && fail "the token is shown"
HF_TOKEN=hf_right expect 0 "" "$MILKIT" pull org/x-gated
grep 'store ' log.txt | grep -q 'token=yes' && fail "the token went to the store"
HF_TOKEN=hf_wrong_secret expect 1 "the token (HF_TOKEN) has no access" "$MILKIT" pull org/x-private -v
grep -q 'hf_wrong' out.txt err.txt && fail "the token is shown"
printf 'hf_right\n' >token.txt
HF_TOKEN_PATH=$PWD/token.txt expect 0 "" "$MILKIT" pull org/x-private
HF_TOKEN=$'hf_right\nX-Evil: 1' expect 1 "" "$MILKIT" pull org/x-private --file README.md
grep -q "secret-of-the-store" out.txt err.txt && fail "a signed address is shown"

# ---- killed at ten moments and gone on with: the same files ----
restart_cache
size=$(stat -c %s repos/org/x-slow/model.safetensors)
part=cache/models--org--x-slow/blobs/$(sha256sum repos/org/x-slow/model.safetensors | cut -d' ' -f1).incomplete
for k in 0 1 2 3 4 5 6 7 8 9; do
    "$MILKIT" pull org/x-slow -q >/dev/null 2>&1 &
    pull=$!
    for _ in $(seq 200); do
        there=$(stat -c %s "$part" 2>/dev/null || echo -1)
        [ "$there" -ge $((size * k / 10)) ] && break
        sleep 0.02
    done
    { kill -KILL $pull && wait $pull; } 2>/dev/null
done
[ -e cache/models--org--x-slow/snapshots ] && fail "a snapshot of an interrupted download"
expect 0 "" "$MILKIT" pull org/x-slow
grep -q 'store GET /org/x-slow/model.safetensors token=no range=bytes=[1-9]' log.txt || fail "expected to go on with what was there"
same_as cache/models--org--x-slow/snapshots/$commit repos/org/tiny
# interrupted by the user
restart_cache
timeout -s INT 0.5 "$MILKIT" pull org/x-slow >out.txt 2>err.txt
status=$?
[ $status = 124 ] || [ $status = 130 ] || fail "expected an interruption, found status $status"
grep -q "the next pull goes on from here" err.txt || fail "expected a hint: $(cat err.txt)"
# two at once: one waits for the other
restart_cache
"$MILKIT" pull org/x-slow -q >first.txt 2>&1 &
first=$!
sleep 0.3
expect 0 "" "$MILKIT" pull org/x-slow
wait $first || fail "the first of two pulls: $(cat first.txt)"
[ "$(grep -c 'store GET /org/x-slow' log.txt)" = 1 ] || fail "the weights were downloaded twice"
# commands that need a checkpoint download it; a large one is asked for first
restart_cache
expect 0 "" "$MILKIT" convert org/tiny -o package2 -c 64 --format mlmodelc -q --no-verify
rm -f repos/org/tiny/model.safetensors
truncate -s 150M repos/org/tiny/model.safetensors
restart_cache
expect 2 "0.2 GB in" "$MILKIT" convert org/tiny -o package3 -c 64
[ -e cache/models--org--tiny/snapshots ] && fail "a download without asking"
finish
