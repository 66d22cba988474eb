"""The Python binding against the command line and the expected values of tests/data: run by tests/cli/test_python.sh.

    check_binding.py MILKIT DATA PACKAGE [SHARED]  (in an empty folder)
"""

import json
import os
import struct
import subprocess
import sys
import threading
import zlib

import numpy as np

import milkit
import milkit.coremltools as ct

program, data, package_folder = sys.argv[1:4]
failed = 0


def fail(text):
    global failed
    failed += 1
    print("FAILED:", text)


def expect(condition, text):
    if not condition:
        fail(text)


def expect_error(kind, words, call, *arguments, **options):
    try:
        call(*arguments, **options)
    except kind as error:
        expect(words in str(error), f"expected '{words}', found '{error}'")
        return
    except Exception as error:  # another class
        fail(f"expected {kind.__name__}, found {type(error).__name__}: {error}")
        return
    fail(f"no {kind.__name__} with '{words}'")


def write_safetensors(path, tensors):
    types = {"float32": "F32", "float16": "F16", "int32": "I32", "int8": "I8", "uint8": "U8", "bool": "BOOL", "int16": "I16", "float64": "F64"}
    header, body = {}, b""
    for name, value in tensors.items():
        data = np.ascontiguousarray(value).tobytes()
        header[name] = {"dtype": types[value.dtype.name], "shape": list(value.shape), "data_offsets": [len(body), len(body) + len(data)]}
        body += data
    text = json.dumps(header).encode()
    with open(path, "wb") as f:
        f.write(len(text).to_bytes(8, "little") + text + body)


def read_safetensors(path):
    types = {"F32": np.float32, "F16": np.float16, "I32": np.int32, "I8": np.int8, "U8": np.uint8, "BOOL": np.bool_, "I16": np.int16, "F64": np.float64, "I64": np.int64}
    with open(path, "rb") as f:
        (n,) = struct.unpack("<Q", f.read(8))
        header = json.loads(f.read(n))
        body = f.read()
    out = {}
    for name, t in header.items():
        if name != "__metadata__":
            begin, end = t["data_offsets"]
            out[name] = np.frombuffer(body[begin:end], types[t["dtype"]]).reshape(t["shape"])
    return out


# ---- every program of the collection whose values are stored, within its tolerance, through both doors ----
ops = os.path.join(data, "ops")
n_programs = 0
with open(os.path.join(ops, "index.json")) as f:
    entries = json.load(f)["entries"]
for entry in entries:
    if entry["calls"] != 1 or entry.get("error_calls"):
        continue
    path = os.path.join(ops, entry["name"] + ".mlpackage")
    tensors = read_safetensors(os.path.join(ops, entry["name"] + ".safetensors"))
    inputs = {k[3:]: v for k, v in tensors.items() if k.startswith("in.")}
    wanted = {k[4:]: v for k, v in tensors.items() if k.startswith("out.")}
    model = milkit.Model(path)
    if model.function().states:
        continue
    n_programs += 1
    found = model.predict(inputs)
    for name, value in wanted.items():
        a, b = found[name].astype(np.float64), value.astype(np.float64)
        expect(a.shape == b.shape, f"{entry['name']}: output {name} has the shape {a.shape}, expected {b.shape}")
        with np.errstate(invalid="ignore"):
            same = (np.abs(a - b) <= entry["atol"] + entry["rtol"] * np.abs(b)) | (a == b) | (np.isnan(a) & np.isnan(b))
        expect(same.all(), f"{entry['name']}: output {name} differs")
    if all(v.dtype in (np.float32, np.float16, np.int32, np.float64) for v in inputs.values()) and all(v.ndim for v in inputs.values()):
        other = ct.MLModel(path).predict(dict(inputs))
        for name, value in found.items():
            expect(other[name].dtype != np.float16, f"{entry['name']}: the stand-in gives fp16")
            expect(np.array_equal(other[name].ravel(), value.astype(other[name].dtype).ravel(), equal_nan=other[name].dtype.kind == "f"),
                   f"{entry['name']}: the stand-in gives other numbers for {name}")
    if n_programs % 4 == 1:  # the command line, which is a client of the C library, gives the same bits
        write_safetensors("in.safetensors", inputs)
        subprocess.run([program, "predict", path, "--in", "in.safetensors", "-o", "out.safetensors", "--force", "-q"], check=True, capture_output=True)
        said = read_safetensors("out.safetensors")
        for name, value in found.items():
            expect(said[name].tobytes() == value.tobytes(), f"{entry['name']}: the command line and Python differ in {name}")
expect(n_programs >= 10, f"only {n_programs} programs were run")

# ---- ids, logits and text are those of the command line ----
package = milkit.Package(package_folder)
prompt = "In the beginning"
ids = package.tokenizer.encode(prompt)
text = "".join(package.generate(prompt, max_tokens=12, greedy=True))
said = subprocess.run([program, "run", package_folder, "-p", prompt, "-n", "12", "--greedy", "-q"], capture_output=True, text=True)
expect(text.strip() and text.strip() in said.stdout, f"run says {said.stdout!r}, Python {text!r}")
expect(package.tokenizer.decode(ids) == prompt, "a text does not come back from its ids")
with package.session() as session:
    session.sync(ids)
    first = session.logits
    session.save("state")
    session.step(ids[0])
    expect(session.tokens == ids + [ids[0]], "a step does not append its token")
    session.load("state")
    expect(np.array_equal(session.logits, first), "a loaded state has other logits")
    expect(session.sync(ids + [5]) == len(ids), "a known prefix is computed again")
subprocess.run([program, "logits", package_folder, "--tokens", ",".join(map(str, ids)), "-o", "logits.safetensors", "-q"], check=False, capture_output=True)
if os.path.exists("logits.safetensors"):
    rows = read_safetensors("logits.safetensors")["logits"]
    expect(np.array_equal(rows.reshape(-1, first.size)[-1].astype(np.float32), first), "logits of Python and the command line differ")
else:
    fail("milkit logits wrote nothing")

# ---- states ----
chunk = next(os.path.join(package_folder, n) for n in sorted(os.listdir(package_folder)) if "_FFN_PF_" in n and n.endswith(".mlpackage"))
function = milkit.Model(chunk).function("infer")
state = function.state()
name = state.names()[0]
zeros = state.read(name)
expect(not zeros.any() and zeros.dtype == np.float16, "a new state is not zeros")
zeros[...] = 1
state.write(name, zeros)
expect((state.read(name) == 1).all(), "a state does not hold what was written")
loaded = ct.MLModel(chunk, function_name="infer")
other = loaded.make_state()
expect(name in repr(other), "the printed form of a state does not name its states")
other.write_state(name, zeros.astype(np.float32))
expect((other.read_state(name) == 1).all() and other.read_state(name).dtype == np.float32, "write_state and read_state")

# ---- images, labels, defaults ----
features = os.path.join(os.path.dirname(ops), "features")
pixels = np.arange(24, dtype=np.uint8).reshape(2, 4, 3) * 5
for layout in ("rgb", "bgr"):
    painter = milkit.Model(os.path.join(features, f"image_{layout}.mlpackage")).function()
    expect(painter.inputs[0].color == layout.upper(), "the colours of an image")
    order = slice(None) if layout == "rgb" else slice(None, None, -1)
    planes = (2.0 * pixels[:, :, order] + np.array([1, 0, -3])) * np.array([1, 2, 3])
    wanted = np.clip(planes, 0, 255)[:, :, order].astype(np.uint8)
    expect(np.array_equal(painter.predict({"x": pixels})["y"], wanted), f"an image {layout}")
    expect(np.array_equal(painter.predict({"x": pixels.transpose(2, 0, 1)[order][None].astype(np.float32)})["y"], wanted), "an image as a tensor")
    expect(np.array_equal(painter.predict({"x": pixels[::-1]})["y"], wanted[::-1]), "an image with strides")
    try:
        from PIL import Image
    except ImportError:
        print("no PIL: images of coremltools' kind are not tested")
        continue
    plain = ct.MLModel(os.path.join(features, f"image_{layout}.mlpackage"))
    found = plain.predict({"x": Image.fromarray(pixels)})["y"]
    expect(found.mode == "RGBA" and np.array_equal(np.asarray(found)[:, :, :3], wanted), "a PIL image")
    expect_error(TypeError, "PIL image of the mode RGB", plain.predict, {"x": pixels})
out = milkit.Model(os.path.join(features, "classifier_text.mlpackage")).predict({"x": [[0, 2, 1]]})
expect(out["classLabel"] == "dog" and max(out["classLabel_probs"], key=out["classLabel_probs"].get) == "dog", f"a classifier: {out}")
expect(ct.MLModel(os.path.join(features, "classifier_text.mlpackage")).predict({"x": np.float32([[3, 2, 1]])})["classLabel"] == "cat", "a label")
painter = milkit.Model(os.path.join(features, "optional.mlpackage")).function()
expect(painter.inputs[1].is_optional and painter.predict({"x": [1, 2]})["y"].tolist() == [2.5, 3.5], "an optional input")

# ---- what can be wrong, with the classes of coremltools ----
one = os.path.join(ops, "add_int32.mlpackage")
expect_error(milkit.Error, "no function", milkit.Model(one).function, "train")
expect_error(milkit.Error, "needs the input", milkit.Model(one).predict, {})
expect_error(TypeError, "path", ct.MLModel, 3)
expect_error(TypeError, "compute_units", ct.MLModel, one, compute_units="ALL")
expect_error(ValueError, "not found in the model", ct.MLModel, one, function_name="train")
expect_error(KeyError, "does not match any", ct.MLModel(one).predict, {"nothing": np.zeros(1)})
expect_error(TypeError, "dictionary", ct.MLModel(one).predict, 5)
expect_error(RuntimeError, "needs the input", ct.MLModel(one).predict, {})
expect_error(TypeError, "str", ct.CompiledMLModel, 3)
expect_error(RuntimeError, "", ct.CompiledMLModel, "nothing.mlmodelc")
expect_error(milkit.Error, "nothing.mlpackage", milkit.Model, "nothing.mlpackage")
expect_error(ValueError, "closed", lambda m: (m.close(), m.predict({})), milkit.Model(one))

# ---- a compiled form gives the same bits; list means batch ----
milkit.compile_model(chunk, "chunk.mlmodelc")
rng = np.random.default_rng(1)
inputs = {p.name: (rng.standard_normal(p.shape) if np.dtype(p.dtype).kind == "f" else np.zeros(p.shape)).astype(np.float32) for p in function.inputs}
a = ct.MLModel(chunk, function_name="infer")
b = ct.CompiledMLModel(os.path.abspath("chunk.mlmodelc"), function_name="infer")
x, y = a.predict(dict(inputs), a.make_state()), b.predict(dict(inputs), b.make_state())
expect(all(np.array_equal(x[k], y[k]) for k in x), "package and compiled model differ")

# ---- eight threads on one function: the results of one alone ----
head = next(os.path.join(package_folder, n) for n in sorted(os.listdir(package_folder)) if "lm_head" in n and n.endswith(".mlpackage"))
function = milkit.Model(head).function()
inputs = [{function.inputs[0].name: rng.standard_normal(function.inputs[0].shape).astype(np.float32)} for _ in range(8)]
alone = [function.predict(i) for i in inputs]
together = [None] * 8


def work(k):
    for _ in range(5):
        together[k] = function.predict(inputs[k])


threads = [threading.Thread(target=work, args=(k,)) for k in range(8)]
for t in threads:
    t.start()
for t in threads:
    t.join()
expect(all(np.array_equal(a[n], b[n]) for a, b in zip(alone, together) for n in a), "threads change results")



# ---- a package and Apple's compilation of it give the same bits; quantized forms stay near the float one ----
def random_inputs(function):
    out = {}
    for p in function.inputs:
        numbers = np.random.default_rng(zlib.crc32(p.name.encode())).standard_normal(p.shape) * 0.1
        out[p.name] = numbers.astype(np.float32) if np.dtype(p.dtype).kind == "f" else np.zeros(p.shape, np.int32)
    return out


def predict_file(path):
    with milkit.Model(path) as model:
        function = model.function()
        return function.predict(random_inputs(function), function.state() if function.states else None)


shared = sys.argv[4] if len(sys.argv) > 4 else ""
pairs = os.path.join(shared, "corpus", "pairs")
if shared and os.path.isdir(pairs):
    n_pairs, floats = 0, None
    for pair in sorted(os.listdir(pairs)):
        forms = [f for f in sorted(os.listdir(os.path.join(pairs, pair))) if f.rsplit(".", 1)[-1] in ("mlmodelc", "mlpackage", "mlmodel")]
        found = [predict_file(os.path.join(pairs, pair, form)) for form in forms]
        expect(len(found) == 2, f"{pair}: {forms}")
        expect(all(np.array_equal(found[0][k], found[1][k]) for k in found[0]), f"{pair}: the two forms differ")
        if pair.startswith("silero"):
            floats = found[0]
        elif floats and ("8bit" in pair or "int8" in pair):
            expect(all(np.corrcoef(found[0][k].ravel(), floats[k].ravel())[0, 1] > 0.8 for k in floats if floats[k].size > 1),
                   f"{pair}: far from the float form")
        n_pairs += 1
    print(f"{n_pairs} pairs of forms")
else:
    print("skipped: pairs of forms lie beside the tree")

print(f"{n_programs} programs, {failed} failures")
sys.exit(failed != 0)
