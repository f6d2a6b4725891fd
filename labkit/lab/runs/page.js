// Figures of a page without a kernel: where the page is narrow, their panels stand one
// below another. Stands after common.js; a figure that is played has a script of its own.
addEventListener("load", () => {
  for (const figure of document.querySelectorAll(".plotly-graph-div")) {
    const own = structuredClone(figure.layout);
    figure.parentElement.style.maxWidth = "100%"; // plotly gives it the figure's own width
    const draw = redrawing(() => fit(figure, figure.data, own));
    sized(figure, () => "played" in figure.dataset || draw());
  }
});
