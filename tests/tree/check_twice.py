"""What stands twice: no eight lines of code in a row that are the same in two places of src.

Blank lines, comments, includes and lines without a word do not count, and white space is folded. Tables (a line that begins
with "{" or ".", a row of an X-macro) may repeat: they are data. So may arch and reference, which say the same of a model
independently of each other.

usage: check_twice.py ROOT
"""
import os
import re
import sys

LINES = 8
COMMENT = re.compile(r'/\*.*?\*/|//[^\n]*', re.S)
ROW = re.compile(r'[{.\[]|[A-Z][A-Z0-9_]*\(|0x|-?\d|[\w| ]+,$')


def code(path):
    """[(line number, text)] of what counts."""
    with open(path, encoding="utf-8") as f:
        text = COMMENT.sub(lambda m: "\n" * m.group().count("\n"), f.read())
    for i, line in enumerate(text.split("\n"), 1):
        line = " ".join(line.split())
        if re.search(r"\w", line) and not line.startswith("#include"):
            yield i, line


def main():
    root = sys.argv[1]
    seen, found, n_files = {}, [], 0
    for folder, _, files in sorted(os.walk(os.path.join(root, "src"))):
        for name in sorted(files):
            if not name.endswith((".c", ".h")):
                continue
            path = os.path.join(folder, name)
            short, lines, last = os.path.relpath(path, root), list(code(path)), -LINES
            n_files += 1
            for i in range(len(lines) - LINES + 1):
                part = tuple(text for _, text in lines[i:i + LINES])
                if sum(bool(ROW.match(text)) for text in part) > LINES // 2:
                    continue
                first = seen.setdefault(part, (short, i, lines[i][0]))
                if first[:2] == (short, i) or (first[0] == short and i - first[1] < LINES):
                    continue
                if {first[0].split("/")[1], short.split("/")[1]} == {"arch", "reference"}:
                    continue
                if i >= last + LINES:
                    found.append(f"{short}:{lines[i][0]}: the same {LINES} lines as {first[0]}:{first[2]}")
                last = i
    print("\n".join(found + [f"{n_files} files checked, {len(found)} places twice"]))
    return len(found) > 0 or n_files == 0


sys.exit(main())
