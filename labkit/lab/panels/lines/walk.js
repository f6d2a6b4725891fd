// The line stepper in a page: walks the stops that were recorded and asks no kernel.
// What is walked stands as JSON beside it, made by labkit.lab.panels.lines.walk.

const KEYS = { ArrowLeft: "back", ArrowRight: "next", Home: "first", End: "last" };
const LARGE = 256; // pixels of a large map's longer side

function make(tag, parts = {}, ...inside) {
  const { dataset = {}, ...own } = parts;
  const made = Object.assign(document.createElement(tag), own);
  Object.assign(made.dataset, dataset);
  made.append(...inside);
  return made;
}

function numbers(text) {
  const bytes = Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
  return new Float32Array(bytes.buffer);
}

// Blue below zero, orange above, the page's colour at zero.
function map(entries, columns, most, side, label) {
  const canvas = make("canvas", { width: columns, height: entries.length / columns });
  const context = canvas.getContext("2d");
  entries.forEach((value, i) => {
    const share = Number.isFinite(value) ? Math.abs(value) / most : 1;
    context.fillStyle = value > 0 ? "#d55e00" : "#0072b2";
    context.globalAlpha = share;
    context.fillRect(i % columns, Math.floor(i / columns), 1, 1);
  });
  canvas.style.width = `${side * columns}px`;
  canvas.style.height = `${side * canvas.height}px`;
  canvas.setAttribute("role", "img");
  canvas.setAttribute("aria-label", label);
  return canvas;
}

function largest(...maps) {
  const all = maps.flatMap((entries) => [...entries]).filter(Number.isFinite);
  return Math.max(0, ...all.map(Math.abs)) || 1;
}

const short = (value) => String(Number(value.toPrecision(3)));
const range = (entries) =>
  `entries between ${short(Math.min(...entries))} and ${short(Math.max(...entries))}`;

function walk(root, data) {
  const told = data.stops.filter((stop) => stop.equations.length);
  const places = data.functions.map(listing);
  let stops = told.length ? told : data.stops;
  let [position, turn, opened] = [0, 0, null];

  const button = (name, text, action) => {
    const made = make("button", { type: "button", textContent: text });
    made.className = `labkit-line-${name}`;
    made.addEventListener("click", action);
    return made;
  };
  const slider = (name, css, moved) => {
    const input = make("input", { type: "range", min: 1, className: css });
    input.addEventListener("input", () => moved(input.valueAsNumber - 1));
    return [input, make("label", {}, `${name} `, input)];
  };
  const go = (to, turned = 0) => {
    position = Math.min(Math.max(to, 0), stops.length - 1);
    turn = Math.min(Math.max(turned, 0), stops[position].turns.length - 1);
    show();
  };
  const show_all = (wanted, stop = stops[position], turned = turn) => {
    every.checked = wanted;
    stops = wanted || !told.length ? data.stops : told;
    list_names();
    const after = stops.findIndex((other) => other.number >= stop.number);
    go(after < 0 ? stops.length - 1 : after, turned);
  };
  // To a stop that may be none of those walked now.
  const jump = (stop, turned = 0) => {
    const there = stops.indexOf(stop);
    if (there < 0) show_all(true, stop, turned);
    else go(there, turned);
  };
  const change = () => {
    for (let at = position + 1; at < stops.length; at++) {
      const turned = stops[at].turns.findIndex((t) => t.changed.includes(name.value));
      if (turned >= 0) return go(at, turned);
    }
    status.textContent = `no later line changes ${name.value}`;
  };
  // Only what the lines that are walked change: all others would be dozens.
  const list_names = () => {
    const before = name.value;
    const changed = new Set(stops.flatMap((s) => s.turns.flatMap((t) => t.changed)));
    const listed = data.changing.filter((each) => changed.has(each));
    name.replaceChildren(...listed.map((each) => make("option", { textContent: each })));
    if (changed.has(before)) name.value = before;
    to_change.disabled = !listed.length;
  };
  const moves = {
    first: () => go(0),
    back: () => go(position - 1),
    next: () => go(position + 1),
    last: () => go(stops.length - 1),
  };

  const name = make("select");
  const status = make("p", {});
  const every = make("input", { type: "checkbox", className: "labkit-line-every" });
  const [line, line_label] = slider("line", "labkit-line", (to) => go(to));
  const [turns, turns_label] = slider("turn", "labkit-line-turn", (to) => go(position, to));
  const equation = make("div", { className: "labkit-line-equation" });
  const picture = make("div", { className: "labkit-line-picture" });
  const source = make("div", { className: "labkit-line-source" });
  const values = make("div", { className: "labkit-line-values" });
  const maps = make("div", { className: "labkit-line-maps" });
  status.setAttribute("role", "status");
  every.addEventListener("change", () => show_all(every.checked));
  every.disabled = !told.length || told.length === data.stops.length;
  every.checked = !told.length;
  const changes = make("label", { className: "labkit-line-name" }, "changes ", name);
  const to_change = button("change", "Next change", change);
  const bar = make(
    "div",
    { className: "labkit-line-bar" },
    button("first", "First", moves.first),
    button("back", "Back", moves.back),
    button("next", "Next", moves.next),
    button("last", "Last", moves.last),
    changes,
    to_change,
  );
  const sliders = make("div", { className: "labkit-line-bar" }, line_label, turns_label);
  sliders.append(make("label", {}, every, " every line, not only equations"));
  const both = make("div", { className: "labkit-line-both" }, source, values);
  const hint =
    "Keys ← and →: Back and Next; Home and End: First and Last. " +
    "Click a line to go there, a value to see it before and after.";
  const top = make("div", { className: "labkit-line-top" }, equation);
  if (data.pictures) top.append(picture);
  root.replaceChildren(bar, sliders, status, top, both, maps, make("p", {}, hint));

  function listing({ title, lines }, number) {
    const block = make("pre", { className: "labkit-source", tabIndex: 0 });
    const ran = data.stops.filter((stop) => stop.function === number);
    for (const [n, text] of lines) {
      const stop = ran.find((each) => each.lit.includes(n));
      const row = make("div", { className: stop ? "ran" : "", dataset: { line: n } });
      row.textContent = `${stop ? "·" : " "} ${String(n).padStart(4)} ${text || " "}`;
      if (stop) row.addEventListener("click", () => jump(nearest(ran, n)));
      block.append(row);
    }
    return { block, title: make("b", { textContent: title }) };
  }

  // A line may be a stop several times, once for each way in which it was reached.
  function nearest(ran, n) {
    const far = (stop) => Math.abs(stop.number - stops[position].number);
    const there = ran.filter((stop) => stop.lit.includes(n));
    return there.reduce((best, stop) => (far(stop) < far(best) ? stop : best));
  }

  function light(stop) {
    const { block, title } = places[stop.function];
    for (const row of block.querySelectorAll(".lit")) {
      row.classList.remove("lit");
      row.removeAttribute("aria-current");
      row.textContent = `·${row.textContent.slice(1)}`;
    }
    for (const n of stop.lit)
      block.querySelector(`[data-line="${n}"]`)?.classList.add("lit");
    const first = block.querySelector(".lit");
    first.setAttribute("aria-current", "step");
    first.textContent = `▶${first.textContent.slice(1)}`;
    if (source.lastChild !== block) source.replaceChildren(title, block);
    block.scrollTop = first.offsetTop - block.offsetTop - block.clientHeight / 2;
  }

  function row_of([key, after, before, changed]) {
    const [path, symbol] = data.names[key];
    const value = data.summaries[after];
    const open = button("value", `${changed ? "● " : ""}${path}`, () => {
      opened = opened === path ? null : path;
      show();
    });
    open.title = before === null ? "new here" : "before, after, difference";
    open.disabled = !value.heat;
    const row = make("tr", { className: changed ? "changed" : "" }, make("td", {}, open));
    const [shape, dtype, device, norm, least, most] = value.cells;
    row.title = [dtype, device, norm && `norm ${norm}`].filter(Boolean).join(", ");
    row.append(make("td", { innerHTML: symbol }), make("td", { textContent: shape }));
    row.append(make("td", { textContent: least && `${least} … ${most}` }));
    row.append(make("td", {}, value.heat ? small(value) : value.text));
    return row;
  }

  function small({ heat, columns }) {
    const entries = numbers(heat);
    const longer = Math.max(columns, entries.length / columns);
    const side = Math.max(3, Math.min(12, Math.floor(48 / longer)));
    return map(entries, columns, largest(entries), side, range(entries));
  }

  function tabulate(now) {
    const titles = "name symbol shape range entries".split(" ");
    const head = titles.map((title) => make("th", { scope: "col", textContent: title }));
    const table = make("table", { className: "labkit-values" }, make("tr", {}, ...head));
    table.append(...now.rows.map(row_of));
    if (now.more) table.prepend(make("caption", {}, `${now.more} more, unchanged`));
    values.replaceChildren(table);
  }

  // Before, after and their difference; the first two in one scale.
  function compare(now) {
    const row = now.rows.find(([key]) => data.names[key][0] === opened);
    maps.replaceChildren();
    if (!row) return;
    const [after, before] = [row[1], row[2]].map((i) => data.summaries[i] ?? {});
    const shown = { after: numbers(after.heat) };
    if (before.heat?.length === after.heat.length && before.columns === after.columns) {
      const was = numbers(before.heat);
      shown.before = was;
      shown.difference = shown.after.map((value, i) => value - was[i]);
    }
    const scale = largest(shown.after, shown.before ?? []);
    const side = Math.floor(LARGE / Math.max(after.columns, shown.after.length / after.columns));
    for (const kind of ["before", "after", "difference"]) {
      if (!shown[kind]) continue;
      const most = kind === "difference" ? largest(shown[kind]) : scale;
      const drawn = map(shown[kind], after.columns, most, side, `${kind}: ${range(shown[kind])}`);
      const text = make("figcaption", {}, `${opened}, ${kind}: ${range(shown[kind])}`);
      maps.append(make("figure", {}, drawn, text));
    }
  }

  function show() {
    const within = root.contains(document.activeElement) && document.activeElement;
    const stop = stops[position];
    const now = stop.turns[turn];
    Object.assign(line, { max: stops.length, value: position + 1 });
    Object.assign(turns, { max: stop.turns.length, value: turn + 1 });
    turns.disabled = stop.turns.length === 1;
    const of_turns = turns.disabled ? "" : `, turn ${turn + 1} of ${stop.turns.length}`;
    const where = `${data.functions[stop.function].title}, line ${stop.line}`;
    status.textContent = `stop ${position + 1} of ${stops.length}${of_turns}: ${where}`;
    equation.innerHTML = stop.equations.map((i) => data.equations[i]).join("") || "<div> </div>";
    if (data.pictures) picture.innerHTML = data.pictures[now.picture];
    light(stop);
    tabulate(now);
    compare(now);
    // What had the focus may have been drawn anew: keys go on.
    if (within && !within.isConnected) root.focus({ preventScroll: true });
  }

  list_names();
  root.tabIndex = -1;
  root.addEventListener("keydown", (event) => {
    const { key, target } = event;
    if (event.ctrlKey || event.altKey || event.metaKey || event.shiftKey) return;
    const own = target.closest("select, input[type=range]");
    if (own || KEYS[key]) event.stopPropagation(); // JupyterLab takes arrows for cells
    if (own || !KEYS[key]) return;
    event.preventDefault();
    moves[KEYS[key]]();
  });
  root.addEventListener("click", ({ target }) => {
    if (!target.closest("button, input, select, label")) root.focus({ preventScroll: true });
  });
  show();
}

for (const root of document.querySelectorAll(".labkit-walk:not([data-alive])")) {
  root.dataset.alive = "";
  walk(root, JSON.parse(root.querySelector("script").textContent));
}
