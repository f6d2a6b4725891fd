"""The HTML page of an executed notebook, with plotly figures that work offline."""

import html
from pathlib import Path

import jinja2
import nbformat
import plotly.io
from latex2mathml.converter import convert
from nbconvert import HTMLExporter
from nbconvert.filters.markdown_mistune import IPythonRenderer, MarkdownWithMath
from plotly.offline import get_plotlyjs, get_plotlyjs_version

from labkit.lab.runs.jobs import write_atomically

PLOTLY = "application/vnd.plotly.v1+json"


def write_page(notebook: Path, page: Path) -> None:
    """Write an executed notebook as an HTML page.

    nbconvert leaves plotly's JSON outputs out, so each becomes a ``div`` with its
    script.  plotly.js (5 MB) is written once beside the folder of the page, in
    ``_static``, and the pages of all runs refer to it. Formulas are MathML, which
    browsers draw by themselves: nothing is loaded from elsewhere.
    """
    node = nbformat.read(notebook, as_version=4)
    resources = {"metadata": {"name": page.stem}}
    if draw_figures(node):
        script = _keep_plotly_js(page.parent.parent)
        resources["plotly_js"] = f"../{script.parent.name}/{script.name}"
    exporter = HTMLExporter(
        extra_loaders=[jinja2.PackageLoader("labkit.lab.runs", ".")],
        template_file="page.html.j2",
    )
    exporter.register_filter("markdown2html", markdown)
    body, _ = exporter.from_notebook_node(node, resources=resources)
    page.write_text(body, encoding="utf-8")


def markdown(source: str) -> str:
    """Return a markdown cell as HTML, its formulas as MathML."""
    return MarkdownWithMath(renderer=_WithFormulas(escape=False)).render(source)


def mathml(latex: str, display: str = "inline") -> str:
    """Return LaTeX as MathML, with ``aligned`` under the name ``align*``."""
    return convert(latex.replace("{aligned}", "{align*}"), display=display)


class _WithFormulas(IPythonRenderer):
    def inline_math(self, body: str) -> str:
        return mathml(body)

    def block_math(self, body: str) -> str:
        return mathml(body, "block")


def draw_figures(node: nbformat.NotebookNode) -> int:
    """Replace plotly's JSON by HTML, and return the number of figures."""
    count = 0
    for cell in node.cells:
        for output in cell.get("outputs", []):
            figure = output.get("data", {}).pop(PLOTLY, None)
            if figure is not None:
                output.data["text/html"] = _figure_html(figure)
                count += 1
    return count


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


def _keep_plotly_js(out: Path) -> Path:
    """Write plotly.js under ``out`` unless there; old pages keep their version."""
    script = out / "_static" / f"plotly-{get_plotlyjs_version()}.min.js"
    if not script.exists():
        script.parent.mkdir(exist_ok=True)
        write_atomically(script, get_plotlyjs())
    return script
