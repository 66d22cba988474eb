"""/v1/responses as the official openai client takes it: whole, streamed, helpers, parsed, tools, errors.

    pip install openai jsonschema; milkit serve PACKAGE; MILKIT_URL=http://127.0.0.1:8080 python3 tests/oracle/serve_responses.py

PACKAGE: of tests/data/models/qwen3-tiny, context 512 or more. Prints a JSON object with the number of checks.
"""
import json
import os
import jsonschema
import openai
import pydantic

client = openai.OpenAI(base_url=os.environ["MILKIT_URL"] + "/v1", api_key="none", max_retries=0)
checks = 0


def check(ok, what):
    global checks
    checks += 1
    if not ok:
        raise SystemExit(f"not so: {what}")


def items(response):
    return [(i.type, "".join(p.text for p in i.content) if i.type != "function_call" else i.arguments) for i in response.output]


def refused(code, **options):
    try:
        client.responses.create(**{"model": "m", "input": "x", "max_output_tokens": 2, **options})
    except openai.BadRequestError as e:
        check(e.code == code, f"{code}: {e.code}")
    else:
        check(False, f"{options} is refused")


base = {"model": "m", "input": "But, beloved", "max_output_tokens": 24, "temperature": 0}
whole = client.responses.create(**base)
check(whole.status == "incomplete" and whole.incomplete_details.reason == "max_output_tokens" and whole.usage.output_tokens == 24, "the limit")
check(whole.output_text == client.chat.completions.create(model="m", messages=[{"role": "user", "content": "But, beloved"}], max_tokens=24, temperature=0).choices[0].message.content, "the text is a chat's")
check(whole.id.startswith("resp_") and whole.store is False and whole.truncation == "disabled" and whole.output[-1].status == "incomplete", "members")

# a stream: numbers without gaps, items opened and closed one after the other, the same output
events = list(client.responses.create(**base, stream=True))
check([e.sequence_number for e in events] == list(range(len(events))), "sequence numbers")
check([e.type for e in events[:2]] == ["response.created", "response.in_progress"] and events[0].response.output == [] and events[-1].type == "response.incomplete", "begin and end")
check(items(events[-1].response) == items(whole), "the same output, streamed")
open_item = None
texts = {}
for e in events:
    if e.type == "response.output_item.added":
        check(open_item is None, "one item at a time")
        open_item = e.output_index
    elif e.type == "response.output_item.done":
        check(open_item == e.output_index and e.item == events[-1].response.output[e.output_index], "the item is what the answer has")
        open_item = None
    elif e.type.endswith("_text.delta"):
        check(e.output_index == open_item and e.content_index == 0, "a piece of the open item")
        texts[open_item] = texts.get(open_item, "") + e.delta
    elif e.type.endswith("_text.done"):
        check(e.text == texts[e.output_index], "the pieces are the text")
check(open_item is None, "all items are closed")

# the helper, and pydantic
stop = whole.output_text[12:16]  # the helper wants an answer that is complete
with client.responses.stream(**base, extra_body={"stop": stop}) as stream:
    deltas = "".join(e.delta for e in stream if e.type == "response.output_text.delta")
    final = stream.get_final_response()
check(final.status == "completed" and deltas == final.output_text == whole.output_text.split(stop)[0], "the helper")


class City(pydantic.BaseModel):
    name: str = pydantic.Field(max_length=10)
    kind: str = pydantic.Field(pattern="^(town|city)$")
    people: int = pydantic.Field(ge=0, le=1000)


for seed in range(3):
    parsed = client.responses.parse(model="m", input="A city", text_format=City, temperature=1.1, extra_body={"seed": seed})
    check(isinstance(parsed.output_parsed, City) and parsed.status == "completed", "parsed")

# tools: forced, and the whole of it sent back with a result
tool = {"type": "function", "name": "get_weather", "description": "w", "strict": True,
        "parameters": {"type": "object", "properties": {"city": {"type": "string", "maxLength": 12}}, "required": ["city"], "additionalProperties": False}}
called = client.responses.create(model="m", input=[{"role": "user", "content": "Weather?"}], tools=[tool, {"type": "web_search"}], tool_choice="required", temperature=1, extra_body={"seed": 1})
call = next(i for i in called.output if i.type == "function_call")
jsonschema.validate(json.loads(call.arguments), tool["parameters"])
check(call.name == "get_weather" and call.call_id.startswith("call_"), "a call")
named = list(client.responses.create(model="m", input="Weather?", tools=[tool], tool_choice={"type": "function", "name": "get_weather"}, temperature=1, extra_body={"seed": 1}, stream=True))
check("".join(e.delta for e in named if e.type == "response.function_call_arguments.delta") == call.arguments, "a call, streamed")
with client.responses.stream(model="m", input="Weather?", tools=[tool], tool_choice="required", temperature=1, extra_body={"seed": 1}) as stream:
    check(any(i.type == "function_call" and i.arguments == call.arguments for i in stream.get_final_response().output), "a call by the helper")
for output in ('{"sun": true}', [{"type": "input_text", "text": '{"sun": true}'}]):
    history = [{"role": "user", "content": "Weather?"}, *called.output, {"type": "function_call_output", "call_id": call.call_id, "output": output}]
    after = client.responses.create(model="m", input=history, tools=[tool], max_output_tokens=8, temperature=0)
    check(after.usage.output_tokens == 8, "a second turn")
thinking = [{"type": "message", "role": "user", "content": [{"type": "input_text", "text": "x"}]}, {"type": "reasoning", "id": "rs_1", "summary": []},
            {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "y", "annotations": []}]}, {"role": "user", "content": "z"}]
check(client.responses.create(model="m", input=thinking, instructions="Be short.", max_output_tokens=4).instructions == "Be short.", "items of all kinds")

# probabilities
probable = client.responses.create(**base, include=["message.output_text.logprobs"], top_logprobs=3)
logprobs = [p for i in probable.output if i.type == "message" for c in i.content for p in c.logprobs]
check(len(logprobs) > 0 and all(len(p.top_logprobs) == 3 for p in logprobs), "probabilities")
check("".join(p.token for p in logprobs).endswith(probable.output_text), "their tokens are the text")

refused("unsupported_parameter", previous_response_id="resp_1")
refused("unsupported_value", background=True)
refused("unsupported_value", truncation="auto")
refused("unsupported_value", input=[{"type": "item_reference", "id": "x"}])
refused("invalid_value", temperature=-1)
refused("context_length_exceeded", input="and the LORD " * 5000, stream=True)
refused("invalid_json_schema", text={"format": {"type": "json_schema", "name": "x", "schema": {"type": "hiccup"}}})
print(json.dumps({"checks": checks, "openai": openai.__version__}))
