"""Writes what transformers (5.24) with tokenizers (0.23.3) gives for tokenizers of which part is declared beside
tokenizer.json only: tokenizer_config.json, special_tokens_map.json, added_tokens.json.

Usage: make_declared_tokens.py FOLDER (tests/data/tokenizers)
Its bytes.tokenizer.json has the 256 bytes and the added tokens <|im_start|> and <|im_end|>. Writes blanks.tokenizer.json, a tokenizer on
characters as Llama's are, and declared.jsonl, of which a line is {"name", "base": one of these two, "replace": members of it that differ, "config", "map", "added": the three files or null, "model": model_type of config.json, "cases": [{"text", "ids",
"decoded": of all ids, without special tokens}]}.
"""
import json
import os
import random
import sys
import tempfile

os.environ["TRANSFORMERS_VERBOSITY"] = "error"
from transformers import AutoTokenizer

NEW = ["<|new|>", "<|b|>", "<pad>", "Aa", " c", "\u00e9x", "<|im_end|>", "<|im_start|>", "a"]
QWEN = {
    "normalizer": {"type": "NFC"},
    "pre_tokenizer": {"type": "Sequence", "pretokenizers": [
        {"type": "Split", "behavior": "Isolated", "invert": False, "pattern": {
            "Regex": "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*"
                     "|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"}},
        {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": False, "use_regex": False}]},
}
# A model on characters, with blanks in front and in between as Llama's tokenizers have them.
BLANKS = {
    "normalizer": {"type": "Sequence", "normalizers": [
        {"type": "Prepend", "prepend": "\u2581"}, {"type": "Replace", "pattern": {"String": " "}, "content": "\u2581"}]},
    "pre_tokenizer": None,
    "post_processor": None,
    "decoder": {"type": "Sequence", "decoders": [
        {"type": "Replace", "pattern": {"String": "\u2581"}, "content": " "}, {"type": "ByteFallback"}, {"type": "Fuse"},
        {"type": "Strip", "content": " ", "start": 1, "stop": 0}]},
    "model": {"type": "BPE", "dropout": None, "unk_token": "<unk>", "continuing_subword_prefix": None, "end_of_word_suffix": None,
              "fuse_unk": True, "byte_fallback": True, "ignore_merges": False, "merges": ["\u2581 a"],
              "vocab": {t: i for i, t in enumerate(["<unk>", "<s>", "</s>", *[f"<0x{b:02X}>" for b in range(256)], "\u2581", "a", "b",
                                                    "\u2581a"])}},
    "added_tokens": [],
}
# The same as Metaspace.
def metaspace(scheme):
    return {**BLANKS, "normalizer": None, "pre_tokenizer": {
        "type": "Metaspace", "replacement": "\u2581", "prepend_scheme": scheme, "split": False}}


# As Gemma's: blanks are characters, none is put in front.
GEMMA = {**BLANKS, "normalizer": {"type": "Replace", "pattern": {"String": " "}, "content": "\u2581"},
         "pre_tokenizer": {"type": "Split", "behavior": "MergedWithPrevious", "invert": False, "pattern": {"String": " "}},
         "decoder": {"type": "Sequence", "decoders": BLANKS["decoder"]["decoders"][:3]}}
FAST = {"tokenizer_class": "PreTrainedTokenizerFast"}
TEXTS = ["a<|new|>b", "a  <|new|>  b <|im_end|> x", "x<|b|>y <|im_start|>z", "  Aa aa c c<pad> \u00e9x E\u0301X<|im_end|>\n",
         "<|new|><|b|><pad><|im_end|><|im_end|>", "1<|NEW|>2 AA <PAD>", "_a_<|new|>_<|endoftext|>", "a"]
# For classes: blanks around tokens, and tokens that a class fills in.
CLASS_TEXTS = ["a b", "  a </s>a<s> a  b", " </s> <unk>a\n", "\u2581a", "<|endoftext|><pad><mask><bos><eos><|padding|>a <|im_end|>"]


def token(content, **flags):
    return {"content": content, "lstrip": False, "rstrip": False, "normalized": False, "single_word": False,
            "special": True, **flags}


def typed(content, **flags):
    return {"__type": "AddedToken", **token(content, **flags)}


def fixed():
    yield "nothing", {}, dict(FAST), None, None
    yield "decoder", {}, {**FAST, "added_tokens_decoder": {"258": token("<|new|>")}}, None, None
    yield "decoder, out of order", {}, {**FAST, "added_tokens_decoder": {
        "259": token("<|b|>"), "300": token("<pad>"), "258": token("<|new|>")}}, None, None
    yield "decoder, other flags", {}, {**FAST, "added_tokens_decoder": {
        "258": token("<|new|>", lstrip=True), "257": token("<|im_end|>", lstrip=True, special=False),
        "256": token("<|im_start|>", rstrip=True, single_word=True)}}, None, None
    yield "decoder, few flags", {}, {**FAST, "added_tokens_decoder": {
        "258": {"content": "<|new|>"}, "259": {"content": "<|b|>", "special": True}}}, None, None
    yield "decoder, a token of the model", {}, {**FAST, "added_tokens_decoder": {"97": token("a")}}, None, None
    for flag in ["lstrip", "rstrip", "single_word", "normalized"]:
        yield "decoder, " + flag, {}, {**FAST, "added_tokens_decoder": {"258": token("<|new|>", **{flag: True})}}, None, None
    for key in ["additional_special_tokens", "extra_special_tokens"]:
        yield key, {}, {**FAST, key: ["<|new|>", "<|im_end|>", "<pad>"]}, None, None
        yield key + ", objects", {}, {**FAST, key: [typed("<|new|>", lstrip=True), "<|b|>"]}, None, None
        yield key + " of the map", {}, dict(FAST), {key: ["<|new|>", "<|b|>"]}, None
    yield "extra as an object", {}, {**FAST, "extra_special_tokens": {"new_token": "<|new|>", "other": "<|b|>"}}, None, None
    yield "extra and additional", {}, {**FAST, "extra_special_tokens": ["<|b|>"], "additional_special_tokens": ["<|new|>"]}, None, None
    yield "additional of both", {}, {**FAST, "additional_special_tokens": ["<|b|>"]}, {"additional_special_tokens": ["<|new|>"]}, None
    for key in ["bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token", "image_token"]:
        yield key, {}, {**FAST, key: "<|new|>"}, None, None
        yield key + ", an object", {}, {**FAST, key: typed("<|new|>", rstrip=True, special=False)}, None, None
        yield key + " of the map", {}, {**FAST, key: "<|b|>"}, {key: token("<|new|>", lstrip=True)}, None
    yield "all names", {}, {**FAST, "mask_token": "<|b|>", "pad_token": "<pad>", "eos_token": "<|new|>", "x_token": " c"}, None, None
    yield "map beside a decoder", {}, {**FAST, "added_tokens_decoder": {}}, {"pad_token": "<|new|>"}, None
    yield "null and false", {}, {**FAST, "pad_token": None, "extra_special_tokens": None, "add_bos_token": False}, None, None
    yield "added_tokens.json", {}, {**FAST, "eos_token": "<|b|>"}, None, {"<pad>": 260, "<|new|>": 258, "<|b|>": 259}
    yield "added_tokens.json beside a decoder", {}, {**FAST, "added_tokens_decoder": {}}, None, {"<|new|>": 258}
    yield "no config", {**QWEN, "added_tokens": full_added()}, None, {"pad_token": "<|new|>"}, {"<|new|>": 259}
    for value in [True, False]:
        yield f"add_prefix_space {value}", {}, {**FAST, "add_prefix_space": value}, None, None
        yield f"add_prefix_space {value}, Qwen2", {**QWEN, "added_tokens": full_added()}, {
            "tokenizer_class": "Qwen2Tokenizer", "add_prefix_space": value}, None, None
        for name in ["CodeGenTokenizer", "GPTNeoXTokenizerFast", "CohereTokenizer", "LlamaTokenizer"]:
            bytes_of = {"pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": not value, "trim_offsets": True, "use_regex": True}}
            if name.startswith("GPTNeoX"):
                bytes_of["normalizer"] = {"type": "NFC"}
            if name.startswith("Cohere"):
                bytes_of = {"normalizer": {"type": "NFC"}, "pre_tokenizer": {"type": "Sequence", "pretokenizers": [
                    {"type": "Digits", "individual_digits": True}, bytes_of["pre_tokenizer"]]}}
            # names that the class would fill by itself
            names = {key + "_token": "<|endoftext|>" for key in ["bos", "eos", "unk", "pad", "cls", "sep", "mask"]}
            yield f"add_prefix_space {value}, {name}", {**bytes_of, "added_tokens": full_added()}, {
                "tokenizer_class": name, "add_prefix_space": value, **names}, None, None
        for name in ["LlamaTokenizer", "LlamaTokenizerFast", "CodeLlamaTokenizer"]:
            if not value:
                start = {} if name != "CodeLlamaTokenizer" else {"post_processor": {
                    "type": "TemplateProcessing", "single": [{"SpecialToken": {"id": "<s>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
                    "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}],
                    "special_tokens": {"<s>": {"id": "<s>", "ids": [1], "tokens": ["<s>"]}}}}
                yield f"add_prefix_space {value}, {name} on characters", {**BLANKS, **start, "added_tokens": [
                    {"id": i, **token(t)} for i, t in enumerate(["<unk>", "<s>", "</s>"])]}, {"tokenizer_class": name, "add_prefix_space": value}, None, None
        yield f"split_special_tokens {value}", {}, {**FAST, "split_special_tokens": value}, None, None
        yield f"split_special_tokens {value}, declared ones", {}, {**FAST, "split_special_tokens": value, "added_tokens_decoder": {
            "258": token("<|new|>", lstrip=True), "259": token("<|b|>", special=False), "260": token(" c", normalized=True)},
            "pad_token": "<pad>"}, None, None
        yield f"split_special_tokens {value}, Qwen2", {**QWEN, "added_tokens": full_added()}, {
            "tokenizer_class": "Qwen2Tokenizer", "split_special_tokens": value}, None, None
    yield "decoder, Qwen2", {**QWEN, "added_tokens": full_added()}, {
        "tokenizer_class": "Qwen2TokenizerFast", "added_tokens_decoder": {
            "256": token("<|im_start|>"), "257": token("<|im_end|>", lstrip=True), "258": token("<|endoftext|>"),
            "259": token("<|new|>", rstrip=True, special=False), "260": token("<|b|>")}}, None, None
    lower = {"normalizer": {"type": "Lowercase"}}
    yield "normalised", lower, {**FAST, "added_tokens_decoder": {
        "258": token("<|NEW|>", normalized=True, special=False), "259": token("Aa", normalized=True, special=False),
        "260": token("<PAD>", special=False)}}, None, None
    yield "normalised again", lower, {**FAST, "added_tokens_decoder": {
        "256": token("<|im_start|>", normalized=True), "257": token("<|im_end|>", normalized=True, special=False)}}, None, None


def full_added():
    return [{"id": 256 + i, **token(t)} for i, t in enumerate(["<|im_start|>", "<|im_end|>", "<|endoftext|>"])]


def of_blanks():
    """What classes make of a tokenizer with blanks, and of each kind of model."""
    three = [{"id": i, **token(t)} for i, t in enumerate(["<unk>", "<s>", "</s>"])]
    start = {"post_processor": {
        "type": "TemplateProcessing", "single": [{"SpecialToken": {"id": "<s>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
        "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}],
        "special_tokens": {"<s>": {"id": "<s>", "ids": [1], "tokens": ["<s>"]}}}}
    infill = {key + "_token": None for key in ["prefix", "middle", "suffix", "eot", "fill"]}
    files = {"Prepend": BLANKS, "first": metaspace("first"), "always": metaspace("always")}
    for file, parts in files.items():
        for name in ["LlamaTokenizer", "LlamaTokenizerFast", "CodeLlamaTokenizer", "PreTrainedTokenizerFast"]:
            more = start if name == "CodeLlamaTokenizer" else {}
            for prefix in [{}, {"add_prefix_space": None}, {"add_prefix_space": True}, {"add_prefix_space": False}]:
                for legacy in [{}, {"legacy": True}] if name == "LlamaTokenizer" else [{"legacy": False}]:
                    yield (f"{name}, {file}, {prefix}, {legacy}", {**parts, **more, "added_tokens": three},
                           {"tokenizer_class": name, **prefix, **legacy, **(infill if more else {})}, "llama")
    for model in ["llama", "mistral", "qwen3", "gemma3_text", "smollm3"]:
        for prefix in [True, False]:
            yield (f"LlamaTokenizer of {model}, {prefix}", {**BLANKS, "added_tokens": three},
                   {"tokenizer_class": "LlamaTokenizerFast", "add_prefix_space": prefix}, model)
    yield "LlamaTokenizer on bytes", {}, {"tokenizer_class": "LlamaTokenizer", "add_prefix_space": True}, "llama"
    yield "LlamaTokenizer on bytes, qwen3", {}, {"tokenizer_class": "LlamaTokenizer", "add_prefix_space": False}, "qwen3"


def of_names():
    """Tokens that the files lack and a class fills in."""
    ends = [{"id": 256 + i, **token(t)} for i, t in enumerate(["<|im_start|>", "<|im_end|>"])]
    ends_only = {"added_tokens": ends}
    gpt2 = {"pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}}
    for name, parts, model in [("Qwen2Tokenizer", QWEN, "qwen2"), ("Qwen2TokenizerFast", QWEN, "qwen3"), ("GPT2Tokenizer", gpt2, "llama"),
                               ("GPT2TokenizerFast", gpt2, "smollm3"), ("CodeGenTokenizer", gpt2, "llama"), ("LlamaTokenizer", gpt2, "llama")]:
        yield f"names of {name}", {**parts, **ends_only}, {"tokenizer_class": name}, model
        yield f"names of {name}, null", {**parts, **ends_only}, {
            "tokenizer_class": name, "eos_token": None, "unk_token": None, "pad_token": None, "bos_token": None}, model
        yield f"names of {name}, one given", {**parts, **ends_only}, {"tokenizer_class": name, "eos_token": "<|im_end|>", "pad_token": "<pad>"}, model
        yield f"names of {name}, listed", {**parts, **ends_only}, {
            "tokenizer_class": name, "added_tokens_decoder": {
                "256": token("<|im_start|>"), "257": token("<|im_end|>"), "258": token("<|endoftext|>", lstrip=True)}}, model
    for model in ["qwen2", "qwen3", "qwen3_moe", "llama", "smollm3"]: # no class declared, and a general one
        yield f"names of {model}", {**QWEN, **ends_only}, {}, model
        yield f"names of {model}, general", {**QWEN, **ends_only}, dict(FAST), model
    for given in [[], ["<s>"], ["<unk>", "</s>"]]:
        added = [{"id": i, **token(t)} for i, t in enumerate(["<unk>", "<s>", "</s>"]) if t in given]
        yield f"names of LlamaTokenizer, {given} added", {**BLANKS, "added_tokens": added}, {"tokenizer_class": "LlamaTokenizer"}, "llama"
        yield f"names of GemmaTokenizer, {given} added", {**GEMMA, "added_tokens": added}, {"tokenizer_class": "GemmaTokenizer"}, "gemma3_text"


def drawn(draw):
    def flags():
        return {f: draw.random() < 0.25 for f in ["lstrip", "rstrip", "single_word", "normalized"]} | {
            "special": draw.random() < 0.6}
    replace = {"normalizer": {"type": "Lowercase"}} if draw.random() < 0.3 else {}
    if draw.random() < 0.4:
        replace["added_tokens"] = [{"id": 300 + i, **token(t, **flags())} for i, t in enumerate(draw.sample(NEW, 3))]
    config, tokens_map, added = dict(FAST), None, None
    if draw.random() < 0.6:
        config["added_tokens_decoder"] = {str(i): token(t, **flags()) for i, t in zip(
            draw.sample(range(250, 270), 4), draw.sample(NEW, 4))}
    if draw.random() < 0.4:
        config[draw.choice(["extra_special_tokens", "additional_special_tokens"])] = draw.sample(NEW, 2)
    for key in draw.sample(["eos_token", "pad_token", "bos_token", "audio_token"], 2):
        config[key] = draw.choice(NEW) if draw.random() < 0.5 else typed(draw.choice(NEW), **flags())
    if draw.random() < 0.4:
        tokens_map = {"eos_token": token(draw.choice(NEW), **flags()), "mask_token": draw.choice(NEW)}
    if draw.random() < 0.3:
        added = {t: 258 + i for i, t in enumerate(draw.sample(NEW, 2))}
    return replace, config, tokens_map, added


def main():
    folder_out = sys.argv[1]
    bases = {"bytes": json.load(open(os.path.join(folder_out, "bytes.tokenizer.json"), encoding="utf-8"))}
    bases["blanks"] = {**bases["bytes"], **BLANKS}
    with open(os.path.join(folder_out, "blanks.tokenizer.json"), "w", encoding="utf-8") as out:
        json.dump(bases["blanks"], out)
        out.write("\n")
    draw = random.Random(12)
    variants = [(*v, "qwen3", TEXTS) for v in [*fixed(), *((f"drawn {i}", *drawn(draw)) for i in range(60))]]
    variants += [(name, replace, config, None, None, model, CLASS_TEXTS) for name, replace, config, model in [*of_blanks(), *of_names()]]
    with open(os.path.join(folder_out, "declared.jsonl"), "w", encoding="utf-8") as out:
        for name, replace, config, tokens_map, added, model, texts in variants:
            tokenizer_json = {**bases["bytes"], **replace}
            base = "blanks" if tokenizer_json["model"] == BLANKS["model"] else "bytes"
            replace = {key: value for key, value in tokenizer_json.items() if value != bases[base][key]}
            with tempfile.TemporaryDirectory() as folder:
                files = {"tokenizer.json": tokenizer_json, "config.json": {"model_type": model},
                         "tokenizer_config.json": config, "special_tokens_map.json": tokens_map, "added_tokens.json": added}
                for file, content in files.items():
                    if content is not None:
                        json.dump(content, open(os.path.join(folder, file), "w", encoding="utf-8"))
                tokenizer = AutoTokenizer.from_pretrained(folder)
            cases = []
            for text in texts:
                ids = tokenizer(text)["input_ids"]
                cases.append({"text": text, "ids": ids, "decoded": tokenizer.decode(ids, skip_special_tokens=True)})
            out.write(json.dumps({"name": name, "base": base, "replace": replace, "config": config, "map": tokens_map, "added": added, "model": model,
                                  "cases": cases}) + "\n")


main()
