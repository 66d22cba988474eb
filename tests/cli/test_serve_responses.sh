# OpenAI's /v1/responses, whole and streamed, and calls that are forced, by all interfaces: a package whose template writes calls as JSON.
. "$SOURCE/tests/cli/packages.sh"
. "$SOURCE/tests/cli/serving.sh"
make_package "$tiny" calls -c 512 -b 64 --format mlmodelc
python3 - <<'P' || fail "the template is another one"
import json
d = json.load(open("calls/tokenizer_config.json"))
old = "{{- '\\nCALL ' + {'name': f.name, 'arguments': f.arguments} | tojson -}}"
assert old in d["chat_template"]
d["chat_template"] = d["chat_template"].replace(old, "{{- '\\n<tool_call>\\n{\"name\": \"' + f.name + '\", \"arguments\": ' -}}{{- f.arguments if f.arguments is string else f.arguments | tojson -}}{{- '}\\n</tool_call>' -}}")
json.dump(d, open("calls/tokenizer_config.json", "w"))
P
serve calls --parallel 2
base='"input":"But, beloved","max_output_tokens":24,"temperature":0'
ask 200 /v1/chat/completions '{"messages":[{"role":"user","content":"But, beloved"}],"max_tokens":24,"temperature":0}'
cp out.txt chat.txt
ask 200 /v1/responses "{$base}"
is "d['object'] == 'response' and d['id'].startswith('resp_') and d['status'] == 'incomplete' and d['incomplete_details'] == {'reason': 'max_output_tokens'} and d['store'] is False and d['error'] is None"
is "''.join(p['text'] for i in d['output'] if i['type'] == 'message' for p in i['content']) == json.load(open('chat.txt'))['choices'][0]['message']['content']"
is "d['usage']['output_tokens'] == 24 and d['usage']['total_tokens'] == 24 + d['usage']['input_tokens'] == json.load(open('chat.txt'))['usage']['total_tokens']"
cp out.txt whole.txt
# events EXPRESSION: of the list e of events in out.txt, which are numbered without gaps, items one after the other
events() {
    python3 -c 'import json, sys
blocks = [b.split("\n") for b in open("out.txt").read().split("\n\n") if b]
e = [json.loads(b[1][6:]) for b in blocks]
assert all(b[0] == "event: " + d["type"] and len(b) == 2 for b, d in zip(blocks, e))
assert [d["sequence_number"] for d in e] == list(range(len(e)))
assert [d["type"] for d in e[:2]] == ["response.created", "response.in_progress"] and e[0]["response"]["output"] == []
opened, n, said = None, 0, {}
for d in e:
    if d["type"] == "response.output_item.added":
        assert opened is None and d["output_index"] == n
        opened, n = d["item"]["id"], n + 1
    elif d["type"] == "response.output_item.done":
        assert d["item"]["id"] == opened and d["item"] == e[-1]["response"]["output"][d["output_index"]]
        opened = None
    elif "item_id" in d:
        assert d["item_id"] == opened and d["output_index"] == n - 1
        if d["type"].endswith(".delta"):
            said[opened] = said.get(opened, "") + d["delta"]
        elif d["type"].endswith("_text.done"):
            assert d["text"] == said.get(opened, "")
assert opened is None and n == len(e[-1]["response"]["output"])
def texts(response):
    return [i.get("arguments") or [p["text"] for p in i["content"]] for i in response["output"]]
sys.exit(0 if eval(sys.argv[1]) else 1)' "$1" || fail "not so of the events: $1: $(head -c 800 out.txt)"
}
ask 200 /v1/responses "{$base,\"stream\":true}"
events "e[-1]['type'] == 'response.incomplete' and texts(e[-1]['response']) == texts(json.load(open('whole.txt')))"
ask 200 /responses '{"input":[{"role":"user","content":[{"type":"input_text","text":"But, beloved"}]}],"temperature":0,"stop":"the","stream":true,"instructions":"Be short."}'
events "e[-1]['type'] == 'response.completed' and e[-1]['response']['instructions'] == 'Be short.' and all('the' not in t for t in texts(e[-1]['response']))"
ask 200 /v1/responses "{$base,\"include\":[\"message.output_text.logprobs\"],\"top_logprobs\":2,\"stream\":true}"
events "all(len(p['top_logprobs']) == 2 for d in e if d['type'] == 'response.output_text.delta' for p in d['logprobs']) and any(d.get('logprobs') for d in e)"
ask 200 /v1/responses/input_tokens "{$base}"
is "d['input_tokens'] == json.load(open('whole.txt'))['usage']['input_tokens']"
# items of all kinds, also what was thought without its text
ask 200 /v1/responses '{"input":[{"type":"message","role":"user","content":"x"},{"type":"reasoning","id":"rs_1","summary":[]},{"type":"function_call","call_id":"c","name":"f","arguments":"{}"},{"type":"function_call_output","call_id":"c","output":"4"},{"role":"user","content":"z"}],"max_output_tokens":3}'
ask 200 /v1/responses '{"input":"A city","temperature":1,"seed":2,"text":{"format":{"type":"json_schema","name":"x","schema":{"type":"object","properties":{"n":{"type":"integer","minimum":0,"maximum":9}},"required":["n"]}}}}'
is "0 <= json.loads(d['output'][-1]['content'][0]['text'])['n'] <= 9 and d['status'] == 'completed'"
while read -r field; do
    ask 400 /v1/responses "{\"input\":\"x\",\"max_output_tokens\":2,$field}"
    is "d['error']['message'] and d['error']['type'] == 'invalid_request_error'"
done <<'FIELDS'
"previous_response_id":"resp_1"
"conversation":"c"
"background":true
"truncation":"auto"
"input":5
"input":[5]
"input":[{"type":"item_reference","id":"x"}]
"input":[{"role":"user"}]
"input":[{"role":"user","content":[{"type":"input_image","image_url":"x"}]}]
"input":[{"type":"function_call","arguments":"{}"}]
"text":{"format":{"type":"json_schema","name":"x","schema":{"type":"hiccup"}}}
"temperature":"1"
FIELDS
ask 400 /v1/responses '{}'

# ---- calls ----
parameters='{"type":"object","properties":{"city":{"type":"string","maxLength":6}},"required":["city"],"additionalProperties":false}'
nested="\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"get_weather\",\"parameters\":$parameters}}]"
flat="\"tools\":[{\"type\":\"function\",\"name\":\"get_weather\",\"parameters\":$parameters},{\"type\":\"web_search\"}]"
m='"messages":[{"role":"user","content":"Weather?"}],"temperature":1,"seed":1'
ask 200 /v1/chat/completions "{$m,$nested,\"tool_choice\":\"required\"}"
is "d['choices'][0]['finish_reason'] == 'tool_calls' and d['choices'][0]['message']['content'] is None and d['choices'][0]['message']['tool_calls'][0]['function']['name'] == 'get_weather'"
is "len(json.loads(d['choices'][0]['message']['tool_calls'][0]['function']['arguments'])['city']) <= 6"
cp out.txt call.txt
arguments="json.load(open('call.txt'))['choices'][0]['message']['tool_calls'][0]['function']['arguments']"
ask 200 /v1/chat/completions "{$m,$nested,\"tool_choice\":\"required\",\"stream\":true}"
streamed "[(t['index'], t.get('id', '')[:5], t.get('type')) for k in c for ch in k['choices'] for t in ch['delta'].get('tool_calls', [])] == [(0, 'call_', 'function'), (0, '', None)]"
streamed "''.join(t['function']['arguments'] for k in c for ch in k['choices'] for t in ch['delta'].get('tool_calls', [])) == $arguments and c[-1]['choices'][0]['finish_reason'] == 'tool_calls'"
ask 200 /v1/responses "{\"input\":\"Weather?\",\"temperature\":1,\"seed\":1,$flat,\"tool_choice\":{\"type\":\"function\",\"name\":\"get_weather\"}}"
is "[(i['name'], i['arguments'], i['status']) for i in d['output'] if i['type'] == 'function_call'] == [('get_weather', $arguments, 'completed')] and d['status'] == 'completed'"
ask 200 /v1/responses "{\"input\":\"Weather?\",\"temperature\":1,\"seed\":1,$flat,\"tool_choice\":\"required\",\"stream\":true}"
events "''.join(d['delta'] for d in e if d['type'] == 'response.function_call_arguments.delta') == $arguments and e[-1]['type'] == 'response.completed'"
ask 200 /v1/messages "{$m,\"max_tokens\":100,\"tools\":[{\"name\":\"get_weather\",\"input_schema\":$parameters}],\"tool_choice\":{\"type\":\"any\"}}"
is "d['stop_reason'] == 'tool_use' and [b['input'] for b in d['content'] if b['type'] == 'tool_use'] == [json.loads($arguments)]"
stop
finish
