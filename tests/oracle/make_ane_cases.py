"""Numbers for the emulation of the Neural Engine's arithmetic (src/engine/ane.h), from a model in numpy that shares no code with it.

Writes tests/data/ane/cases.safetensors (inputs and results of sums, roundings and table functions) and prints src/engine/ane_tables.def.

usage: make_ane_cases.py FOLDER >ane_tables.def
"""
import json
import os
import struct
import sys

import numpy as np


def away(x, step):
    return np.sign(x) * np.floor(np.abs(x) / step + 0.5) * step


def exponent(x):
    a = np.abs(x)
    return np.maximum(np.floor(np.log2(np.where(a > 0, a, 1.0))), -14)


def f16_away(x):
    x = np.asarray(x, np.float64)
    y = away(x, 2.0 ** (exponent(np.where(x == 0, 1.0, x)) - 10)) if x.size else x
    y = np.where(x == 0, 0.0, np.where(np.isinf(x), x, y))
    return np.where(np.abs(y) >= 65520, np.sign(x) * np.inf, y)


def number(x):
    """Infinity and NaN are the numbers that their bits would be with a larger exponent."""
    x = np.asarray(x, np.float64)
    return np.where(np.isnan(x), 98304.0, np.clip(x, -65536.0, 65536.0))


def product(x, w, bias=None, drop=True):
    """x [n, k], w [m, k] -> [n, m]"""
    x, w = number(x)[:, None, :], number(w)[None, :, :]
    keep = exponent(x) + exponent(w) >= -16 if drop else np.True_
    s = np.where(keep, away(x * w, 2.0 ** -16), 0.0).sum(-1)
    if bias is not None:
        s = s + away(number(bias), 2.0 ** -16)
    s = np.where(np.abs(s) >= 32768, np.sign(s) * np.inf, s)
    return f16_away(s)


def f16(x):
    return np.float16(x).astype(np.float64)


def short(v):
    digits, power = float(v).hex().split("p")
    return digits.rstrip("0").rstrip(".") + "p" + power if "." in digits else float(v).hex()


def erf(x):
    from math import erf as one
    return np.vectorize(one)(x)


sigmoid = lambda x: 1 / (1 + np.exp(-x))
silu = lambda x: x * sigmoid(x)
gelu = lambda x: 0.5 * x * (1 + erf(x / np.sqrt(2)))


def fitted(f, low, high):
    """33 nodes of the piecewise straight line that is nearest to f by least squares."""
    x = np.linspace(low, high, 20001)
    at = (x - low) / (high - low) * 32
    i = np.clip(at.astype(int), 0, 31)
    a = np.zeros((len(x), 33))
    a[np.arange(len(x)), i] = 1 - (at - i)
    a[np.arange(len(x)), i + 1] += at - i
    return f16(np.linalg.lstsq(a, f(x), rcond=None)[0])


unit = np.arange(33) / 32
TABLES = {  # name: (first node, last node, values)
    "sigmoid": (-8, 8, f16(sigmoid(np.linspace(-8, 8, 33)))),
    "tanh": (0, 4, f16(np.tanh(np.linspace(0, 4, 33)))),
    "silu": (-8, 8, fitted(silu, -8, 8)),
    "gelu": (-4, 4, fitted(gelu, -4, 4)),
    "exp2": (0, 1, f16(2.0 ** unit)),
    "log2": (1, 2, f16(np.log2(1 + unit))),
    "rsqrt": (1, 2, f16((1 + unit) ** -0.5)),
    "sqrt": (1, 2, f16((1 + unit) ** 0.5)),
    "inverse": (1, 2, f16(1 / (1 + unit))),
    "erf": (0, 2, f16(erf(np.linspace(0, 2, 33)))),
    "sine": (0, 1, f16(np.sin(np.pi / 2 * unit))),
}


def table(name, x):
    low, high, y = TABLES[name]
    return np.interp(x, np.linspace(low, high, 33), y)


def octave(x):
    """x > 0 as m * 2^e, 1 <= m < 2."""
    e = np.floor(np.log2(x))
    m = x / 2.0 ** e
    return m, e


def functions(x):
    """The functions of fp16 numbers x, rounded."""
    a = np.abs(x)
    out = {"sigmoid": table("sigmoid", x)}
    out["tanh"] = np.sign(x) * np.where(a > 4, 1.0, table("tanh", a))
    out["silu"] = np.where(a > 8, np.where(x > 0, x, 0.0), table("silu", x))
    out["gelu"] = np.where(a > 4, np.where(x > 0, x, 0.0), table("gelu", x))
    for name, u in (("exp", x / np.log(2)), ("exp2", x)):
        n = np.floor(u)
        out[name] = table("exp2", u - n) * 2.0 ** np.clip(n, -100, 100)
    out["erf"] = np.sign(x) * np.where(a > 2, erf(a), table("erf", a))
    p = np.where(a > 0, a, 1.0)
    m, e = octave(p)
    out["log"] = (table("log2", m) + e) * np.log(2)
    out["inverse"] = np.sign(np.where(x == 0, 1, x)) * table("inverse", m) * 2.0 ** -e
    odd = np.mod(e, 2)
    out["rsqrt"] = table("rsqrt", m) * np.where(odd == 1, np.sqrt(0.5), 1.0) * 2.0 ** -np.floor(e / 2)
    out["sqrt"] = table("sqrt", m) * np.where(odd == 1, np.sqrt(2.0), 1.0) * 2.0 ** np.floor(e / 2)
    return {k: f16_away(v) for k, v in out.items()}


def crafted(r, shape):
    """fp16 numbers of all sizes: small ones near the threshold, subnormals, zeros, a few large ones."""
    e = r.integers(-24, 6, size=shape)
    x = r.normal(size=shape) * 2.0 ** e
    x = np.where(r.random(shape) < 0.05, 0.0, x)
    return np.float16(x)


def write(path, tensors):
    header, at, body = {}, 0, b""
    names = {"float16": "F16", "float32": "F32", "float64": "F64"}
    for name, t in sorted(tensors.items()):
        t = np.ascontiguousarray(t)
        header[name] = {"dtype": names[t.dtype.name], "shape": list(t.shape), "data_offsets": [at, at + t.nbytes]}
        body += t.tobytes()
        at += t.nbytes
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text + body)


def main(folder):
    np.seterr(all="ignore")
    r = np.random.default_rng(17)
    t = {}
    x, w = crafted(r, (12, 133)), crafted(r, (9, 133))
    b = crafted(r, (9,))
    t.update(mixed_x=x, mixed_w=w, mixed_bias=b, mixed_y=np.float32(product(x, w)), mixed_bias_y=np.float32(product(x, w, b)),
             mixed_keep_y=np.float32(product(x, w, drop=False)))
    x, w = np.float16(r.normal(size=(4, 512)) * 60), np.float16(r.normal(size=(8, 512)) * 40)  # some sums are too large
    x[0, 0], x[1, 0], w[0, 3] = np.inf, np.nan, -np.inf
    t.update(large_x=x, large_w=w, large_y=np.float32(product(x, w)))
    for keys in (1024, 4096):
        p, v = np.float16(np.full((1, keys), 1 / keys)), np.float16(r.normal(size=(6, keys)) * 0.5)
        t.update({f"keys{keys}_p": p, f"keys{keys}_v": v, f"keys{keys}_y": np.float32(product(p, v))})
    # the published dot product of 4-bit codes with one scale
    codes = [2, -2, 4, -7, 1, 0, -6, -3, 3, 1, -6, 0, -2, -6, -6, 1, 5, 5, 5, 6, 7, 3, -8, -1, 1, 2, -3, 4, -2, 0, 2, -7]
    xs = [-0.1640625, -0.02734375, 0.01953125, 0.09765625, -0.0078125, 0.0234375, 0.0703125, 0.0234375, -0.1328125, 0.0390625,
          -0.02734375, 0.0234375, 0.03125, 0.109375, 0.0390625, 0.00390625, 0.02734375, 0.02734375, -0.06640625, -0.02734375,
          -0.10546875, -0.32421875, 0.234375, -0.02734375, -0.03125, -0.09375, 0.05859375, -0.0625, -0.03515625, 0.0703125,
          0.01171875, 0.1640625]
    t.update(codes_x=np.float16([xs]), codes_w=np.float16([codes]), codes_scale=np.float32([0.007476806640625]),
             codes_y=np.float32([[-0.05987548828125]]))
    d = np.concatenate([r.normal(size=3000) * 2.0 ** r.integers(-26, 18, size=3000), np.float64([0, 65519.99, 65520, 65504, 2 ** -25, 2 ** -24 * 1.5, -2 ** -25])])
    t.update(round_x=d, round_y=np.float32(f16_away(d)))
    x = np.unique(np.float16(np.concatenate([np.linspace(-11, 11, 1501), r.normal(size=700) * 2.0 ** r.integers(-14, 4, size=700), [0, 4, -4, 8, -8, 2, -2, 300, 60000]])))
    t["function_x"] = x
    for name, y in functions(x.astype(np.float64)).items():
        t["function_" + name] = np.float32(y)
    s = np.float16(r.normal(size=512) * 2.0 ** r.integers(-3, 12, size=512))
    u = np.float16(r.normal(size=512) * 2.0 ** r.integers(-12, 8, size=512))
    a, c = s.astype(np.float64), u.astype(np.float64)
    t.update(pair_x=s, pair_y=u, pair_add=np.float32(f16_away(a + c)), pair_sub=np.float32(f16_away(a - c)), pair_mul=np.float32(f16_away(a * c)))
    os.makedirs(folder, exist_ok=True)
    write(os.path.join(folder, "cases.safetensors"), t)
    print("/* Nodes of the engine's tables, 33 each: name, first and last node, values. Made by tests/oracle/make_ane_cases.py. */")
    for name, (low, high, y) in TABLES.items():
        print(f"ANE_TABLE({name}, {low}, {high}, {', '.join(short(v) for v in y)})")


main(sys.argv[1])
