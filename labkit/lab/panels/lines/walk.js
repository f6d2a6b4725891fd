// The line stepper in a page: walks the stops that were recorded and asks no kernel.
// What is walked stands as JSON beside it, made by labkit.lab.panels.lines.walk.

const KEYS = { ArrowLeft: -1, ArrowRight: 1, Home: -Infinity, End: Infinity }; // stops

function walk(root, data) {
  const { stops } = data;
  const told = stops.filter((stop) => stop.equations.length);
  let [stop, turn] = [told[0] ?? stops[0], 0];

  const part = (name, ...inside) =>
    make("div", { className: `labkit-line-${name}` }, ...inside);
  const button = (name, textContent, by) =>
    make("button", { textContent, className: `labkit-line-${name}`, onclick: () => move(by) });
  const slider = (name, css, moved) => {
    const oninput = () => moved(input.valueAsNumber - 1);
    const input = make("input", { type: "range", min: 1, className: css, oninput });
    return [input, make("label", {}, `${name} `, input)];
  };
  const walked = () => (every.checked ? stops : told);
  const go = (to, turned = 0) => {
    stop = to;
    turn = Math.min(turned, stop.turns.length - 1);
    show();
  };
  const move = (by) => {
    const all = walked();
    go(all[Math.min(Math.max(all.indexOf(stop) + by, 0), all.length - 1)]);
  };
  // To a line that ran; where only equations are walked, it may be none of these.
  const jump = (ran) => {
    const there = ran.find((each) => walked().includes(each));
    every.checked ||= !there;
    go(there ?? ran[0]);
  };

  const [status, equation, source, values] = ["status", "equation", "source", "values"].map(
    (name) => part(name),
  );
  const every = make("input", { type: "checkbox", className: "labkit-line-every" });
  const [line, line_label] = slider("line", "labkit-line", (to) => go(walked()[to]));
  const [turns, turns_label] = slider("turn", "labkit-line-turn", (to) => go(stop, to));
  status.role = "status";
  every.addEventListener("change", () => {
    const all = walked();
    go(all.find(({ number }) => number >= stop.number) ?? all.at(-1), turn);
  });
  every.disabled = !told.length || told.length === stops.length;
  every.checked = !told.length;
  const buttons = [button("back", "Back", -1), button("next", "Next", 1)];
  const all_lines = make("label", {}, every, " every line, not only equations");
  root.replaceChildren(
    part("bar", ...buttons, line_label, turns_label, all_lines),
    status,
    part("both", source, make("div", {}, equation, values)),
    make("p", {}, "Keys ← and → walk; a click on a line goes there."),
  );

  const places = data.functions.map(({ title, lines }, number) => {
    const block = make("pre", { className: "labkit-source", tabIndex: 0 });
    for (const [n, text] of lines) {
      const ran = stops.filter((stop) => stop.function === number && stop.lit.includes(n));
      const row = make("div", { className: ran.length ? "ran" : "" });
      row.textContent = `${String(n).padStart(4)}  ${text || " "}`;
      row.dataset.line = n;
      if (ran.length) row.addEventListener("click", () => jump(ran));
      block.append(row);
    }
    return [make("b", { textContent: title }), block];
  });

  function light() {
    const [title, block] = places[stop.function];
    if (source.lastChild !== block) source.replaceChildren(title, block);
    let first = null;
    for (const row of block.children) {
      const lit = stop.lit.includes(Number(row.dataset.line));
      row.classList.toggle("lit", lit);
      row.removeAttribute("aria-current");
      if (lit) first ??= row;
    }
    first.setAttribute("aria-current", "step");
    block.scrollTop = first.offsetTop - block.offsetTop - block.clientHeight / 2;
  }

  function show() {
    const [now, all] = [stop.turns[turn], walked()];
    const place = all.indexOf(stop) + 1;
    Object.assign(line, { max: all.length, value: place });
    Object.assign(turns, { max: stop.turns.length, value: turn + 1 });
    const loop = stop.turns.length > 1;
    turns_label.hidden = !loop;
    const of_turns = loop ? `, turn ${turn + 1} of ${stop.turns.length}` : "";
    const where = `${data.functions[stop.function].title}, line ${stop.line}`;
    status.textContent = `stop ${place} of ${all.length}${of_turns}: ${where}`;
    equation.innerHTML = stop.equations.map((i) => data.equations[i]).join("") || "<div> </div>";
    const rows = now.rows.map((i) => data.rows[i]).join("");
    values.innerHTML = `<table class="labkit-values">${data.head}${rows}</table>`;
    light();
  }

  root.tabIndex = -1;
  root.addEventListener("keydown", (event) => {
    const { key, target } = event;
    if (event.ctrlKey || event.altKey || event.metaKey || event.shiftKey) return;
    const own = target.closest("input[type=range]");
    if (own || KEYS[key]) event.stopPropagation(); // JupyterLab takes arrows for cells
    if (own || !KEYS[key]) return;
    event.preventDefault();
    move(KEYS[key]);
  });
  root.addEventListener("click", ({ target }) => {
    if (!target.closest("button, input, label")) root.focus({ preventScroll: true });
  });
  show();
}

for (const root of document.querySelectorAll(".labkit-walk:not([data-alive])")) {
  root.dataset.alive = "";
  walk(root, JSON.parse(root.querySelector("script").textContent));
}
