"""The HTML page of an executed notebook, with plotly figures that work offline."""

import html
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jinja2
import nbformat
import plotly.io
from latex2mathml.converter import convert
from nbconvert import HTMLExporter
from nbconvert.filters.markdown_mistune import IPythonRenderer, MarkdownWithMath
from nbformat.v4 import new_markdown_cell
from plotly.offline import get_plotlyjs, get_plotlyjs_version

from labkit.lab.runs.jobs import write_atomically
from labkit.lab.runs.parameters import LINE, SET_BY_RUN
from labkit.lab.runs.run_folder import PICTURE

PLOTLY = "application/vnd.plotly.v1+json"
# Its own script, after that which live figures have, too: read, and not imported.
SCRIPTS = (
    Path(__file__).parents[1] / "panels/figures/common.js",
    Path(__file__).with_name("page.js"),
)
NOTE = """This page was run without JupyterLab. Below a live panel's figure its run can
be played, and the knobs that stand there can be turned to recorded values; all others
are in the notebook, which `labkit lab` opens. A walk through the lines of a step works
here, too."""


def write_page(notebook: Path, page: Path) -> None:
    """Write an executed notebook as an HTML page.

    nbconvert leaves plotly's JSON outputs out, so each becomes a ``div`` with its
    script.  plotly.js (5 MB) is written once beside the folder of the page, in
    ``_static``, and the pages of all runs refer to it. The first figure is also written
    by itself, for the report over all runs. Formulas are MathML, which
    browsers draw by themselves: nothing is loaded from elsewhere.
    """
    node = nbformat.read(notebook, as_version=4)
    for_readers(node)
    escape_markdown(node)
    fold_sections(node)
    resources = {"metadata": {"name": page.stem}}
    if figures := draw_figures(node):
        write_atomically(page.parent / PICTURE, json.dumps(figures[0]))
        script = keep_plotly_js(page.parent.parent)
        resources["plotly_js"] = f"../{script.parent.name}/{script.name}"
    exporter = HTMLExporter(
        extra_loaders=[jinja2.PackageLoader("labkit.lab.runs", ".")],
        template_file="page.html.j2",
        exclude_input_prompt=True,
        exclude_output_prompt=True,
    )
    exporter.register_filter("markdown2html", markdown)
    resources["page_js"] = page_js()
    body, _ = exporter.from_notebook_node(node, resources=resources)
    page.write_text(body, encoding="utf-8")


def tags(cell: nbformat.NotebookNode) -> list[str]:
    """Return a cell's tags."""
    return cell.metadata.get("tags", [])


def for_readers(node: nbformat.NotebookNode) -> None:
    """Make of an executed notebook what a reader of its page is to see.

    The parameters stand once, with the values of the run and without those that every
    run sets, which name its folder. The title comes first, and a note below the picture
    says what a page cannot do. ``folded`` in the metadata of a cell of code says
    whether its code is folded, as in the notebook.
    """
    values = node.metadata.get("papermill", {}).get("parameters", {})
    node.cells = [
        cell for cell in node.cells if "injected-parameters" not in tags(cell)
    ]
    for cell in node.cells:
        cell.metadata.pop("papermill", None)
        if cell.cell_type != "code":
            continue
        folded = cell.metadata.get("jupyter", {}).get("source_hidden", False)
        if "parameters" in tags(cell):
            cell.source, folded = with_values(cell.source, values), True
        cell.metadata["folded"] = folded
    note = new_markdown_cell(NOTE, metadata={"tags": ["note"]})
    kinds = [cell.cell_type for cell in node.cells]
    if "markdown" in kinds:  # a notebook has its parameters before the title
        node.cells.insert(0, node.cells.pop(kinds.index("markdown")))
    pictures = [i for i, cell in enumerate(node.cells, 1) if "still" in tags(cell)]
    node.cells.insert(next(iter(pictures), 1), note)


def with_values(source: str, values: Mapping[str, Any]) -> str:
    r"""Return a cell of parameters with other values, without those that a run sets.

    Examples
    --------
    >>> with_values('rank: int = 8  # terms; 1..64\nrun_dir: str = ""', {"rank": 2})
    'rank: int = 2  # terms; 1..64'
    """
    lines = []
    for line in source.splitlines():
        found = LINE.fullmatch(line)
        if found and found[1] in SET_BY_RUN:
            continue
        if found and found[1] in values:
            begin, end = found.span(3)
            line = f"{line[:begin]}{values[found[1]]!r}{line[end:]}"
        lines.append(line)
    return "\n".join(lines)


def level(cell: nbformat.NotebookNode) -> int:
    """Return the level of the heading that a cell begins with, 0 if with none."""
    return len(re.match("#*", cell.source)[0]) * (cell.cell_type == "markdown")


def collapsed(cell: nbformat.NotebookNode) -> bool:
    """Tell whether JupyterLab shows a heading without what stands below it."""
    return bool(level(cell) and cell.metadata.get("jp-MarkdownHeadingCollapsed"))


def fold_sections(node: nbformat.NotebookNode) -> None:
    """Say in the metadata of cells where a page opens and closes a folded section.

    ``opens`` is true of a collapsed heading, after which a section begins; ``closes``
    if one ends before a cell, and ``ends`` if after it. There is none within another.
    """
    under = 0  # the level of the heading whose section is open
    for cell in node.cells:
        depth = level(cell)
        closes = cell.metadata["closes"] = 0 < depth <= under
        under = 0 if closes else under
        opens = cell.metadata["opens"] = collapsed(cell) and not under
        under = depth if opens else under
        cell.metadata["ends"] = bool(under) and cell is node.cells[-1]


def escape_markdown(node: nbformat.NotebookNode) -> None:
    """Replace the Markdown in outputs by HTML in which tags are words.

    It may hold a parameter's text; a cell's own Markdown is the author's.
    """
    for cell in node.cells:
        for output in cell.get("outputs", []):
            text = output.get("data", {}).pop("text/markdown", None)
            if text is not None:
                output.data["text/html"] = markdown(text, escape=True)


def markdown(source: str, escape: bool = False) -> str:
    """Return Markdown as HTML, its formulas as MathML, its tags as words if wanted.

    Texts that are folded stay so.
    """
    made = MarkdownWithMath(renderer=_WithFormulas(escape=escape)).render(source)
    made = re.sub("&lt;(/?(details|summary))&gt;", r"<\1>", made)
    # A paragraph may not hold what a fold holds: it would be closed before it.
    return re.sub("<p>((</?details>|<summary>.*</summary>)+)</p>", r"\1", made)


def mathml(latex: str, display: str = "inline") -> str:
    """Return LaTeX as MathML, with ``aligned`` under the name ``align*``."""
    return convert(latex.replace("{aligned}", "{align*}"), display=display)


class _WithFormulas(IPythonRenderer):
    def inline_math(self, body: str) -> str:
        return mathml(body)

    def block_math(self, body: str) -> str:
        return mathml(body, "block")


def page_js() -> str:
    """Return the script that fits the figures of a page to its width."""
    return "".join(each.read_text("utf-8") for each in SCRIPTS)


def draw_figures(node: nbformat.NotebookNode) -> list[dict]:
    """Replace plotly's JSON by HTML, and return the figures."""
    figures = []
    for cell in node.cells:
        for output in cell.get("outputs", []):
            figure = output.get("data", {}).pop(PLOTLY, None)
            if figure is not None:
                output.data["text/html"] = _figure_html(figure)
                figures.append(figure)
    return figures


def _figure_html(figure: dict) -> str:
    layout = figure.get("layout", {})
    words = html.escape((layout.get("meta") or {}).get("alt", "A figure."))
    return f"<noscript>{words}</noscript>" + plotly.io.to_html(
        {"data": figure["data"], "layout": layout},
        config={"responsive": True, **figure.get("config", {})},
        default_height="450px",
        include_plotlyjs=False,
        full_html=False,
        validate=False,
    )


def keep_plotly_js(out: Path) -> Path:
    """Write plotly.js under ``out`` unless there; old pages keep their version."""
    script = out / "_static" / f"plotly-{get_plotlyjs_version()}.min.js"
    if not script.exists():
        script.parent.mkdir(exist_ok=True)
        write_atomically(script, get_plotlyjs())
    return script
