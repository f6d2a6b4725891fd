"""Names and keys for those who do not see the page, or do not use a mouse."""

import anywidget
import traitlets

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
  for (const line of root.querySelectorAll('.labkit-turned'))
    line.setAttribute('aria-live', 'polite');
}

function render({ model, el }) {
  const typed = "input, select, textarea, .noUi-handle, [contenteditable='true']";
  let root = null, panel = null;
  el.textContent = model.get('hint');
  // What has the focus may be drawn anew; the panel itself stays.
  const hold = ({ target }) => {
    if (!target.closest(`button, ${typed}`)) panel.focus({ preventScroll: true });
  };
  const press = (event) => {
    const { key, target } = event;
    if (event.ctrlKey || event.altKey || event.metaKey || event.shiftKey) return;
    if (!model.get('heard').includes(key) || target.closest(typed)) return;
    event.preventDefault();
    event.stopPropagation();
    hold(event);
    model.send({ key });
  };
  const show = () => {  // before the page is painted, so that nothing jumps
    const shown = model.get('shown') && root.querySelector(model.get('shown'));
    const box = shown?.parentElement;
    if (box) box.scrollTop = shown.offsetTop - box.offsetTop - box.clientHeight / 2;
  };
  const watch = new MutationObserver((records) => {
    if (records.every((r) => r.target.closest?.('.js-plotly-plot'))) return;
    name(root);
    show();
  });
  const placed = new ResizeObserver(() => {  // parts are made before they are placed
    if (root || !el.parentElement) return;
    root = el.closest('.jp-OutputArea-output') ?? el.parentElement;
    panel = model.get('panel') && el.closest('.' + model.get('panel'));
    if (panel) {
      panel.tabIndex = -1;
      panel.style.outline = 'none';
      panel.addEventListener('keydown', press);
      panel.addEventListener('click', hold);
      root = panel;
    }
    watch.observe(root, { childList: true, subtree: true });
    name(root);
    show();
  });
  placed.observe(el);
  return () => {
    placed.disconnect();
    watch.disconnect();
    panel?.removeEventListener?.('keydown', press);
    panel?.removeEventListener?.('click', hold);
  };
}
export default { render };
"""


class Aria(anywidget.AnyWidget):
    """Names the controls around it for assistive technology, and hears keys for them.

    A slider's handle and its number get the label before them, a knob's controls are
    described by the text beside them, and the line that tells of a turned knob is read
    out when it changes. Wherever in the panel the focus is, but in a field or on a
    slider, which use keys themselves, a key named here calls its function.

    Parameters
    ----------
    panel : str, CSS class of the panel around this that hears keys; none if empty
    keys : mapping of a key's name, such as ``ArrowLeft``, to what it calls
    hint : str, text that says so; without one nothing is to be seen
    shown : str, CSS selector of a part that is kept in view where its parent scrolls
    """

    _esm = _SCRIPT
    panel = traitlets.Unicode().tag(sync=True)
    heard = traitlets.List(traitlets.Unicode()).tag(sync=True)
    hint = traitlets.Unicode().tag(sync=True)
    shown = traitlets.Unicode().tag(sync=True)

    def __init__(self, panel="", keys=None, hint="", shown=""):
        self.actions = keys or {}
        super().__init__(panel=panel, heard=list(self.actions), hint=hint, shown=shown)
        self.on_msg(self._heard)

    def _heard(self, _widget, content, _buffers):
        if (key := content.get("key")) in self.actions:
            self.actions[key]()
