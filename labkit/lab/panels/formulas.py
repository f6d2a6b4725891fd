"""Formulas as MathML, which browsers draw by themselves."""

from functools import lru_cache

from latex2mathml.converter import convert


@lru_cache(maxsize=512)
def mathml(latex: str) -> str:
    r"""Return LaTeX as a MathML formula in a line, with the sums of a displayed one.

    Examples
    --------
    >>> ">x</" in mathml("x")
    True
    """
    return convert(latex).replace('display="inline"', 'displaystyle="true"', 1)
