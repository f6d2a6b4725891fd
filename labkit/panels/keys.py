"""Keys that a whole panel hears, and what it keeps in view."""

import anywidget
import traitlets

_SCRIPT = """
function render({ model, el }) {
  const typed = "input, select, textarea, .noUi-handle, [contenteditable='true']";
  let panel = null, timer = null;
  el.textContent = model.get("hint");
  const press = (event) => {
    const { key, target } = event;
    if (event.ctrlKey || event.altKey || event.metaKey || event.shiftKey) return;
    if (!model.get("heard").includes(key) || target.closest(typed)) return;
    event.preventDefault();
    event.stopPropagation();
    model.send({ key });
  };
  const show = () => {  // before the page is painted, so that nothing jumps
    const shown = model.get("shown") && panel.querySelector(model.get("shown"));
    const box = shown?.parentElement;
    if (box) box.scrollTop = shown.offsetTop - box.offsetTop - box.clientHeight / 2;
  };
  const watch = new MutationObserver(show);
  const attach = () => {  // the panel is put on the page after its parts are made
    panel = el.closest("." + model.get("panel"));
    if (!panel) { timer = setTimeout(attach, 200); return; }
    panel.addEventListener("keydown", press);
    watch.observe(panel, { childList: true, subtree: true });
    show();
  };
  attach();
  return () => {
    clearTimeout(timer);
    watch.disconnect();
    panel?.removeEventListener("keydown", press);
  };
}
export default { render };
"""


class Keys(anywidget.AnyWidget):
    """A line of text that makes the panel around it hear keys.

    Wherever the focus is inside the panel, but in a field or on a slider, which use
    keys themselves, a key named here calls its function.

    Parameters
    ----------
    panel : CSS class of the panel.
    keys : mapping from a key's name, such as ``ArrowLeft``, to a function.
    hint : text that says so.
    shown : CSS selector of a part that is kept in view where its parent scrolls.
    """

    _esm = _SCRIPT
    panel = traitlets.Unicode().tag(sync=True)
    heard = traitlets.List(traitlets.Unicode()).tag(sync=True)
    hint = traitlets.Unicode().tag(sync=True)
    shown = traitlets.Unicode().tag(sync=True)

    def __init__(self, panel: str, keys: dict, hint: str, shown: str = ""):
        super().__init__(panel=panel, heard=list(keys), hint=hint, shown=shown)
        self.actions = keys
        self.on_msg(self._heard)

    def _heard(self, _widget, content, _buffers):
        if (key := content.get("key")) in self.actions:
            self.actions[key]()
