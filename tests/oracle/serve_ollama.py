"""The official ollama client against a running `milkit serve`: assertions instead of prints.

    pip install ollama
    MILKIT_URL=http://127.0.0.1:8080 python tests/oracle/serve_ollama.py
"""
import json
import os

import ollama

client = ollama.Client(host=os.environ.get("MILKIT_URL", "http://127.0.0.1:8080"))
USER = [{"role": "user", "content": "But, beloved"}]
OPTIONS = {"seed": 3, "temperature": 1, "num_predict": 30}
count = 0


def ok(condition, what):
    global count
    count += 1
    assert condition, what


name = client.list().models[0].model
whole = client.chat(model=name, messages=USER, options=OPTIONS)
ok(whole.done and whole.done_reason in ("stop", "length") and whole.eval_count > 0 and whole.prompt_eval_count > 0, whole)
said = thought = ""
for line in client.chat(model=name, messages=USER, options=OPTIONS, stream=True):
    said += line.message.content or ""
    thought += line.message.thinking or ""
    last = line
ok(last.done and last.eval_count == whole.eval_count, last)
ok(said == whole.message.content and thought == (whole.message.thinking or ""), (said, whole))
made = client.generate(model=name, prompt="But, beloved", options=OPTIONS)
ok(made.response == whole.message.content, made)
shaped = client.chat(model=name, messages=USER, options={"seed": 1, "num_predict": 200}, format={
    "type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "string", "maxLength": 5}}, "required": ["a", "b"]})
ok(set(json.loads(shaped.message.content)) == {"a", "b"}, shaped)
ok(client.show(name).modelinfo["milkit.context_length"] > 0, "show")
ok(client.chat(model=name, messages=[]).done_reason == "load", "load")
for call in (lambda: client.embed(model=name, input="x"), lambda: client.chat(model=name, messages=USER, options={"temperature": -1}), lambda: client.show("no-such")):
    try:
        call()
        ok(False, "no error")
    except ollama.ResponseError as e:
        ok(e.error and e.status_code in (400, 404), e)
print(json.dumps({"checks": count}))
