"""litellm against a running `milkit serve`, as a provider that speaks OpenAI's API.

    pip install litellm; MILKIT_URL=http://127.0.0.1:8080 python3 tests/oracle/serve_litellm.py
"""
import asyncio
import json
import os
os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"
import litellm

options = {"model": "openai/any", "api_base": os.environ["MILKIT_URL"] + "/v1", "api_key": "none", "messages": [{"role": "user", "content": "But, beloved"}], "max_tokens": 20, "temperature": 0}
checks = 0


def check(ok, what):
    global checks
    checks += 1
    if not ok:
        raise SystemExit(f"not so: {what}")


whole = litellm.completion(**options)
text = whole.choices[0].message.content
check(whole.usage.completion_tokens == 20 and whole.choices[0].finish_reason == "length", "a whole answer")
chunks = list(litellm.completion(**options, stream=True, stream_options={"include_usage": True}))
check("".join(c.choices[0].delta.content or "" for c in chunks if c.choices) == text, "the same, streamed")
check(litellm.stream_chunk_builder(chunks).choices[0].message.content == text, "built of chunks")


async def at_once():
    return await asyncio.gather(*[litellm.acompletion(**options) for _ in range(6)])


check([a.choices[0].message.content for a in asyncio.run(at_once())] == [text] * 6, "six at once")
schema = {"type": "json_schema", "json_schema": {"name": "x", "strict": True, "schema": {"type": "object", "properties": {"n": {"type": "integer", "minimum": 0, "maximum": 9}}, "required": ["n"], "additionalProperties": False}}}
answer = json.loads(litellm.completion(**{**options, "response_format": schema, "max_tokens": 100}).choices[0].message.content)
check(list(answer) == ["n"] and 0 <= answer["n"] <= 9, "a schema")
check(litellm.text_completion(model="text-completion-openai/any", api_base=options["api_base"], api_key="none", prompt="In the", max_tokens=5).usage.completion_tokens == 5, "a completion")
try:
    litellm.completion(**{**options, "messages": [{"role": "user", "content": "and the LORD " * 5000}]})
except litellm.ContextWindowExceededError:
    check(True, "")
except litellm.BadRequestError as e:
    check("context" in str(e), "a prompt that is too long")
print(json.dumps({"checks": checks}))
