"""Formulas as MathML, which browsers draw by themselves."""

import html
from functools import lru_cache


@lru_cache(maxsize=512)
def mathml(latex: str) -> str:
    r"""Return LaTeX as a MathML formula in a line, with the sums of a displayed one.

    Examples
    --------
    >>> ">x</" in mathml("x")
    True
    """
    try:
        from latex2mathml.converter import convert
    except ImportError:  # an environment older than this module
        return f"<code>{html.escape(latex)}</code>"
    return convert(latex).replace('display="inline"', 'displaystyle="true"', 1)
