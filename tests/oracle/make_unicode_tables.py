"""Asks the tokenizers library (0.23.3) for what it knows of every code point, and writes it down:

    src/unicode/unicode_category_table.h    general categories (16.0) and what NFC may touch, some scripts
    src/unicode/unicode_normal_table.h      combining classes, decompositions and compositions (9.0)
    src/unicode/unicode_case_table.h        what only NFKC takes apart (9.0), lower case
    tests/data/unicode/classes.txt       classes of the library's patterns, as runs of code points
    tests/data/unicode/sweep.jsonl       checksums of what normalizers and pre-tokenizers make of every code point

Usage: make_unicode_tables.py ROOT_OF_THE_TREE [tables], with Python 3.11 (Unicode 14.0).
Python's unicodedata only names candidates (what decomposes, into which two); the library's answers decide.
"""
import json
import sys
import unicodedata
import zlib

from tokenizers import AddedToken, Regex, Tokenizer, models, normalizers, pre_tokenizers

CATEGORIES = "Lu Ll Lt Lm Lo Mn Mc Me Nd Nl No Pc Pd Ps Pe Pi Pf Po Sm Sc Sk So Zs Zl Zp Cc Cf Co Cn".split()
SCRIPTS = "Arabic Cyrillic Devanagari Greek Han Hangul Hebrew Hiragana Katakana Latin Thai".split()
ALL = [cp for cp in range(0x110000) if not 0xd800 <= cp < 0xe000]
BLOCK = 0x4000
# of the checksums; the other planes hold private and unassigned code points alone
STARTS = [*range(0, 0x34000, BLOCK), 0xe0000, 0x10c000]

GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
SPLIT = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?%s+|\p{N}%s| ?[^\s%s]+[\r\n]*|\s*[\r\n]+"
         r"|\s+(?!\S)|\s+")
QWEN2 = SPLIT % (r"\p{L}", "", r"\p{L}\p{N}")
LLAMA3 = SPLIT % (r"\p{L}", "{1,3}", r"\p{L}\p{N}")
QWEN3_5 = SPLIT % (r"[\p{L}\p{M}]", "", r"\p{L}\p{M}\p{N}")


def runs(members):
    out = []
    for cp in sorted(members):
        if out and out[-1][1] == cp - 1:
            out[-1][1] = cp
        else:
            out.append([cp, cp])
    return out


def members(splitter):
    """What a splitter of behavior "removed" removes."""
    found = set()
    for i in range(0, len(ALL), 20000):
        part = ALL[i:i + 20000]
        kept = set()
        for piece, _ in splitter.pre_tokenize_str("".join(map(chr, part))):
            kept.update(piece)
        found.update(cp for cp in part if chr(cp) not in kept)
    return found


def of_pattern(pattern):
    return members(pre_tokenizers.Split(Regex(pattern), "removed"))


def word_boundaries():
    """What a token of single_word may not stand beside."""
    tokenizer = Tokenizer(models.BPE(unk_token="?", vocab={"?": 0}, merges=[], fuse_unk=False))
    tokenizer.add_tokens([AddedToken("\U0010fffe\U0010fffe", single_word=True, normalized=False)])
    sentinel = "\U0010fffe\U0010fffe"
    found = set()
    for cp in ALL:
        if sentinel not in tokenizer.encode(chr(cp) + sentinel).tokens:
            found.add(cp)
    return found


# --- tables -------------------------------------------------------------------------------------------------------


def c_array(kind, name, values):
    lines = [""]
    for value in values:
        if len(lines[-1]) + len(value) >= 118:
            lines.append("")
        lines[-1] += value + ","
    return "static const %s %s[] = {\n%s\n};\n" % (kind, name, "\n".join(lines))


def write_header(path, guard, comment, body):
    with open(path, "w", encoding="ascii") as file:
        file.write("/* %s\n * Written by tests/oracle/make_unicode_tables.py. */\n#ifndef %s\n#define %s\n\n"
                   "/* clang-format off */\n%s\n#endif\n" % (comment, guard, guard, body))


def category_table(path, category, unsafe, scripts):
    values = [CATEGORIES.index(category.get(cp, "Cn")) | (32 if cp in unsafe else 0) for cp in range(0x110000)]
    upper, lower = CATEGORIES.index("Lu"), CATEGORIES.index("Ll")
    starts = []
    cp = 0
    while cp < 0x110000:
        end = cp
        # pairs of cases take turns: even code points the one, odd ones the other
        while end < 0x110000 and values[end] == [upper, lower][(end - cp) % 2]:
            end += 1
        if end - cp >= 4:
            value = 30 + cp % 2
        else:
            value, end = values[cp], cp
            while end < 0x110000 and values[end] == value:
                end += 1
            # leave the first of a row that takes turns to it
            if end - cp > 1 and value == upper and values[end:end + 3] == [lower, upper, lower]:
                end -= 1
        starts.append((cp, value))
        cp = end
    first = []
    for block in range(0x201):
        first.append(max(i for i, (start, _) in enumerate(starts) if start <= block << 8))
    body = "/* start << 6 | flag << 5 | category, sorted; 30 and 31 stand for capital and small letters in turn. */\n"
    body += c_array("uint32_t", "category_runs", ["0x%x" % (start << 6 | value) for start, value in starts])
    body += "\n/* The run that each 256 code points start in, up to U+20000. */\n"
    body += c_array("uint16_t", "category_first", map(str, first))
    body += "\n/* First and last code points assigned after Unicode 14.0. */\n"
    body += c_array("uint32_t", "newer_runs", ["0x%x,0x%x" % tuple(run) for run in runs(
        cp for cp in category if category[cp] != "Cn" and unicodedata.category(chr(cp)) == "Cn")])
    for name in SCRIPTS:
        ranges = ["0x%x,0x%x" % tuple(run) for run in runs(scripts[name])]
        body += "\n" + c_array("uint32_t", "script_" + name.lower(), ranges)
    write_header(path, "MILKIT_UNICODE_UNICODE_CATEGORY_TABLE_H",
                 "General categories of Unicode 16.0; the flag is set where NFC (9.0) may change a character or what\n"
                 " * is before it. Scripts are pairs of first and last code point.", body)


def combining_classes(nfd):
    """Classes as the library orders marks: asked with one mark of each class."""
    by_class = {}
    for cp in ALL:
        number = unicodedata.combining(chr(cp))
        # of the first Unicode versions, so that the library knows it
        if number and number not in by_class and nfd.normalize_str(chr(cp)) == chr(cp):
            by_class[number] = chr(cp)
    numbers = sorted(by_class)
    low, high = by_class[numbers[0]], by_class[numbers[-1]]
    known = {}
    for cp in ALL:
        mark = chr(cp)
        if nfd.normalize_str(mark) != mark:
            continue
        if nfd.normalize_str(high + mark) == high + mark and nfd.normalize_str(mark + low) == mark + low:
            continue
        moves = [n for n in numbers if nfd.normalize_str(by_class[n] + mark) != by_class[n] + mark]
        if moves:  # it goes before all of a higher class
            known[cp] = numbers[numbers.index(moves[0]) - 1]
        elif nfd.normalize_str(mark + by_class[1]) != mark + by_class[1]:
            known[cp] = numbers[-1]
    return known


def decompositions(nfd):
    """Code point -> the one or two characters that it is made of (those may be made of others in turn)."""
    found = {}
    for cp in ALL:
        full = nfd.normalize_str(chr(cp))
        if full == chr(cp) or 0xac00 <= cp < 0xd7a4:
            continue
        found[cp] = [int(part, 16) for part in unicodedata.decomposition(chr(cp)).split()]
        assert len(found[cp]) in (1, 2) and "".join(nfd.normalize_str(chr(c)) for c in found[cp]) == full
    return found


def case_runs(lower):
    """(first, last, step, delta) of simple mappings."""
    pairs = [(cp, ord(text) - cp) for cp, text in sorted(lower.items()) if len(text) == 1]
    out = []
    for cp, delta in pairs:
        last = out[-1] if out else None
        if last and last[3] == delta and cp - last[1] in (1, 2) and last[2] in (0, cp - last[1]):
            last[1], last[2] = cp, cp - last[1]
        else:
            out.append([cp, cp, 0, delta])
    return out


def punctuation_table(punctuation):
    body = "\n/* First and last of what the Punctuation pre-tokenizer takes for it. */\n"
    return body + c_array("uint32_t", "punctuation_runs", ["0x%x,0x%x" % tuple(run) for run in runs(punctuation)])


def normal_tables(path, classes, made_of, compat, lower, punctuation):
    nfc = normalizers.NFC()
    class_runs = []
    for cp, number in sorted(classes.items()):
        if class_runs and class_runs[-1][1] == cp - 1 and class_runs[-1][2] == number:
            class_runs[-1][1] = cp
        else:
            class_runs.append([cp, cp, number])
    body = "/* first, last, class */\n"
    body += c_array("uint32_t", "class_runs", [",".join(map(str, run)) for run in class_runs])
    body += "\n/* Code point, first and second that it is made of (0: there is no second), sorted. */\n"
    entries = sorted(made_of.items())
    body += c_array("uint32_t", "decompositions", [
        "%d,%d,%d" % (cp, parts[0], parts[1] if len(parts) > 1 else 0) for cp, parts in entries])
    pairs = sorted((parts, i) for i, (cp, parts) in enumerate(entries)
                   if len(parts) == 2 and nfc.normalize_str(chr(cp)) == chr(cp))
    body += "\n/* Those that NFC puts together again, sorted by what they are made of. */\n"
    body += c_array("uint16_t", "compositions", [str(i) for _, i in pairs])
    write_header(path + "unicode_normal_table.h", "MILKIT_UNICODE_UNICODE_NORMAL_TABLE_H",
                 "Normal forms of Unicode 9.0, without Hangul.", body)
    body = "/* First and last of those that only NFKC and NFKD take apart. */\n"
    body += c_array("uint32_t", "compat_runs", ["%d,%d" % tuple(run) for run in runs(compat)])
    body += "\n/* first, last, step (0: only one), what to add */\n"
    body += c_array("int32_t", "lower_runs", [",".join(map(str, run)) for run in case_runs(lower)])
    body += punctuation_table(punctuation)
    write_header(path + "unicode_case_table.h", "MILKIT_UNICODE_UNICODE_CASE_TABLE_H",
                 "Compatibility (Unicode 9.0), lower case, and punctuation (Unicode 8.0).", body)


# --- goldens ------------------------------------------------------------------------------------------------------


def write_classes(path, classes):
    with open(path, "w", encoding="ascii") as file:
        file.write("# NAME, then runs: code points skipped since the last run, code points in the run; hexadecimal\n")
        for name, found in classes.items():
            words, at = [name], 0
            for first, last in runs(found):
                words.append("%x:%x" % (first - at, last + 1 - first))
                at = last + 1
            file.write(" ".join(words) + "\n")


NORMAL_TEXTS = ["{}", "a{}\u0301", "\u0345{}\u0327", "e\u0323{}\u0302", "\u1100{}\u11a8", "\u09c7{}", "{}\u3099\u0334"]
SPLIT_TEXTS = [
    "a{}b", " {}", "{}{} {}\n", "'{}", "1{}22{}3", "\t{}!{}", "\u0301{}\r\n", "\u3000{} \u00e9 {}'S", "\u4e00{}\u0661"]


def sweep(texts, function):
    """One checksum for each block of code points: of the texts with each code point in place of {}, put together."""
    sums = []
    for start in STARTS:
        part = [chr(cp) for cp in range(start, start + BLOCK) if not 0xd800 <= cp < 0xe000]
        crc = 0
        for text in texts:
            crc = zlib.crc32(function("".join(text.replace("{}", c) for c in part)), crc)
        sums.append("%08x" % crc)
    return sums


def write_sweep(path):
    def normal(normalizer):
        return lambda text: normalizer.normalize_str(text).encode()

    def pieces(splitter):
        return lambda text: b"".join(p.encode() + b"\xff" for p, _ in splitter.pre_tokenize_str(text))

    with open(path, "w", encoding="ascii") as file:
        def put(kind, what, texts, function):
            file.write(json.dumps([kind, what, texts, sweep(texts, function)]) + "\n")
            print(kind, str(what)[:60], flush=True)

        for name in ["NFC", "NFD", "NFKC", "NFKD", "Lowercase"]:
            put("normalizer", {"type": name}, NORMAL_TEXTS, normal(getattr(normalizers, name)()))
        others = [r"\w+|[^\w\s]|\d", r"[\p{Lu}\p{Lt}]?\p{Ll}+|[^\p{Han}\P{L}]|\p{Thai}"]
        for pattern in [GPT2, QWEN2, LLAMA3, QWEN3_5, *others]:
            splitter = pre_tokenizers.Split(Regex(pattern), "isolated")
            put("split", pattern, SPLIT_TEXTS, pieces(splitter))
        for name in ["Whitespace", "WhitespaceSplit", "Punctuation"]:
            put("pre_tokenizer", {"type": name}, SPLIT_TEXTS, pieces(getattr(pre_tokenizers, name)()))


def main():
    root = sys.argv[1]
    assert unicodedata.unidata_version == "14.0.0"
    category = {cp: name for name in CATEGORIES for cp in of_pattern(r"\p{%s}" % name)}
    scripts = {name: of_pattern(r"\p{%s}" % name) for name in SCRIPTS}
    nfc, nfd, nfkd = normalizers.NFC(), normalizers.NFD(), normalizers.NFKD()
    classes = combining_classes(nfd)
    made_of = decompositions(nfd)
    seconds = {parts[1] for cp, parts in made_of.items() if len(parts) == 2 and nfc.normalize_str(chr(cp)) == chr(cp)}
    unsafe = {cp for cp in ALL if cp in classes or cp in seconds or nfc.normalize_str(chr(cp)) != chr(cp)}
    unsafe.update(range(0x1161, 0x1176), range(0x11a8, 0x11c3))
    compat = {cp for cp in ALL if nfkd.normalize_str(chr(cp)) != nfd.normalize_str(chr(cp))}
    lowercase = normalizers.Lowercase()
    lower = {cp: lowercase.normalize_str(chr(cp)) for cp in ALL if lowercase.normalize_str(chr(cp)) != chr(cp)}
    assert [cp for cp, text in lower.items() if len(text) > 1] == [0x130]
    category_table(root + "/src/unicode/unicode_category_table.h", category, unsafe, scripts)
    normal_tables(root + "/src/unicode/", classes, made_of, compat, lower, members(pre_tokenizers.Punctuation("removed")))
    found = {name: {cp for cp in category if category[cp] == name} for name in CATEGORIES}
    for name in ["L", "N", "M"]:
        found[name] = of_pattern(r"\p{%s}" % name)
    for name in [r"\s", r"\w", r"\d"]:
        found[name] = of_pattern(name)
    found.update(scripts)
    found["single_word"] = word_boundaries()
    found["rstrip"] = {cp for cp in ALL if normalizers.Strip().normalize_str("a" + chr(cp)) == "a"}
    write_classes(root + "/tests/data/unicode/classes.txt", found)
    if sys.argv[2:] != ["tables"]:
        write_sweep(root + "/tests/data/unicode/sweep.jsonl")


if __name__ == "__main__":
    main()
