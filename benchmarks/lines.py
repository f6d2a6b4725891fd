"""How much there is to read, room by room: tokens of code and what else weighs.

    python benchmarks/lines.py [FOLDER ...]

A folder is the top of a source tree, this one if none is named; several follow one
another, say before and after. A room is a folder of `labkit`, of `labkit/lab` or of
`tests`, and any other top folder as a whole. Its row has

- lines, as they stand;
- tokens of code: without comments, docstrings and line breaks, and an f-string is one
  token on every Python, so that packed lines weigh as much as loose ones;
- words of docstrings and comments;
- public names of modules, functions with methods, and their parameters;
- tricks: starred arguments in calls, and lambdas bound to a name;
- files.

The code cells of a notebook count as Python, JavaScript by its words and signs. Sums
stand below. `tests/test_house.py` holds each room to its bound.
"""

import ast
import io
import json
import re
import sys
import tokenize
from collections import Counter
from pathlib import Path

COLUMNS = [
    "lines",
    "tokens",
    "words",
    "public",
    "functions",
    "parameters",
    "tricks",
    "files",
]
TOPS = ("benchmarks", "docs", "labkit", "notebooks", "reproduction", "tests")
NO_CODE = {
    tokenize.COMMENT,
    tokenize.NL,
    tokenize.NEWLINE,
    tokenize.INDENT,
    tokenize.DEDENT,
    tokenize.ENCODING,
    tokenize.ENDMARKER,
}
# Since Python 3.12 an f-string is a row of tokens between these two.
OPENED = getattr(tokenize, "FSTRING_START", None)
CLOSED = getattr(tokenize, "FSTRING_END", None)
FUNCTIONS = ast.FunctionDef | ast.AsyncFunctionDef
HAVE_DOCSTRINGS = ast.Module | ast.ClassDef | FUNCTIONS


def weigh_python(source):
    """Weigh the text of a module.

    >>> weight = weigh_python("def double(x): return 2 * x  # twice")
    >>> weight["tokens"], weight["words"], weight["parameters"]
    (10, 2, 1)
    """
    tree = ast.parse(source)
    weight, docstrings = Counter(lines=len(source.splitlines()), files=1), set()
    for node in ast.walk(tree):
        if isinstance(node, HAVE_DOCSTRINGS) and node.body:
            first = node.body[0]
            text = getattr(getattr(first, "value", None), "value", None)
            if isinstance(first, ast.Expr) and isinstance(text, str):
                docstrings.add((first.lineno, first.col_offset))
                weight["words"] += len(text.split())
        if isinstance(node, FUNCTIONS):
            given = node.args
            weight["functions"] += 1
            weight["parameters"] += len(given.posonlyargs + given.args)
            weight["parameters"] += len(given.kwonlyargs)
        elif isinstance(node, ast.Call):
            weight["tricks"] += sum(
                isinstance(argument, ast.Starred) for argument in node.args
            )
            weight["tricks"] += sum(keyword.arg is None for keyword in node.keywords)
        elif isinstance(node, ast.Assign):
            weight["tricks"] += isinstance(node.value, ast.Lambda)
    for node in tree.body:
        if isinstance(node, ast.ClassDef | FUNCTIONS):
            weight["public"] += not node.name.startswith("_")
    inside = 0  # how many f-strings are open
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            weight["words"] += len(token.string.split())
        elif token.type not in NO_CODE and token.start not in docstrings:
            weight["tokens"] += not inside
            inside += (token.type == OPENED) - (token.type == CLOSED)
    return weight


def weigh(path):
    """Weigh a file."""
    text = path.read_text("utf-8")
    if path.suffix == ".js":
        bare = re.sub(r"/\*.*?\*/|//.*?$", " ", text, flags=re.DOTALL | re.MULTILINE)
        tokens = len(re.findall(r"\w+|[^\w\s]", bare))
        return Counter(lines=len(text.splitlines()), tokens=tokens, files=1)
    if path.suffix == ".ipynb":
        cells = json.loads(text)["cells"]
        code = (
            "".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"
        )
        text = "\n".join(code)
    return weigh_python(text)


def room_of(path):
    """Name the room of a file, whose path is from the top of the tree."""
    top, *below = path.parts[:-1]
    if top == "labkit":
        depth = 2 if below[:1] == ["lab"] else 1
        return "/".join([top, *(below[:depth] or ["*.py"])])
    return "/".join([top, *below[:1]]) if top == "tests" else top


def rooms(tree):
    """Weigh the rooms of a source tree; return their weights by name."""
    found = {}
    kinds = "*.py", "*.js", "*.ipynb"
    files = (
        path for top in TOPS for kind in kinds for path in (tree / top).rglob(kind)
    )
    for path in sorted(path.relative_to(tree) for path in files):
        if not any(part.startswith(".") for part in path.parts):
            room = found.setdefault(room_of(path), Counter())
            room.update(weigh(tree / path))
    return found


def sums(weights):
    """Add the rooms up: core, lab, each other top folder, and all."""
    found = {}
    for room, weight in weights.items():
        top = room.split("/")[0]
        if top == "labkit":
            top = "lab" if room.startswith("labkit/lab") else "core"
        for name in (top, "all"):
            found.setdefault(f"= {name}", Counter()).update(weight)
    return found


def main(trees):
    """Print the table of each tree."""
    for tree in trees:
        if len(trees) > 1:
            print(tree)
        print(f"{'room':28}" + "".join(f"{name:>11}" for name in COLUMNS))
        weights = rooms(Path(tree))
        for name, weight in [*weights.items(), *sums(weights).items()]:
            print(f"{name:28}" + "".join(f"{weight[column]:11,}" for column in COLUMNS))


if __name__ == "__main__":
    main(sys.argv[1:] or [Path(__file__).parents[1]])
