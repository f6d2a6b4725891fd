r"""A variable's symbol in its paper: from what its docstrings say.

A docstring names a symbol outright, ``x_mean : $\bar x$``, several at once,
``forgetting, ratio : $\lambda$, $k$``, at the start of a parameter's description, or by
a formula in which the variable occurs as it is usually spelled in ASCII: ``h_hat`` for
$\hat h$, ``p1`` for $p_1$, ``theta`` for $\Theta$. What no docstring has gets none.
"""

import html
import re
import unicodedata

ACCENTS = {"hat": "\u0302", "tilde": "\u0303", "bar": "\u0304"}
_SUFFIXES = {"hat": "hat", "bar": "bar", "mean": "bar", "tilde": "tilde"}
_WORDS = {"lam": "lambda", "eps": "varepsilon"}
_CAPITAL = "gamma delta theta lambda xi pi sigma upsilon phi psi omega".split()
_SIGNS = {"nabla": "∇", "dagger": "†", "varepsilon": "ε", "prime": "′"}
_MAPPED = re.compile(
    r"(?:^|;)\s*([A-Za-z_]\w*(?:, *[A-Za-z_]\w*)*) : ((?:\$[^$]+\$(?:, *)?)+)", re.M
)
_BELOW = re.compile(r"^\s*([A-Za-z_]\w*) : [^\n$]*\n\s+\$([^$]+)\$", re.M)
_TOKEN = re.compile(r"\\[A-Za-z]+|[A-Za-z]|\d+|[_^']")


def declared(docstring: str | None) -> dict[str, str]:
    r"""LaTeX by name, where a docstring says ``name : $symbol$``.

    Examples
    --------
    >>> declared(r"x_mean : $\bar x$, (n,).  forgetting, ratio : $\lambda$, $k$.")
    {'x_mean': '\\bar x'}
    >>> declared(r"forgetting, ratio : $\lambda$, $k$.")
    {'forgetting': '\\lambda', 'ratio': 'k'}
    >>> declared("l1 : float\n    $\\gamma$ >= 0")
    {'l1': '\\gamma'}
    """
    found: dict[str, str] = dict(_BELOW.findall(docstring or ""))
    for names, symbols in _MAPPED.findall(docstring or ""):
        names, symbols = names.split(","), re.findall(r"\$([^$]+)\$", symbols)
        if len(names) == len(symbols):
            found |= {n.strip(): s for n, s in zip(names, symbols, strict=True)}
    return found


def spelled(name: str) -> list[str]:
    r"""LaTeX that a name in ASCII usually stands for, the likeliest first.

    Examples
    --------
    >>> spelled("x_mean"), spelled("rho0"), spelled("G_u"), spelled("rhobar")
    (['\\bar x'], ['\\rho_0'], ['G_u'], ['\\bar \\rho'])
    >>> spelled("velocity")
    []
    """
    parts = re.fullmatch(
        r"([A-Za-z]+?)(bar|hat|tilde)?(\d*)(?:_([A-Za-z]+|\d+))?", name
    )
    if not parts:
        return []
    stem, accent, digits, suffix = parts.groups()
    accent = accent or _SUFFIXES.get(suffix or "", "")
    low = "" if suffix in _SUFFIXES else digits or suffix or ""
    if len(low) > 1 and low != "dagger":
        return []
    end = r"^\dagger" if low == "dagger" else f"_{low}" if low else ""
    start = rf"\{accent} " if accent else ""
    return [start + base + end for base in _bases(stem)]


def _bases(stem: str) -> list[str]:
    word = _WORDS.get(stem, stem)
    if _greek(word):
        capital = [rf"\{word.capitalize()}"] if word in _CAPITAL else []
        return [rf"\{word}", *capital]
    if len(stem) == 2 and stem[0] == "d":
        return [" ".join(stem), rf"\Delta {stem[1]}"]
    return [" ".join(stem)] if len(stem) <= 2 else []


def occurs(symbol: str, latex: str) -> bool:
    r"""Whether a symbol stands in a formula as a whole.

    Examples
    --------
    >>> formula = r"h = \lambda + k T\,\bar x^\top u"
    >>> [occurs(s, formula) for s in ("u", r"\bar x", "x", "k T")]
    [True, True, False, True]
    """
    formula = _TOKEN.findall(re.sub(r"\\(mathrm|text)\{[^}]*\}", " ", latex))
    wanted = _TOKEN.findall(symbol)
    for i in range(len(formula) - len(wanted) + 1):
        accented = i and formula[i - 1][1:] in ACCENTS
        if formula[i : i + len(wanted)] == wanted and not accented:
            return True
    return False


def symbol_html(latex: str) -> str:
    r"""A symbol as HTML: letters, accents, one level of sub- and superscripts.

    Examples
    --------
    >>> symbol_html(r"\bar x"), symbol_html(r"\rho_0"), symbol_html(r"A^\dagger")
    ('<i>x̄</i>', '<i>ρ</i><sub>0</sub>', '<i>A</i><sup>†</sup>')
    """
    out, accent, place = [], "", ""
    for token in _TOKEN.findall(latex):
        name = token.lstrip("\\")
        if token.startswith("\\") and name in ACCENTS:
            accent = ACCENTS[name]
        elif token in "_^":
            place = {"_": "sub", "^": "sup"}[token]
        else:
            sign = _sign(token)
            text = html.escape(unicodedata.normalize("NFC", sign + accent))
            text = f"<i>{text}</i>" if sign.isalpha() and not place else text
            out.append(f"<{place}>{text}</{place}>" if place else text)
            accent = place = ""
    return "".join(out)


def _sign(token: str) -> str:
    if not token.startswith("\\"):
        return {"'": "′"}.get(token, token)
    name = token[1:]
    if name in _SIGNS:
        return _SIGNS[name]
    return _greek(name) or name


def _greek(name: str) -> str:
    """A Greek letter by its LaTeX name; empty for other names."""
    kind = "SMALL" if name.islower() else "CAPITAL"
    word = {"LAMBDA": "LAMDA"}.get(name.upper(), name.upper())
    try:
        return unicodedata.lookup(f"GREEK {kind} LETTER {word}")
    except KeyError:
        return ""
