"""Parts of a panel without a value: whether the kernel works, names for readers."""

import threading
from contextlib import AbstractContextManager
from pathlib import Path

import anywidget

from labkit.lab.panels.figures.heard import HEARING, Heard

_STYLE = """
.labkit-busy { margin: 0 0 0 1em; font-style: italic; }
.labkit-screen .jupyter-widgets.labkit-note { white-space: normal; height: auto; }
.labkit-queued { outline: 2px dashed currentColor; outline-offset: -3px; }
"""


class Busy(Heard):
    """Says, in the page, that the kernel has not answered for half a second.

    A kernel that runs a cell or a long step cannot tell, so the page asks and notes
    how long the answer takes; meanwhile it names the buttons clicked and marks them.

    Parameters
    ----------
    lock : RLock that is held while a step is taken, perhaps on another thread
    """

    _css = _STYLE
    # As text, see figures/plot.py.
    _esm = HEARING + Path(__file__).with_name("busy.js").read_text("utf-8")

    def __init__(self, lock: AbstractContextManager | None = None):
        self._lock = lock or threading.RLock()
        super().__init__()
        self.on_msg(self._asked)

    def _asked(self, _widget, _content, _buffers) -> None:
        free = self._lock.acquire(blocking=False)
        self.send("free" if free else "busy")
        if free:
            self._lock.release()


# A slider's handle and the number beside it carry no name of their own; the label that
# stands before them does. Views come one by one, so what comes later is named then.
_SCRIPT = """
function name(root) {
  for (const slider of root.querySelectorAll('.widget-slider')) {
    const label = slider.querySelector('.widget-label')?.textContent;
    const readout = slider.querySelector('.widget-readout');
    slider.querySelector('.noUi-handle')?.setAttribute('aria-label', label);
    readout?.setAttribute('role', 'textbox');
    readout?.setAttribute('aria-label', `${label}, as a number`);
  }
  for (const row of root.querySelectorAll('.labkit-knob-row')) {
    const text = row.querySelector('.labkit-knob-text');
    if (!text) continue;
    text.id ||= `labkit-text-${crypto.randomUUID()}`;
    for (const control of row.querySelectorAll(
      '.noUi-handle, .widget-readout, input, select'
    )) control.setAttribute('aria-describedby', text.id);
  }
  for (const asked of root.querySelectorAll('.labkit-predict')) {
    const label = asked.querySelector('.widget-label')?.textContent;
    for (const button of asked.querySelectorAll('button'))
      button.setAttribute('aria-label', `${label} ${button.textContent}`);
  }
  for (const line of root.querySelectorAll('.labkit-turned, .labkit-outcome'))
    line.setAttribute('aria-live', 'polite');
}

function render({ el }) {
  let root = null;
  const watch = new MutationObserver((records) => {
    if (!records.every((r) => r.target.closest?.('.js-plotly-plot'))) name(root);
  });
  const placed = new ResizeObserver(() => {  // parts are made before they are placed
    if (root || !el.parentElement) return;
    root = el.closest('.jp-OutputArea-output') ?? el.parentElement;
    watch.observe(root, { childList: true, subtree: true });
    name(root);
  });
  placed.observe(el);
  return () => {
    placed.disconnect();
    watch.disconnect();
  };
}
export default { render };
"""


class Aria(anywidget.AnyWidget):
    """Names the controls around it for assistive technology; nothing is to be seen.

    A slider's handle and its number get the label before them, a knob's controls are
    described by the text beside them, and the lines that tell of a turned knob are read
    out when they change.
    """

    _esm = _SCRIPT
