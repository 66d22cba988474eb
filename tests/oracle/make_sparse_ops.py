"""Packages whose weights are pruned and then palettized or quantized, with inputs and expected outputs, for tests/data/ops.

    python make_sparse_ops.py FOLDER

Needs coremltools 9 and numpy; run by hand. Every program is a linear or conv layer whose weight comes from
constexpr_lut_to_sparse and constexpr_sparse_blockwise_shift_scale, alone and behind one another, built op by op with an
empty pass pipeline. The dense weight is what coremltools' own decompression makes of the parameters; the layer is
computed in float64 with numpy. Prints the entries for index.json.
"""
import json
import os
import struct
import sys
import warnings

warnings.filterwarnings("ignore")
import coremltools as ct
import numpy as np
from coremltools.converters.mil.mil import Builder as mb
from coremltools.converters.mil.mil import types
from coremltools.converters.mil.mil.ops.defs.iOS18.compression import (
    constexpr_blockwise_shift_scale, constexpr_lut_to_sparse, constexpr_sparse_blockwise_shift_scale)

ROWS, COLUMNS = 8, 12
rng = np.random.default_rng(14)


def halves(*shape):
    return rng.standard_normal(shape).astype(np.float16)


def mask_of(*shape):
    mask = (rng.random(shape) < 0.4).astype(types.np_uint1_dtype)
    mask.reshape(-1)[:2] = (0, 1)
    return mask


def integers(dtype, low, high, n):
    return rng.integers(low, high, n).astype(dtype)


def kept(mask):
    return int((mask != 0).sum())


def scattered(mask, values):
    out = np.zeros(mask.shape, np.float64)
    out[mask != 0] = values
    return out


# Each returns the variables (mask, kept elements) of the last op, and the dense weight by coremltools' decompression.
def grouped_table():
    """3-bit tables of two rows each"""
    mask = mask_of(ROWS, COLUMNS)
    indices, lut = integers(types.np_uint3_dtype, 0, 8, kept(mask)), halves(ROWS // 2, 1, 8, 1)
    want = constexpr_lut_to_sparse.decompress(mask, indices, lut, None)
    return mb.constexpr_lut_to_sparse(indices_mask=mask, indices_nonzero_data=indices, lut=lut), want


def vector_table(axis):
    """4-bit tables of vectors of two along one axis"""
    mask = mask_of(ROWS // 2, COLUMNS) if axis == 0 else mask_of(ROWS, COLUMNS // 2)
    indices, lut = integers(types.np_uint4_dtype, 0, 16, kept(mask)), halves(2, 1, 16, 2)
    want = constexpr_lut_to_sparse.decompress(mask, indices, lut, np.int32(axis))
    return mb.constexpr_lut_to_sparse(indices_mask=mask, indices_nonzero_data=indices, lut=lut,
                                      vector_axis=np.int32(axis)), want


def quantized_table():
    """the table itself is int8 with a scale"""
    mask = mask_of(ROWS, COLUMNS)
    indices = integers(types.np_uint4_dtype, 0, 16, kept(mask))
    data, scale = integers(np.int8, -128, 128, 16).reshape(1, 1, 16, 1), np.float16(0.02).reshape(1, 1, 1, 1)
    lut = constexpr_blockwise_shift_scale.decompress(data, scale, None)
    want = constexpr_lut_to_sparse.decompress(mask, indices, lut, None)
    table = mb.constexpr_blockwise_shift_scale(data=data, scale=scale)
    return mb.constexpr_lut_to_sparse(indices_mask=mask, indices_nonzero_data=indices, lut=table), want


def blocks_with_offset():
    """int4, blocks of three columns, an offset each"""
    mask = mask_of(ROWS, COLUMNS)
    data, scale = integers(types.np_int4_dtype, -8, 8, kept(mask)), np.abs(halves(ROWS, COLUMNS // 3))
    offset = integers(types.np_int4_dtype, -8, 8, scale.size).reshape(scale.shape)
    want = constexpr_sparse_blockwise_shift_scale.decompress(mask, data, scale, offset)
    return mb.constexpr_sparse_blockwise_shift_scale(data_mask=mask, nonzero_data=data, scale=scale,
                                                     offset=offset), want


def table_and_scale():
    """a table of int8 behind a scale a row: pruned, palettized and quantized"""
    mask = mask_of(ROWS, COLUMNS)
    indices = integers(types.np_uint4_dtype, 0, 16, kept(mask))
    lut, scale = integers(np.int8, -128, 128, 16).reshape(1, 1, 16, 1), np.abs(halves(ROWS, 1)) / np.float16(64)
    inner = constexpr_lut_to_sparse.decompress(mask, indices, lut, None)
    want = constexpr_sparse_blockwise_shift_scale.decompress(*inner, scale, None)
    wide, values = mb.constexpr_lut_to_sparse(indices_mask=mask, indices_nonzero_data=indices, lut=lut)
    return mb.constexpr_sparse_blockwise_shift_scale(data_mask=wide, nonzero_data=values, scale=scale), want


def write_safetensors(path, tensors):
    names = {np.dtype("float16"): "F16", np.dtype("float32"): "F32"}
    header, blob = {}, b""
    for name, t in tensors.items():
        header[name] = {"dtype": names[t.dtype], "shape": list(t.shape),
                        "data_offsets": [len(blob), len(blob) + t.nbytes]}
        blob += t.tobytes()
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text + blob)


def make(folder, name, weight, as_conv):
    shape = (1, COLUMNS, 1, 3) if as_conv else (2, COLUMNS)
    dense = {}

    @mb.program(input_specs=[mb.TensorSpec(shape, dtype=types.fp16)], opset_version=ct.target.iOS18)
    def program(x):
        (mask, values), want = weight()
        dense["w"] = scattered(*want)
        w = mb.constexpr_sparse_to_dense(nonzero_data=values, mask=mask)
        if as_conv:
            w = mb.reshape(x=w, shape=(ROWS, COLUMNS, 1, 1))
            return mb.conv(x=x, weight=w, name="y")
        return mb.linear(x=x, weight=w, name="y")

    model = ct.convert(program, minimum_deployment_target=ct.target.iOS18, skip_model_load=True,
                       pass_pipeline=ct.PassPipeline.EMPTY)
    model.save(os.path.join(folder, name + ".mlpackage"))
    x = halves(*shape)
    w, x64 = dense["w"], x.astype(np.float64)
    y = np.einsum("oi,bihw->bohw", w, x64) if as_conv else x64 @ w.T
    size = np.abs(w).sum(1).max() * np.abs(x64).max()
    write_safetensors(os.path.join(folder, name + ".safetensors"), {"in.x": x, "out.y": y.astype(np.float32)})
    ops = [op.op_type for op in program.functions["main"].operations if op.op_type != "const"]
    return {"name": name, "calls": 1, "ops": list(dict.fromkeys(ops)), "tolerance": "acc",
            "atol": float(size * 2.0 ** -10), "rtol": 2.0 ** -8,
            "provenance": "coremltools' decompression, then numpy float64"}


def main():
    folder = sys.argv[1]
    cases = {"sparse_lut3_groups": grouped_table, "sparse_lut4_vectors_axis0": lambda: vector_table(0),
             "sparse_lut4_vectors_axis1": lambda: vector_table(1), "sparse_lut4_of_int8_table": quantized_table,
             "sparse_int4_blocks_offset": blocks_with_offset, "sparse_lut4_then_scale": table_and_scale}
    entries = [make(folder, name + "_fp16", weight, False) for name, weight in cases.items()]
    entries.append(make(folder, "sparse_lut3_groups_reshaped_fp16", grouped_table, True))
    print(",\n".join("  " + json.dumps(entry, indent=1).replace("\n", "\n  ") for entry in entries))


main()
