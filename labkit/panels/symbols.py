r"""A variable's symbol in its paper: from what its docstrings say.

An entry of a numpydoc table names it: the first ``$...$`` of its type or of the first
line of its description; several names and as many symbols go in pairs. A local that
stands in no table has the symbol that a formula of the docstring spells in the same
way: ``h_hat`` is $\hat h$, ``p1`` is $p_1$, ``theta`` is $\Theta$. Others have none.

Symbols are written without LaTeX's commands: x̄, ρ_0, A^†.
"""

import html
import inspect
import re
import unicodedata
from functools import lru_cache

from labkit.panels.equations import formulas_of

_ACCENTS = {"hat": "\u0302", "tilde": "\u0303", "bar": "\u0304", "mean": "\u0304"}
_SIGNS = {"nabla": "∇", "dagger": "†", "top": "T", "prime": "′", "varepsilon": "ε"}
_WORDS = {"lam": "lambda", "eps": "epsilon"}
_ENTRY = re.compile(r"( *)([A-Za-z_]\w*(?:, *[A-Za-z_]\w*)*) : (.*)")
_NAME = re.compile(
    r"([A-Za-z]+?)(?:_?(hat|bar|mean|tilde))?(?:_?(\d)|_([A-Za-z])|_(dagger))?"
)
_MARK = "[\u0302-\u0304]"


@lru_cache(maxsize=4096)
def symbol(name: str, docstring: str) -> str:
    r"""Return the symbol of a variable; empty where the docstring has none.

    Examples
    --------
    >>> text = "(1) $u = P\\bar x$\n\nl1, ratio : float\n    $\\gamma$ and $k$, >= 0"
    >>> [symbol(name, text) for name in ("l1", "ratio", "P", "x_mean", "x", "other")]
    ['γ', 'k', 'P', 'x̄', '', '']
    """
    tables, formulas = _read(docstring)
    if name in tables:
        return tables[name]
    for spelled in _spelled(name):
        letters = r"[\s,]*".join(map(re.escape, spelled.split()))
        if any(re.search(f"{letters}(?!{_MARK})", formula) for formula in formulas):
            return spelled
    return ""


@lru_cache(maxsize=512)
def _read(docstring: str) -> tuple[dict[str, str], list[str]]:
    """The symbols in a docstring's tables, and its formulas."""
    lines = inspect.cleandoc(docstring).splitlines()
    found: dict[str, str] = {}
    for line, below in zip(lines, [*lines[1:], ""], strict=True):
        match = _ENTRY.fullmatch(line)
        if not match:
            continue
        names = [name.strip() for name in match[2].split(",")]
        inside = len(below) - len(below.lstrip()) > len(match[1])
        said = match[3] if "$" in match[3] or not inside else below
        said = re.findall(r"\$([^$]+)\$", said)
        if len(said) >= len(names):
            found |= dict(zip(names, map(plain, said), strict=False))
    return found, [plain(formula) for formula in formulas_of(docstring)]


def plain(latex: str) -> str:
    r"""Return LaTeX with letters and signs in the place of its commands.

    Examples
    --------
    >>> [plain(s) for s in (r"\bar x", r"\rho_{0}", r"A^\dagger", r"\Delta Z")]
    ['x̄', 'ρ_0', 'A^†', 'Δ Z']
    """
    text = re.sub(r"\\(mathrm|text|operatorname)\{[^}]*\}", " ", latex)
    text = re.sub(r"\\([A-Za-z]+) *", lambda found: _sign(found[1]), text)
    text = re.sub(r"[{}]", "", text.replace("'", "′").replace(r"\,", " "))
    text = re.sub(rf"({_MARK})\s*(\w|∇)", r"\2\1", text)
    return re.sub(r"\s+(?=[_^\s])", "", text).strip()


def _sign(command: str) -> str:
    return _ACCENTS.get(command) or _SIGNS.get(command) or f"{_greek(command)} "


def _greek(name: str) -> str:
    """A Greek letter by its name in LaTeX; empty for other names."""
    kind = "SMALL" if name.islower() else "CAPITAL"
    word = {"LAMBDA": "LAMDA"}.get(name.upper(), name.upper())
    try:
        return unicodedata.lookup(f"GREEK {kind} LETTER {word}")
    except KeyError:
        return ""


def _spelled(name: str) -> list[str]:
    """Symbols that a name in ASCII usually stands for, the likeliest first."""
    parts = _NAME.fullmatch(name)
    if not parts:
        return []
    stem, accent, digit, letter, dagger = parts.groups()
    word = _WORDS.get(stem, stem)
    if _greek(word):
        bases = [_greek(word), _greek(word.capitalize())]
    elif len(stem) > 2:
        return []
    else:
        bases = [" ".join(stem)]
        bases += [f"Δ {stem[1]}"] if stem[0] == "d" and stem[1:] else []
    low = digit or letter
    end = "^†" if dagger else f"_{low}" if low else ""
    return [base + _ACCENTS.get(accent, "") + end for base in bases]


def symbol_html(text: str) -> str:
    """A symbol as HTML: letters, accents, one level of sub- and superscripts.

    Examples
    --------
    >>> symbol_html("x̄"), symbol_html("ρ_0"), symbol_html("A^†")
    ('<i>x̄</i>', '<i>ρ</i><sub>0</sub>', '<i>A</i><sup>†</sup>')
    """

    def marked(found):
        place = {"_": "sub", "^": "sup"}.get(found[1])
        if place:
            return f"<{place}>{found[2]}</{place}>"
        return f"<i>{found[2]}</i>" if found[2][0].isalpha() else found[2]

    text = html.escape(unicodedata.normalize("NFC", text), quote=False)
    return re.sub(rf"([_^]?)([^\W_]{_MARK}?|[†∇′]{_MARK}?)", marked, text)
