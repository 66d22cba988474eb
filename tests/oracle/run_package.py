"""Runs a package that milkit wrote, op by op in numpy, and compares with the checkpoint's golden numbers.

    python run_package.py PACKAGE CHECKPOINT [PROMPT] [--half] [--splits]

Needs coremltools (to read the programs) and numpy; run by hand. Shares no code with milkit: the programs are parsed by
coremltools and every op is one numpy expression here, in float32, with --half rounded to fp16 after every op. Prints how
far the logits of all positions that the golden file names are, by one-token calls and by the contract's call sequence,
and the states where the golden file has them. Constants are the package's fp16 ones, also in float32. A mixture of
experts is compared where every choice of experts so far was clear (prompts five and long). --splits (a batch size that
fits into the prompt four times) checks that a batch may start anywhere.
"""
import glob
import json
import logging
import os
import struct
import sys
import warnings

warnings.filterwarnings("ignore")
logging.disable(logging.WARNING)
import numpy as np
import coremltools as ct
from coremltools.converters.mil.frontend.milproto import load as milproto


def read_safetensors(path):
    with open(path, "rb") as f:
        n = struct.unpack("<Q", f.read(8))[0]
        header = json.loads(f.read(n))
        data = f.read()
    kinds = {"F32": "<f4", "I32": "<i4", "I64": "<i8", "F16": "<f2"}
    out = {}
    for name, t in header.items():
        if name != "__metadata__" and t["dtype"] in kinds:
            a, b = t["data_offsets"]
            out[name] = np.frombuffer(data[a:b], kinds[t["dtype"]]).reshape(t["shape"])
    return out


def layer_norm(a):
    x, axes = a["x"], tuple(a["axes"])
    m = x.mean(axes, keepdims=True)
    return (x - m) / np.sqrt(((x - m) ** 2).mean(axes, keepdims=True) + a["epsilon"])


def conv(a):
    assert a["weight"].shape[2:] == (1, 1)
    y = np.einsum("oi,nit->not", a["weight"][:, :, 0, 0], a["x"][:, :, 0, :])[:, :, None, :]
    return y if a.get("bias") is None else y + a["bias"][None, :, None, None]


def softmax(a):
    e = np.exp(a["x"] - a["x"].max(a["axis"], keepdims=True))
    return e / e.sum(a["axis"], keepdims=True)


def matmul(a):
    x = np.swapaxes(a["x"], -1, -2) if a["transpose_x"] else a["x"]
    return np.matmul(x, np.swapaxes(a["y"], -1, -2) if a["transpose_y"] else a["y"])


def window(a):
    open_begin, open_end = ([False] * 8 if a.get(k) is None else a[k] for k in ("begin_mask", "end_mask"))
    ends = zip(a["begin"], a["end"], open_begin, open_end)
    return tuple(slice(None if ob else int(b), None if oe else int(e)) for b, e, ob, oe in ends)


def slice_update(a):
    x = a["x"].copy()
    assert x[window(a)].shape == a["update"].shape
    x[window(a)] = a["update"]
    return x


OPS = {
    "add": lambda a: a["x"] + a["y"],
    "sub": lambda a: a["x"] - a["y"],
    "mul": lambda a: a["x"] * a["y"],
    "real_div": lambda a: a["x"] / a["y"],
    "floor_div": lambda a: a["x"] // a["y"],
    "mod": lambda a: a["x"] % a["y"],
    "maximum": lambda a: np.maximum(a["x"], a["y"]),
    "greater_equal": lambda a: a["x"] >= a["y"],
    "greater": lambda a: a["x"] > a["y"],
    "less_equal": lambda a: a["x"] <= a["y"],
    "equal": lambda a: a["x"] == a["y"],
    "logical_or": lambda a: a["x"] | a["y"],
    "select": lambda a: np.where(a["cond"], a["a"], a["b"]),
    "reduce_max": lambda a: a["x"].max(tuple(a["axes"]), keepdims=bool(a["keep_dims"])),
    "reduce_sum": lambda a: a["x"].sum(tuple(a["axes"]), keepdims=bool(a["keep_dims"])),
    "abs": lambda a: np.abs(a["x"]),
    "exp": lambda a: np.exp(a["x"]),
    "tanh": lambda a: np.tanh(a["x"]),
    "gather": lambda a: np.take(a["x"], a["indices"], a["axis"]),
    "reshape": lambda a: a["x"].reshape(a["shape"]),
    "transpose": lambda a: np.transpose(a["x"], a["perm"]),
    "expand_dims": lambda a: np.expand_dims(a["x"], tuple(a["axes"])),
    "squeeze": lambda a: np.squeeze(a["x"], tuple(a["axes"])),
    "concat": lambda a: np.concatenate(a["values"], a["axis"]),
    "tile": lambda a: np.tile(a["x"], a["reps"]),
    "slice_by_index": lambda a: a["x"][window(a)],
    "slice_update": slice_update,
    "layer_norm": layer_norm,
    "conv": conv,
    "softmax": softmax,
    "matmul": matmul,
}


def widen(v):
    v = np.asarray(v)
    return v.astype(np.float32) if v.dtype == np.float16 else v


def to_half(v):
    return v.astype(np.float16).astype(np.float32) if isinstance(v, np.ndarray) and v.dtype.kind == "f" else v


class Part:
    def __init__(self, path, half):
        self.half = half
        spec = ct.models.MLModel(path, skip_model_load=True).get_spec()
        weights = os.path.join(path, "Data/com.apple.CoreML/weights")
        self.functions = milproto.load(spec, specification_version=9, file_weights_dir=weights).functions
        self.consts = {}

    def run(self, function, inputs, state):
        """state: a dict of arrays by name, changed in place"""
        f = self.functions[function]
        values = {name: inputs.get(name) for name in f.inputs}
        kept = self.consts.setdefault(function, {})

        def get(v):
            if isinstance(v, (list, tuple)):
                return [get(x) for x in v]
            if v.name in values:
                return values[v.name]
            if v.name not in kept:
                kept[v.name] = v.val if isinstance(v.val, (str, bool)) or v.val is None else widen(v.val)
            return kept[v.name]

        for op in f.operations:
            if op.op_type == "const":
                continue
            args = {k: get(v) for k, v in op.inputs.items() if v is not None and op.op_type.find("state") < 0}
            if op.op_type == "read_state":
                result = state[op.inputs["input"].name]
            elif op.op_type in ("write_state", "coreml_update_state"):
                name = op.inputs["state" if "state" in op.inputs else "input"].name
                state[name] = get(op.inputs["value" if "value" in op.inputs else "data"])
                result = state[name]
            else:
                result = OPS[op.op_type](args)
                result = to_half(result) if self.half else result
            for o in op.outputs:
                values[o.name] = result
        return [get(o) for o in f.outputs]


class Package:
    def __init__(self, folder, ctx, batch, half):
        parts = {os.path.basename(p): Part(p, half) for p in sorted(glob.glob(os.path.join(folder, "*.mlpackage")))}
        self.embeddings = next(v for k, v in parts.items() if "_embeddings" in k)
        self.head = next(v for k, v in parts.items() if "_lm_head" in k)
        self.chunks = [v for k, v in parts.items() if "_FFN_PF" in k]
        self.ctx, self.batch = ctx, batch

    def fresh(self):
        f = next(iter(self.chunks[0].functions.values()))
        names = [n for n in f.inputs if n.startswith("model_model_")]
        return {n: np.zeros([int(d) for d in f.inputs[n].shape], np.float32) for n in names}

    def call(self, ids, p, state):
        t = len(ids)
        x, *more = self.embeddings.run("main", {"input_ids": np.asarray([ids], np.int32)}, {})
        pos = np.arange(p, p + t, dtype=np.int32)
        mask = np.where(np.arange(self.ctx)[None] <= pos[:, None], 0.0, -np.inf).astype(np.float32)[None, None]
        for c in self.chunks:
            inputs = {"hidden_states": x, "position_ids": pos, "causal_mask": mask, "current_pos": pos[:1]}
            inputs.update({"per_layer_inputs": v for v in more})
            x = c.run("infer" if t == 1 else "prefill", inputs, state)[0]
        return x

    def logits(self, x):
        return np.concatenate([y.reshape(-1) for y in self.head.run("main", {"hidden_states": x}, {})])


def cosine(a, b):
    a, b = a.reshape(-1).astype(np.float64), b.reshape(-1).astype(np.float64)
    return a @ b / np.sqrt((a @ a) * (b @ b))


def windowed_keys(cache, n_tokens, batch, of_values):
    """Rows of the positions that a cache holds after the last of n_tokens, and the first of those positions. A windowed
    cache holds position base + j in slot j."""
    n_kv, length = cache.shape[0] // 2, cache.shape[1]
    rows = cache[n_kv:] if of_values else cache[:n_kv]
    base = ((n_tokens - 1) // batch + 1) * batch - length
    assert not rows[:, n_tokens - base :].any(), "slots of positions that were not fed"
    first = max(base, 0)
    return rows[:, first - base : n_tokens - base], first


def check_states(golden, prompt, state, layer_types, all_clear, windowed_batch=None):
    """Cosines of what the golden file has of the first layer of each kind; of the very first one alone (no expert was
    chosen before it) unless all_clear."""
    full = [i for i, t in enumerate(layer_types) if t == "full"]
    linear = [i for i, t in enumerate(layer_types) if t == "linear"]
    for name in sorted(golden):
        if not name.startswith(prompt + ".layer") or "_out" in name:
            continue
        layer, what = name[len(prompt) + 6 :].split(".")
        expected, layer = golden[name], int(layer)
        if layer > 0 and not all_clear:
            continue
        if what in ("keys", "values") and "model_model_kv_cache_global" in state:
            kind = "global" if layer_types[layer] == "full" else "local"
            cache, n = state["model_model_kv_cache_" + kind][0], expected.shape[1]
            if kind == "local" and windowed_batch:
                got, first = windowed_keys(cache, n, windowed_batch, what == "values")
                expected = expected[:, first:]
            else:
                n_kv = cache.shape[0] // 2
                got = (cache[n_kv:] if what == "values" else cache[:n_kv])[:, :n]
        elif what in ("keys", "values"):
            slot = full.index(layer) + (len(full) if what == "values" else 0)
            got = state["model_model_kv_cache_0"][slot][:, : expected.shape[1]]
        elif what == "gdn_state":
            n, d_k = expected.shape[:2]
            got = state["model_model_gdn_state_0"][linear.index(layer) * n :][:n] / np.sqrt(d_k)
        else:
            got = state["model_model_conv_state_0"][linear.index(layer)]
        c = cosine(got, expected)
        print(f"  {name}: cosine {c:.7f}, largest difference {np.abs(got - expected).max():.1e}")
        assert c > 0.9999, name


def check_splits(m, ids):
    """Where a batch starts must not matter: r single tokens, then full batches, then single tokens, for every r below
    the batch size and two lengths, against single tokens alone. States too: a slot depends on its position only."""
    for n in (3 * m.batch, 4 * m.batch + m.batch // 2 + 1):
        expected, expected_state = None, m.fresh()
        for p in range(n):
            expected = m.call(ids[p : p + 1], p, expected_state)
        for r in range(m.batch):
            state, p = m.fresh(), 0
            while p < n:
                t = m.batch if p >= r and p + m.batch <= n else 1
                x = m.call(ids[p : p + t], p, state)
                p += t
            worst = max(np.abs(state[k] - expected_state[k]).max() for k in state)
            assert np.abs(x - expected).max() < 1e-2 and worst < 1e-2, (n, r, np.abs(x - expected).max(), worst)
    print(f"batches from every offset below {m.batch}: the same hidden states and caches")


def main():
    words = [w for w in sys.argv[1:] if not w.startswith("--")]
    half = "--half" in sys.argv
    splits = "--splits" in sys.argv
    package, checkpoint = words[:2]
    prompt = words[2] if len(words) > 2 else "five"
    meta = open(os.path.join(package, "meta.yaml")).read()
    number = lambda key: int(meta.split(key + ":")[1].split()[0])
    layer_types = meta.split("layer_types: [")[1].split("]")[0].split(", ") if "layer_types" in meta else []
    golden = read_safetensors(os.path.join(checkpoint, "golden.safetensors"))
    ids = [int(i) for i in golden[prompt + ".ids"].reshape(-1)]
    where = {int(p): row for p, row in zip(golden[prompt + ".positions"], golden[prompt + ".logits"])}
    clear = np.full(len(ids), np.inf)  # the smallest distance so far between the last chosen expert and the next one
    if "moe:" in meta:
        clear = golden[prompt + ".router_gap"].min(0)
    clear = np.minimum.accumulate(clear)
    m = Package(package, number("context_length"), number("batch_size"), half)
    if splits:
        check_splits(m, ids)
    for kind in ("one-token calls", "call sequence"):
        state, p, errors, cosines, agree = m.fresh(), 0, [], [], []
        while p < len(ids):
            t = m.batch if kind == "call sequence" and p + m.batch <= len(ids) else 1
            x = m.call(ids[p : p + t], p, state)
            p += t
            if p - 1 in where and clear[p - 1] > (0.01 if half else 1e-4):
                got, expected = m.logits(x), where[p - 1]
                errors.append(np.linalg.norm(got - expected) / np.linalg.norm(expected))
                cosines.append(cosine(got, expected))
                agree.append(int(got.argmax()) == int(expected.argmax()))
        if layer_types:
            check_states(golden, prompt, state, layer_types, min(clear) > (0.01 if half else 1e-4),
                         m.batch if "local_cache_length" in meta else None)
        if not errors:
            print(f"{prompt}, {kind}: no position to compare")
            continue
        print(f"{prompt}, {kind}: {len(errors)} positions, relative error up to {max(errors):.2e}, "
              f"cosine from {min(cosines):.7f}, mean {np.mean(cosines):.7f}, top-1 {np.mean(agree):.3f}")
        assert min(cosines) > (0.99 if half else 0.999) and np.mean(cosines) > (0.9995 if half else 0.9998)


main()
