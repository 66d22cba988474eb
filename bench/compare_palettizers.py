"""How much faster than coremltools' palettizer is milkit, and how do the errors compare?

    python compare_palettizers.py MILKIT CHECKPOINT [--lut-ffn 4,8] [--lut-head 6,8] [--threads 2] [--groups 8] [--work DIR]

Needs coremltools, numpy and scikit-learn; run by hand on a quiet machine. Converts CHECKPOINT (make_checkpoint writes one of real shape)
once as a whole with milkit, and with `--lut-method exact` its first layer. Then coremltools' k-means (its default settings) palettizes
--groups groups, spread evenly, of every weight of the first, the middle and the last layer and of the first and last part of the
head. Its time for the whole model is extrapolated from the time per group of each shape and divided by the threads, as if
its workers scaled perfectly and cost nothing to start. Processor times are compared too, which other work on the machine disturbs less. Errors are compared on the same groups.
"""
import argparse
import json
import logging
import os
import resource
import shutil
import subprocess
import time
import warnings

os.environ["OMP_NUM_THREADS"] = "1"  # one thread a worker: faster than threads that wait for each other over 8192 values
warnings.filterwarnings("ignore")
logging.disable(logging.WARNING)
import numpy as np
import coremltools as ct
from coremltools.optimize.coreml._quantization_passes import palettize_weights
from coremltools.proto import MIL_pb2 as mil

BITS = {mil.UINT1: 1, mil.UINT2: 2, mil.UINT3: 3, mil.UINT4: 4, mil.UINT6: 6, mil.UINT8: 8}


def convert(args, out, *more):
    shutil.rmtree(out, ignore_errors=True)
    report = out + ".json"
    command = [args.milkit, "convert", args.checkpoint, "-o", out, "--format", "mlpackage", "-q", "-j", str(args.threads), "--report", report]
    command += ["--lut-ffn", args.lut_ffn, "--lut-head", args.lut_head, "--lut-method", "kmeans", *more]
    start, before = time.time(), resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(command, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return time.time() - start, cpu, json.load(open(report))


def checkpoint_tensors(folder):
    out = {}
    for name in sorted(os.listdir(folder)):
        if not name.endswith(".safetensors"):
            continue
        path = os.path.join(folder, name)
        with open(path, "rb") as f:
            n = int.from_bytes(f.read(8), "little")
            header = json.loads(f.read(n))
        for tensor, t in header.items():
            if tensor != "__metadata__":
                out[tensor] = (path, 8 + n + t["data_offsets"][0], t["dtype"], t["shape"])
    return out


def read_rows(entry, first, n):
    path, offset, dtype, shape = entry
    columns, size = shape[1], 4 if dtype == "F32" else 2
    raw = np.fromfile(path, np.uint8, n * columns * size, offset=offset + first * columns * size)
    if dtype == "BF16":
        v = (raw.view("<u2").astype(np.uint32) << 16).view(np.float32)
    else:
        v = raw.view("<f4" if dtype == "F32" else "<f2")
    return v.astype(np.float16).reshape(n, columns)


class Part:
    """The palettes of one .mlpackage, read from its blob file."""

    def __init__(self, path):
        spec = ct.models.MLModel(path, skip_model_load=True).get_spec()
        self.blob = np.memmap(os.path.join(path, "Data/com.apple.CoreML/weights/weight.bin"), np.uint8, "r")
        self.ops = {}
        function = next(iter(spec.mlProgram.functions.values()))
        for op in function.block_specializations[function.opset].operations:
            if op.type == "constexpr_lut_to_dense":
                self.ops[op.outputs[0].name] = {k: v.arguments[0].value for k, v in op.inputs.items()}

    def data(self, value, begin, n):
        at = int(self.blob[value.blobFileValue.offset + 16 :][:8].view("<u8")[0])
        return self.blob[at + begin : at + begin + n]

    def rows(self, name, first, n):
        indices, lut = self.ops[name]["indices"], self.ops[name]["lut"]
        rows, columns = [d.constant.size for d in indices.type.tensorType.dimensions][:2]
        groups = lut.type.tensorType.dimensions[0].constant.size
        bits, group = BITS[indices.type.tensorType.dataType], rows // groups
        entries = 1 << bits
        assert first % group == 0 and n == group and group * columns * bits % 8 == 0
        raw = self.data(indices, first * columns * bits // 8, n * columns * bits // 8)
        codes = (np.unpackbits(raw, bitorder="little").reshape(-1, bits).astype(np.int32) << np.arange(bits)).sum(1)
        table = self.data(lut, first // group * entries * 2, entries * 2).view("<f2")
        return table[codes].reshape(n, columns)


def squared(a, b):
    return float(((a.astype(np.float64) - b.astype(np.float64)) ** 2).sum())


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("milkit")
    parser.add_argument("checkpoint")
    parser.add_argument("--lut-ffn", default="4,8")
    parser.add_argument("--lut-head", default="6,8")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--groups", type=int, default=8)
    parser.add_argument("--work", default="palettizers.tmp")
    args = parser.parse_args()
    os.makedirs(args.work, exist_ok=True)
    whole = os.path.join(args.work, "whole")
    seconds, cpu_seconds, report = convert(args, whole)
    tensors = checkpoint_tensors(args.checkpoint)
    layers = sum(p["name"].count("FFN") for p in report["parts"]) and len({t["name"].split(".")[2] for p in report["parts"] if "FFN" in p["name"] for t in p["tensors"]})
    _, _, exact = convert(args, os.path.join(args.work, "exact"), "--lut-method", "exact", "--chunks", str(layers), "--only", "chunk:1")

    sampled = {0, layers // 2, layers - 1}
    per_group, errors, n_groups = {}, {}, {}
    for p in report["parts"]:
        bits = {"FFN": args.lut_ffn, "lm_": args.lut_head}.get(p["name"].split("_")[1] if "FFN" in p["name"] else "lm_")
        if not p["tensors"]:
            continue
        bits = int(bits.split(",")[0])
        part, row = Part(os.path.join(whole, p["name"] + ".mlpackage")), 0
        for i, t in enumerate(p["tensors"]):
            rows, columns, group = t["rows"], t["columns"], t["group"]
            shape = (bits, group, columns)
            n_groups[shape] = n_groups.get(shape, 0) + rows // group
            is_head = "FFN" not in p["name"]
            first, row = (row, row + rows) if is_head else (0, 0)
            wanted = i in (0, len(p["tensors"]) - 1) if is_head else int(t["name"].split(".")[2]) in sampled
            if not wanted:
                continue
            op = f"lm_head_{i + 1}_weight" if is_head else t["name"].removeprefix("model.").replace(".", "_")
            ours = theirs = 0.0
            for g in np.linspace(0, rows // group - 1, args.groups).astype(int):
                w = read_rows(tensors[t["name"]], first + g * group, group)
                start, cpu_start = time.time(), time.process_time()
                q = palettize_weights.grouped_channelwise_compress(w, "KMEANS", bits, 0, group)
                per_group.setdefault(shape, []).append((time.time() - start, time.process_time() - cpu_start))
                table = q.lut.reshape(-1).astype(np.float16)
                theirs += squared(table[q.indices.astype(np.int32)], w)
                ours += squared(part.rows(op, g * group, group), w)
            errors[op] = (ours, theirs)

    print(f"milkit: {seconds:.1f} s and {cpu_seconds:.1f} s of processor time for the whole conversion, {args.threads} threads, "
          f"{report['peak_anonymous_bytes'] / 1e6:.1f} MB beside mapped files")
    total, cpu_total = 0.0, 0.0
    for shape, times in sorted(per_group.items()):
        wall, cpu = np.median(np.array(times), axis=0)
        total += wall * n_groups[shape]
        cpu_total += cpu * n_groups[shape]
        print(f"coremltools: {shape[0]} bits, groups of {shape[1]} x {shape[2]}: {wall * 1e3:.2f} ms a group ({len(times)} timed), {n_groups[shape]} groups")
    print(f"coremltools: about {total / args.threads:.0f} s on {args.threads} threads: {total / args.threads / seconds:.1f} times as long; "
          f"{cpu_total:.0f} s of processor time: {cpu_total / cpu_seconds:.1f} times as much")
    ratios = sorted((ours / theirs, op) for op, (ours, theirs) in errors.items())
    print(f"squared error, milkit / coremltools: {ratios[0][0]:.9f} to {ratios[-1][0]:.9f} ({ratios[-1][1]}), {len(ratios)} weights")
    best = {t["name"]: t["mean_squared_error"] for p in exact["parts"] for t in p["tensors"]}
    over = [t["mean_squared_error"] / best[t["name"]] for p in report["parts"] if "FFN" in p["name"] for t in p["tensors"] if t["name"] in best]
    print(f"squared error, milkit / exact: {min(over):.6f} to {max(over):.6f} on the {len(over)} weights of the first layer")
    shutil.rmtree(args.work)


main()
