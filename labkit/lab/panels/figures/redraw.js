// Draws what is newest, one drawing at a time: what comes meanwhile waits for its turn.
// Stands before the script of a live figure and of a page that plays a run.
function redrawing(draw) {
  let [drawing, wanted] = [false, false];
  return async () => {
    wanted = true;
    if (drawing) return;
    drawing = true;
    try {
      while (wanted) {
        wanted = false;
        await draw();
      }
    } finally {
      drawing = false;
    }
  };
}

const NARROW = 500; // pixels of a figure below which its panels stand one below another
const [LETTER, BOLD] = [6.2, 7.4]; // pixels of a letter, and of one of a title
const [ROW, APART] = [19, 84]; // pixels of a legend's row, and between two panels
const [NAMED, TICKS] = [62, 34]; // pixels left of a panel whose axis has a title, or none
const LINE = 16; // pixels of a title's line

const suffixed = (layout, name) =>
  Object.keys(layout).filter((key) => new RegExp(`^${name}\\d*$`).test(key));

// A figure that says how wide it is, or at least is, keeps that; its place is scrolled.
function roomy(figure, { meta, width }) {
  const least = meta?.least ?? width;
  figure.style.minWidth = least ? `${least}px` : "";
  if (!least) return;
  figure.parentElement.style.overflowX = "auto";
}

// A text with breaks, so that no line of it is longer than so many letters.
function broken(text, most) {
  const [lines, length] = [[""], (line) => line.replace(/<[^>]*>/g, "").length];
  for (const word of text.split(" ")) {
    const longer = lines.at(-1) ? `${lines.at(-1)} ${word}` : word;
    if (length(longer) > most && lines.at(-1)) lines.push(word);
    else lines[lines.length - 1] = longer;
  }
  return lines.join("<br>");
}

// Letters of the longest name among an axis's ticks.
const longest = ({ ticktext } = {}) =>
  Math.max(0, ...(ticktext ?? []).map((name) => `${name}`.length));

// Pixels more below a panel whose ticks have names too long to stand level in its width:
// these are turned upright.
function turned(axis, width) {
  const letters = longest(axis);
  const level = (axis.ticktext ?? []).length * (letters + 2) * LETTER <= width;
  return level ? 0 : Math.max(1, LETTER * letters - 14);
}

// Pixels of the names that stand at the ends of curves, beside a panel or beside any.
function beside(data, box = null) {
  const ends = data.filter(({ mode, cliponaxis }) => mode === "text" && cliponaxis === false);
  const own = ({ xaxis = "x" }) => !box || xaxis === box.x.replace("axis", "");
  const names = ends.filter(own).flatMap(({ text }) => text);
  return LETTER * Math.max(0, ...names.map((name) => name.length));
}

// Panels in one line, with room in pixels for the titles of axes between them, and their
// own titles in lines that end before the next one begins. Names at the ends of curves
// keep their room, and make no panel narrower than the others.
function spaced(layout, width, data, boxes, owner) {
  if (new Set(boxes.map(({ up }) => up.join())).size > 1) return layout;
  const { l = 70, r = 20, t = 56 } = layout.margin ?? {};
  const inner = width - l - r;
  const line = [...boxes].sort((a, b) => a.across[0] - b.across[0]);
  const gaps = line.slice(1).map(({ y, across }, i) => {
    const gap = (across[0] - line[i].across[1]) * inner;
    const names = beside(data, line[i]);
    const least = layout[y]?.title?.text ? NAMED : names && TICKS;
    return Math.max(names + least, gap);
  });
  gaps.push(Math.max((1 - line.at(-1).across[1]) * inner, beside(data, line.at(-1)) - r));
  const sum = (numbers) => numbers.reduce((a, b) => a + b, 0);
  const named = beside(data) > 0;
  const shares = line.map(({ across: [left, right] }) => (named ? 1 : right - left));
  const scale = (inner - sum(gaps)) / sum(shares) / inner;
  const made = structuredClone(layout);
  let [left, more] = [line[0].across[0], 0];
  line.forEach((box, i) => {
    const right = left + shares[i] * scale;
    const room = (right - left) * inner + gaps[i] + (box === line.at(-1) ? r : 0);
    Object.assign(box, { now: [left, right], most: Math.floor((room - 8) / BOLD) });
    made[box.x].domain = box.now;
    left = right + gaps[i] / inner;
  });
  const move = (part) => {
    const { across, now } = owner(part);
    part.x = now[0] + ((part.x - across[0]) / (across[1] - across[0])) * (now[1] - now[0]);
  };
  for (const note of made.annotations ?? []) {
    if (note.xref !== "paper" || note.yref !== "paper") continue;
    const { most, up } = owner(note);
    move(note);
    if (note.y < up[1] - 1e-6) continue;
    const [text, count] = [note.text ?? "", (words) => words.split("<br>").length];
    Object.assign(note, { text: broken(text, most), align: "left" });
    more = Math.max(more, count(note.text) - count(text));
  }
  for (const key of suffixed(made, "legend"))
    if (made[key].x !== undefined && made[key].yref !== "container") move(made[key]);
  made.margin = { ...made.margin, t: t + more * LINE };
  if (made.height) made.height += more * LINE;
  return made;
}

// A figure's layout with its panels one below another where they would be too narrow
// side by side; else the layout as it is. Titles and legends go with their panels.
function stacked(layout, width, data = []) {
  const axes = suffixed(layout, "xaxis").filter((key) => layout[key].domain);
  const boxes = axes.map((key) => {
    const y = layout[key].anchor?.replace("y", "yaxis") ?? key.replace("x", "y");
    return { x: key, y, across: layout[key].domain, up: layout[y]?.domain ?? [0, 1] };
  });
  const aside = new Set(boxes.map(({ across }) => across[0]));
  const one = aside.size === boxes.length && !layout.meta?.least; // line of panels
  // Without panels it is a figure of images that has drawn none so far.
  if (width < NARROW && layout.meta?.least) return layout;
  if (!width || !boxes.length || (aside.size < 2 && !one)) return layout;
  const owner = ({ x, y }) => {
    const off = ({ across: [left, right], up: [low, high] }) =>
      Math.max(left - x, x - right, 0) * 10 + Math.max(low - y, y - high, 0);
    return boxes.reduce((best, box) => (off(box) < off(best) - 1e-6 ? box : best));
  };
  if (width >= NARROW) return spaced(layout, width, data, boxes, owner);
  boxes.sort((a, b) => b.up[1] - a.up[1] || a.across[0] - b.across[0]);
  const { t = 56, b = 50, r = 20 } = layout.margin ?? {};
  const inner = (layout.height ?? 450) - t - b;
  // Names of ticks at the left take room from the titles above them.
  const names = Math.max(...boxes.map(({ y }) => LETTER * longest(layout[y]) - 20), 0);
  const most = Math.floor((width - 64 - names) / BOLD);
  const made = structuredClone(layout);
  const own = (part) => (part.yref === "container" ? null : owner(part));
  const legends = suffixed(layout, "legend").filter((key) => layout[key].y !== undefined);
  const named = data.filter((trace) => trace.name && trace.showlegend !== false);
  // Plotly puts a legend that is too long for one row into columns of one width.
  const rows = (names) => {
    const wide = names.map((name) => name.length * LETTER + 46);
    if (wide.reduce((sum, one) => sum + one, 0) <= width - 64) return Math.min(wide.length, 1);
    return Math.ceil(wide.length / Math.max(1, Math.floor((width - 64) / Math.max(...wide))));
  };
  for (const box of boxes) {
    const above = (layout.annotations ?? []).filter(
      (note) => note.yref === "paper" && owner(note) === box && note.y >= box.up[1] - 1e-6
    );
    const lines = above.map((note) => broken(note.text, most).split("<br>").length);
    const held = legends.filter((key) => own(layout[key]) === box);
    const mine = named.filter((trace) => held.includes(trace.legend ?? "legend"));
    // A legend with more rows than its title has room for lifts the title.
    const told = ROW * rows(mine.map((trace) => trace.name));
    box.lift = Math.max(0, ...above.map(({ yshift = 6 }) => told - (yshift - 6)));
    box.above = Math.max(0, ...lines.map((count) => (count - 1) * LINE));
    box.above += told && told - ROW + 12;
    box.high = (box.up[1] - box.up[0]) * inner;
    box.below = turned(layout[box.x], width - 64 - beside(data, box));
  }
  const below = legends.some((key) => !own(layout[key]));
  const room = below ? ROW * rows(named.map((trace) => trace.name)) + 64 : b;
  const apart = (box, i) => (i ? APART + box.above + boxes[i - 1].below : 0);
  const total = boxes.reduce((sum, box, i) => sum + box.high + apart(box, i), 0);
  let top = total;
  boxes.forEach((box, i) => {
    top -= apart(box, i);
    box.now = [Math.max(0, (top - box.high) / total), top / total];
    top -= box.high;
    made[box.x] = { ...made[box.x], domain: [0, 1 - beside(data, box) / (width - 56)] };
    made[box.y] = { ...made[box.y], domain: box.now };
    if (box.below) made[box.x].tickangle = 90;
  });
  const move = (part) => {
    const { across, up, now } = owner(part);
    part.x = (part.x - across[0]) / (across[1] - across[0]);
    part.y = now[0] + ((part.y - up[0]) / (up[1] - up[0])) * (now[1] - now[0]);
  };
  for (const note of made.annotations ?? []) {
    if (note.xref !== "paper" || note.yref !== "paper") continue;
    const { up, lift } = owner(note);
    const yshift = (note.yshift ?? 0) + (note.y >= up[1] - 1e-6 ? lift : 0);
    move(note);
    Object.assign(note, { text: broken(note.text ?? "", most), yshift, align: "left" });
  }
  for (const key of legends) if (own(layout[key])) move(made[key]);
  const first = boxes[0].above;
  made.margin = { ...made.margin, t: t + first, b: room, l: 44, r: Math.min(r, 12) };
  made.height = total + made.margin.t + made.margin.b;
  delete made.width;
  return made;
}
