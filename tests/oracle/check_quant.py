"""Does coremltools read the palettes and integers of a package as milkit means them?

    python check_quant.py PACKAGE FP16_PACKAGE [REPORT.json]

Needs coremltools and numpy; run by hand, never by the test suite. PACKAGE is a quantized conversion, FP16_PACKAGE one of the
same checkpoint without quantization, REPORT what `milkit convert --report` wrote for PACKAGE. For every weight that expands
from codes: coremltools' codes and tables equal the bits in weight.bin by the format's own words, its expanded values equal
table[code] (or the fp16 product of scale and code), tables ascend, every palette code is the nearest entry of its table, and the error
against the fp16 weight is the one that the report states.
"""
import glob
import json
import logging
import os
import sys
import warnings

warnings.filterwarnings("ignore")
logging.disable(logging.WARNING)
import numpy as np
import coremltools as ct
from coremltools.converters.mil.frontend.milproto import load as milproto
from coremltools.proto import MIL_pb2 as mil

BITS = {mil.UINT1: 1, mil.UINT2: 2, mil.UINT3: 3, mil.UINT4: 4, mil.UINT6: 6, mil.UINT8: 8, mil.INT4: 4, mil.INT8: 8}


def read_raw(value, folder):
    """The elements of a blob, bit by bit from the file."""
    t = value.type.tensorType
    shape = [d.constant.size for d in t.dimensions]
    n = int(np.prod(shape))
    with open(os.path.join(folder, value.blobFileValue.fileName.removeprefix("@model_path/")), "rb") as f:
        f.seek(value.blobFileValue.offset)
        head = np.frombuffer(f.read(64), "<u8")
        assert int(head[0]) & 0xFFFFFFFF == 0xDEADBEEF
        f.seek(int(head[2]))
        raw = np.frombuffer(f.read(int(head[1])), np.uint8)
    if t.dataType == mil.FLOAT16:
        return raw.view("<f2").reshape(shape)
    bits = BITS[t.dataType]
    stream = np.unpackbits(raw, bitorder="little")[: n * bits].reshape(n, bits)
    codes = (stream.astype(np.int32) << np.arange(bits)).sum(1)
    if t.dataType in (mil.INT4, mil.INT8):
        codes -= (codes >> (bits - 1)) << bits
    return codes.reshape(shape)


def expand_grid(grid, shape):
    for axis, size in enumerate(shape):
        grid = np.repeat(grid, size // grid.shape[axis], axis)
    return grid


def check_palette(codes, lut, value, name):
    rank = codes.ndim
    table = lut[..., 0]
    assert (np.diff(table.astype(np.float32), axis=-1) >= 0).all(), f"{name}: a table does not ascend"
    groups = table.shape[0]
    flat = table.reshape(groups, -1)
    assert table.shape[1:rank] == (1,) * (rank - 1), f"{name}: groups along another axis than the first"
    rows = np.repeat(np.arange(groups), codes.shape[0] // groups)
    expected = flat[rows.reshape((-1,) + (1,) * (rank - 1)), codes]
    assert (expected.view(np.uint16) == value.view(np.uint16)).all(), f"{name}: expanded values differ"
    return flat, rows


def check_nearest(source, codes, flat, rows, name):
    w = source.reshape(len(rows), -1).astype(np.float64)
    c = codes.reshape(len(rows), -1)
    for i in range(len(rows)):
        t = flat[rows[i]].astype(np.float64)
        mine = np.abs(w[i] - t[c[i]])
        best = np.abs(w[i][:, None] - t[None]).min(1)
        assert (mine == best).all(), f"{name}: row {i} has a code that is not the nearest entry"


def sources_of(path):
    """Name of a constant -> its fp16 values."""
    spec = ct.models.MLModel(path, skip_model_load=True).get_spec()
    program = milproto.load(spec, 9, os.path.join(path, "Data/com.apple.CoreML/weights"))
    return {op.name: op.val.val for f in program.functions.values() for op in f.operations if op.op_type == "const"}


def check(path, fp16, errors):
    spec = ct.models.MLModel(path, skip_model_load=True).get_spec()
    folder = os.path.join(path, "Data/com.apple.CoreML")
    program = milproto.load(spec, 9, os.path.join(folder, "weights"))
    raw = {}
    for function in spec.mlProgram.functions.values():
        for op in function.block_specializations[function.opset].operations:
            if op.type.startswith("constexpr_"):
                raw[op.outputs[0].name] = {k: v.arguments[0].value for k, v in op.inputs.items()}
    sources = sources_of(fp16) if raw else {}
    done = set()
    stated = iter(errors)
    for function in program.functions.values():
        for op in function.operations:
            if not op.op_type.startswith("constexpr_"):
                continue
            name = op.outputs[0].name
            if name in done:
                continue
            done.add(name)
            value, source = op.materialized_val_inference(), sources[name]
            assert value.shape == source.shape and value.dtype == np.float16, name
            if op.op_type == "constexpr_lut_to_dense":
                codes, table = read_raw(raw[name]["indices"], folder), read_raw(raw[name]["lut"], folder)
                assert (codes == op.indices.val.astype(np.int32)).all(), f"{name}: codes differ"
                assert (table.view(np.uint16) == op.lut.val.view(np.uint16)).all(), f"{name}: tables differ"
                flat, rows = check_palette(codes, table, value, name)
                check_nearest(source, codes, flat, rows, name)
            else:
                codes, table = read_raw(raw[name]["data"], folder), read_raw(raw[name]["scale"], folder)
                assert (codes == op.data.val.astype(np.int32)).all(), f"{name}: codes differ"
                assert (table.view(np.uint16) == op.scale.val.view(np.uint16)).all(), f"{name}: scales differ"
                expected = (expand_grid(table.astype(np.float32), codes.shape) * codes).astype(np.float16)
                assert (expected == value).all(), f"{name}: expanded values differ"
            if errors:
                a, b = source.astype(np.float64), value.astype(np.float64)
                found, expected = ((a - b) ** 2).sum() / (a**2).sum(), next(stated)
                assert abs(found - expected) <= 1e-6 * expected, f"{name}: error {found}, the report says {expected}"
    return len(done)


def main():
    package, fp16 = sys.argv[1:3]
    report = json.load(open(sys.argv[3])) if len(sys.argv) > 3 else {"parts": []}
    errors = {p["name"]: [t["relative_error"] for t in p["tensors"]] for p in report["parts"]}
    total = 0
    for path in sorted(glob.glob(os.path.join(package, "*.mlpackage"))):
        name = os.path.basename(path).removesuffix(".mlpackage")
        plain = "_".join(p for p in name.split("_") if not (p[:3] in ("lut", "int") and p[3:].isdigit()))
        n = check(path, os.path.join(fp16, plain + ".mlpackage"), errors.get(name, []))
        print(f"{name}: {n} quantized weights agree")
        total += n
    assert total, "nothing is quantized"


main()
