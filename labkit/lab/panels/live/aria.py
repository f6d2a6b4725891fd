"""Names for readers of a panel's controls, and keys, which widgets leave without."""

import anywidget

# A slider's handle and the number beside it carry no name of their own; the label that
# stands before them does. Views come one by one, so what comes later is named then.
# ipywidgets lets one type beside a slider of stops, and hears nothing; JupyterLab takes
# the arrows of a list for those that go from cell to cell.
_SCRIPT = """
function name(root) {
  for (const slider of root.querySelectorAll('.widget-slider')) {
    const label = slider.querySelector('.widget-label')?.textContent;
    const readout = slider.querySelector('.widget-readout');
    const handle = slider.querySelector('.noUi-handle');
    handle?.setAttribute('aria-label', label);
    handle?.setAttribute('aria-valuetext', readout?.textContent ?? '');
    if (!readout) continue;
    readout.contentEditable = !slider.matches('.labkit-stops');
    if (!readout.isContentEditable) continue;
    readout.setAttribute('role', 'textbox');
    readout.setAttribute('aria-label', `${label}, as a number`);
  }
  for (const list of root.querySelectorAll('select'))
    list.setAttribute('data-lm-suppress-shortcuts', '');
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

// A button that is disabled under a hand hands the focus on to the one beside it.
function keep(held) {
  const lost = [held, document.body].includes(document.activeElement);
  if (lost && held?.disabled) [held.previousElementSibling, held.nextElementSibling]
    .find((other) => other?.disabled === false)?.focus();
}

function render({ el }) {
  let root = null, held = null;
  const watch = new MutationObserver((records) => {
    keep(held);
    if (!records.every((r) => r.target.closest?.('.js-plotly-plot'))) name(root);
  });
  const placed = new ResizeObserver(() => {  // parts are made before they are placed
    if (root || !el.parentElement) return;
    root = el.closest('.jp-OutputArea-output') ?? el.parentElement;
    root.addEventListener('focusin', ({ target }) => { held = target; });
    const attributeFilter = ['disabled'];
    watch.observe(root, { childList: true, subtree: true, attributeFilter });
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
    them, and the lines that tell of a turned knob are read out when they change. Nobody
    can type where nobody hears it; a list hears its arrows; and the focus goes from a
    button that is disabled to the one beside it.
    """

    _esm = _SCRIPT
