"""How a panel gets onto a page, and what stands there once its kernel is gone."""

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from ipykernel.kernelbase import Kernel
from IPython.display import display

if TYPE_CHECKING:
    from ipywidgets import DOMWidget, Widget

# ipykernel asks this private method of a widget's comm which thread is to answer.
ROUTE = "_reply_subshell_for"
COMMON = Path(__file__).with_name("common.js")
LOST = "No kernel answers for this panel: run this cell again."
# Elsewhere than in JupyterLab, which alone has these classes, nothing is to be seen;
# nor is it while a page that is loaded still waits for its panels.
_BELOW = f"""<style>
@keyframes labkit-wait {{ from, to {{ visibility: hidden }} }}
.labkit-lost {{ display: none; animation: labkit-wait 3s }}
.labkit-panel.jupyter-widgets-disconnected::before,
.labkit-panel .jupyter-widgets-disconnected::before {{ content: none !important }}
.jp-OutputArea-child:not(:has(.labkit-panel:not(.jupyter-widgets-disconnected)))
  + .jp-OutputArea-child .labkit-lost {{ display: block }}
</style><p class="labkit-lost">{LOST}</p>"""


def show(widget: "DOMWidget", at_once: bool = False) -> None:
    """Display a panel's widget, and below it a line that is seen only when it is lost.

    After a restart of the kernel JupyterLab marks the widget as disconnected; after a
    reload of the page there is no widget. ``at_once`` is that of :func:`hear_here`.
    """
    hear_here(widget, at_once)
    display(widget.add_class("labkit-panel"))
    display({"text/html": _BELOW, "text/plain": ""}, raw=True)


class Page(NamedTuple):
    """HTML and what stands for it in a console."""

    html: str
    text: str

    def _repr_mimebundle_(self, **_):
        return {"text/html": self.html, "text/plain": self.text}


class Shown:
    """Something that shows its ``widget`` if ``interactive``, else its ``figure``."""

    at_once = False  # see `hear_here`

    @property
    def _still(self):
        """What is shown without widgets."""
        return self.figure

    def _ipython_display_(self):
        if self.interactive:
            show(self.widget, self.at_once)
        else:
            display(self._still)


def embedded(script: Path, data: object) -> str:
    """Return HTML of the data with the module that shows them there without a kernel.

    The style of ``play.js`` lies beside it in ``play.css``, and both are put into the
    page.
    """
    inside = json.dumps(data, separators=(",", ":")).replace("</", "<\\/")
    style = script.with_suffix(".css").read_text("utf-8")
    code = "".join(each.read_text("utf-8") for each in (COMMON, script))
    return (
        f'<div class="labkit-{script.stem}">'
        f'<script type="application/json">{inside}</script></div>'
        f'<style>{style}</style><script type="module">{code}</script>'
    )


class Table(dict):
    """What occurs often is kept once, in order: ``table(item)`` is its number."""

    def __call__(self, item: Any) -> int:
        """Return the number of an item, a new one for a new item."""
        return self.setdefault(item, len(self))


def close(widget: "Widget") -> None:
    """Close a widget, all in it and its styles: the kernel and the page forget them."""
    for part in [*_parts(widget)]:
        part.close()


def _parts(widget: "Widget") -> "Iterator[Widget]":
    """Yield a widget, all in it and its styles; what is inside comes first."""
    styles = (getattr(widget, name, None) for name in ("layout", "style"))
    for part in (*getattr(widget, "children", ()), *filter(None, styles)):
        yield from _parts(part)
    yield widget


def hear_here(widget: "Widget", at_once: bool = False) -> None:
    """Have what a page tells a panel answered where cells run.

    ipykernel may answer it on a thread that belongs to the page. Once that thread has
    ended, what it ran stands still, and what the page says is lost on its way to it.
    With ``at_once`` it is answered there as long as the thread lives, also while cells
    run; what is to go on by itself has to begin on the loop of the cells.
    """

    def route(_data: object, of_the_page: str | None) -> str | None:
        threads = Kernel.instance().shell_channel_thread.manager
        return (
            of_the_page if at_once and of_the_page in threads.list_subshell() else None
        )

    for part in _parts(widget):
        if hasattr(part.comm, ROUTE):  # an ipykernel without it has no such threads
            setattr(part.comm, ROUTE, route)


def loop_here() -> asyncio.AbstractEventLoop | None:
    """The event loop that runs now, as in a notebook; None in a plain script."""
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None
