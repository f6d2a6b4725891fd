"""Make the likely slips of a line: signs, transposes, factors, indices, terms, order.

Each mutant is the library's own function with one small change in the lines that an
exercise leaves out. The numbers of a wrong answer are compared with those of the
mutants: where they are equal, the slip has a name.
"""

import ast
import copy
from collections.abc import Collection, Iterator
from typing import NamedTuple

from labkit.lab.exercises.blank import blanks

KINDS = ("sign", "transpose", "factor", "index", "missing term", "order")
# Methods and functions that multiply or divide by something that can be forgotten.
_FACTORS = {"sqrt", "rsqrt", "square", "reciprocal", "mul_", "div_", "mul", "div"}
_FACTORS |= {"mean", "sum", "abs", "exp", "log", "sigmoid", "tanh", "conj"}
_OPPOSITE = {ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult}
_SIGNED = {"alpha", "value", "beta"}  # keywords that are factors of a whole term


class Mutant(NamedTuple):
    """A change of one place: its kind, what was done, and the function's text."""

    kind: str  # one of KINDS
    change: str  # in words, for a learner
    text: str


def mutants(text: str, tags: Collection[str]) -> Iterator[Mutant]:
    r"""Yield each mutant of the tagged statements of a function's text once.

    Examples
    --------
    >>> text = "def f(P, x):\n    return 2.0 * P @ x  # (1)\n"
    >>> for mutant in list(mutants(text, ["1"]))[:4]:
    ...     print(mutant.kind, mutant.text.splitlines()[1].strip())
    sign return -(2.0 * P @ x)
    transpose return 2.0 * P @ x.mT
    order return x @ (2.0 * P)
    factor return 2.0 @ x
    """
    seen = {ast.unparse(ast.parse(text))}
    for statement in (each for group in blanks(text, tags) for each in group):
        lines = statement.lineno, statement.end_lineno
        for kind, change, new in _changed(statement):
            tree = _with(text, lines, new)
            mutated = ast.unparse(ast.fix_missing_locations(tree))
            if mutated not in seen:
                seen.add(mutated)
                yield Mutant(kind, change, mutated + "\n")


def _with(text: str, lines: tuple[int, int], new: ast.stmt | None) -> ast.Module:
    """Parse the text with the statement on these lines replaced, or by ``pass``."""
    tree = ast.parse(text)
    for node in ast.walk(tree):
        for name in ("body", "orelse", "finalbody"):
            inside = getattr(node, name, None)
            for i, each in enumerate(inside if isinstance(inside, list) else []):
                if (each.lineno, each.end_lineno) == lines:
                    inside[i] = new or ast.Pass()
                    return tree
    raise LookupError(f"no statement on the lines {lines}")


def _changed(statement: ast.stmt) -> Iterator[tuple[str, str, ast.stmt | None]]:
    """Yield kind, change in words and the changed copy of one statement."""
    if isinstance(statement, ast.Assign | ast.Return) and statement.value:
        parts = [statement.value]
        if isinstance(statement.value, ast.Tuple):
            parts = statement.value.elts
        for part in parts:
            new = ast.UnaryOp(ast.USub(), part)
            yield "sign", "its sign is turned", _replaced(statement, part, new)
    if not isinstance(statement, ast.Assign | ast.Return):
        what = f"`{ast.unparse(statement)}` is left out"
        yield "missing term", what, None
    for node in _values(statement):
        for kind, change, new in _of_node(node):
            yield kind, change, _replaced(statement, node, new)


def _values(statement: ast.stmt) -> Iterator[ast.expr]:
    """Yield all expressions of a statement but the targets of an assignment."""
    roots = [statement.value] if hasattr(statement, "value") else [statement]
    if isinstance(statement, ast.Assign):
        roots += [t for t in statement.targets if isinstance(t, ast.Subscript)]
    for root in filter(None, roots):
        yield from (n for n in ast.walk(root) if isinstance(n, ast.expr))


def _replaced(statement: ast.stmt, old: ast.AST, new: ast.AST) -> ast.stmt:
    """Copy a statement with one node replaced, which is found by its identity."""

    def copied(node):
        if node is old:
            return copy.deepcopy(new)
        if not isinstance(node, ast.AST):
            return [copied(x) for x in node] if isinstance(node, list) else node
        fields = {name: copied(value) for name, value in ast.iter_fields(node)}
        made = type(node)(**fields)
        return ast.copy_location(made, node) if hasattr(node, "lineno") else made

    return copied(statement)


def _of_node(node: ast.expr) -> Iterator[tuple[str, str, ast.expr]]:
    """Yield the slips at one node."""
    for slips in (_signs, _transposes, _products, _sums, _indices, _calls, _numbers):
        yield from slips(node)


def _signs(node: ast.expr) -> Iterator[tuple[str, str, ast.expr]]:
    said = f"`{ast.unparse(node)}`"
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        yield "sign", f"the minus of {said} is missing", node.operand
    elif isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add | ast.Sub):
        op = _OPPOSITE[type(node.op)]()
        yield "sign", f"plus and minus in {said} are exchanged", _binary(node, op=op)
    elif isinstance(node, ast.GeneratorExp | ast.ListComp):
        new = copy.copy(node)
        new.elt = _negative(node.elt)
        yield "sign", f"the sign of `{ast.unparse(node.elt)}` is turned", new
    elif _method(node) == "neg_" or _called(node) == "torch.neg":
        value = node.func.value if _method(node) == "neg_" else node.args[0]
        yield "sign", f"the minus of {said} is missing", value
    elif isinstance(node, ast.Call):
        for i, each in enumerate(node.keywords):
            if each.arg in _SIGNED:
                new = copy.copy(node)
                turned = _negative(each.value)
                new.keywords = [*node.keywords]
                new.keywords[i] = ast.keyword(each.arg, turned)
                yield "sign", f"the sign of `{ast.unparse(each)}` is turned", new


def _negative(node: ast.expr) -> ast.expr:
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        return node.operand
    return ast.UnaryOp(ast.USub(), node)


def _transposes(node: ast.expr) -> Iterator[tuple[str, str, ast.expr]]:
    said = f"`{ast.unparse(node)}`"
    if isinstance(node, ast.Attribute) and node.attr in ("T", "mT"):
        yield "transpose", f"the transpose of {said} is missing", node.value
    elif isinstance(node, ast.BinOp) and isinstance(node.op, ast.MatMult):
        for side in ("left", "right"):
            each = getattr(node, side)
            if isinstance(each, ast.Name | ast.Subscript):
                turned = ast.Attribute(each, "mT", ast.Load())
                what = f"`{ast.unparse(each)}` is transposed"
                yield "transpose", what, _binary(node, **{side: turned})
    elif isinstance(node, ast.Call) and _called(node) in _PRODUCTS:
        for i, each in enumerate(node.args):
            if isinstance(each, ast.Name):
                turned = ast.Attribute(each, "mT", ast.Load())
                what = f"`{each.id}` is transposed"
                yield "transpose", what, _with_argument(node, i, turned)


_PRODUCTS = {"mm", "upper_mm", "upper_t_mm", "mm_upper", "cross", "torch.mm"}
_PRODUCTS |= {
    "torch.addmm",
    "torch.outer",
    "torch.baddbmm",
    "torch.bmm",
    "torch.matmul",
}


def _products(node: ast.expr) -> Iterator[tuple[str, str, ast.expr]]:
    if not isinstance(node, ast.BinOp):
        return
    left, right, said = node.left, node.right, f"`{ast.unparse(node)}`"
    if isinstance(node.op, ast.Mult | ast.Div):
        yield "factor", f"`{ast.unparse(right)}` is missing in {said}", left
        if isinstance(node.op, ast.Mult):
            yield "factor", f"`{ast.unparse(left)}` is missing in {said}", right
            op, what = (
                ast.Div(),
                f"`{ast.unparse(right)}` divides and does not multiply",
            )
        else:
            op, what = (
                ast.Mult(),
                f"`{ast.unparse(right)}` multiplies and does not divide",
            )
            if not isinstance(left, ast.Constant):
                lone = ast.BinOp(ast.Constant(1), node.op, right)
                yield "factor", f"`{ast.unparse(left)}` is missing in {said}", lone
            swapped = ast.BinOp(right, node.op, left)
            yield "order", f"the two sides of {said} are exchanged", swapped
        yield "factor", what, _binary(node, op=op)
    elif isinstance(node.op, ast.MatMult):
        swapped = ast.BinOp(right, node.op, left)
        yield "order", f"the factors of {said} are in the other order", swapped
    elif isinstance(node.op, ast.Pow):
        yield "factor", f"the power of {said} is missing", left


def _sums(node: ast.expr) -> Iterator[tuple[str, str, ast.expr]]:
    if not (isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add | ast.Sub)):
        return
    left, right = node.left, node.right
    yield "missing term", f"the term `{ast.unparse(right)}` is missing", left
    if isinstance(node.op, ast.Sub):
        lone = ast.UnaryOp(ast.USub(), right)
        swapped = ast.BinOp(right, node.op, left)
        said = f"`{ast.unparse(node)}`"
        yield "order", f"the two sides of {said} are exchanged", swapped
    else:
        lone = right
    yield "missing term", f"the term `{ast.unparse(left)}` is missing", lone


def _indices(node: ast.expr) -> Iterator[tuple[str, str, ast.expr]]:
    if _method(node) in ("einsum",) or _called(node) == "torch.einsum":
        yield from _einsum(node)
        return
    if not isinstance(node, ast.Subscript):
        return
    said, index = f"`{ast.unparse(node)}`", node.slice
    parts = index.elts if isinstance(index, ast.Tuple) else [index]
    if len(parts) > 1 and ast.dump(parts[0]) != ast.dump(parts[-1]):
        turned = ast.Tuple([*reversed(parts)], ast.Load())
        yield "index", f"the indices of {said} are exchanged", _indexed(node, turned)
    for i, part in enumerate(parts):
        for new in _shifted(part):
            whole = ast.Tuple([*parts[:i], new, *parts[i + 1 :]], ast.Load())
            whole = whole if len(parts) > 1 else new
            changed = _indexed(node, whole)
            what = f"the index `{ast.unparse(changed)}` should be {said}"
            yield "index", what, changed


def _shifted(part: ast.expr) -> Iterator[ast.expr]:
    """Yield an index or slice with one of its ends one further."""
    if isinstance(part, ast.Slice):
        for name in ("lower", "upper"):
            if (end := getattr(part, name)) is not None:
                new = copy.copy(part)
                setattr(new, name, _plus_one(end))
                yield new
    elif isinstance(part, ast.Name) or (
        isinstance(part, ast.Constant) and type(part.value) is int
    ):
        yield _plus_one(part)


def _plus_one(node: ast.expr) -> ast.expr:
    if isinstance(node, ast.Constant):
        return ast.Constant(node.value + 1)
    return ast.BinOp(node, ast.Add(), ast.Constant(1))


def _einsum(node: ast.Call) -> Iterator[tuple[str, str, ast.expr]]:
    """Exchange two letters of one operand of an einsum, and of its result."""
    first = node.args[0]
    if not (isinstance(first, ast.Constant) and isinstance(first.value, str)):
        return
    operands, _, result = first.value.partition("->")
    parts = [*operands.split(","), result]
    for i, part in enumerate(parts):
        for j in range(len(part) - 1):
            letters = part[:j] + part[j + 1] + part[j] + part[j + 2 :]
            new = [*parts[:i], letters, *parts[i + 1 :]]
            said = ",".join(new[:-1]) + "->" + new[-1]
            what = f'the indices "{said}" should be "{first.value}"'
            yield "index", what, _with_argument(node, 0, ast.Constant(said))


def _calls(node: ast.expr) -> Iterator[tuple[str, str, ast.expr]]:
    """Leave out a method of a chain, exchange two arguments, or leave out a keyword."""
    if not isinstance(node, ast.Call):
        return
    name = _method(node)
    if name in _FACTORS:
        what = f"`.{name}({', '.join(map(ast.unparse, node.args))})` is missing"
        yield "factor", what, node.func.value
    elif name and not node.args and isinstance(node.func.value, ast.expr):
        if not isinstance(node.func.value, ast.Name):
            yield "missing term", f"`.{name}()` is missing", node.func.value
    for i in range(len(node.args) - 1):
        two = [*node.args]
        two[i], two[i + 1] = two[i + 1], two[i]
        said = f"`{ast.unparse(node.args[i])}` and `{ast.unparse(node.args[i + 1])}`"
        if not any(isinstance(each, ast.Constant | ast.Starred) for each in two):
            new = copy.copy(node)
            new.args = two
            yield "order", f"{said} are exchanged in the call of `{_called(node)}`", new


def _numbers(node: ast.expr) -> Iterator[tuple[str, str, ast.expr]]:
    if isinstance(node, ast.Call):
        for i, each in enumerate(node.keywords):
            number = isinstance(each.value, ast.Name | ast.BinOp)
            if each.arg in _SIGNED and number:
                new = copy.copy(node)
                new.keywords = [*node.keywords]
                new.keywords[i] = ast.keyword(each.arg, ast.Constant(1))
                yield "factor", f"the factor `{ast.unparse(each)}` is missing", new
    if isinstance(node, ast.Constant) and type(node.value) is float:
        what = f"the number {node.value:g} should not be doubled"
        yield "factor", what, ast.Constant(2 * node.value)


def _binary(node: ast.BinOp, **parts: ast.AST) -> ast.BinOp:
    new = copy.copy(node)
    for name, part in parts.items():
        setattr(new, name, part)
    return new


def _indexed(node: ast.Subscript, index: ast.expr) -> ast.Subscript:
    new = copy.copy(node)
    new.slice = index
    return new


def _with_argument(node: ast.Call, i: int, value: ast.expr) -> ast.Call:
    new = copy.copy(node)
    new.args = [*node.args[:i], value, *node.args[i + 1 :]]
    return new


def _called(node: ast.AST) -> str:
    """Return the name of what is called, with its dots; empty for no call."""
    return ast.unparse(node.func) if isinstance(node, ast.Call) else ""


def _method(node: ast.AST) -> str:
    """Return the name of the method that is called; empty for another node."""
    call = isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)
    module = call and isinstance(node.func.value, ast.Name)
    named = module and node.func.value.id in ("torch", "math")
    return node.func.attr if call and not named else ""
