#!/usr/bin/env python3
"""Tokens per second of llama.cpp and of milkit for one GGUF file, in turns: decode at short context, the same number of threads.

decode_llama.py MILKIT GGUF PACKAGE... [-n TOKENS] [-t THREADS] [-r ROUNDS]

llama.cpp comes from a Python package that has it built for AVX2: ik-llama-cpp-python 0.1.5 of PyPI, whose fork of llama.cpp has faster
kernels for processors. One process and a fresh context a round. The packages are of the same file (milkit convert). Prints medians and each
round.
"""
import argparse, json, statistics, subprocess, sys

ONE = """
import sys, time
from ik_llama_cpp import IkLlama
from ik_llama_cpp.llama import make_batch_single
path, n, threads = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
m = IkLlama(path, n_ctx=512, n_threads=threads, verbose=False)
ids = m.tokenize("Once upon a time")
def feed(at, count):
    for i in range(count):
        if m._context.decode(make_batch_single(ids[i % len(ids)], at + i)):
            sys.exit("llama_decode failed")
    return at + count
at = feed(0, 8)  # warms up
start = time.perf_counter()
feed(at, n)
print(n / (time.perf_counter() - start))
"""
a = argparse.ArgumentParser()
a.add_argument("milkit")
a.add_argument("gguf")
a.add_argument("packages", nargs="+")
a.add_argument("-n", type=int, default=64)
a.add_argument("-t", type=int, default=2)
a.add_argument("-r", type=int, default=3)
a = a.parse_args()


def llama():
    r = subprocess.run([sys.executable, "-c", ONE, a.gguf, str(a.n), str(a.t)], capture_output=True, text=True)
    if r.returncode:
        sys.exit(r.stderr[-600:])
    return float(r.stdout.split()[-1])


def milkit(package):
    r = subprocess.run([a.milkit, "bench", package, "-p", "0", "-n", str(a.n), "-t", str(a.t), "-r", "1", "-q", "-o", "json"],
                       capture_output=True, text=True)
    if r.returncode:
        sys.exit(r.stderr)
    return json.loads(r.stdout)[0]["avg_ts"]


found = {}
for _ in range(a.r):
    found.setdefault("ik_llama.cpp", []).append(llama())
    for package in a.packages:
        found.setdefault(package, []).append(milkit(package))
for name, rates in found.items():
    print(f"{name}: {statistics.median(rates):.1f} tokens/s ({', '.join(f'{r:.1f}' for r in rates)})")
