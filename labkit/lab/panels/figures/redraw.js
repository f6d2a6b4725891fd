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
