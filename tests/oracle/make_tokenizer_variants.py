"""Writes tests/data/tokenizers/variants.jsonl: what the tokenizers library (0.23.3) gives for variants of a small tokenizer.

Usage: make_tokenizer_variants.py TOKENIZER.JSON > variants.jsonl
A line is {"name", "replace": members of tokenizer.json that differ, "cases": [{"text", "ids", "decoded"}]}.
Texts hold only characters of Unicode 14 that NFC treats alike in Unicode 9 and 15.
"""
import json
import random
import sys
import unicodedata

from tokenizers import Tokenizer

FRAGMENTS = [
    " ", "  ", "   ", "\n", "\r\n", "\t", "\u0085", "\u00a0", "\u180e", "\u3000", "\u2028", "\u200b", "\ufeff", "'s", "'S",
    "'\u017f", "'ll", "'RE", "don't", "a", "b", "Hello", "world", "THE", " the", "ing", "123", "1", "\u0663", "\u00bd", "\u2167",
    "\u00b2", "!", "?!", "...", "\u2014", "<", "<|im_end|>", "<|im_start|>", "<think>", "<|im_", "\u00e9", "e\u0301", "\u0301",
    "\u0323", "\u0327", "\ud55c", "\u1100\u1161", "\u11a8", "\u4e2d\u6587", "\u304c", "\u304b\u3099", "\u0e44\u0e17\u0e22",
    "\u0939\u093f\u0928\u094d\u0926\u0940", "\u09c7\u09be", "\U0001f600", "\U0001f468\u200d\U0001f469", "\ufffd", "\0", "_",
    "\u2581", "\u00df", "\u0130", "\u00c5", "\u212b", "\u2126", "\ufb01", "\ufb2a", "\u0958", "$", "+", "\\", "\"", "{", "/*",
    "def f(x):\n    return x", "\u24b6", "\U00010400", "\ue000", "\U0010ffff", "\u0345", "\u0344", "(", "-", " --", "<L>", "R! ",
]
BYTE_LEVEL = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": False, "use_regex": False}


def split(pattern, behavior, invert=False, kind="Regex"):
    step = {"type": "Split", "pattern": {kind: pattern}, "behavior": behavior, "invert": invert}
    return {"pre_tokenizer": {"type": "Sequence", "pretokenizers": [step, BYTE_LEVEL]}}


def added(content, **flags):
    token = {"id": 0, "content": content, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False,
             "special": False}
    return {**token, **flags}


def variants(base):
    flags = base["added_tokens"] + [
        added("the", single_word=True), added("<L>", lstrip=True), added("e\u0301", normalized=True),
        added("123", rstrip=True, lstrip=True), added("!", rstrip=True, normalized=True), added("  ", rstrip=True),
        added("def", single_word=True, lstrip=True, special=True), added("\u212b", normalized=True), added("ing")]
    yield "flags", {"added_tokens": flags}
    yield "gpt2", {"pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True},
                   "added_tokens": flags}
    for behavior in ["Removed", "Isolated", "Contiguous", "MergedWithPrevious", "MergedWithNext"]:
        for invert in [False, True]:
            yield f"{behavior}, invert {invert}", split("\\s|[aeio]\\w?", behavior, invert)
        yield f"{behavior}, string", split(" ", behavior, False, "String")
    for one_by_one in [False, True]:
        digits = {"type": "Digits", "individual_digits": one_by_one}
        yield f"digits {one_by_one}", {"pre_tokenizer": {"type": "Sequence", "pretokenizers": [digits, BYTE_LEVEL]}}
    yield "classes", split("\\w+|[^\\w\\s]+|\\W|[\\S]", "Isolated")
    yield "no decoder", {"decoder": None}
    yield "replace", {"normalizer": {"type": "Sequence", "normalizers": [
        {"type": "Replace", "pattern": {"String": "e"}, "content": "\u0301e"}, {"type": "NFC"}]}}


def main():
    random.seed(1)
    with open(sys.argv[1], encoding="utf-8") as file:
        base = json.load(file)
    for name, replace in variants(base):
        tokenizer = Tokenizer.from_str(json.dumps({**base, **replace}))
        cases = []
        for _ in range(24):
            text = "".join(random.choice(FRAGMENTS) for _ in range(random.choice([2, 5, 12, 30])))
            assert all(unicodedata.category(c) != "Cn" or c == "\U0010ffff" for c in text)
            ids = tokenizer.encode(text).ids
            cases.append({"text": text, "ids": ids, "decoded": tokenizer.decode(ids, skip_special_tokens=False)})
        print(json.dumps({"name": name, "replace": replace, "cases": cases}))


main()
