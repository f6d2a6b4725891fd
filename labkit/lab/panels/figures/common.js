// Stands before the scripts of live figures, of pages, and of what is embedded in pages.

function make(tag, parts = {}, ...inside) {
  const made = Object.assign(document.createElement(tag), parts);
  made.append(...inside);
  return made;
}

// Draws what is newest, one drawing at a time: what comes meanwhile waits for its turn.
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

const NARROW = 560; // pixels of a figure below which its panels stand one below another
const APART = 96; // pixels between two of them: an axis title, and a title
const [LETTER, ROW] = [5.8, 19]; // pixels of a letter in a legend, and of its row

// Rows of a legend, whose columns plotly makes equally wide.
function rows(data, width) {
  const names = data.filter(({ name, showlegend }) => name && showlegend !== false);
  const column = LETTER * Math.max(0, ...names.map(({ name }) => name.length)) + 46;
  return Math.ceil(names.length / Math.max(1, Math.floor((width - 64) / column)));
}

// A figure's layout at a width. Titles hang on their axes, and legends on the figure:
// plotly moves them.
function placed(layout, width, data) {
  const { margin = {}, meta } = layout;
  if (width >= NARROW || meta?.least) return layout;
  const [made, { t = 56, b = 50 }] = [structuredClone(layout), margin];
  const panels = Object.keys(layout).filter((key) => /^xaxis\d*$/.test(key));
  const { rows: lines = 1, ygap = 0 } = layout.grid ?? {};
  const more = ROW * Math.max(0, rows(data, width) - rows(data, 2 * NARROW));
  made.height = (layout.height ?? 450) + more;
  made.margin = { ...margin, l: 44, r: 12 };
  for (const title of made.annotations ?? [])  // the longest needs the margin, too
    if (title.xref?.endsWith(" domain") && title.yanchor === "bottom") title.xshift = -44;
  delete made.width;
  if (panels.length < 2) return made;
  const high = (((layout.height ?? 450) - t - b) / (lines - ygap)) * (1 - ygap);
  const place = high + APART;
  const grid = { rows: panels.length, columns: 1, pattern: "independent", ygap: APART / place };
  for (const x of panels) delete made[x].domain;
  made.grid = grid;
  made.height = panels.length * place - APART + t + b + more;
  return made;
}

// A figure that says how wide it at least is keeps that; its place is scrolled.
function roomy(figure, { meta }) {
  figure.style.minWidth = meta?.least ? `${meta.least}px` : "";
  if (meta?.least) figure.parentElement.style.overflowX = "auto";
}

// Draws what a page shows in a figure, at its height and the width of its place.
async function fit(figure, data, layout, config) {
  const wanted = placed(layout, figure.parentElement.clientWidth, data);
  roomy(figure, wanted);
  figure.style.height = `${wanted.height}px`;
  // A bar to scroll it by lies below it.
  figure.parentElement.style.height = wanted.meta?.least ? "auto" : figure.style.height;
  await Plotly.react(figure, data, { uirevision: true, ...wanted }, config);
  if (!wanted.width && figure._fullLayout.width !== figure.clientWidth)
    await Plotly.Plots.resize(figure);
}

// Calls when the place of a figure has another width; none in a section that is closed.
function sized(figure, call) {
  let wide = 0;
  const observer = new ResizeObserver(() => {
    const now = figure.parentElement.clientWidth;
    if (!now || now === wide) return;
    wide = now;
    call();
  });
  observer.observe(figure.parentElement);
  return observer;
}
