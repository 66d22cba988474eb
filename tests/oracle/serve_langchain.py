"""langchain-openai against a running `milkit serve`.

    pip install langchain-openai; MILKIT_URL=http://127.0.0.1:8080 python3 tests/oracle/serve_langchain.py

A package whose template writes calls as JSON between <tool_call> marks is asked for a call, too (CALLS=1).
"""
import json
import os
os.environ["LANGSMITH_TRACING"] = "false"
import pydantic
from langchain_core.messages import AIMessage, HumanMessage, SystemMessage, ToolMessage
from langchain_openai import ChatOpenAI

options = {"model": "any", "base_url": os.environ["MILKIT_URL"] + "/v1", "api_key": "none", "temperature": 0, "max_tokens": 20}
checks = 0


def check(ok, what):
    global checks
    checks += 1
    if not ok:
        raise SystemExit(f"not so: {what}")


model = ChatOpenAI(**options)
whole = model.invoke([SystemMessage("Be short."), HumanMessage("But, beloved")])
check(whole.usage_metadata["output_tokens"] == 20 and whole.response_metadata["finish_reason"] == "length", "a whole answer")
check("".join(c.content for c in model.stream([SystemMessage("Be short."), HumanMessage("But, beloved")])) == whole.content, "the same, streamed")
check([a.content for a in model.batch(["Moses", "a king", "Moses"])][0::2] == [model.invoke("Moses").content] * 2, "several at once")


class Count(pydantic.BaseModel):
    n: int = pydantic.Field(ge=0, le=9)


check(isinstance(ChatOpenAI(**{**options, "max_tokens": 400}).with_structured_output(Count, method="json_schema").invoke("a number"), Count), "an answer in a form")
history = [HumanMessage("Weather?"), AIMessage("", tool_calls=[{"name": "w", "args": {"city": "x"}, "id": "call_1"}]), ToolMessage("sun", tool_call_id="call_1"), HumanMessage("And?")]
check(model.invoke(history).usage_metadata["input_tokens"] > 10, "a history with a call")
if os.environ.get("CALLS"):
    called = ChatOpenAI(**{**options, "max_tokens": 400}).bind_tools([Count], tool_choice="any").invoke("a number")
    check(called.tool_calls[0]["name"] == "Count" and 0 <= called.tool_calls[0]["args"]["n"] <= 9, "a call")
responses = ChatOpenAI(**options, use_responses_api=True)
check(responses.invoke("Moses").text == model.invoke("Moses").content, "by /v1/responses")
print(json.dumps({"checks": checks}))
