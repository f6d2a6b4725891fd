// A plotly figure whose state is its data: whoever attaches later sees what is there.

const BESIDE = 6; // pixels from the edge of a marker at which a hand holds it

// anywidget waits two seconds for a widget's script. Where that takes longer, as in a page
// that is busy, it drops for good whatever the kernel says to this widget. A script that
// runs has come: from here on messages are taken in as ipywidgets itself does it.
async function hearing(model) {
  const own = await model.widget_manager.get_model(model.get("own"));
  const { _handle_comm_msg: take } = Object.getPrototypeOf(Object.getPrototypeOf(own));
  own.comm.on_msg(take.bind(own));
}

// plotly.js, loaded once for all figures of a page.
async function library(model) {
  const kept = await model.widget_manager.get_model(model.get("library"));
  const type = "text/javascript";
  globalThis.labkitPlotly ??= URL.createObjectURL(new Blob([kept.get("script")], { type }));
  await import(globalThis.labkitPlotly);
}

// What a hand can hold where a pointer is, among what traces name in their meta: the
// nearest point within its marker or a hair beside it. "off" is how far its pixels,
// counted along the axes, are from those of the pointer in the page.
function hold(plot, { clientX, clientY }) {
  const { left, top } = plot.getBoundingClientRect();
  let [held, nearest] = [null, Infinity];
  for (const points of plot.calcdata ?? []) {
    const { meta, marker, xaxis, yaxis } = points[0].trace;
    if (!meta?.touch) continue;
    const axes = [xaxis, yaxis].map((id) => `${id[0]}axis${id.slice(1)}`);
    const [x, y] = axes.map((name) => plot._fullLayout[name]);
    const [right, below] = [clientX - left - x._offset, clientY - top - y._offset];
    points.forEach((point, index) => {
      const [across, down] = [x.c2p(point.x), y.c2p(point.y)];
      const far = Math.hypot(across - right, down - below);
      if (far >= nearest || far > marker.size / 2 + BESIDE) return;
      nearest = far;
      held = { name: meta.touch, index, axes, off: [across - clientX, down - clientY] };
    });
  }
  return held;
}

// Run All leaves JupyterLab at the top of a notebook that ends under a folded heading. Its
// first picture, once it is drawn, comes into sight as a whole, unless a reader has moved.
function bring(el) {
  const page = el.closest(".jp-WindowedPanel-outer");
  const panel = el.closest(".labkit-pictured");
  if (!panel || page?.scrollTop !== 0 || "labkitBrought" in page.dataset) return;
  if (page.querySelector(".labkit-screen") !== panel) return;
  page.dataset.labkitBrought = "";
  panel.scrollIntoView({ block: "nearest" });
}

// Frames show where the kernel has what is held. It is told the newest place alone, as
// soon as it has heard the one before: ipywidgets holds back what comes meanwhile.
// A redraw ends a capture of the pointer, so that it is followed in the whole page.
function draggable(plot, model) {
  const press = (event) => {
    const held = event.button ? null : hold(plot, event);
    if (!held) return;
    event.preventDefault(); // plotly would zoom
    event.stopPropagation();
    const { name, index, axes, off } = held;
    const [drag, gone] = [Date.now(), new AbortController()];
    const follow = ({ buttons, clientX, clientY }) => {
      if (!buttons) return gone.abort();
      const [x, y] = axes.map((axis) => plot._fullLayout[axis]);
      const place = { x: x.p2c(clientX + off[0]), y: y.p2c(clientY + off[1]) };
      model.set("touched", { name, index, drag, ...place });
      model.save_changes();
    };
    document.addEventListener("pointermove", follow, { signal: gone.signal });
    for (const end of ["pointerup", "pointercancel"])
      document.addEventListener(end, () => gone.abort(), { signal: gone.signal });
  };
  plot.addEventListener("pointerdown", press, { capture: true });
  plot.addEventListener("pointermove", (event) => {
    if (event.buttons) return;
    event.target.style.cursor = hold(plot, event) ? "grab" : "";
  });
}

async function render({ model, el }) {
  await hearing(model);
  const plot = make("div", { role: "img" });
  const line = make("p", { className: "labkit-caption" });
  // A drawing that is to become lower would give its place a scroll bar, and plotly would
  // draw the new one narrower by it.
  plot.style.overflow = "hidden";
  el.append(make("div", {}, plot), line);

  const draw = redrawing(async () => {
    try {
      await library(model);
      const [version, begin] = [model.get("version"), performance.now()];
      const { data, layout } = JSON.parse(model.get("figure"));
      plot.ariaLabel = layout.meta?.alt ?? "";
      line.textContent = layout.meta?.caption ?? "";
      await fit(plot, data, layout, { displaylogo: false });
      bring(el);
      // The page has as long again for other things, such as a click on Pause.
      setTimeout(() => model.send({ drawn: version }), performance.now() - begin);
    } catch (error) {
      line.textContent = `The figure cannot be drawn: ${error.message}.`;
    }
  });
  draggable(plot, model);
  const follow = sized(plot, () => draw());
  model.on("change:version", draw);
  draw();
  const tell = () => model.send({ has: model.get("version") });
  tell();
  // What either side said while the connection was lost may have been lost with it.
  const connection = model.widget_manager.kernel?.connectionStatusChanged;
  const back = (_, status) => status === "connected" && tell();
  connection?.connect(back);
  return () => {
    connection?.disconnect(back);
    follow.disconnect();
    model.off("change:version", draw);
    globalThis.Plotly?.purge(plot);
  };
}

export default { render };
