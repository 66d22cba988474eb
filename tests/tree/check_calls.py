"""Circles of calls and of includes between the files of src, over all its folders: none may be left.

One circle of calls is left on purpose, see EVALUATION. The archives of the build say which file defines a symbol and which files refer to it (nm). Files that refer to each other in
a circle can only be understood together: what they share belongs into a file below them, or they are one file.

usage: check_calls.py SOURCE_FOLDER NM ARCHIVE...
"""
import collections
import os
import re
import subprocess
import sys


# Evaluating a template. A value of the language can be a loop, a macro or an iterator, so printing, measuring and calling one
# evaluates, and what evaluates makes and prints values. A circle of other files is refused, also one with these in it.
EVALUATION = {"jinja/jinja_" + name + ".c" for name in
              "big call eval filters format json methods print sequence split statement string tests value".split()}


def read(nm, archives):
    """{file: symbols it defines}, {file: symbols it refers to}; a file is archive:member."""
    defined, used = collections.defaultdict(set), collections.defaultdict(set)
    for archive in archives:
        text = subprocess.run([nm, "-A", archive], check=True, capture_output=True, text=True).stdout
        for line in text.splitlines():
            m = re.match(r"(?:.*/)?lib\w+?_(\w+)\.a:([^:]+):\s*[0-9a-f]*\s+([A-Za-z]) (\S+)$", line)
            if not m:
                continue
            file = f"{m[1]}/{m[2].removesuffix('.o')}"
            if m[3] in "UVWvw":
                used[file].add(m[4])
            if m[3] in "TDBRCVW":  # external: what is local is no one else's
                defined[file].add(m[4])
    return defined, used


def includes(root):
    """{file: {file it includes: [line]}} of src; a file is folder/name."""
    graph = {}
    for folder, _, names in os.walk(os.path.join(root, "src")):
        for name in names:
            if name.endswith((".c", ".h", ".def")):
                path = os.path.join(folder, name)
                graph[os.path.relpath(path, os.path.join(root, "src"))] = path
    for file, path in graph.items():
        with open(path, encoding="utf-8") as f:
            found = [m[1] for m in re.finditer(r'^[ \t]*#[ \t]*include[ \t]*"([^"]*)"', f.read(), re.M)]
        graph[file] = {g: ["#include"] for g in found if g in graph and g != file}
    return graph


def edges(defined, used):
    """{file: {file it calls: [symbols]}}"""
    owner = {s: f for f in defined for s in defined[f]}
    graph = collections.defaultdict(lambda: collections.defaultdict(list))
    for f in used:
        for s in sorted(used[f]):
            if owner.get(s, f) != f:
                graph[f][owner[s]].append(s)
    return graph


def circles(graph):
    """Strongly connected groups of more than one file (Tarjan's algorithm, without recursion)."""
    index, low, on, stack, groups = {}, {}, set(), [], []
    for root in sorted(graph):
        if root in index:
            continue
        work = [(root, iter(sorted(graph[root])))]
        index[root] = low[root] = len(index)
        stack.append(root)
        on.add(root)
        while work:
            v, rest = work[-1]
            w = next(rest, None)
            if w is None:
                work.pop()
                if work:
                    low[work[-1][0]] = min(low[work[-1][0]], low[v])
                if low[v] == index[v]:
                    group = []
                    while not group or group[-1] != v:
                        group.append(stack.pop())
                        on.discard(group[-1])
                    if len(group) > 1:
                        groups.append(sorted(group))
            elif w not in index:
                index[w] = low[w] = len(index)
                stack.append(w)
                on.add(w)
                work.append((w, iter(sorted(graph[w]) if w in graph else [])))
            elif w in on:
                low[v] = min(low[v], index[w])
    return groups


def show(graph, groups, what):
    for group in groups:
        print(f"circle of {len(group)} files ({what}): {' '.join(group)}")
        for f in group:
            for g in group:
                if g in graph[f]:
                    print(f"    {f} -> {g}: {', '.join(graph[f][g])}")


def main():
    root, nm, archives = sys.argv[1], sys.argv[2], sys.argv[3:]
    defined, used = read(nm, archives)
    graph, included = edges(defined, used), includes(root)
    known = [c for c in circles(graph) if set(c) <= EVALUATION]
    found = [c for c in circles(graph) if not set(c) <= EVALUATION]
    nested = circles(included)
    show(graph, found, "calls")
    show(included, nested, "includes")
    n_calls, n_includes = (sum(len(g[f]) for f in g) for g in (graph, included))
    print(f"{len(defined)} files, {n_calls} pairs of caller and called, {len(found)} circles"
          f"{' but that of evaluation' if known else ''}; {len(included)} files with headers, {n_includes} includes, "
          f"{len(nested)} circles")
    if not defined or not included:
        print("no symbols or no files read")
        return 1
    return len(found) + len(nested) > 0


sys.exit(main())
