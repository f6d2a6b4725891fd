// A recorded picture in a page: plays in the figure before it, and asks no kernel.
// What is played stands beside it, made and packed by labkit.lab.panels.live.played.

const FRAME = 300; // ms of one step
const REST = 1500; // ms at the end before it begins again by itself

function figure_before(root) {
  return [...document.querySelectorAll(".plotly-graph-div")]
    .filter((each) => each.compareDocumentPosition(root) & Node.DOCUMENT_POSITION_FOLLOWING)
    .at(-1);
}

async function unpacked(text) {
  const bytes = Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
  return new Response(stream).json();
}

async function play(root, place) {
  const figure = figure_before(root);
  if (!figure || !globalThis.Plotly) return; // the figure stays as it is
  figure.dataset.played = "";
  const text = JSON.parse(root.querySelector("script").textContent);
  const { knobs, runs, parts, step } = await unpacked(text);
  const again = root.dataset.loop !== undefined;
  const chosen = knobs.map((knob) => knob.at);
  let [position, timer] = [0, null];

  const run = () => runs[knobs.reduce((i, knob, k) => i * knob.values.length + chosen[k], 0)];
  const last = () => run().steps.length - 1;
  const draw = redrawing(async () => {
    // Anew for each drawing: plotly writes into them.
    const [layout, ...data] = run().frames[position].map((part) => JSON.parse(parts[part]));
    await fit(figure, data, layout);
  });
  sized(figure, draw);
  function show(to) {
    const { steps } = run();
    position = Math.min(Math.max(to, 0), last());
    Object.assign(slider, { max: last(), value: position, ariaValueText: `step ${steps[position]}` });
    at.textContent = steps.length ? `${steps[position]} of ${steps.at(-1)}` : "failed";
    turned.forEach(({ input, value, values }, k) => {
      value.textContent = input.ariaValueText = values[chosen[k]];
      input.value = chosen[k];
    });
    if (steps.length) draw();
  }
  // The address holds what was touched last, the step and the turned knobs, so that it
  // can be sent to someone: of the first panel `#step=12&rank=2`, of others `#2.step=12`.
  const named = (name) => (place ? `${place + 1}.${name}` : name);
  function keep() {
    const state = new URLSearchParams({ [named("step")]: run().steps[position] });
    knobs.forEach(({ name, values, at: first }, k) => {
      if (chosen[k] !== first) state.set(named(name), values[chosen[k]]);
    });
    history.replaceState(null, "", `#${state}`);
  }
  const until = (wanted) => run().steps.findLastIndex((each) => each <= wanted);
  function recall() {
    const state = new URLSearchParams(location.hash.slice(1));
    if (!state.has(named("step"))) return false;
    knobs.forEach(({ name, values, at: first }, k) => {
      const found = values.findIndex((value) => String(value) === state.get(named(name)));
      chosen[k] = found < 0 ? first : found;
    });
    halt();
    show(until(Number(state.get(named("step")))));
    figure.scrollIntoView({ block: "center" });
    return true;
  }
  function halt() {
    clearTimeout(timer);
    timer = null;
    button.textContent = "Play";
  }
  function tick() {
    if (position >= last() && !again) return halt();
    show(position >= last() ? 0 : position + 1);
    timer = setTimeout(tick, again && position === last() ? REST : FRAME);
  }
  function begin() {
    if (position >= last()) show(0);
    button.textContent = "Pause";
    timer = setTimeout(tick, FRAME);
  }

  const onclick = () => (timer === null ? begin() : (halt(), keep()));
  const button = make("button", { type: "button", textContent: "Play", onclick });
  const oninput = () => {
    halt();
    show(slider.valueAsNumber);
    keep();
  };
  const slider = make("input", { type: "range", min: 0, className: "labkit-play-step", oninput });
  const at = make("span");
  if (runs.some(({ steps }) => steps.length > 1))
    root.append(button, make("label", {}, "step ", slider), at);
  const turned = knobs.map(({ title, values }, k) => {
    const className = "labkit-play-knob";
    const input = make("input", { type: "range", min: 0, max: values.length - 1, className });
    const value = make("b");
    input.oninput = () => {
      chosen[k] = input.valueAsNumber;
      show(position);
      keep();
    };
    const label = make("label", {}, `${title} `, input);
    root.append(make("span", { className: "labkit-play-turned" }, label, value));
    return { input, value, values };
  });
  addEventListener("hashchange", recall);
  if (recall()) return;
  const still = !again || matchMedia("(prefers-reduced-motion: reduce)").matches;
  show(still ? until(step) : 0);
  if (!still) begin();
}

[...document.querySelectorAll(".labkit-play")].forEach((root, place) => {
  if (root.dataset.alive !== undefined) return;
  root.dataset.alive = "";
  play(root, place);
});
