"""Picks programs that coremltools_tests.py recorded, and writes them as a collection of tests/data/ops' form.

    make_op_fixtures.py RECORDED-FOLDER tests/data/ops-coremltools [NUMBER [PATTERN]]

With a PATTERN (a regular expression for the names of tests) those programs are added to the collection that is there. As many of each op as can be, the smallest first, so that every op that is there is among them. The expected values are those of
coremltools' own tests (numpy, scipy or torch), inputs those that the tests sent.
"""

import json
import os
import re
import shutil
import struct
import sys

import numpy as np

import milkit

recorded, into = sys.argv[1:3]
number = int(sys.argv[3]) if len(sys.argv) > 3 else 300
pattern = re.compile(sys.argv[4]) if len(sys.argv) > 4 else None
TYPES = {"float32": "F32", "float16": "F16", "int32": "I32", "int8": "I8", "uint8": "U8", "bool": "BOOL", "int16": "I16", "float64": "F64", "int64": "I64"}


def write_safetensors(path, tensors):
    header, body = {}, b""
    for name, value in tensors.items():
        value = np.ascontiguousarray(value)
        data = value.tobytes()
        header[name] = {"dtype": TYPES[value.dtype.name], "shape": list(value.shape), "data_offsets": [len(body), len(body) + len(data)]}
        body += data
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text + body)


def folder_bytes(path):
    return sum(os.path.getsize(os.path.join(d, f)) for d, _, files in os.walk(path) for f in files)


candidates = {}  # op -> [(bytes, name, ops)]
for name in sorted(os.listdir(recorded)):
    folder = os.path.join(recorded, name)
    if pattern and not pattern.search(name):
        continue
    if not os.path.exists(os.path.join(folder, "out.npz")):
        continue
    size = folder_bytes(folder)
    if size > 40000:
        continue
    histogram = {}
    for function in milkit.inspect(os.path.join(folder, "model.mlpackage"))["functions"]:
        histogram.update(function["histogram"])
    ops = sorted(op for op in histogram if op not in ("const", "cast", "identity"))
    if any(op.startswith("random") for op in ops) or not ops:
        continue
    candidates.setdefault("+".join(ops), []).append((size, name, ops, "cast" in histogram))

picked = []
round_number = 0
while len(picked) < number and any(len(c) > round_number for c in candidates.values()):
    for key in sorted(candidates):
        c = sorted(candidates[key])
        # spread over the sizes: the smallest first, then ones that differ
        if round_number < len(c) and len(picked) < number:
            order = sorted(range(len(c)), key=lambda i: (i * 7919) % len(c))
            picked.append(c[order[round_number]])
    round_number += 1

entries = []
if pattern:
    with open(os.path.join(into, "index.json")) as f:
        entries = json.load(f)["entries"]
    there = {e["provenance"] for e in entries}
    picked = [p for p in picked if "coremltools 9.0, " + p[1][:120] not in there]
else:
    shutil.rmtree(into, ignore_errors=True)
    os.makedirs(into)
for size, name, ops, has_casts in picked:
    folder = os.path.join(recorded, name)
    model = milkit.Model(os.path.join(folder, "model.mlpackage"))
    function = model.function()
    if function.states:
        continue
    short = "_".join(ops)[:40] + f"_{len(entries):03d}"
    tensors = {}
    ports = {p.name: p for p in function.inputs}
    for key, value in np.load(os.path.join(folder, "in.npz")).items():
        wanted = np.dtype(ports[key].dtype)
        if value.ndim == 0:
            value = value.reshape(1)  # as the framework takes a number
        tensors["in." + key] = (value != 0) if wanted == np.bool_ else value.astype(wanted)
    found = model.predict({k[3:]: v for k, v in tensors.items()})
    is_half = has_casts or any(v.dtype == np.float16 for v in found.values())  # computed in fp16 between casts
    for key, value in np.load(os.path.join(folder, "out.npz")).items():
        value = value.reshape(found[key].shape)
        tensors["out." + key] = value.astype(found[key].dtype) if value.dtype.kind in "iub" or found[key].dtype.kind in "iub" else value.astype(np.float32)
    shutil.copytree(os.path.join(folder, "model.mlpackage"), os.path.join(into, short + ".mlpackage"))
    write_safetensors(os.path.join(into, short + ".safetensors"), tensors)
    entries.append({
        "name": short, "calls": 1, "ops": ops, "tolerance": "round",
        "atol": 0.004 if is_half else 1e-4, "rtol": 0.01 if is_half else 1e-4,
        "provenance": "coremltools 9.0, " + name[:120],
    })
with open(os.path.join(into, "index.json"), "w") as f:
    json.dump({"format": 1, "entries": entries}, f, indent=1)
print(len(entries), "programs,", len(candidates), "combinations of ops")
