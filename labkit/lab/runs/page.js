// Figures of a page without a kernel: where the page is narrow, their panels stand one
// below another. Stands after redraw.js; a figure that is played has a script of its own.
function fitted(figure) {
  let [own, wide] = [null, 0];
  figure.parentElement.style.maxWidth = "100%"; // plotly gives it the figure's own width
  const draw = redrawing(async () => {
    if (!figure.layout || figure.dataset.played !== undefined) return;
    own ??= structuredClone(figure.layout);
    const fits = structuredClone(stacked(own, wide, figure.data));
    roomy(figure, fits);
    for (const part of [figure, figure.parentElement]) part.style.height = `${fits.height}px`;
    await Plotly.react(figure, figure.data, fits);
    if (!fits.width) await Plotly.Plots.resize(figure);
  });
  new ResizeObserver(() => {
    const now = figure.parentElement.clientWidth; // none in a section that is closed
    if (!now || now === wide) return;
    wide = now;
    if (wide < NARROW || figure._fullLayout?.width !== figure.clientWidth) draw();
  }).observe(figure.parentElement);
}

addEventListener("load", () => {
  for (const figure of document.querySelectorAll(".plotly-graph-div")) fitted(figure);
});
