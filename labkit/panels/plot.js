// A plotly figure whose state is its data: whoever attaches later sees what is there.
// plotly.js itself comes from the kernel once a page, not once a figure.

const ASKED = "plotly.js";
const AGAIN = 10000; // ms after which another figure asks: its kernel may live

function load(source) {
  const url = URL.createObjectURL(new Blob([source], { type: "text/javascript" }));
  const script = document.createElement("script");
  const done = new Promise((resolve, reject) => {
    script.onload = () => resolve(globalThis.Plotly);
    script.onerror = () => reject(new Error("plotly.js could not be loaded"));
  });
  script.src = url;
  document.head.append(script);
  return done.finally(() => URL.revokeObjectURL(url));
}

// A busy kernel answers late, one that is gone never does: a figure waits for whichever
// answer comes first, also to another figure of the page.
async function library(model) {
  const page = (globalThis.labkitPlotly ??= { asked: -AGAIN, loaded: null });
  const take = (message, buffers) => {
    if (message === ASKED) page.loaded ??= load(buffers[0]);
  };
  model.on("msg:custom", take);
  while (!page.loaded) {
    if (performance.now() - page.asked >= AGAIN) {
      page.asked = performance.now();
      model.send(ASKED);
    }
    await new Promise((resolve) => setTimeout(resolve, 50));
  }
  model.off("msg:custom", take);
  return page.loaded;
}

function render({ model, el }) {
  const plot = document.createElement("div");
  const line = document.createElement("p");
  line.className = "labkit-caption";
  plot.setAttribute("role", "img");
  el.append(plot, line);
  let width = 0;
  let drawing = false;
  let wanted = true;

  const draw = async () => {
    wanted = true;
    if (drawing) return;
    drawing = true;
    try {
      if (!globalThis.labkitPlotly?.loaded) line.textContent = "Waits for the kernel.";
      const Plotly = await library(model);
      while (wanted) {
        wanted = false;
        const { data, layout } = JSON.parse(model.get("figure"));
        plot.setAttribute("aria-label", layout.meta?.alt ?? "");
        line.textContent = layout.meta?.caption ?? "";
        await Plotly.react(plot, data, { uirevision: true, ...layout }, model.get("config"));
        model.send({ drawn: model.get("version") });
      }
    } catch (error) {
      const lost = model.get("lost") ? " The run goes on without it." : "";
      line.textContent = `The figure cannot be drawn: ${error.message}.${lost}`;
    } finally {
      drawing = false;
    }
  };
  const sized = new ResizeObserver(() => {
    if (width === el.offsetWidth || !plot.querySelector(".main-svg")) return;
    width = el.offsetWidth;
    globalThis.Plotly.Plots.resize(plot);
  });
  sized.observe(el);
  model.on("change:version change:lost", draw);
  draw();
  return () => {
    sized.disconnect();
    model.off("change:version change:lost", draw);
    globalThis.Plotly?.purge(plot);
  };
}

export default { render };
