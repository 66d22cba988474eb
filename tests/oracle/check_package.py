"""Does coremltools agree with a package that milkit wrote?

    python check_package.py PACKAGE CHECKPOINT

Needs coremltools and numpy; run by hand, never by the test suite. For every .mlpackage: the specification loads, its
program is parsed back by coremltools' own reader, function by function (types of all results are inferred again there and
compared with the declared ones), the description names what the functions take and give, and every weight that comes from a
checkpoint tensor equals that tensor rounded to fp16 (Gemma's tables: exactly the tensor times a factor, which together
with the factor behind the lookup is the root of the size). For every .mlmodelc beside it: the weight file is the same.
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


def checkpoint_tensors(folder):
    config = json.load(open(os.path.join(folder, "config.json")))
    text = config.get("text_config") or config
    roots = {}
    if config["model_type"].startswith("gemma4"):
        roots = {"embed_tokens.weight": text["hidden_size"],
                 "embed_tokens_per_layer.weight": text["hidden_size_per_layer_input"]}
    out = {}
    for path in sorted(glob.glob(os.path.join(folder, "*.safetensors"))):
        if os.path.basename(path).startswith("golden"):
            continue
        with open(path, "rb") as f:
            n = struct.unpack("<Q", f.read(8))[0]
            header = json.loads(f.read(n))
        data = np.memmap(path, np.uint8, "r", 8 + n)
        for name, t in header.items():
            if name == "__metadata__":
                continue
            raw = data[t["data_offsets"][0] : t["data_offsets"][1]]
            if t["dtype"] == "BF16":
                v = (raw.view("<u2").astype(np.uint32) << 16).view(np.float32)
            else:
                v = raw.view({"F16": "<f2", "F32": "<f4", "F64": "<f8"}[t["dtype"]])
            v = v.reshape(t["shape"])
            out[name] = v.astype(np.float16)
            if name.split(".", 1)[-1].removeprefix("language_model.") in roots:
                n = roots[name.split(".", 1)[-1].removeprefix("language_model.")]
                out["scaled " + name] = (v.astype(np.float64), n**0.5)
    return out


def read_plain(checkpoint):
    """Every float tensor, as float64."""
    out = {}
    for path in glob.glob(os.path.join(checkpoint, "model*.safetensors")):
        with open(path, "rb") as f:
            header = json.loads(f.read(struct.unpack("<Q", f.read(8))[0]))
            data = np.frombuffer(f.read(), np.uint8)
        for name, t in header.items():
            if name != "__metadata__":
                raw = data[t["data_offsets"][0] : t["data_offsets"][1]]
                bf16 = t["dtype"] == "BF16"
                v = (raw.view("<u2").astype(np.uint32) << 16).view(np.float32) if bf16 else raw.view({"F16": "<f2", "F32": "<f4"}[t["dtype"]])
                out[name] = v.astype(np.float64).reshape(t["shape"])
    return out


def tensor_of(const_name, tensors):
    """model.layers.0.self_attn.q_proj.weight of layers_0_self_attn_q_proj_weight"""
    if not hasattr(tensor_of, "names"):
        plain = lambda n: n.removeprefix("model.").removeprefix("language_model.").replace(".", "_")
        tensor_of.names = {plain(n): n for n in tensors if not n.startswith("scaled ")}
        for n in tensors:
            if n.startswith("scaled "):
                tensor_of.names[plain(n.removeprefix("scaled "))] = n
    return tensor_of.names.get(const_name)


def qwen3_5_weights(checkpoint):
    """Name of a constant -> what it must hold, for weights that are not a tensor as it lies."""
    config = json.load(open(os.path.join(checkpoint, "config.json")))
    if not config["model_type"].startswith("qwen3_5"):
        return {}
    heads, dim = (config.get("text_config", config)[k] for k in ("num_attention_heads", "head_dim"))
    half = lambda v: v.astype(np.float16)
    out, experts = {}, {}
    for name, v in read_plain(checkpoint).items():
        plain = name.removeprefix("model.").removeprefix("language_model.").replace(".", "_")
        layer = "_".join(plain.split("_")[:2])
        norms = ("layernorm_weight", "q_norm_weight", "k_norm_weight")
        if plain.endswith(norms) or plain == "norm_weight":
            out[plain] = half(v + 1)
            out[plain + "_rest"] = half(v + 1 - out[plain].astype(v.dtype))
        elif "self_attn_q_proj" in plain:
            parts = v.reshape(heads, 2, dim, -1)
            out[plain] = half(parts[:, 0])
            out[plain.replace("q_proj", "gate_proj")] = half(parts[:, 1] / 2)
        elif plain.endswith("in_proj_b_weight") or plain.endswith("shared_expert_gate_weight"):
            out[plain] = half(v / 2)
        elif plain.endswith("A_log"):
            out[layer + "_linear_attn_decay_rate"] = half(-np.exp(v))
        elif plain.endswith("dt_bias"):
            out[layer + "_linear_attn_in_proj_a_bias"] = half(v)
        elif plain.endswith("conv1d_weight"):
            for t in range(v.shape[2]):
                out[f"{plain}_{t}"] = half(v[:, 0, t])
        elif plain.endswith("mlp_gate_weight"):
            out[layer + "_mlp_router_weight"] = half(v)
        elif plain.endswith("experts_gate_up_proj"):
            width = v.shape[1] // 2
            out[layer + "_mlp_experts_gate_proj_weight"] = half(v[:, :width])
            out[layer + "_mlp_experts_up_proj_weight"] = half(v[:, width:])
        elif plain.endswith("experts_down_proj"):
            out[layer + "_mlp_experts_down_proj_weight"] = half(v.transpose(1, 0, 2))
        elif ".mlp.experts." in name:
            number, what = name.split(".mlp.experts.")[1].split(".", 1)
            experts.setdefault((layer, what), {})[int(number)] = v
    for (layer, what), each in experts.items():
        rows = np.stack([each[i] for i in range(len(each))])
        rows = rows.transpose(1, 0, 2) if what.startswith("down") else rows
        out[f"{layer}_mlp_experts_{what.replace('.', '_')}"] = half(rows)
    return out


def chunk_constant(name, shape):
    """The masks of the chunked delta rule and the order of experts."""
    i, j = np.arange(shape[-2])[:, None], np.arange(shape[-1])[None]
    if name == "expert_order":
        return np.broadcast_to(np.arange(shape[1], 0, -1.0)[None, :, None, None], shape)
    if name.startswith("chunk_level_"):
        b = 2 ** int(name.removeprefix("chunk_level_"))
        return (i // (2 * b) == j // (2 * b)) & (i // b % 2 == 1) & (j // b % 2 == 0)
    return {"chunk_through": j <= i, "chunk_before": j < i, "chunk_after": i > j, "chunk_identity": i == j}.get(name)


# Constants that are not weights, by name: what they must hold.
GRAPH_CONSTANTS = {"local_keys": np.arange, "zeros": np.zeros, "empty_block": np.zeros}


def embedding_table(tensors):
    return next(v for n, v in tensors.items() if n.endswith("embed_tokens.weight") and not n.startswith("scaled "))


def head_rows(const_name, tensors, seen):
    """Part i of the head: rows follow one another."""
    if not const_name.startswith("lm_head_"):
        return None
    return tensors.get("lm_head.weight", embedding_table(tensors))


def check_scaled(op, stored, root):
    """A table is the tensor times a factor of at most three bits, rounded where fp16 has no room; a product with a constant
    behind the lookup has the rest of the root."""
    v = op.val.val.reshape(stored.shape)
    gather = next(o for o in op.outputs[0].child_ops if o.op_type == "gather")
    after = [o for o in gather.outputs[0].child_ops if o.op_type == "mul" and o.y.val is not None and np.size(o.y.val) == 1]
    left = float(after[0].y.val) if after else 1.0
    m, e = np.frexp(root / left)
    factor = np.round(m * 8) / 8 * 2.0**e
    assert abs(factor * left / root - 1) <= 2.0**-11, (op.name, factor, left, root)
    assert (v == (stored * factor).astype(np.float16)).all(), (op.name, factor, left)


def check(path, tensors, special):
    model = ct.models.MLModel(path, skip_model_load=True)
    spec = model.get_spec()
    assert spec.specificationVersion == 9, spec.specificationVersion
    weights_dir = os.path.join(path, "Data/com.apple.CoreML/weights")
    program = milproto.load(spec, specification_version=9, file_weights_dir=weights_dir)
    described = {f.name: f for f in spec.description.functions} or {"main": spec.description}
    assert set(program.functions) == set(described), (list(program.functions), list(described))
    n_weights = n_ops = row = 0
    for name, function in program.functions.items():
        d = described[name]
        states = [s.name for s in d.state] if hasattr(d, "state") else []
        assert [i.name for i in d.input] + states == list(function.inputs), name
        assert [o.name for o in d.output] == [o.name for o in function.outputs], name
        for op in function.operations:
            n_ops += 1
            if op.op_type != "const" or not isinstance(op.val.val, np.ndarray) or op.val.val.size < 10:
                continue
            v, tensor = op.val.val, tensor_of(op.name, tensors)
            if op.name in GRAPH_CONSTANTS:
                assert (v == GRAPH_CONSTANTS[op.name](v.size).reshape(v.shape)).all(), op.name
                continue
            assert v.dtype == np.float16, (op.name, v.dtype)
            head = head_rows(op.name, tensors, row)
            mask = chunk_constant(op.name, v.shape) if v.ndim == 4 else None
            if mask is not None:
                assert (v.reshape(mask.shape) == mask).all(), op.name
                continue
            if tensor and tensor.startswith("scaled "):
                check_scaled(op, *tensors[tensor])
                n_weights += 1
                continue
            if op.name in special:
                expected = special[op.name]
            elif tensor:
                expected = tensors[tensor]
            elif head is not None:
                expected = head[row : row + v.shape[0]]
                row += v.shape[0]
            else:
                assert op.name.startswith("rope_"), op.name
                continue
            same = v.reshape(-1).view(np.uint16) == expected.reshape(-1).view(np.uint16)
            assert same.all(), (op.name, int((~same).sum()))
            n_weights += 1
        # What the program declares is what the reader infers.
        declared = spec.mlProgram.functions[name].block_specializations["CoreML8"].operations
        types = {o.name: o.type for op in declared for o in op.outputs}
        for op in function.operations:
            for o in op.outputs:
                if o.name in types and types[o.name].HasField("tensorType"):
                    dims = [x.constant.size if x.HasField("constant") else None for x in types[o.name].tensorType.dimensions]
                    assert len(dims) == len(o.shape), (o.name, dims, o.shape)
                    for a, b in zip(dims, o.shape):
                        assert a is None or not isinstance(b, (int, np.integer)) or a == b, (o.name, dims, o.shape)
    if row:
        assert row == embedding_table(tensors).shape[0], row
    compiled = path.removesuffix(".mlpackage") + ".mlmodelc"
    if os.path.isdir(compiled):
        a = open(os.path.join(weights_dir, "weight.bin"), "rb").read()
        b = open(os.path.join(compiled, "weights/weight.bin"), "rb").read()
        assert a == b, compiled
    print(f"{os.path.basename(path)}: functions {', '.join(program.functions)}, {n_ops} ops, {n_weights} weights equal")
    return n_weights


def main():
    package, checkpoint = sys.argv[1:3]
    tensors, special = checkpoint_tensors(checkpoint), qwen3_5_weights(checkpoint)
    parts = sorted(glob.glob(os.path.join(package, "*.mlpackage")))
    assert len(parts) >= 3, parts
    assert sum(check(p, tensors, special) for p in parts) > 0


main()
