#!/usr/bin/env python3
"""Writes tests/data/gguf/blocks.gguf, a tensor of every block format with random blocks, and blocks.json with the sha256 of
what the gguf library (0.19.0) makes of each, as little-endian float32.

Usage: gguf_blocks.py FOLDER"""
import hashlib
import json
import os
import sys

import numpy as np
from gguf import GGMLQuantizationType as T, GGUFWriter, quants
from gguf.constants import GGML_QUANT_SIZES

# where the fp16 scales lie in a block: random bits there could be no number
SCALES = {T.Q4_0: [0], T.Q4_1: [0, 2], T.Q5_0: [0], T.Q5_1: [0, 2], T.Q8_0: [0], T.IQ4_NL: [0], T.Q2_K: [80, 82],
          T.Q3_K: [108], T.Q4_K: [0, 2], T.Q5_K: [0, 2], T.Q6_K: [208], T.IQ4_XS: [0], T.TQ2_0: [64], T.MXFP4: []}


def main():
    folder = sys.argv[1]
    rng = np.random.default_rng(15)
    writer = GGUFWriter(os.path.join(folder, "blocks.gguf"), "blocks")
    expected = {}
    for kind in [T.F32, T.F16, T.BF16] + list(SCALES):
        elements, size = GGML_QUANT_SIZES[kind]
        rows, blocks = 3, 2 if elements > 1 else 40
        data = rng.integers(0, 256, (rows, blocks * size), dtype=np.uint8)
        if kind in SCALES:
            view = data.reshape(rows, blocks, size)
            for at in SCALES[kind]:
                scale = (rng.standard_normal((rows, blocks)) * 0.05).astype("<f2")
                view[:, :, at:at + 2] = scale[..., None].view(np.uint8)
        else:
            values = rng.standard_normal((rows, blocks)).astype("<f4")
            data = {T.F32: values, T.F16: values.astype("<f2"),
                    T.BF16: quants.quantize(values, T.BF16)}[kind].view(np.uint8).reshape(rows, -1)
        out = quants.dequantize(data if kind != T.F32 else data.view("<f4"), kind).astype("<f4")
        if kind == T.F16:
            out = data.view("<f2").astype("<f4")
        name = kind.name.lower()
        writer.add_tensor(name, data, raw_dtype=kind)
        expected[name] = hashlib.sha256(np.ascontiguousarray(out).tobytes()).hexdigest()
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    with open(os.path.join(folder, "blocks.json"), "w") as f:
        json.dump(expected, f, indent=1)
        f.write("\n")


main()
