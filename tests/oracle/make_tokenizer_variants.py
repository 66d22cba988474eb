"""Writes what the tokenizers library (0.23.3) gives for variants of two small tokenizers into a folder:

    variants.jsonl                 variants of TOKENIZER.JSON, which is byte-level
    characters.tokenizer.json      a tokenizer of characters with byte tokens, trained here on TEXT
    characters.variants.jsonl      its variants

Usage: make_tokenizer_variants.py TOKENIZER.JSON TEXT FOLDER
A line is {"name", "replace": members of tokenizer.json that differ, "clean_up": whether blanks before punctuation go,
"cases": [{"text", "ids", "ids_special", "decoded"}]}; ids_special only where it differs, decoded is that of ids.
Texts hold only characters of Unicode 14 that NFC treats alike in Unicode 9 and 15.
"""
import json
import random
import sys
import unicodedata

from tokenizers import Tokenizer, models, trainers

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


    for name in ["NFD", "NFKC", "NFKD", "Lowercase"]:
        yield name, {"normalizer": {"type": name}}
    yield "NFKC, Lowercase", {"normalizer": {"type": "Sequence", "normalizers": [{"type": "NFKC"}, {"type": "Lowercase"}]}}
    for left, right in [(True, False), (False, True), (True, True)]:
        yield f"strip {left} {right}", {"normalizer": {"type": "Strip", "strip_left": left, "strip_right": right},
                                        "added_tokens": flags}
    yield "replace matches", {"normalizer": {"type": "Replace", "pattern": {"Regex": "\\s+|\\p{N}"}, "content": "e "}}
    for name in ["Whitespace", "WhitespaceSplit", "Punctuation"]:
        yield name, {"pre_tokenizer": {"type": "Sequence", "pretokenizers": [{"type": name}, BYTE_LEVEL]}}
    yield "Punctuation, Removed", {"pre_tokenizer": {"type": "Sequence", "pretokenizers": [
        {"type": "Punctuation", "behavior": "Removed"}, BYTE_LEVEL]}}
    yield "CharDelimiterSplit", {"pre_tokenizer": {"type": "Sequence", "pretokenizers": [
        {"type": "CharDelimiterSplit", "delimiter": "e"}, BYTE_LEVEL]}}
    yield "o200k", split("[^\\r\\n\\p{L}\\p{N}]?[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]*[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]+"
                         "(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\\r\\n\\p{L}\\p{N}]?[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]+"
                         "[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\\p{N}{1,3}|"
                         " ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+", "Removed", True)
    yield "deepseek", split("[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\\r\\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+|"
                            " ?[\\p{P}\\p{S}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+", "Isolated")
    for kind in ["RobertaProcessing", "BertProcessing"]:
        processor = {"type": kind, "sep": ["b", 9], "cls": ["a", 8]}
        if kind == "RobertaProcessing":
            processor.update(trim_offsets=True, add_prefix_space=False)
        yield kind, {"post_processor": processor}
    yield "clean up", {"clean_up": True}
    yield "clean up, no decoder", {"clean_up": True, "decoder": None}


def sequence(kind, members, *steps):
    return {"type": "Sequence", members: list(steps)} if steps else None


def character_variants():
    fallback, fuse = {"type": "ByteFallback"}, {"type": "Fuse"}
    blank = {"type": "Replace", "pattern": {"String": "\u2581"}, "content": " "}
    yield "as it is", {}
    yield "clean up", {"clean_up": True}
    for scheme in ["always", "first", "never"]:
        for cut in [True, False]:
            space = {"type": "Metaspace", "replacement": "\u2581", "prepend_scheme": scheme, "split": cut}
            yield f"Metaspace {scheme} {cut}", {"normalizer": None, "pre_tokenizer": space, "decoder": {
                "type": "Metaspace", "replacement": "\u2581", "prepend_scheme": scheme}}
    yield "Metaspace behind Split", {"normalizer": None, "pre_tokenizer": {"type": "Sequence", "pretokenizers": [
        {"type": "Split", "pattern": {"Regex": "\\p{N}"}, "behavior": "Isolated", "invert": False},
        {"type": "Metaspace", "replacement": "\u2581", "prepend_scheme": "first", "split": True}]}, "decoder": {
            "type": "Sequence", "decoders": [{"type": "Metaspace", "replacement": "\u2581", "prepend_scheme": "first"},
                                             fallback, fuse]}}
    for start, stop in [(1, 0), (2, 0), (0, 1), (1, 2)]:
        strip = {"type": "Strip", "content": " ", "start": start, "stop": stop}
        yield f"Strip {start} {stop}", {"decoder": {"type": "Sequence", "decoders": [blank, fallback, fuse, strip]}}
    yield "Strip tokens", {"decoder": {"type": "Sequence", "decoders": [
        blank, {"type": "Strip", "content": " ", "start": 1, "stop": 0}, fallback, fuse]}}
    yield "Gemma", {"normalizer": {"type": "Replace", "pattern": {"String": " "}, "content": "\u2581"},
                    "decoder": {"type": "Sequence", "decoders": [blank, fallback, fuse]}}


def train_characters(path):
    """Like Llama 2: a blank in front, characters, byte tokens for what is unknown."""
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    blank = {"type": "Replace", "pattern": {"String": " "}, "content": "\u2581"}
    unblank = {"type": "Replace", "pattern": {"String": "\u2581"}, "content": " "}
    with open(path, encoding="utf-8") as file:
        text = file.read().replace(" ", "\u2581")
    tokens = ["<unk>", "<s>", "</s>"] + ["<0x%02X>" % b for b in range(256)]
    words = [word for line in text.split("\n") for word in line.replace("\u2581", " \u2581").split(" ")]
    tokenizer.train_from_iterator(words, trainers.BpeTrainer(
        vocab_size=600, special_tokens=tokens, limit_alphabet=60, show_progress=False))
    parts = json.loads(tokenizer.to_str())
    parts["added_tokens"] = [{**token, "special": True} for token in parts["added_tokens"][:3]]
    parts["normalizer"] = {"type": "Sequence", "normalizers": [{"type": "Prepend", "prepend": "\u2581"}, blank]}
    parts["pre_tokenizer"] = None
    parts["decoder"] = {"type": "Sequence", "decoders": [
        unblank, {"type": "ByteFallback"}, {"type": "Fuse"}, {"type": "Strip", "content": " ", "start": 1, "stop": 0}]}
    parts["post_processor"] = {"type": "TemplateProcessing", "single": [
        {"SpecialToken": {"id": "<s>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}], "pair": [
        {"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}],
        "special_tokens": {"<s>": {"id": "<s>", "ids": [1], "tokens": ["<s>"]}}}
    return parts


def clean_up(text):
    for old, new in [(" .", "."), (" ?", "?"), (" !", "!"), (" ,", ","), (" ' ", "'"), (" n't", "n't"), (" 'm", "'m"),
                     (" 's", "'s"), (" 've", "'ve"), (" 're", "'re")]:
        text = text.replace(old, new)
    return text


def write_variants(path, base, all_variants, fragments):
    with open(path, "w", encoding="ascii") as file:
        for name, replace in all_variants:
            cleans = replace.pop("clean_up", False)
            tokenizer = Tokenizer.from_str(json.dumps({**base, **replace}))
            cases = []
            for _ in range(24):
                text = "".join(random.choice(fragments) for _ in range(random.choice([2, 5, 12, 30])))
                assert all(unicodedata.category(c) != "Cn" or c == "\U0010ffff" for c in text)
                ids = tokenizer.encode(text, add_special_tokens=False).ids
                special = tokenizer.encode(text).ids
                decoded = tokenizer.decode(ids, skip_special_tokens=False)
                case = {"text": text, "ids": ids, "decoded": clean_up(decoded) if cleans else decoded}
                if special != ids:
                    case["ids_special"] = special
                cases.append(case)
            file.write(json.dumps({"name": name, "replace": replace, "clean_up": cleans, "cases": cases}) + "\n")


def main():
    random.seed(1)
    folder = sys.argv[3]
    with open(sys.argv[1], encoding="utf-8") as file:
        base = json.load(file)
    write_variants(folder + "/variants.jsonl", base, variants(base), FRAGMENTS + [" .", " n't", " '", "' ", " 's", " 've", "?"])
    base = train_characters(sys.argv[2])
    with open(folder + "/characters.tokenizer.json", "w", encoding="utf-8") as file:
        json.dump(base, file, ensure_ascii=False, indent=0)
    write_variants(folder + "/characters.variants.jsonl", base, character_variants(),
                   FRAGMENTS + [" .", " ,", " the", "<s>", "</s>", "  the", " 's", " n't", "<0x41>"])


main()
