"""What ``check``, ``hint`` and ``solution`` show: words, heat maps, folded hints."""

import html
import math
import re
from collections.abc import Iterator, Mapping
from itertools import cycle

import numpy as np
from IPython.display import display
from torch import Tensor

from labkit.lab.exercises.answers import Question
from labkit.lab.exercises.judging import ALIKE, Exercise, Judgement
from labkit.lab.panels.figures.captions import Figure, describe, panel_text
from labkit.lab.panels.figures.drawing import corner, on_axes, panel_title, suffix
from labkit.lab.panels.figures.theme import PLAIN, SCALE, layout
from labkit.lab.panels.lines.walk import mathml

LARGEST = 40  # rows or columns of a matrix that is drawn
NUMBERED = 6  # columns of one whose numbers are written into it
CELL, LEAST, WIDTH = 22, 44, 190  # pixels of a cell, and of a matrix at least
GAP, LEFT, RIGHT = 54, 10, 54  # between matrices, before the first, after the last
ABOVE, BELOW = 26, 14  # of a row of matrices: its titles, and room
NARROW = 640  # pixels of the three matrices at least: a narrower page is scrolled
BARE = PLAIN | {"showticklabels": False}
CAPTION = "What your lines gave in the first step, beside what is wanted."
KINDS = "text", "code", "formula"
HEADS = {
    "open": "✎",
    "error": "**Error.**",
    "shape": "**Not yet:**",
    "wrong": "**Not yet.**",
    "right": "✔",
}


class Words:
    """A text in Markdown that a notebook typesets."""

    def __init__(self, text: str) -> None:
        self.text = text

    def _repr_mimebundle_(self, **_: object) -> dict[str, str]:
        return {"text/markdown": self.text, "text/plain": self.text}

    def __repr__(self) -> str:
        return self.text


class Checked:
    """A judgement as a notebook shows it: words, heat maps, and the folded hints.

    Attributes
    ----------
    judgement : Judgement
    right : bool, whether the answer is accepted
    """

    def __init__(self, found: Exercise | Question, judgement: Judgement) -> None:
        self.exercise, self.judgement = found, judgement

    @property
    def right(self) -> bool:
        """Whether the answer is accepted."""
        return self.judgement.right

    def figure(self) -> Figure | None:
        """Return heat maps of her values beside the wanted ones; None without any."""
        drawn = {
            name: pair
            for name, pair in self.judgement.pairs.items()
            if _can_be_drawn(pair[1]) and not _alike(*pair)
        }
        if not drawn or self.right:
            return None
        return side_by_side({name: tuple(map(_matrix, p)) for name, p in drawn.items()})

    def _ipython_display_(self) -> None:
        said = f"{HEADS[self.judgement.kind]} {self.judgement.text}"
        # An exercise that is open has its equation above, in the text or nowhere.
        told = self.right or self.judgement.kind == "open"
        if isinstance(self.exercise, Exercise) and not told:
            said += f"\n\n$${self.exercise.equation}$$"
        display(Words(said))
        if figure := self.figure():
            display(figure)
        if not self.right:
            page = folded(self.exercise)
            display({"text/html": page, "text/plain": ""}, raw=True)

    def __repr__(self) -> str:
        return self.judgement.text


def _can_be_drawn(x: Tensor) -> bool:
    rows = math.prod(x.shape[:-1])
    return x.ndim > 0 and x.numel() > 0 and max(rows, x.shape[-1]) <= LARGEST


def _alike(hers: Tensor, wanted: Tensor) -> bool:
    size = float(wanted.abs().max())
    return bool((hers - wanted).abs().max() <= ALIKE * size)


def _matrix(x: Tensor) -> np.ndarray:
    rows = x.reshape(1, -1) if x.ndim < 2 else x.flatten(0, -2)
    return rows.detach().cpu().double().numpy()


def side_by_side(pairs: Mapping[str, tuple[np.ndarray, np.ndarray]]) -> Figure:
    """Return heat maps: in each row a result, the wanted one, and their difference.

    A colour scale is grey at 0. The first two matrices share theirs.

    Parameters
    ----------
    pairs : mapping of a name to her (m, n) array and the wanted one
    """
    heights = [max(LEAST, CELL * len(wanted)) for _, wanted in pairs.values()]
    height = sum(heights) + len(pairs) * (ABOVE + BELOW)
    width = LEFT + 3 * WIDTH + 2 * GAP + RIGHT
    made = layout(width=width, height=height, margin=dict.fromkeys("lrtb", 0))
    made["annotations"], traces, words, top = [], [], [], 0
    for row, (name, (hers, wanted)) in enumerate(pairs.items()):
        down = [1 - (top + ABOVE + heights[row]) / height, 1 - (top + ABOVE) / height]
        for column, (title, matrix, ends) in enumerate(_maps(name, hers, wanted)):
            i, at = 3 * row + column, LEFT + column * (WIDTH + GAP)
            across = [at / width, (at + WIDTH) / width]
            place = {"x": across[1], "y": sum(down) / 2, "len": down[1] - down[0]}
            traces.append(_heat(matrix, ends, place) | on_axes(i))
            k = suffix(i)
            made[f"xaxis{k}"] = BARE | {"domain": across, "anchor": f"y{k}"}
            made[f"yaxis{k}"] = BARE | {"domain": down, "anchor": f"x{k}"}
            made[f"yaxis{k}"]["autorange"] = "reversed"
            made["annotations"].append(panel_title(title, corner(across[0], down[1])))
            words.append(panel_text(title, "row", "column"))
        top += ABOVE + heights[row] + BELOW
    figure = describe({"data": traces, "layout": made}, CAPTION, words)
    figure["layout"]["meta"]["least"] = NARROW
    return figure


def _maps(name: str, hers: np.ndarray, wanted: np.ndarray) -> Iterator[tuple]:
    """Yield a title, a matrix, and the largest size that its colours have."""
    difference = hers - wanted
    most, both = (np.nanmax(np.abs(x)) for x in (difference, [hers, wanted]))
    yield f"your {name}", hers, both
    yield f"wanted {name}", wanted, both
    yield f"the difference, at most {most:.2g}", difference, most


def _heat(matrix: np.ndarray, ends: float, place: dict) -> dict:
    """Return the trace of a matrix: with its numbers, or else with a colour bar."""
    numbered = matrix.shape[1] <= NUMBERED
    return {
        "type": "heatmap",
        "z": matrix,
        "zmin": -ends,
        "zmax": ends,
        "colorscale": SCALE,
        "texttemplate": "%{z:.3g}" if numbered else "",
        "textfont": {"color": "black"},  # legible on these colours in both themes
        "showscale": not numbered,
        "colorbar": place | {"thickness": 8, "nticks": 3, "xpad": 4},
        "xgap": 1,
        "ygap": 1,
        "hovertemplate": "row %{y}, column %{x}: %{z:.6g}<extra></extra>",
    }


def folded(found: Exercise | Question) -> str:
    """Return HTML of the hints, each folded inside the one before, and the solution."""
    inside = _details("Solution", _paragraphs(found.solution))
    for i, text in reversed([*enumerate(found.hints, 1)]):
        inside = _details(f"Hint {i}", _paragraphs(text) + inside)
    return inside


def _details(summary: str, inside: str) -> str:
    return f"<details><summary>{summary}</summary>{inside}</details>"


def _paragraphs(markdown: str) -> str:
    """Return HTML of Markdown that has paragraphs, code and formulas, and no more.

    Formulas are MathML, since an exported page loads no script that typesets them.
    """
    parts = []
    for part in markdown.split("\n\n"):
        if part.startswith("```"):
            code = "\n".join(part.splitlines()[1:-1])
            parts.append(f"<pre><code>{html.escape(code)}</code></pre>")
        else:
            spans = re.split(r"`([^`]*)`|\$([^$]*)\$", part)  # text, code, formula, ...
            parts.append(f"<p>{''.join(map(_span, spans, cycle(KINDS)))}</p>")
    return "".join(parts)


def _span(text: str | None, kind: str) -> str:
    if text is None:  # not this kind
        return ""
    if kind == "formula":
        return mathml(text)
    escaped = html.escape(text)
    return f"<code>{escaped}</code>" if kind == "code" else escaped
