"""How a panel gets onto the page, and what stands there once its kernel is gone."""

from typing import NamedTuple

from IPython.display import display

from labkit.lab.panels.cells import hear_here

LOST = "No kernel answers for this panel: run this cell again."
# Elsewhere than in JupyterLab, which alone has these classes, nothing is to be seen;
# nor is it while a page that is loaded still waits for its panels.
_BELOW = f"""<style>
@keyframes labkit-wait {{ from, to {{ visibility: hidden }} }}
.labkit-lost {{ display: none; animation: labkit-wait 3s }}
.jp-OutputArea-child:not(:has(.labkit-panel:not(.jupyter-widgets-disconnected)))
  + .jp-OutputArea-child .labkit-lost {{ display: block }}
</style><p class="labkit-lost">{LOST}</p>"""


def show(widget) -> None:
    """Display a panel's widget, and below it what is seen only when it is lost.

    After a restart of the kernel JupyterLab marks the widget as disconnected; after a
    reload of the page there is none.
    """
    hear_here(widget)
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

    @property
    def _still(self):
        """What is shown without widgets."""
        return self.figure

    def _repr_mimebundle_(self, include=None, exclude=None, **_):
        shown = self.widget if self.interactive else self._still
        return shown._repr_mimebundle_(include=include, exclude=exclude)

    def _ipython_display_(self):
        if self.interactive:
            show(self.widget)
        else:
            display(self._still)
