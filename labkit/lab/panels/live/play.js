// A recorded run in a page: plays in the figure before it, and asks no kernel.
// What is played stands beside it, made and packed by labkit.lab.panels.live.played.

const WHOLE = 6000; // ms that a run takes
const FRAME = [60, 500]; // ms of one step, at least and at most
const REST = 1500; // ms at the end before it begins again by itself

const make = (tag, parts = {}, ...inside) => {
  const made = Object.assign(document.createElement(tag), parts);
  made.append(...inside);
  return made;
};

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

// Of each step what has changed since the one before, also of another run: with all
// that has not.
function whole(steps, memory, place) {
  return steps.map((changed) => changed && (memory[place] = { ...memory[place], ...changed }));
}

async function play(root, place) {
  const figure = figure_before(root);
  if (!figure || !globalThis.Plotly) return; // the figure stays as it is
  figure.dataset.played = "";
  const text = JSON.parse(root.querySelector("script").textContent);
  const { knobs, runs, step } = await unpacked(text);
  const memory = {};
  for (const run of runs) {
    run.layout = whole(run.layout, memory, "layout");
    run.traces = run.traces.map((steps, place) => whole(steps, memory, place));
  }
  const drawn = figure._fullLayout; // steps stay where they are while curves grow
  const across = Object.keys(drawn).filter((key) => key.startsWith("xaxis"));
  const ranges = Object.fromEntries(across.map((key) => [key, [...drawn[key].range]]));
  const again = root.dataset.loop !== undefined;
  const chosen = knobs.map((knob) => knob.at);
  let [position, timer] = [0, null];

  const run = () => runs[knobs.reduce((i, knob, k) => i * knob.values.length + chosen[k], 0)];

  const draw = redrawing(async () => {
    const { layout, traces } = run();
    const now = traces.map((each) => each[position]).filter(Boolean);
    const [data, style] = structuredClone([now, layout[position]]); // plotly writes into them
    for (const key of across) style[key] = { range: ranges[key], ...style[key] };
    await fit(figure, data, style);
  });
  sized(figure, draw);
  function show(to) {
    const { steps } = run();
    if (!steps.length) return void (at.textContent = "failed");
    position = Math.min(Math.max(to, 0), steps.length - 1);
    Object.assign(slider, { max: steps.length - 1, value: position });
    slider.setAttribute("aria-valuetext", `step ${steps[position]}`);
    at.textContent = `${steps[position]} of ${steps.at(-1)}`;
    draw();
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
  function recall() {
    const state = new URLSearchParams(location.hash.slice(1));
    const asked = Number(state.get(named("step")) ?? NaN);
    if (Number.isNaN(asked)) return false;
    knobs.forEach(({ name, values, at: first }, k) => {
      const found = values.findIndex((value) => String(value) === state.get(named(name)));
      chosen[k] = found < 0 ? first : found;
    });
    halt();
    told.forEach((tell) => tell());
    show(run().steps.findLastIndex((each) => each <= asked));
    figure.scrollIntoView({ block: "center" });
    return true;
  }
  function halt() {
    clearTimeout(timer);
    timer = null;
    button.textContent = "Play";
  }
  function tick() {
    const last = run().steps.length - 1;
    if (position >= last && !again) return halt();
    show(position >= last ? 0 : position + 1);
    const wait = Math.min(Math.max(WHOLE / (last + 1), FRAME[0]), FRAME[1]);
    timer = setTimeout(tick, again && position === last ? REST : wait);
  }
  function begin() {
    if (position >= run().steps.length - 1) show(0);
    button.textContent = "Pause";
    timer = setTimeout(tick, FRAME[0]);
  }

  const button = make("button", { type: "button", textContent: "Play" });
  button.addEventListener("click", () => {
    if (timer === null) return begin();
    halt();
    keep();
  });
  const slider = make("input", { type: "range", min: 0, className: "labkit-play-step" });
  slider.addEventListener("input", () => {
    halt();
    show(slider.valueAsNumber);
    keep();
  });
  const at = make("span");
  root.append(button, make("label", {}, "step ", slider), at);
  const told = knobs.map(({ title, values }, k) => {
    const turned = make("input", { type: "range", min: 0, max: values.length - 1 });
    const value = make("b");
    const say = () => {
      turned.value = chosen[k];
      turned.setAttribute("aria-valuetext", (value.textContent = values[chosen[k]]));
    };
    turned.className = "labkit-play-knob";
    turned.addEventListener("input", () => {
      chosen[k] = turned.valueAsNumber;
      say();
      show(position);
      keep();
    });
    say();
    root.append(make("span", { className: "labkit-play-turned" },
      make("label", {}, `${title} `, turned), value));
    return say;
  });
  addEventListener("hashchange", recall);
  if (recall()) return;
  const begun = run().steps.findLastIndex((each) => each <= step);
  if (again && !matchMedia("(prefers-reduced-motion: reduce)").matches) {
    show(0);
    begin();
  } else show(begun);
}

[...document.querySelectorAll(".labkit-play")].forEach((root, place) => {
  if (root.dataset.alive !== undefined) return;
  root.dataset.alive = "";
  play(root, place);
});
