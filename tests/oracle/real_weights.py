#!/usr/bin/env python3
"""Weights that people use against what transformers computes of them in float32, from the GGUF file to perplexity.

real_weights.py MILKIT REFERENCE GGUF SCRATCH [--part PART,..] [--threads N]

REFERENCE is the path of two files without their ends: NAME.json (where the GGUF comes from, its checksum, prompts, texts, strings)
and NAME.safetensors (ids, best logits, greedy continuations). Needs numpy. PART: ids, logits, perplexity, fp16 (--precision fp16),
widths. Prints a Markdown table; ends with 1 where a figure is outside its bar.
"""
import argparse, hashlib, json, math, os, shutil, struct, subprocess, sys
import numpy as np

MARGIN = 0.05  # a greedy token counts up to the first smaller lead over the next one
CONTEXT = 1024

arguments = argparse.ArgumentParser()
for name in ("milkit", "reference", "gguf", "scratch"):
    arguments.add_argument(name)
arguments.add_argument("--part", default="ids,logits,perplexity,fp16,widths")
arguments.add_argument("--threads", default="2")
a = arguments.parse_args()
parts = a.part.split(",")
stated = json.load(open(a.reference + ".json"))
os.makedirs(a.scratch, exist_ok=True)
missed = []


def tensors(path):
    """All tensors of a safetensors file, mapped."""
    with open(path, "rb") as f:
        n = struct.unpack("<Q", f.read(8))[0]
        header = json.loads(f.read(n))
    types = {"F32": np.float32, "I32": np.int32}
    return {name: np.memmap(path, types[t["dtype"]], "r", 8 + n + t["data_offsets"][0], tuple(t["shape"]))
            for name, t in header.items() if name != "__metadata__"}


def run(*command, text=None):
    r = subprocess.run([a.milkit, *command, "-q"], input=text, capture_output=True, text=True)
    if r.returncode:
        sys.exit(f"milkit {' '.join(command)}: status {r.returncode}: {r.stderr.strip()}")
    return r.stdout


def put(what, value, bar="", holds=True):
    print(f"| {what} | {value} | {bar} |", flush=True)
    if not holds:
        missed.append(what)


def package(name, *options):
    out = os.path.join(a.scratch, name)
    shutil.rmtree(out, ignore_errors=True)
    run("convert", a.gguf, "-o", out, "-c", str(CONTEXT), "--format", "mlmodelc", "-t", a.threads, *options)
    return out


def perplexity(folder, *options):
    text = os.path.join(a.scratch, "perplexity.txt")
    open(text, "w").write(stated["perplexity"]["text"])
    found = json.loads(run("eval", folder, "--text", text, "--window", str(stated["perplexity"]["window"]), "--json",
                           "-t", a.threads, *options))
    assert found["predicted_tokens"] == sum(n for n, _ in stated["perplexity"]["predictions_and_nll_of_each_window"])
    return found["perplexity"]


def change(value):
    return f"{value:.4f} ({100 * (value / stated['perplexity']['value'] - 1):+.3f} %)"


digest = hashlib.sha256()
with open(a.gguf, "rb") as f:
    while block := f.read(1 << 20):
        digest.update(block)
if digest.hexdigest() != stated["source"]["sha256"]:
    sys.exit(f"{a.gguf}: not the file that the numbers belong to")
golden = tensors(a.reference + ".safetensors")
print(f"| {stated['model']} | found | bar |\n| --- | --- | --- |")

if "ids" in parts:
    texts = [(s["text"], s["ids"], False) for s in stated["strings"]]
    texts += [(p["text"], golden[f"{name}.ids"].tolist(), True) for name, p in stated["prompts"].items()]
    texts += [(stated["perplexity"]["text"], golden["perplexity.ids"].tolist(), False)]
    found = run("tokenize", a.gguf, "--jsonl", text="".join(json.dumps({"text": t}) + "\n" for t, _, _ in texts))
    n_equal = 0
    bos = stated["bos_added"]
    for (text, ids, has_bos), line in zip(texts, found.splitlines(), strict=True):
        got = json.loads(line)["ids"]
        n_equal += got == (ids if has_bos else bos + ids)
    put("texts with equal token ids", f"{n_equal} of {len(texts)}", "all", n_equal == len(texts))

fp16 = package("fp16") if set(parts) & {"logits", "perplexity", "fp16"} else None
if "logits" in parts:
    largest = same = positions = counted = right = 0
    for name in stated["prompts"]:
        get = lambda what: golden[f"{name}.{what}"]
        ids, greedy, margin = get("ids").tolist(), get("greedy").tolist(), get("greedy_margin")
        file, out = os.path.join(a.scratch, "ids.txt"), os.path.join(a.scratch, "logits.safetensors")
        open(file, "w").write(",".join(map(str, ids + greedy[:-1])))
        run("logits", fp16, "--tokens", "@" + file, "-o", out, "--force", "-t", a.threads)
        logits = tensors(out)["logits"]
        for i, at in enumerate(get("positions")):
            row = logits[at]
            assert np.isfinite(row).all()
            largest = max(largest, float(np.abs(row[get("top_ids")[i]] - get("top")[i]).max()))
            same += int(row.argmax()) == int(get("top_ids")[i][0])
            positions += 1
        sure = np.flatnonzero(margin < MARGIN)
        n = int(sure[0]) if len(sure) else len(greedy)
        counted += n
        right += sum(int(logits[len(ids) - 1 + i].argmax()) == greedy[i] for i in range(n))
        del logits
        os.remove(out)
    cost = stated["weights_through_float16"]["max_abs_difference_of_stored_top_logits"]
    put(f"largest difference of the 20 best logits, {len(stated['prompts'])} prompts, {positions} positions", f"{largest:.4f}",
        f"{2 * cost:.4f}, twice what rounding the weights to fp16 costs", largest <= 2 * cost)
    put("the same best token", f"{same} of {positions}", "all", same == positions)
    put(f"greedy tokens up to the first margin below {MARGIN}", f"{right} of {counted}", "all", right == counted)

value = stated["perplexity"]["value"]
if "perplexity" in parts:
    p = perplexity(fp16)
    put("perplexity of the stated text, fp16 package", change(p), f"{value:.4f} within 0.1 %", abs(p / value - 1) <= 0.001)
if "fp16" in parts:
    p = perplexity(fp16, "--precision", "fp16")
    put("the same, `--precision fp16`", change(p), "within 1 %", math.isfinite(p) and abs(p / value - 1) <= 0.01)
if "widths" in parts:
    for bits in (8, 6, 4):
        folder = package(f"lut{bits}", "--lut-ffn", f"{bits},8", "--lut-head", f"{bits},8", "--no-verify")
        put(f"LUT{bits},8 of layers and head", change(perplexity(folder)))
if missed:
    sys.exit("outside the bar: " + "; ".join(missed))
