"""The official anthropic client against a running `milkit serve`: assertions instead of prints.

    pip install anthropic
    MILKIT_URL=http://127.0.0.1:8080 python tests/oracle/serve_anthropic.py
"""
import json
import os

import anthropic

client = anthropic.Anthropic(base_url=os.environ.get("MILKIT_URL", "http://127.0.0.1:8080"), api_key=os.environ.get("MILKIT_API_KEY", "none"))
USER = [{"role": "user", "content": "But, beloved"}]
count = 0


def ok(condition, what):
    global count
    count += 1
    assert condition, what


# the seed is not in this API: greedy answers are compared
whole = client.messages.create(model="any", max_tokens=40, extra_body={"temperature": 0}, messages=USER)
ok(whole.type == "message" and whole.role == "assistant" and whole.id.startswith("msg_"), whole)
ok(whole.stop_reason in ("end_turn", "max_tokens") and "stop_sequence" in whole.model_dump(), whole)
text = "".join(b.text for b in whole.content if b.type == "text")
kinds = []
with client.messages.stream(model="any", max_tokens=40, extra_body={"temperature": 0}, messages=USER) as stream:
    for event in stream:
        kinds.append(event.type)
    final = stream.get_final_message()
ok("".join(b.text for b in final.content if b.type == "text") == text, final)
ok(kinds[0] == "message_start" and kinds[-1] == "message_stop" and kinds.count("message_delta") == 1, kinds)
ok(kinds.count("content_block_start") == kinds.count("content_block_stop") == len(final.content), kinds)
ok(final.usage.output_tokens == whole.usage.output_tokens, final.usage)
counted = client.messages.count_tokens(model="any", messages=USER)
ok(counted.input_tokens == whole.usage.input_tokens + whole.usage.cache_read_input_tokens, counted)
cut = client.messages.create(model="any", max_tokens=40, extra_body={"temperature": 0}, messages=USER, stop_sequences=[text[4:8]])
ok(cut.stop_reason == "stop_sequence" and cut.stop_sequence == text[4:8], cut)
parts = client.messages.create(
    model="any", max_tokens=4, system=[{"type": "text", "text": "Be brief."}],
    messages=[{"role": "user", "content": [{"type": "text", "text": "But"}]}, {"role": "assistant", "content": "I"},
              {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "1", "content": "4"}, {"type": "text", "text": "And"}]}])
ok(parts.usage.output_tokens <= 4, parts)
for bad in ({"messages": [{"role": "user", "content": [{"type": "image", "source": {}}]}]}, {"messages": USER, "extra_body": {"temperature": -1}}):
    try:
        client.messages.create(**{"model": "any", "max_tokens": 4, **bad})
        ok(False, "no error")
    except anthropic.BadRequestError as e:
        ok(e.body["type"] == "error" and e.body["error"]["type"] == "invalid_request_error", e.body)
print(json.dumps({"checks": count}))
