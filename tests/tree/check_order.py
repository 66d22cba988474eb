#!/usr/bin/env python3
"""Looks for results that C leaves open: check_order.py SOURCE_FOLDER

C does not say in which order the arguments of a call, the elements of an initializer and the operands of an operator are
evaluated. Where two of them call functions with an effect, compilers may do different things: write other names into a
package, report another error. Two such calls in one expression, neither inside the other and no sequence point (; && || ?:,
the end of a condition, a comma between declarators) between them, are a violation.

A function has an effect when one of its parameters points to something that it may change. Names in ALLOWED only give memory
of an arena, where the order can't be seen, or are const in all but type. Macros in capitals are statements, not arguments.
Exit status 1 when there is a violation.
"""
import re
import sys
from pathlib import Path

ALLOWED = set("""
arch_layout_weight arch_linear arch_rope_table arch_vector arch_weight conv_tap decay_rate expert_columns expert_rows make_norm
mask_constant query_part mil_value_new mil_value_new_string mil_value_new_weight
arch_layer_name name_of number_text suffixed mil_builder_arena
engine_state_get op_at type_of value_list value_tuple
""".split())
KEYWORDS = {"if", "while", "for", "switch", "return", "sizeof", "do", "else", "case"}
TOKEN = re.compile(r"[A-Za-z_]\w*|\d[\w.]*|->|&&|\|\||\+\+|--|[-+*/%&|^<>=!]=|<<|>>|\S")
FUNCTION = re.compile(r"(?:^|\n)((?:[A-Za-z_][\w]*[ \n*]+(?:__attribute__\(\([^)]*\)+ )?)+\**)(\w+)\(")


def blank(text):
    return re.sub(r"[^\n]", " ", text)


def without_text(source):
    """The source with comments, strings and preprocessor lines blanked, every character at its place."""
    out, at = [], 0
    for m in re.finditer(r"/\*.*?\*/|//[^\n]*|\"(?:\\.|[^\"\\\n])*\"|'(?:\\.|[^'\\\n])*'", source, re.S):
        out.append(source[at:m.start()])
        piece = m.group(0)
        out.append(piece[0] + blank(piece[1:-1]) + piece[-1] if piece[0] in "\"'" else blank(piece))
        at = m.end()
    out.append(source[at:])
    return re.sub(r"^[ \t]*#(?:[^\n\\]|\\\n|\\.)*", lambda m: blank(m.group(0)), "".join(out), flags=re.M)


def split_commas(text):
    parts, depth, begin = [], 0, 0
    for i, c in enumerate(text):
        depth += (c in "([{") - (c in ")]}")
        if c == "," and depth == 0:
            parts.append(text[begin:i])
            begin = i + 1
    return parts + [text[begin:]]


def may_change(parameter):
    """Does it point to something that is not const? Arenas apart."""
    parameter = parameter.strip()
    if ("*" not in parameter and "[" not in parameter) or "(*" in parameter:
        return False
    if re.search(r"struct arena \*\w*$", parameter):
        return False
    last = parameter.rfind("*")
    target = parameter[:last] if "[" not in parameter else parameter
    if "[" in parameter and "*" in parameter:
        return not re.search(r"\*\s*const\b", parameter)
    # What the last star points to is const when the word stands behind the star before it, or no star is before it.
    return "const" not in target[target.rfind("*") + 1:]


def functions_of(text):
    """(name, is static, has an effect) of what is declared or defined at the start of a line."""
    for m in FUNCTION.finditer(text):
        name, end, depth = m.group(2), m.end(), 1
        if name in KEYWORDS or re.search(r"\b(return|else|typedef)\b", m.group(1)):
            continue
        while end < len(text) and depth:
            depth += (text[end] == "(") - (text[end] == ")")
            end += 1
        parameters = split_commas(text[m.end():end - 1])
        yield name, "static" in m.group(1), any(may_change(p) for p in parameters)


def violations(text, effects):
    """(offset, first call, second call) of the first pair of every expression."""
    calls, stack, previous, number, found = [], [], "", 0, []

    def end_of_expression():
        pairs = [(a, b) for i, a in enumerate(calls) for b in calls[i + 1:]
                 if a[0] not in b[3] and b[0] not in a[3]]
        if pairs:
            found.append((pairs[0][0][2], pairs[0][0][1], pairs[0][1][1]))
        calls.clear()

    for m in TOKEN.finditer(text):
        token = m.group(0)
        if token == "(" and previous in effects:
            number += 1
            calls.append((number, previous, m.start(), {s[1] for s in stack if s[0] == "call"}))
            stack.append(("call", number))
        elif token == "(" and previous in ("if", "while", "for", "switch"):
            stack.append(("condition",))
        elif token == "(" and re.fullmatch(r"[A-Z][A-Z0-9_]+", previous) and (
                not stack or stack[-1][0] in ("block", "macro")):
            stack.append(("macro",))
        elif token in "([":
            stack.append((token,))
        elif token == "{":
            in_list = stack and stack[-1][0] == "list"
            if previous == "=" or in_list or (stack and stack[-1][0] not in ("block", "macro")):
                stack.append(("list",))
            else:
                end_of_expression()
                stack.append(("block",))
        elif token in ")]}":
            if stack and stack.pop()[0] in ("condition", "block"):
                end_of_expression()
        elif token in (";", "&&", "||", "?", ":"):
            end_of_expression()
        elif token == "," and (not stack or stack[-1][0] in ("block", "macro")):
            end_of_expression()
        previous = token
    end_of_expression()
    return found


def main():
    root = Path(sys.argv[1])
    files = sorted(p for folder in ("src", "tests", "bench", "tools") for p in (root / folder).rglob("*.[ch]"))
    texts = {p: without_text(p.read_text(encoding="utf-8", errors="replace")) for p in files}
    declared = {p: list(functions_of(text)) for p, text in texts.items()}
    shared = {name for p in files for name, is_static, effect in declared[p]
              if effect and (not is_static or p.suffix == ".h")}
    n = 0
    for p in files:
        own = {name: effect for name, _, effect in declared[p]}
        effects = ({name for name in shared if own.get(name, True)} | {k for k, v in own.items() if v}) - ALLOWED
        for at, first, second in violations(texts[p], effects):
            line = texts[p].count("\n", 0, at) + 1
            print(f"{p.relative_to(root)}:{line}: {first}() and {second}() in one expression, in an order that C "
                  "leaves open")
            n += 1
    print(f"{len(files)} files checked, {n} violations")
    return 1 if n else 0


sys.exit(main())
