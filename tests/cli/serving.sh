# For tests of milkit serve: a server, requests by curl, and what their answers must be. Sourced behind packages.sh.
command -v curl >/dev/null && command -v python3 >/dev/null || {
    echo "curl or python3 is not installed"
    exit 77
}
server=

# serve OPTIONS...: a server on a port of its own; $url
serve() {
    "$MILKIT" serve "$@" --port 0 >listening.txt 2>log.txt &
    server=$!
    for _ in $(seq 200); do
        url=$(sed -n 's/^listening on //p' listening.txt)
        [ -n "$url" ] && curl -s -o health.txt "$url/health" && grep -q ok health.txt && return
        kill -0 $server 2>/dev/null || break
        sleep 0.05
    done
    fail "no server: $(cat log.txt)"
    exit 1
}
# stop [STATUS]: the server ends by itself
stop() {
    kill $server
    wait $server
    local got=$?
    [ $got -eq "${1:-0}" ] || fail "the server's status is $got: $(tail -3 log.txt)"
    server=
}
trap '[ -z "$server" ] || kill $server 2>/dev/null' EXIT

# ask STATUS PATH BODY [CURL OPTIONS...]: answer in out.txt, its head in head.txt
ask() {
    local status=$1 path=$2 body=$3 got
    shift 3
    got=$(curl -sN -o out.txt -D head.txt -w '%{http_code}' -H 'Content-Type: application/json' -d "$body" "$@" "$url$path")
    [ "$got" = "$status" ] || fail "expected $status, found $got: $path $body: $(head -c 300 out.txt)"
}
# is EXPRESSION: of the JSON d in out.txt
is() {
    python3 -c 'import json, sys
d = json.load(open("out.txt"))
ok = eval(sys.argv[1])
sys.exit(0 if ok else 1)' "$1" || fail "not so: $1: $(head -c 600 out.txt)"
}
# streamed EXPRESSION: of the list c of chunks in out.txt, whose bytes have the official form; text() joins content
streamed() {
    python3 -c 'import json, sys
data = open("out.txt", "rb").read()
assert b"\r" not in data and data.endswith(b"data: [DONE]\n\n"), data[-80:]
events = [e for e in data.decode().split("\n\n")[:-1] if not e.startswith(":")]
assert all(e.startswith("data: ") and "\n" not in e for e in events)
c = [json.loads(e[6:]) for e in events[:-1]]
def text(key="content", index=0):
    return "".join(ch["delta"].get(key) or "" for k in c for ch in k["choices"] if ch["index"] == index)
ok = eval(sys.argv[1])
sys.exit(0 if ok else 1)' "$1" || fail "not so in the stream: $1: $(head -c 600 out.txt)"
}
