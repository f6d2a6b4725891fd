"""Names for readers of a panel's controls, which widgets leave without."""

import anywidget

# A slider's handle and the number beside it carry no name of their own; the label that
# stands before them does. Views come one by one, so what comes later is named then.
_SCRIPT = """
function name(root) {
  for (const slider of root.querySelectorAll('.widget-slider')) {
    const label = slider.querySelector('.widget-label')?.textContent;
    const readout = slider.querySelector('.widget-readout');
    const handle = slider.querySelector('.noUi-handle');
    handle?.setAttribute('aria-label', label);
    handle?.setAttribute('aria-valuetext', readout?.textContent ?? '');
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

    A slider's handle and its number get the label before them, and the handle says the
    number, not its place in a list; a knob's controls are described by the text beside
    them, and the lines that tell of a turned knob are read out when they change.
    """

    _esm = _SCRIPT
