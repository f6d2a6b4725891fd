"""The site: how `make docs` builds it. Its source is put together in build/docs."""

import ast
import re
from pathlib import Path

from docutils import nodes
from plotly.offline import get_plotlyjs

import labkit
from labkit.lab.runs.page import mathml, page_js

project, author = "labkit", "the labkit developers"
copyright = "2026, the labkit developers"
version = release = labkit.__version__
extensions = [
    "myst_nb",
    "numpydoc",
    "sphinx.ext.autodoc",
    "sphinx.ext.viewcode",
    "sphinx_design",
    "sphinx_copybutton",
]
copybutton_exclude = ".linenos, .gp, .go"
copybutton_selector = "div:not(.printed) > div.highlight pre"

# Notebooks come executed, by `labkit run`; their formulas and ours are MathML, and
# nothing is loaded from elsewhere.
nb_execution_mode = "off"
nb_ipywidgets_js = {}
nb_code_prompt_show = "The check behind this"
nb_code_prompt_hide = "Fold the check"
myst_enable_extensions = ["colon_fence", "dollarmath"]
myst_heading_anchors = 3
myst_url_schemes = ["http", "https", "mailto"]

autodoc_member_order = "bysource"
numpydoc_show_class_members = False
numpydoc_class_members_toctree = False
default_role = "code"
toc_object_entries = False

html_theme = "pydata_sphinx_theme"
html_title = "labkit"
html_favicon = "favicon.svg"
html_math_renderer = "mathml"
html_copy_source = html_show_sourcelink = False
# Figures are told of a dark page as JupyterLab does it.
TELL = """addEventListener("DOMContentLoaded", () => {
  const tell = () => {
    const dark = document.documentElement.dataset.theme === "dark";
    document.body.dataset.jpThemeLight = !dark;
  };
  tell();
  new MutationObserver(tell).observe(document.documentElement, { attributes: true });
});"""
html_js_files = [
    ("plotly.min.js", {"priority": 100}),
    (None, {"body": TELL}),
    (None, {"body": page_js()}),
]
html_static_path = ["site.css", "fonts"]
html_sidebars = {"index": [], "learn": [], "reproduction/**": []}
html_css_files = ["site.css"]
html_theme_options = {
    "navbar_align": "left",
    "show_prev_next": False,
    "secondary_sidebar_items": {"**": ["page-toc"], "index": [], "learn": []},
    "footer_start": ["copyright"],
    "footer_end": [],
}


def formulas(app, what, name, obj, options, lines):
    """Have formulas between dollars in a docstring be formulas; mark nothing else."""
    parts = re.split(
        r"(``.+?``|:[a-z]+:`[^`]+`|\$[^$]+\$)", "\n".join(lines), flags=re.S
    )
    block = any(".. math::" in line for line in lines)
    for i, part in enumerate(parts):
        if part.startswith("$"):
            parts[i] = f"\\ :math:`{' '.join(part[1:-1].split())}`\\ "
        elif i % 2 == 0 and not block:
            parts[i] = part.replace("|", r"\|")
    text = re.sub(r"^( *)\((\w+'?)\)", r"\1\(\2)", "".join(parts), flags=re.M)
    lines[:] = text.split("\n")


def skip(app, what, name, obj, skipped, options):
    """Leave out what scikit-learn adds to every estimator."""
    return skipped or bool(re.match(r"set_\w+_request$|get_metadata_routing$", name))


def _inline(self, node):
    self.body.append(mathml(node.astext()))
    raise nodes.SkipNode


def _displayed(self, node):
    latex = node.astext()
    if "&" in latex and r"\begin" not in latex:
        latex = rf"\begin{{aligned}}{latex}\end{{aligned}}"
    self.body.append(f"<div>{mathml(latex, 'block')}</div>")
    raise nodes.SkipNode


def plotly_js(app):
    """Bring the script that draws the notebooks' figures along."""
    static = Path(app.outdir) / "_static"
    static.mkdir(parents=True, exist_ok=True)
    (static / "plotly.min.js").write_text(get_plotlyjs(), "utf-8")


def names_in(code: str) -> dict[str, str]:
    """Return the pages of the names that code imports from a room: its API's.

    >>> names_in("from labkit.rls import RLS as R, rls_step")
    {'R': 'api/labkit.rls.RLS', 'rls_step': 'api/labkit.rls.rls_step'}
    """
    try:
        tree = ast.parse(code)
    except SyntaxError:  # another language
        return {}
    return {
        each.asname or each.name: f"api/{node.module}.{each.name}"
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and node.module
        for each in node.names
    }


# sphinx-codeautolink was tried on this site: in notebooks it follows a name within its
# own cell alone, and made 264 links in lessons and how-to pages where these are 456.
def links(app, pagename, templatename, context, doctree):
    """Have names in a page's code lead to their pages."""
    found = {}
    for block in doctree.findall(nodes.literal_block) if doctree else ():
        found |= names_in(block.astext())
    found = {name: page for name, page in found.items() if page in app.env.found_docs}
    if not found:
        return

    def link(match):
        address = context["pathto"](found[match[2]])
        return f'<a href="{address}">{match[0]}</a>'

    name = rf'<span class="(n|nc|nf)">({"|".join(found)})</span>'
    context["body"] = re.sub(name, link, context["body"])


VERDICTS = {"yes": "yes", "no": "no", "not decided by this run": "open"}


def verdicts(app, doctree):
    """Mark the verdicts of a table, which a reader looks for first."""
    for entry in doctree.findall(nodes.entry):
        if (said := entry.astext()) in VERDICTS:
            entry["classes"].append(f"verdict-{VERDICTS[said]}")


OPENED = '<details class="folded"><summary>Show this section</summary>'


def fold(app, doctree):
    """Close a section from the comment on that `gather.py` has put there."""
    for mark in [*doctree.findall(nodes.comment)]:
        if mark.astext().strip() == "fold":
            section = mark.parent
            section.append(nodes.raw("", "</details>", format="html"))
            mark.replace_self(nodes.raw("", OPENED, format="html"))


def setup(app):
    """Called by Sphinx."""
    app.add_html_math_renderer("mathml", (_inline, None), (_displayed, None))
    app.connect("doctree-read", fold)
    app.connect("doctree-read", verdicts)
    app.connect("autodoc-process-docstring", formulas)
    app.connect("autodoc-skip-member", skip)
    app.connect("builder-inited", plotly_js)
    app.connect("html-page-context", links)
