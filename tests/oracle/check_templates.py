#!/usr/bin/env python3
"""Chat templates against Jinja2 set up as transformers does.

usage: check_templates.py MILKIT MESSAGES.jsonl... -- TEMPLATE...

MESSAGES: lines of {"messages", "tools", "options"}. TEMPLATE: *.jinja files, or folders of them. Each template must give
the same text for each line, or fail where Jinja2 fails, with the same words where the template itself raised.
Needs jinja2. The templates of published models are not part of this project; point this script at copies.
"""
import datetime
import json
import os
import subprocess
import sys
import tempfile

import jinja2
import jinja2.ext
from jinja2 import nodes
from jinja2.sandbox import ImmutableSandboxedEnvironment

NOW = 1700000000
TOKENS = {"bos_token": "<s>", "eos_token": "</s>", "pad_token": "<pad>", "unk_token": "<unk>"}


class Raised(jinja2.exceptions.TemplateError):
    pass


class Generation(jinja2.ext.Extension):
    tags = {"generation"}

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
        return nodes.CallBlock(self.call_method("_render"), [], [], body).set_lineno(line)

    def _render(self, caller):
        return caller()


def environment():
    env = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[Generation, jinja2.ext.loopcontrols])

    def tojson(x, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
        return json.dumps(x, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)

    def raise_exception(message):
        raise Raised(message)

    env.filters["tojson"] = tojson
    env.globals["raise_exception"] = raise_exception
    env.globals["strftime_now"] = lambda f: datetime.datetime.fromtimestamp(NOW).strftime(f)
    return env


def expected(template, request):
    variables = dict(TOKENS, documents=None, add_generation_prompt=False, messages=request["messages"],
                     tools=request["tools"])
    variables.update(request["options"])
    try:
        return "text", template.render(**variables)
    except Raised as error:
        return "raised", str(error)
    except RecursionError:
        return "failed", "recursion"
    except Exception as error:  # whatever Python throws at a template's author
        return "failed", f"{type(error).__name__}: {error}"


def found(milkit, path, lines):
    with tempfile.TemporaryDirectory() as folder:
        with open(os.path.join(folder, "chat_template.jinja"), "wb") as out, open(path, "rb") as source:
            out.write(source.read())
        with open(os.path.join(folder, "tokenizer_config.json"), "w") as out:
            json.dump(TOKENS, out)
        run = subprocess.run([milkit, "template", folder, "--jsonl", "--now", str(NOW)], input="".join(lines).encode(),
                             capture_output=True)
        if run.returncode != 0:
            raise SystemExit(f"{path}: status {run.returncode}: {run.stderr.decode()[:2000]}")
        return [json.loads(line) for line in run.stdout.decode().splitlines()]


def main():
    at = sys.argv.index("--")
    milkit, sets, paths = sys.argv[1], sys.argv[2:at], []
    for path in sys.argv[at + 1:]:
        if os.path.isdir(path):
            paths += sorted(os.path.join(path, name) for name in os.listdir(path) if name.endswith(".jinja"))
        else:
            paths.append(path)
    requests = []
    for name in sets:
        for line in open(name, encoding="utf-8"):
            r = json.loads(line)
            request = {key: r.get(key) for key in ("messages", "tools")}
            request["options"] = r.get("options") or {}
            if request not in requests:
                requests.append(request)
    lines = [json.dumps(r) + "\n" for r in requests]
    n_bad = n_text = n_raised = n_failed = 0
    for path in paths:
        try:
            template = environment().from_string(open(path, encoding="utf-8", newline="").read())
        except jinja2.TemplateSyntaxError as error:
            print(f"{path}: not a template for Jinja2 either: {error}")
            continue
        answers = found(milkit, path, lines)
        bad = 0
        for i, (request, answer) in enumerate(zip(requests, answers)):
            kind, text = expected(template, request)
            n_text += kind == "text"
            n_raised += kind == "raised"
            n_failed += kind == "failed"
            good = answer.get("text") == text if kind == "text" else "error" in answer
            if kind == "raised":
                good = answer.get("error") == text
            if not good:
                bad += 1
                if bad <= 2:
                    print(f"{path}: request {i}\n  expected {kind}: {text[-600:]!r}\n  found: {str(answer)[-700:]}")
        n_bad += bad
        print(f"{os.path.basename(path)}: {len(answers) - bad} of {len(requests)} equal")
    print(f"{len(paths)} templates, {n_text} texts, {n_raised} raised, {n_failed} other errors, {n_bad} different")
    return 1 if n_bad or not paths else 0


if __name__ == "__main__":
    sys.exit(main())
