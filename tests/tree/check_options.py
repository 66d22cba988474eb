"""Option names belong to the command line: no string literal outside src/cli may hold one.

A library's caller has no options. Messages say what is wrong, and an error or a warning carries a hint word (base/err.h) that
the caller words: cli as its option, a program as it likes.

usage: check_options.py ROOT
"""
import os
import re
import sys

TOKEN = re.compile(
    r'/\*.*?\*/|//[^\n]*|"((?:[^"\\\n]|\\.)*)"|\'(?:[^\'\\\n]|\\.)*\'', re.S)
OPTION = re.compile(r"(?<![-\w])--[a-z]|\bmilkit [a-z]+ -")


def literals(text):
    """(line, contents) of each string literal; comments and characters are passed over."""
    for m in TOKEN.finditer(text):
        if m.group(1) is not None:
            yield text.count("\n", 0, m.start()) + 1, m.group(1)


def main():
    root = sys.argv[1]
    n_bad = 0
    for folder, _, files in sorted(os.walk(os.path.join(root, "src"))):
        if os.path.relpath(folder, os.path.join(root, "src")).split(os.sep)[0] == "cli":
            continue
        for name in sorted(files):
            if not name.endswith((".c", ".h", ".def")):
                continue
            path = os.path.join(folder, name)
            with open(path, encoding="utf-8") as f:
                for line, s in literals(f.read()):
                    if OPTION.search(s):
                        print(f'{os.path.relpath(path, root)}:{line}: option name in "{s}"')
                        n_bad += 1
    print(f"{n_bad} option names outside src/cli")
    return n_bad > 0


sys.exit(main())
