"""What stands twice in src: no eight lines of code in a row that are the same in two places, and none that are the same but for
a few names, which one function could serve with these as its parameters.

Blank lines, comments, includes and lines without a word do not count, and white space is folded. Tables (a line that begins
with "{", ".", a string or a number, a row of an X-macro, a case of a switch) may repeat: they are data. So may arch and reference,
which say the same of a model independently of each other. What else stays alike is in ALIKE, with the reason.

usage: check_twice.py ROOT
"""
import os
import re
import sys

LINES = 8
# Names and numbers that may differ, each always for the same other one; of fewer than NAMES in all it is an idiom
# (the end of a function that opens something, and the one that closes it).
RENAMED, NAMES = 5, 8
COMMENT = re.compile(r'/\*.*?\*/|//[^\n]*', re.S)
ROW = re.compile(r'[{.\[]|[A-Z][A-Z0-9_]*\(|0x|-?\d|[\w| ]+,$')
DATA = re.compile(r'[{\["#]|[A-Z][A-Z0-9_]*\(|0x|-?\d|[\w| ]+,$|static const char \*|case |return \w+;$')
TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|\'(?:[^\'\\]|\\.)*\'|[A-Za-z_]\w*|\d[\w.]*|\S')
LANGUAGE = set("""if else for while do switch case default return break continue goto static const struct enum union void int
char bool float double int64_t int32_t size_t uint8_t uint32_t sizeof NULL true false typedef inline extern unsigned""".split())

# Files that stay alike, and why (docs/architecture.md says it at more length).
ALIKE = {
    ("src/kernel/lanes_avx2.h", "src/kernel/lanes_avx512.h"): "the instructions of another set each",
    ("src/kernel/fixed_lanes_avx2.h", "src/kernel/fixed_lanes_avx512.h"): "the instructions of another set each",
    ("src/kernel/kernel_avx2.c", "src/kernel/kernel_avx512.c"): "what a level is made of: a list",
    ("src/kernel/kernel_fixed_avx512.c", "src/kernel/kernel_fixed_pdep_avx2.c"): "what a set is made of: a list",
    ("src/runtime/backend_coreml.c", "src/runtime/backend_engine.c"): "the table of a backend: a list",
    ("src/cli/cmd_template.c", "src/cli/cmd_tokenize.c"): "the variables of a command",
}


def code(path):
    """[(line number, text)] of what counts."""
    with open(path, encoding="utf-8") as f:
        text = COMMENT.sub(lambda m: "\n" * m.group().count("\n"), f.read())
    for i, line in enumerate(text.split("\n"), 1):
        line = " ".join(line.rstrip("\\").split())
        if re.search(r"\w", line) and not line.startswith("#include"):
            yield i, line


def shape(words):
    """A hashable form of lines of words in which names are numbers in the order of their first use, and the names."""
    numbers, out = {}, []
    for line in words:
        for word in line:
            own = word in LANGUAGE or not (word[0].isalnum() or word[0] in "_\"'")
            out.append(word if own else numbers.setdefault(word, len(numbers)))
        out.append("\n")
    return tuple(out), list(numbers)


def is_kept(a, b):
    return {a.split("/")[1], b.split("/")[1]} == {"arch", "reference"}


def find_same(files):
    """Places that are the same to the letter."""
    seen, found = {}, []
    for short, lines in files:
        last = -LINES
        for i in range(len(lines) - LINES + 1):
            part = tuple(text for _, text in lines[i:i + LINES])
            if sum(bool(ROW.match(text)) for text in part) > LINES // 2:
                continue
            first = seen.setdefault(part, (short, i, lines[i][0]))
            if first[:2] == (short, i) or (first[0] == short and i - first[1] < LINES) or is_kept(first[0], short):
                continue
            if i >= last + LINES:
                found.append(f"{short}:{lines[i][0]}: the same {LINES} lines as {first[0]}:{first[2]}")
            last = i
    return found


def find_alike(files):
    """{(file, file): the first places that are the same but for a few names}"""
    groups, found = {}, {}
    for short, lines in files:
        words = [TOKEN.findall(text) for _, text in lines]
        is_data = [bool(DATA.match(text)) for _, text in lines]
        for i in range(len(lines) - LINES + 1):
            if sum(is_data[i:i + LINES]) > LINES // 2:
                continue
            form, names = shape(words[i:i + LINES])
            if len(names) < NAMES:
                continue
            for other, at, line, others in groups.setdefault(form, []):
                renamed = [f"{b} for {a}" for a, b in zip(others, names) if a != b]
                if len(renamed) <= RENAMED and not (other == short and i - at < LINES) and not is_kept(other, short):
                    found.setdefault((other, short), f"{short}:{lines[i][0]}: the same {LINES} lines as {other}:{line} with "
                                                     f"{', '.join(renamed) or 'the same names'}")
            groups[form].append((short, i, lines[i][0], names))
    return found


def main():
    root, files = sys.argv[1], []
    for folder, _, names in sorted(os.walk(os.path.join(root, "src"))):
        for name in sorted(names):
            if name.endswith((".c", ".h")):
                path = os.path.join(folder, name)
                files.append((os.path.relpath(path, root), list(code(path))))
    found, alike = find_same(files), find_alike(files)
    found += [text for pair, text in alike.items() if pair not in ALIKE]
    there = {short for short, _ in files}
    found += [f"{a} and {b} are no longer alike: take them out of ALIKE"
              for a, b in ALIKE if {a, b} <= there and (a, b) not in alike]
    print("\n".join(found + [f"{len(files)} files checked, {len(found)} places twice"]))
    return len(found) > 0 or not files


sys.exit(main())
