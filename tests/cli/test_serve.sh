# milkit serve from the outside, by curl: OpenAI's chat, whole and streamed, errors, keys, origins, several clients at once,
# clients that leave, the end.
. "$SOURCE/tests/cli/packages.sh"
. "$SOURCE/tests/cli/serving.sh"
make_package "$tiny" tiny -c 512 -b 64 --format mlmodelc
problem() { # STATUS CODE BODY: a chat that is refused
    ask "$1" /v1/chat/completions "$3"
    is "set(d['error']) >= {'message', 'type', 'param', 'code'} and (d['error']['code'] or '') == '$2' and d['error']['message']"
    grep -qi '^x-should-retry: false' head.txt || fail "a client would try again: $3"
}

"$MILKIT" chat tiny -p "But, beloved" --greedy -n 24 >said.txt 2>err.txt || fail "chat: $(cat err.txt)"
serve tiny --parallel 4
m='"messages":[{"role":"user","content":"But, beloved"}]'

# ---- a whole answer, and the same streamed ----
ask 200 /v1/chat/completions "{$m,\"max_tokens\":24,\"temperature\":0}"
is "d['object'] == 'chat.completion' and d['model'] == 'tiny' and d['id'].startswith('chatcmpl-') and d['system_fingerprint'].startswith('milkit-')"
is "d['choices'][0]['message']['content'] + '\n' == open('said.txt').read()"
is "d['choices'][0]['finish_reason'] == 'length' and d['choices'][0]['logprobs'] is None and d['choices'][0]['message']['refusal'] is None"
is "d['usage']['completion_tokens'] == 24 and d['usage']['total_tokens'] == 24 + d['usage']['prompt_tokens'] and d['usage']['prompt_tokens_details']['cached_tokens'] == 0"
is "all(v >= 0 for v in d['timings'].values())"
grep -qi '^content-type: application/json' head.txt && grep -qi '^x-request-id: [0-9a-f]\{16\}' head.txt || fail "$(cat head.txt)"
cp out.txt whole.txt
same="json.load(open('whole.txt'))['choices'][0]['message']['content']"
ask 200 /v1/chat/completions "{$m,\"max_tokens\":24,\"temperature\":0,\"stream\":true,\"stream_options\":{\"include_usage\":true}}" -H 'x-request-id: mine-1'
streamed "text() == $same"
streamed "c[0]['choices'][0]['delta'] == {'role': 'assistant', 'content': ''} and all('role' not in k['choices'][0]['delta'] for k in c[1:-1])"
streamed "len({(k['id'], k['created'], k['object'], k['model']) for k in c}) == 1 and c[0]['object'] == 'chat.completion.chunk'"
streamed "c[-2]['choices'][0]['delta'] == {} and c[-2]['choices'][0]['finish_reason'] == 'length' and all(k['choices'][0]['finish_reason'] is None for k in c[:-2])"
streamed "c[-1]['choices'] == [] and c[-1]['usage']['completion_tokens'] == 24 and all(k['usage'] is None for k in c[:-1])"
streamed "c[-1]['usage']['prompt_tokens_details']['cached_tokens'] == c[-1]['usage']['prompt_tokens'] - 1"
grep -qi '^content-type: text/event-stream' head.txt && grep -qi '^x-accel-buffering: no' head.txt && grep -qi '^x-request-id: mine-1' head.txt || fail "$(cat head.txt)"
ask 200 /chat/completions "{$m,\"max_tokens\":3,\"stream\":true}"
streamed "all('usage' not in k for k in c)"

# ---- limits, seeds ----
for n in 0 1 2 3; do
    ask 200 /v1/chat/completions "{$m,\"max_completion_tokens\":$n,\"temperature\":0}"
    is "d['usage']['completion_tokens'] == $n and d['choices'][0]['finish_reason'] == 'length'"
done
ask 200 /v1/chat/completions "{$m,\"temperature\":0,\"max_tokens\":null,\"tools\":null,\"tool_choice\":null,\"stop\":null,\"n\":1.0}"
is "d['choices'][0]['finish_reason'] in ('stop', 'length')"
ask 200 /v1/chat/completions "{$m,\"temperature\":1,\"seed\":7,\"max_tokens\":40}"
cp out.txt seven.txt
grep -qi '^x-milkit-seed: 7' head.txt || fail "the seed is not told: $(cat head.txt)"
seven="json.load(open('seven.txt'))['choices'][0]['message']['content']"
ask 200 /v1/chat/completions "{$m,\"temperature\":1,\"seed\":7,\"max_tokens\":40}"
is "d['choices'][0]['message']['content'] == $seven and d['usage']['prompt_tokens_details']['cached_tokens'] > 0"
ask 200 /v1/chat/completions "{$m,\"temperature\":1,\"seed\":8,\"max_tokens\":40}"
is "d['choices'][0]['message']['content'] != $seven"
# several choices: those of the seeds one by one
ask 200 /v1/chat/completions "{$m,\"temperature\":1,\"seed\":7,\"max_tokens\":40,\"n\":3}"
is "[c['index'] for c in d['choices']] == [0, 1, 2] and d['choices'][0]['message']['content'] == $seven"
cp out.txt three.txt
ask 200 /v1/chat/completions "{$m,\"temperature\":1,\"seed\":9,\"max_tokens\":40}"
is "d['choices'][0]['message']['content'] == json.load(open('three.txt'))['choices'][2]['message']['content']"
ask 200 /v1/chat/completions "{$m,\"temperature\":1,\"seed\":7,\"max_tokens\":40,\"n\":3,\"stream\":true}"
streamed "all(text('content', i) == json.load(open('three.txt'))['choices'][i]['message']['content'] for i in range(3))"
streamed "sorted(ch['index'] for k in c for ch in k['choices'] if ch['finish_reason']) == [0, 1, 2]"

# ---- stop strings over the borders of tokens, of the streamed and of the whole ----
for stop in '"LORD hath"' '["zzz","RD, a"]' '"the"' '[" LORD","LORD"]' '["thee, and the LORD hath given thee."]'; do
    python3 - "$stop" <<'P' >want.txt
import json, sys
text = json.load(open('whole.txt'))['choices'][0]['message']['content']
stops = json.loads(sys.argv[1])
ends = [text.find(s) for s in (stops if isinstance(stops, list) else [stops]) if s in text]
assert ends
print(json.dumps(text[:min(ends)]))
P
    ask 200 /v1/chat/completions "{$m,\"max_tokens\":24,\"temperature\":0,\"stop\":$stop}"
    is "d['choices'][0]['message']['content'] == json.load(open('want.txt')) and d['choices'][0]['finish_reason'] == 'stop'"
    ask 200 /v1/chat/completions "{$m,\"max_tokens\":24,\"temperature\":0,\"stream\":true,\"stop\":$stop}"
    streamed "text() == json.load(open('want.txt')) and c[-1]['choices'][0]['finish_reason'] == 'stop'"
done
# what looks like the begin of one is not lost
ask 200 /v1/chat/completions "{$m,\"max_tokens\":24,\"temperature\":0,\"stream\":true,\"stop\":[\"thee!\",\"given thee.x\"]}"
streamed "text() == $same and c[-1]['choices'][0]['finish_reason'] == 'length'"

# ---- messages in all forms ----
ask 200 /v1/chat/completions '{"messages":[{"role":"user","content":[{"type":"text","text":"But, "},{"type":"text","text":"beloved"}]}],"max_tokens":24,"temperature":0}'
is "d['choices'][0]['message']['content'] == $same"
ask 200 /v1/chat/completions '{"messages":[{"role":"developer","content":"x"},{"role":"user","content":"But"},{"role":"assistant","content":null,"tool_calls":[{"id":null,"type":"function","function":{"name":"f","arguments":""}}]},{"role":"tool","content":"4"},{"role":"user","content":"And"}],"max_tokens":2}'

# ---- what is wrong is refused, once and for all ----
problem 400 invalid_json '['
problem 400 invalid_json '[]'
problem 400 invalid_json '"x"'
problem 400 invalid_json '5'
problem 400 invalid_json "$(printf '[%.0s' $(seq 100))"
problem 400 missing_required_parameter '{}'
problem 400 invalid_value '{"messages":"string"}'
problem 400 invalid_value '{"messages":[]}'
problem 400 invalid_value '{"messages":[123]}'
problem 400 missing_required_parameter '{"messages":[{}]}'
problem 400 invalid_value '{"messages":[{"role":123,"content":"x"}]}'
problem 400 invalid_value '{"messages":[{"role":"system","content":123}]}'
problem 400 missing_required_parameter "{\"messages\":[{\"role\":\"user\",\"content\":\"x\"},{}]}"
problem 400 invalid_value '{"messages":[{"role":"user","content":"x"},{"role":"assistant","content":"a"},{"role":"assistant","content":"b"}]}'
problem 400 unsupported_value '{"messages":[{"role":"user","content":[{"type":"image_url","image_url":{"url":"x"}}]}]}'
problem 400 invalid_value '{"messages":[{"role":"assistant","tool_calls":[{"function":{"name":"f","arguments":"{"}}]},{"role":"user","content":"x"}]}'
while read -r field; do
    problem 400 invalid_value "{$m,$field}"
done <<'FIELDS'
"temperature":-1
"temperature":"1"
"top_p":2
"top_k":1.5
"max_tokens":-2
"max_tokens":8.5
"max_tokens":3,"max_completion_tokens":4
"n":0
"n":99
"seed":"7"
"stop":[1]
"stop":["1","2","3","4","5","6","7","8","9","10","11","12","13","14","15","16","17"]
"stream":1
"stream_options":3
"presence_penalty":3
"logit_bias":{"999999":1}
"logit_bias":{"5":101}
"logit_bias":5
"top_logprobs":3
"logprobs":true,"top_logprobs":21
"tools":[{"type":"function","function":{"name":"a b"}}]
"tools":[{"type":"function","function":{"name":"a"}},{"type":"function","function":{"name":"a"}}]
"tool_choice":"required"
"tool_choice":{"type":"function","function":{"name":"f"}}
"chat_template_kwargs":{"enable_thinking":"true"}
"add_generation_prompt":true,"continue_final_message":true
FIELDS
problem 400 unsupported_parameter "{$m,\"mirostat\":2}"
problem 400 unsupported_parameter "{$m,\"functions\":[]}"
problem 400 context_length_exceeded "{\"messages\":[{\"role\":\"user\",\"content\":\"$(printf 'and the LORD %.0s' $(seq 300))\"}],\"stream\":true}"
is "d['error']['type'] == 'exceed_context_size_error' and d['error']['n_ctx'] == 512 and d['error']['n_prompt_tokens'] > 512"
ask 404 /v1/nothing '{}'
is "d['error']['type'] == 'not_found_error'"
ask 405 /v1/models '{}'
grep -qi '^allow: GET' head.txt || fail "$(cat head.txt)"
ask 415 /v1/chat/completions "{$m}" -H 'Content-Type: text/plain'
ask 415 /v1/chat/completions "{$m}" -H 'Content-Encoding: gzip'
head -c 17000000 /dev/zero | tr '\0' ' ' >large.json
ask 413 /v1/chat/completions @large.json -H 'Expect:'
ask 413 /v1/chat/completions @large.json -H 'Expect:' -H 'Transfer-Encoding: chunked'
ask 403 /v1/chat/completions "{$m}" -H 'Host: evil.example'
ask 403 /v1/chat/completions "{$m}" -H 'Sec-Fetch-Site: cross-site' -H 'Origin: http://evil.example'
ask 200 /v1/chat/completions "{$m,\"max_tokens\":1,\"user\":\"x\",\"metadata\":{},\"store\":true,\"unknown\":[1]}" -H 'Host: localhost:1'
grep -qi '^access-control' head.txt && fail "CORS is on"
# forms that two readers might take differently
raw() { # STATUS BYTES
    local got
    got=$(printf "$2" | python3 -c 'import socket, sys
from urllib.parse import urlparse
u = urlparse(sys.argv[1])
s = socket.create_connection((u.hostname, u.port)); s.settimeout(5); s.sendall(sys.stdin.buffer.read())
try: print(s.recv(4096).decode("latin1").split(" ")[1])
except Exception: print("closed")' "$url" 2>&1)
    [ "$got" = "$1" ] || fail "expected $1, found $got: $2"
}
raw 400 'POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\n{}'
raw 400 'POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n'
raw 400 'POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: -5\r\n\r\n{}'
raw 400 'get /health HTTP/1.1\r\nHost: localhost\r\n\r\n'
raw 400 'GET /health HTTP/1.1\r\n\r\n'
raw 400 'GET /%%00 HTTP/1.1\r\nHost: localhost\r\n\r\n'
raw 505 'GET /health HTTP/9.9\r\nHost: localhost\r\n\r\n'
raw 200 'GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n'

# ---- many at once: what each of them gets alone ----
prompts=("But, beloved" "And it came to pass" "In the beginning" "the LORD said" "Moses" "a king" "Behold")
for i in ${!prompts[@]}; do
    ask 200 /v1/chat/completions "{\"messages\":[{\"role\":\"user\",\"content\":\"${prompts[$i]}\"}],\"temperature\":1,\"seed\":$i,\"max_tokens\":$((20 + 7 * i))}"
    python3 -c 'import json; print(json.dumps(json.load(open("out.txt"))["choices"]))' >alone$i.txt
done
for round in 1 2 3; do
    waiting=()
    for i in ${!prompts[@]}; do
        curl -s -H 'Content-Type: application/json' -d "{\"messages\":[{\"role\":\"user\",\"content\":\"${prompts[$i]}\"}],\"temperature\":1,\"seed\":$i,\"max_tokens\":$((20 + 7 * i))}" "$url/v1/chat/completions" >at_once$i.txt &
        waiting+=($!)
    done
    wait "${waiting[@]}"
    for i in ${!prompts[@]}; do
        python3 -c 'import json, sys; print(json.dumps(json.load(open(sys.argv[1]))["choices"]))' at_once$i.txt | cmp -s - alone$i.txt || fail "round $round: another answer than alone: $(cat at_once$i.txt)"
    done
done
stop
grep -q 'POST /v1/chat/completions 200 prompt' log.txt || fail "no line of the log: $(tail -1 log.txt)"
grep -qi 'beloved' log.txt && fail "a prompt is in the log"
# and none of it depends on slots
serve tiny --parallel 1
for i in ${!prompts[@]}; do
    ask 200 /v1/chat/completions "{\"messages\":[{\"role\":\"user\",\"content\":\"${prompts[$i]}\"}],\"temperature\":1,\"seed\":$i,\"max_tokens\":$((20 + 7 * i))}"
    python3 -c 'import json; print(json.dumps(json.load(open("out.txt"))["choices"]))' | cmp -s - alone$i.txt || fail "one slot: another answer"
done
stop

# ---- clients that leave free their slot; a full queue says so ----
make_package "$tiny" long -c 4096 -b 64 --format mlmodelc
serve long --parallel 1 --queue 1
endless='"messages":[{"role":"user","content":"x"}],"ignore_eos":true,"temperature":0'
curl -sN -H 'Content-Type: application/json' -d "{$endless,\"stream\":true}" "$url/v1/chat/completions" >gone1.txt &
first=$!
for _ in $(seq 100); do [ -s gone1.txt ] && break; sleep 0.02; done
curl -s -H 'Content-Type: application/json' -d "{$endless}" "$url/v1/chat/completions" >gone2.txt &
second=$!
sleep 0.1
if kill -0 $first 2>/dev/null; then
    ask 429 /v1/chat/completions "{$m,\"max_tokens\":1}"
    grep -qi '^retry-after: [0-9]' head.txt || fail "no Retry-After: $(cat head.txt)"
    is "d['error']['code'] == 'queue_full'"
    got=$(curl -s -o out.txt -w '%{time_total}' "$url/health")
    python3 -c "import sys; sys.exit(0 if float('$got') < 1 else 1)" || fail "health took $got s"
fi
kill $second $first 2>/dev/null
wait $first $second 2>/dev/null
start=$(date +%s%N)
ask 200 /v1/chat/completions "{$m,\"max_tokens\":1}"
is_sanitized || [ $((($(date +%s%N) - start) / 1000000)) -lt 1500 ] || fail "the slot was not free"
grep -q ' cancel ' log.txt || [ "$(grep -c '/v1/chat' log.txt)" -ge 3 ] || fail "no line of a cancelled request: $(cat log.txt)"
# SIGTERM in the middle of an answer: it is finished or told of, and the status is 0
curl -sN -H 'Content-Type: application/json' -d "{$endless,\"stream\":true,\"max_tokens\":4000}" "$url/v1/chat/completions" >last.txt &
first=$!
for _ in $(seq 100); do [ -s last.txt ] && break; sleep 0.02; done
stop
wait $first
tail -c 16 last.txt | grep -q 'DONE' || grep -q shutting_down last.txt || fail "an answer was cut: $(tail -c 300 last.txt)"

# ---- keys, origins ----
printf '# of the tests\nsecret-one\nsecret-two\n' >keys.txt
chmod 644 keys.txt
expect 2 "everybody" "$MILKIT" serve tiny --api-key-file keys.txt --port 0
chmod 600 keys.txt
serve tiny --api-key-file keys.txt --cors-origins localhost,https://page.example --alias other --strict-model
ask 401 /v1/chat/completions "{$m}"
is "d['error']['type'] == 'authentication_error' and d['error']['code'] == 'invalid_api_key'"
grep -qi '^www-authenticate: bearer' head.txt || fail "$(cat head.txt)"
ask 401 /v1/chat/completions "{$m}" -H 'Authorization: Bearer secret-'
ask 401 /v1/chat/completions "{$m}" -H 'Authorization: secret-one'
ask 200 /v1/chat/completions "{$m,\"max_tokens\":1}" -H 'Authorization: Bearer secret-one'
ask 200 /v1/chat/completions "{$m,\"max_tokens\":1}" -H 'authorization: bearer  secret-two '
ask 200 /v1/chat/completions "{$m,\"max_tokens\":1,\"model\":\"other\"}" -H 'X-Api-Key: secret-two'
ask 404 /v1/chat/completions "{$m,\"model\":\"gpt-4\"}" -H 'X-Api-Key: secret-two'
is "d['error']['code'] == 'model_not_found'"
curl -s "$url/health" | grep -q '"ok"' || fail "health needs a key"
curl -s -H 'X-Api-Key: secret-one' "$url/v1/models" >out.txt
is "d['object'] == 'list' and d['data'][0]['id'] == 'other' and d['data'][0]['object'] == 'model' and d['data'][0]['meta']['n_ctx'] == 512"
curl -s -H 'X-Api-Key: secret-one' "$url/v1/models/o%74her" >out.txt
is "d['id'] == 'other'"
origin() { # ORIGIN STATUS-OF-REFLECTION
    curl -s -o /dev/null -D head.txt -X OPTIONS -H "Origin: $1" -H 'Access-Control-Request-Method: POST' "$url/v1/chat/completions"
    grep -qi "^access-control-allow-origin: $1" head.txt
    [ $? -eq "$2" ] || fail "origin $1: $(cat head.txt)"
}
origin http://localhost 0
origin http://localhost:3000 0
origin http://127.0.0.1:1 0
origin https://page.example 0
origin http://localhost.evil.com 1
origin http://notlocalhost 1
origin http://localhost:80@evil.com 1
origin http://page.example 1
grep -rq secret- log.txt && fail "a key is in the log"
stop

# ---- texts without a template, helpers ----
serve tiny --parallel 3 --metrics-names llamacpp --slots
"$MILKIT" run tiny -p "In the beginning" --greedy -n 20 >said.txt 2>err.txt
ask 200 /v1/completions '{"prompt":"In the beginning","max_tokens":20,"temperature":0,"echo":false,"best_of":1,"suffix":null}'
is "d['object'] == 'text_completion' and d['id'].startswith('cmpl-') and d['choices'][0]['text'] + '\n' == open('said.txt').read() and d['choices'][0]['logprobs'] is None"
cp out.txt whole.txt
ask 200 /tokenize '{"content":"In the beginning","add_special":true}'
is "len(d['tokens']) == json.load(open('whole.txt'))['usage']['prompt_tokens']"
tokens=$(python3 -c 'import json; print(json.dumps(json.load(open("out.txt"))["tokens"]))')
ask 200 /v1/completions "{\"prompt\":[\"In the beginning\",$tokens,\"And\"],\"max_tokens\":20,\"temperature\":0}"
is "[c['index'] for c in d['choices']] == [0, 1, 2] and d['choices'][0]['text'] == d['choices'][1]['text'] == json.load(open('whole.txt'))['choices'][0]['text']"
ask 200 /v1/completions "{\"prompt\":[\"In the beginning\",\"And\"],\"max_tokens\":20,\"temperature\":0,\"stream\":true,\"stream_options\":{\"include_usage\":true},\"n\":2}"
streamed "''.join(k['choices'][0]['text'] for k in c if k['choices'] and k['choices'][0]['index'] == 1) == json.load(open('whole.txt'))['choices'][0]['text']"
streamed "sorted(k['choices'][0]['index'] for k in c if k['choices'] and k['choices'][0]['finish_reason']) == [0, 1, 2, 3] and c[-1]['usage']['completion_tokens'] == 80"
ask 200 /v1/completions '{"prompt":"In the beginning","max_tokens":8,"temperature":0,"logprobs":2}'
is "''.join(d['choices'][0]['logprobs']['tokens']) == d['choices'][0]['text'] and all(len(t) == 2 for t in d['choices'][0]['logprobs']['top_logprobs'])"
is "(lambda l: all(l['text_offset'][i] == len(''.join(l['tokens'][:i])) for i in range(len(l['tokens']))))(d['choices'][0]['logprobs'])"
is "all(t[k] == v for t, k, v in zip(d['choices'][0]['logprobs']['top_logprobs'], d['choices'][0]['logprobs']['tokens'], d['choices'][0]['logprobs']['token_logprobs']))"
for body in '{"prompt":[]}' '{"prompt":[-1]}' '{"prompt":[99999]}' '{"prompt":5}' '{}' '{"prompt":"x","echo":true}' '{"prompt":"x","best_of":2}' '{"prompt":"x","logprobs":6}' '{"prompt":[["a",1.5]]}'; do
    ask 400 /v1/completions "$body"
done
ask 200 /v1/chat/completions "{$m,\"max_tokens\":12,\"temperature\":0,\"logprobs\":true,\"top_logprobs\":3}"
is "''.join(t['token'] for t in d['choices'][0]['logprobs']['content']) and all(bytes(t['bytes']).decode() == t['token'] and len(t['top_logprobs']) == 3 and t['top_logprobs'][0]['logprob'] >= t['logprob'] for t in d['choices'][0]['logprobs']['content'])"
is "len(d['choices'][0]['logprobs']['content']) == 12 and sum(2.718281828 ** t['logprob'] for t in d['choices'][0]['logprobs']['content'][0]['top_logprobs']) <= 1.0001"
cp out.txt whole.txt
ask 200 /v1/chat/completions "{$m,\"max_tokens\":12,\"temperature\":0,\"logprobs\":true,\"top_logprobs\":3,\"stream\":true}"
streamed "[t for k in c for ch in k['choices'] if ch['logprobs'] for t in ch['logprobs']['content']] == json.load(open('whole.txt'))['choices'][0]['logprobs']['content']"
ask 200 /v1/completions '{"prompt":"In the beginning","max_tokens":30,"temperature":0,"logit_bias":[[" LORD",false],["LORD",-100]]}'
is "'LORD' not in d['choices'][0]['text']"
ask 200 /v1/completions "{\"prompt\":\"In the beginning\",\"max_tokens\":3,\"temperature\":1,\"logit_bias\":{\"300\":100}}"
cp out.txt forced.txt
ask 200 /detokenize '{"tokens":[300,300,300]}'
is "d['content'] == json.load(open('forced.txt'))['choices'][0]['text']"
ask 200 /v1/completions '{"prompt":"x","max_tokens":30,"temperature":0,"ignore_eos":true,"frequency_penalty":2,"presence_penalty":2}'
is "d['usage']['completion_tokens'] == 30"
# answers in a form
for seed in 1 2 3; do
    ask 200 /v1/chat/completions "{$m,\"max_tokens\":200,\"temperature\":1.2,\"seed\":$seed,\"response_format\":{\"type\":\"json_schema\",\"json_schema\":{\"name\":\"x\",\"strict\":true,\"schema\":{\"type\":\"object\",\"properties\":{\"a\":{\"type\":\"string\",\"maxLength\":8},\"b\":{\"type\":\"integer\",\"minimum\":3,\"maximum\":120},\"c\":{\"enum\":[\"x\",\"yy\"]}},\"required\":[\"a\",\"b\",\"c\"],\"additionalProperties\":false}}}}"
    is "(lambda v: list(v) == ['a', 'b', 'c'] and len(v['a']) <= 8 and 3 <= v['b'] <= 120 and v['c'] in ('x', 'yy'))(json.loads(d['choices'][0]['message']['content'])) and d['choices'][0]['finish_reason'] == 'stop'"
done
ask 200 /v1/completions '{"prompt":"In the beginning","max_tokens":20,"grammar":"root ::= \"a\"{5,5}"}'
is "d['choices'][0]['text'] == 'aaaaa' and d['choices'][0]['finish_reason'] == 'stop'"
for format in '{"type":"sound"}' '{"type":"json_schema"}' '{"type":"json_schema","json_schema":{"schema":123}}' '{"type":"json_schema","json_schema":{"schema":{"type":123}}}' '{"type":"json_schema","json_schema":{"schema":{"type":"hiccup"}}}'; do
    ask 400 /v1/chat/completions "{$m,\"response_format\":$format}"
done
ask 400 /v1/chat/completions "{$m,\"grammar\":\"%llguidance {}\"}"
is "d['error']['code'] == 'invalid_grammar'"
ask 200 /tokenize '{}'
is "d == {'tokens': []}"
ask 200 /tokenize '{"content":["In ",300,"€"],"with_pieces":true}'
is "300 in [t['id'] for t in d['tokens']] and any(isinstance(t['piece'], list) for t in d['tokens'])"
ask 400 /detokenize '{"tokens":[99999]}'
ask 200 /apply-template "{$m}"
is "'But, beloved' in d['prompt']"
ask 200 /v1/chat/completions/input_tokens "{$m}"
is "d['input_tokens'] == json.load(open('whole.txt'))['usage']['prompt_tokens']"
ask 200 /v1/chat/completions '{"messages":[{"role":"user","content":"But, beloved"},{"role":"assistant","content":"the LORD"}],"max_tokens":5,"temperature":0}'
is "d['choices'][0]['message']['content'] and not d['choices'][0]['message']['content'].startswith('the LORD')"
ask 200 /v1/chat/completions "{$m,\"max_tokens\":2,\"stream\":true,\"return_progress\":true,\"timings_per_token\":true}"
streamed "all('timings' in k for k in c if k['choices'] and k['choices'][0]['delta'].get('content'))"
for path in /v1/embeddings /v1/rerank /infill /v1/audio/speech /api/embed; do
    ask 400 $path '{}'
done
# ---- the same by Anthropic's and Ollama's interfaces ----
ask 200 /v1/chat/completions "{$m,\"max_tokens\":24,\"temperature\":0}"
cp out.txt whole.txt
same="json.load(open('whole.txt'))['choices'][0]['message']['content']"
ask 200 /v1/messages "{$m,\"max_tokens\":24,\"temperature\":0}"
is "d['type'] == 'message' and d['stop_reason'] == 'max_tokens' and d['stop_sequence'] is None and ''.join(b['text'] for b in d['content'] if b['type'] == 'text') == $same"
is "d['usage']['input_tokens'] + d['usage']['cache_read_input_tokens'] == json.load(open('whole.txt'))['usage']['prompt_tokens'] and d['usage']['output_tokens'] == 24"
ask 200 /v1/messages "{$m,\"max_tokens\":24,\"temperature\":0,\"stream\":true}"
python3 - <<'P' || fail "events of /v1/messages: $(head -c 500 out.txt)"
import json
events = [e.split("\n") for e in open("out.txt").read().split("\n\n") if e]
data = [json.loads(e[1][6:]) for e in events]
assert all(e[0] == "event: " + d["type"] for e, d in zip(events, data))
kinds = [d["type"] for d in data]
assert kinds[0] == "message_start" and kinds[-2:] == ["message_delta", "message_stop"], kinds
open_block, index = None, 0
for d in data:
    if d["type"] == "content_block_start":
        assert open_block is None and d["index"] == index
        open_block = index
    elif d["type"] == "content_block_delta":
        assert d["index"] == open_block
    elif d["type"] == "content_block_stop":
        assert d["index"] == open_block
        open_block, index = None, index + 1
text = "".join(d["delta"].get("text", "") for d in data if d["type"] == "content_block_delta")
assert text == json.load(open("whole.txt"))["choices"][0]["message"]["content"], text
P
ask 200 /v1/messages/count_tokens "{$m}"
is "d == {'input_tokens': json.load(open('whole.txt'))['usage']['prompt_tokens']}"
ask 400 /v1/messages '{"messages":[{"role":"user","content":[{"type":"image"}]}]}'
is "d['type'] == 'error' and d['error']['type'] == 'invalid_request_error' and d['request_id']"
ask 200 /api/chat "{$m,\"model\":\"tiny\",\"stream\":false,\"options\":{\"temperature\":0,\"num_predict\":24}}"
is "d['done'] and d['done_reason'] == 'length' and d['message']['content'] == $same and d['eval_count'] == 24"
ask 200 /api/chat "{$m,\"model\":\"tiny:latest\",\"options\":{\"temperature\":0,\"num_predict\":24}}"
python3 -c 'import json
lines = [json.loads(l) for l in open("out.txt")]
assert [l["done"] for l in lines] == [False] * (len(lines) - 1) + [True]
assert "".join(l["message"]["content"] for l in lines) == json.load(open("whole.txt"))["choices"][0]["message"]["content"]' || fail "lines of /api/chat: $(head -c 300 out.txt)"
grep -qi '^content-type: application/x-ndjson' head.txt || fail "$(cat head.txt)"
ask 200 /api/generate '{"model":"tiny","prompt":"But, beloved","stream":false,"options":{"temperature":0,"num_predict":24}}'
is "d['response'] == $same"
ask 400 /api/chat "{$m}"
is "list(d) == ['error']"
ask 200 /api/chat '{"model":"tiny","messages":[]}'
is "d['done_reason'] == 'load'"
ask 200 /api/show '{"model":"tiny"}'
is "d['model_info']['milkit.context_length'] == 512"
ask 404 /api/show '{"model":"none"}'
curl -s "$url/api/tags" >out.txt
is "[k['name'] for k in d['models']] == ['tiny']"
curl -s "$url/props" >out.txt
is "d['default_generation_settings']['n_ctx'] == 512 and d['total_slots'] == 3 and d['model_path'] == 'tiny' and d['default_generation_settings']['params']['temperature'] > 0"
curl -s "$url/slots" >out.txt
is "len(d) == 3 and all(not s['is_processing'] and s['next_token'][0] == {'has_next_token': False, 'has_new_line': False, 'n_remain': -1, 'n_decoded': 0} for s in d)"
curl -s "$url/metrics" >metrics.txt
python3 - <<'P' || fail "metrics: $(head -c 600 metrics.txt)"
import re
lines = open("metrics.txt").read().splitlines()
types = {l.split()[2] for l in lines if l.startswith("# TYPE")}
helps = {l.split()[2] for l in lines if l.startswith("# HELP")}
assert types == helps
for l in lines:
    if not l.startswith("#"):
        name, value = re.match(r"^([a-z_:]+)(?:\{.*\})? (\S+)$", l).groups()
        assert re.sub("_(bucket|sum|count)$", "", name) in types or name in types, name
        assert float(value) >= 0
assert any(l.startswith("llamacpp:tokens_predicted_total ") and float(l.split()[1]) > 100 for l in lines)
P
stop

expect 2 "expected a package folder" "$MILKIT" serve
expect 2 "--port" "$MILKIT" serve tiny --port 70000
serve tiny
expect 1 "can't listen" "$MILKIT" serve tiny --port "${url##*:}"
stop
finish
