"""The official openai client against a running `milkit serve`: a fixed script, assertions instead of prints.

    pip install openai pydantic
    MILKIT_URL=http://127.0.0.1:8080 python tests/oracle/serve_openai.py

Any small model does: what is held is the form of answers, that streams say what whole answers say, and which errors are raised.
"""
import asyncio
import json
import os
from typing import List, Literal, Optional

import openai
from pydantic import BaseModel

BASE = os.environ.get("MILKIT_URL", "http://127.0.0.1:8080") + "/v1"
KEY = os.environ.get("MILKIT_API_KEY", "none")
client = openai.OpenAI(base_url=BASE, api_key=KEY)
USER = [{"role": "user", "content": "But, beloved"}]
count = 0


def ok(condition, what):
    global count
    count += 1
    assert condition, what


def chat():
    whole = client.chat.completions.create(model="any", messages=USER, max_tokens=400, temperature=1, seed=3)
    text = whole.choices[0].message.content
    ok(whole.choices[0].finish_reason in ("stop", "length"), whole)
    ok(whole.usage.total_tokens == whole.usage.prompt_tokens + whole.usage.completion_tokens, whole.usage)
    ok(whole.system_fingerprint and whole.id.startswith("chatcmpl-"), whole)
    raw = client.chat.completions.with_raw_response.create(model="any", messages=USER, max_tokens=1)
    ok(raw.headers["x-request-id"] and raw.parse()._request_id == raw.headers["x-request-id"], raw.headers)
    joined = "".join(
        c.choices[0].delta.content or ""
        for c in client.chat.completions.create(model="any", messages=USER, max_tokens=400, temperature=1, seed=3, stream=True)
    )
    ok(joined == text, (joined, text))
    with client.chat.completions.stream(
        model="any", messages=USER, max_tokens=400, temperature=1, seed=3, stream_options={"include_usage": True}
    ) as stream:
        kinds = {event.type for event in stream}
        final = stream.get_final_completion()
    ok({"chunk", "content.delta", "content.done"} <= kinds, kinds)
    ok(final.choices[0].message.content == text and final.choices[0].message.role == "assistant", final)
    ok(final.usage.completion_tokens == whole.usage.completion_tokens, final.usage)
    probable = client.chat.completions.create(model="any", messages=USER, max_tokens=8, logprobs=True, top_logprobs=2, temperature=0)
    ok("".join(t.token for t in probable.choices[0].logprobs.content), probable)


def completions():
    whole = client.completions.create(model="any", prompt="In the beginning", max_tokens=12, temperature=0)
    joined = "".join(c.choices[0].text for c in client.completions.create(
        model="any", prompt="In the beginning", max_tokens=12, temperature=0, stream=True))
    ok(joined == whole.choices[0].text, joined)


class Item(BaseModel):
    kind: Literal["x", "y"]
    note: Optional[str]


class Answer(BaseModel):
    name: str
    size: int
    items: List[Item]


def parse():
    for seed in range(20):
        try:
            done = client.chat.completions.parse(model="any", messages=USER, response_format=Answer, temperature=0.8, seed=seed, max_tokens=400)
            ok(isinstance(done.choices[0].message.parsed, Answer), done)
        except openai.LengthFinishReasonError:
            ok(True, "a long one")


def errors():
    for call, kind in (
        (lambda: client.chat.completions.create(model="any", messages=[]), openai.BadRequestError),
        (lambda: client.chat.completions.create(model="any", messages=[{"role": "user", "content": "and " * 100000}]), openai.BadRequestError),
        (lambda: client.embeddings.create(model="any", input="x"), openai.BadRequestError),
        (lambda: client.models.retrieve("no/such"), openai.NotFoundError),
    ):
        try:
            call()
            ok(False, "no error")
        except kind as e:
            ok(e.body["message"] and e.type, e)


async def many():
    one = openai.AsyncOpenAI(base_url=BASE, api_key=KEY, max_retries=10)

    async def ask(i, cut=False):
        text = ""
        stream = await one.chat.completions.create(
            model="any", messages=[{"role": "user", "content": f"And {i}"}], seed=i, temperature=1, max_tokens=40, stream=True)
        n = 0
        async for chunk in stream:
            text += chunk.choices[0].delta.content or ""
            n += 1
            if cut and n == 3:
                await stream.close()
                return None
        return text

    alone = [await ask(i) for i in range(0, 32, 2)]
    together = await asyncio.gather(*[ask(i, cut=i % 2 == 1) for i in range(32)])
    ok(together[::2] == alone, "other texts than alone")


models = client.models.list().data
ok(models and client.models.retrieve(models[0].id).id == models[0].id, models)
chat()
completions()
parse()
errors()
asyncio.run(many())
print(json.dumps({"checks": count}))
