# The web page of milkit serve, as far as it can be looked at without a browser (tests/oracle/serve_page.py has one).
. "$SOURCE/tests/cli/packages.sh"
. "$SOURCE/tests/cli/serving.sh"
make_package "$tiny" tiny -c 512 -b 64 --format mlmodelc
serve tiny
curl -s -D head.txt -o page.html -H 'Accept: text/html,*/*' -H 'Sec-Fetch-Site: cross-site' "$url/" || fail "no page"
python3 - <<'P' || fail "the page and its policy: $(grep -i policy head.txt)"
import base64, hashlib, re
page, head = open("page.html", encoding="utf-8", newline="").read(), open("head.txt").read()
policy = re.search("(?i)content-security-policy: (.*)", head).group(1)
for tag in "script", "style":
    parts = re.findall(f"<{tag}[^>]*>(.*?)</{tag}>", page, re.S)
    digest = base64.b64encode(hashlib.sha256(parts[0].encode()).digest()).decode()
    assert len(parts) == 1 and f"{tag}-src 'sha256-{digest}';" in policy, (tag, len(parts))
assert "default-src 'none'" in policy and "unsafe" not in policy and "connect-src 'self'" in policy
assert not re.search(r"""\s(style|on[a-z]+)\s*=\s*["']|src\s*=\s*["']""", re.sub("(?s)<(script|style)>.*?</\\1>", "", page)), "inline styles or handlers"
assert "innerHTML" not in page and "insertAdjacentHTML" not in page and "document.write" not in page
assert len(page.encode()) < 60 * 1024, len(page)
assert re.search("(?i)x-content-type-options: nosniff", head) and re.search("(?i)cache-control: no-cache", head)
P
etag=$(sed -n 's/^[Ee][Tt][Aa][Gg]: \(.*\)\r/\1/p' head.txt)
[ "$(curl -s -o out.txt -w '%{http_code}' -H 'Accept: text/html' -H "If-None-Match: $etag" "$url/")" = 304 ] || fail "a page that is known is sent again"
[ "$(curl -s "$url/")" = "Ollama is running" ] || fail "clients of Ollama do not find the server"
curl -s "$url/package?model=t%69ny" >out.txt
is "d['id'] == 'tiny' and d['num_layers'] == 5 and d['state_bytes'] == sum(s['bytes'] for s in d['states']) > 0 and [m['functions'] for m in d['models']][0] == ['infer', 'prefill'] and all(m['widths'][0]['dtype'] == 'fp16' for m in d['models'])"
stop
serve tiny --no-ui
[ "$(curl -s -o out.txt -w '%{http_code}' -H 'Accept: text/html' "$url/")" = 404 ] || fail "--no-ui, and there is a page"
stop
finish
