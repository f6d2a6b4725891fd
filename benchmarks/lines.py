"""How many lines the house has, room by room: total, code, docstring, blank, comment.

    python benchmarks/lines.py [FOLDER ...]

A folder is the top of a source tree; with several, they follow one another, say before
and after. A line with code and a comment counts as code, and a string that stands where
a docstring may as docstring, its blank lines included. Below stands how long each
room of the package takes to import in a new process, the least of three times, and how
long torch alone does.
"""

import ast
import io
import os
import subprocess
import sys
import tokenize
from collections import Counter
from pathlib import Path

COLUMNS = ("files", "total", "code", "docstring", "blank", "comment", "longest")
NO_CODE = {
    *(tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT),
    *(tokenize.DEDENT, tokenize.ENCODING, tokenize.ENDMARKER),
}


def count(source):
    """Count the lines of a module by kind.

    >>> count('"Doc."' + chr(10) + chr(10) + "x = 1  # one" + chr(10) + "# two")
    Counter({'total': 4, 'docstring': 1, 'code': 1, 'blank': 1, 'comment': 1})
    """
    doc, code = set(), set()
    for node in ast.walk(ast.parse(source)):
        match getattr(node, "body", None):
            case [ast.Expr(value=ast.Constant(value=str())) as first, *_]:
                doc.update(range(first.lineno, first.end_lineno + 1))
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type not in NO_CODE:
            code.update(range(token.start[0], token.end[0] + 1))
    lines = source.splitlines()
    blank = {n for n, line in enumerate(lines, 1) if not line.strip()} - doc - code
    kinds = {"total": len(lines), "docstring": len(doc), "code": len(code - doc)}
    kinds["blank"] = len(blank)
    kinds["comment"] = len(lines) - len(doc | code) - len(blank)
    return Counter(kinds)


def rooms(tree):
    """Count a source tree by its folders; ``labkit/lab`` and what is below it too."""
    found = {}
    for top in ("labkit", "reproduction", "benchmarks", "tests"):
        for path in sorted((tree / top).rglob("*.py")):
            parts = path.relative_to(tree).parts
            room = f"{top}/{parts[1]}" if len(parts) > 2 else f"{top}/*.py"
            below = parts[2] if len(parts) > 3 else "*.py"
            lines = count(path.read_text("utf-8"))
            names = [room, top, *[f"{room}/{below}"] * (room == "labkit/lab")]
            for name in names:
                row = found.setdefault(name, Counter())
                longest = max(row["longest"], lines["total"])
                row.update(lines, files=1)
                row["longest"] = longest
    return found


def import_seconds(tree, module):
    """Import a module in three new processes, one by one; return the least time."""
    lines = f"import time; t = time.perf_counter(); import {module}"
    command = [sys.executable, "-c", f"{lines}; print(time.perf_counter() - t)"]
    here = {**os.environ, "PYTHONPATH": str(tree.resolve())}
    told = (subprocess.check_output(command, env=here, cwd=tree) for _ in range(3))
    return min(map(float, told))


def main(trees):
    """Print the tables of each tree."""
    for tree in trees:
        print(f"{tree}\n{'room':22}" + "".join(f"{c:>10}" for c in COLUMNS))
        for room, row in sorted(rooms(Path(tree)).items()):
            print(f"{room:22}" + "".join(f"{row[c]:10}" for c in COLUMNS))
        packages = sorted(
            p.parent.name for p in Path(tree).glob("labkit/*/__init__.py")
        )
        for module in ("torch", "labkit", *(f"labkit.{name}" for name in packages)):
            print(f"import {module:28} {import_seconds(Path(tree), module):6.2f} s")
        print()


if __name__ == "__main__":
    main(sys.argv[1:] or [Path(__file__).parents[1]])
