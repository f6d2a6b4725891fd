r"""Equations of a docstring by their tags, and the tags of a source line.

A docstring gives an equation a number in front, ``(38) $u = P \bar x$``, or behind it
in a displayed block, ``u &= P \bar x &&(38) \\``. A line of code names those that it
implements in a trailing comment, ``# (38), (39)``, or ``# (1)-(6)`` for a range. Tags
are numbers, also with letters, or single small letters.
"""

import inspect
import re

TAG = r"\(([A-Z]?\d+[a-z]?'?|[a-z])\)"
_TAGS = rf"{TAG}(?:\s*[,-]\s*{TAG})*"
_INLINE = re.compile(rf"({TAG}(?:,\s*{TAG})*):?\s*((?:\$[^$]+\$[\s,]*)+)")
_BLOCK = re.compile(
    r"\.\. math::[^\n]*\n((?:[ \t]+\S[^\n]*(?:\n|\Z)|[ \t]*\n)+)|\$\$(.+?)\$\$",
    re.S,
)
_BEHIND = re.compile(rf"&&\s*((?:{TAG}[,\s]*)+)\s*$")


def tags_of_line(line: str) -> list[str]:
    """Tags in the trailing comment of a line of code.

    Examples
    --------
    >>> tags_of_line("u, h = gain(P, x)  # (38), (39)")
    ['38', '39']
    >>> tags_of_line("P: Tensor  # (n, n) inverse")
    []
    >>> tags_of_line("X, Z = mix(G)  # (1)-(4)")
    ['1', '2', '3', '4']
    """
    _, mark, comment = line.partition("#")
    found = re.match(rf"\s*({_TAGS})(?:\s*$|[^\w])", comment)
    if not mark or not found:
        return []
    tags: list[str] = []
    for between, tag in re.findall(rf"([,-]?)\s*{TAG}", found[1]):
        if between == "-" and tag.isdigit() and tags[-1].isdigit():
            tags += map(str, range(int(tags[-1]) + 1, int(tag)))
        tags.append(tag)
    return tags


def equations_of(docstring: str | None) -> dict[str, str]:
    r"""LaTeX by tag, without the tags and the marks of alignment.

    Examples
    --------
    >>> equations_of(r"One step: (1) $y = x^2$    (2) $z = y,$ $w = z$.")
    {'1': 'y = x^2', '2': 'z = y, \\quad w = z'}
    """
    text = inspect.cleandoc(docstring or "")
    found: dict[str, str] = {}
    for block in _BLOCK.finditer(text):
        for row in re.split(r"\\\\", block[1] or block[2]):
            row = " ".join(row.split())
            behind = _BEHIND.search(row)
            if behind:
                latex = row[: behind.start()].replace("&", " ").strip(" ,.")
                for tag in re.findall(TAG, behind[1]):
                    found.setdefault(tag, latex)
    for match in _INLINE.finditer(_BLOCK.sub("\n", text)):
        parts = re.findall(r"\$([^$]+)\$", match[0][len(match[1]) :])
        latex = r" \quad ".join(" ".join(part.split()) for part in parts)
        for tag in re.findall(TAG, match[1]):
            found.setdefault(tag, latex)
    return found


def formulas_of(docstring: str | None) -> list[str]:
    r"""All LaTeX of a docstring, numbered or not.

    Examples
    --------
    >>> formulas_of(r"With $z = \hat h W$, (1) $h' = \tanh z$.")
    ['z = \\hat h W', "h' = \\tanh z"]
    """
    text = inspect.cleandoc(docstring or "")
    blocks = [block[1] or block[2] for block in _BLOCK.finditer(text)]
    return blocks + re.findall(r"\$([^$]+)\$", _BLOCK.sub("\n", text))
