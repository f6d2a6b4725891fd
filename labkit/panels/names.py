"""Names for assistive technology, where ipywidgets leaves a control without one."""

import anywidget

# A slider's handle and the number beside it carry no name of their own; the label that
# stands before them does. Views come one by one, so some may not be there at once.
_ESM = """
const TRIES = 100, PAUSE = 100;  // milliseconds

function describe(control) {
  const text = control.closest('.labkit-knob-row')?.querySelector('.labkit-knob-text');
  if (!text) return;
  text.id ||= `labkit-text-${crypto.randomUUID()}`;
  control.setAttribute('aria-describedby', text.id);
}

function nameAll(root) {
  for (const slider of root.querySelectorAll('.widget-slider')) {
    const label = slider.querySelector('.widget-label')?.textContent;
    const handle = slider.querySelector('.noUi-handle');
    const readout = slider.querySelector('.widget-readout');
    handle?.setAttribute('aria-label', label);
    if (readout) {
      readout.setAttribute('role', 'textbox');
      readout.setAttribute('aria-label', `${label}, as a number`);
    }
  }
  const controls = '.noUi-handle, .widget-readout, input, select';
  for (const row of root.querySelectorAll('.labkit-knob-row'))
    row.querySelectorAll(controls).forEach(describe);
  for (const line of root.querySelectorAll('.labkit-turned'))
    line.setAttribute('aria-live', 'polite');
}

function render({ el }) {
  el.style.display = 'none';
  let left = TRIES, timer;
  const again = () => {
    const root = el.closest('.jp-OutputArea-output');
    if (root) nameAll(root);
    if (left-- > 0) timer = setTimeout(again, PAUSE);
  };
  again();
  return () => clearTimeout(timer);
}

export default { render };
"""


class Names(anywidget.AnyWidget):
    """Invisible; names and describes the controls in the output that it stands in.

    A slider's handle and its number get the label before them, a knob's controls are
    described by the text beside them, and the line that tells of a turned knob is read
    out when it changes.
    """

    _esm = _ESM
