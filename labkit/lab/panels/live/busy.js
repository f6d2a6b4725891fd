// Says that the kernel is at work, which a kernel at work cannot say itself. After a
// click, and while there may be work, the page asks; one question is under way at a time.
// Two answers to what was asked after a click tell that it was heard, since the kernel
// may take up a question just before it; until then it is queued.

const LATE = 500; // ms without an answer after which the line says so
const LOST = 60000; // ms after which the question is put again: connections break
const PROMPTS = ".jp-CodeCell .jp-InputPrompt";

async function render({ model, el }) {
  await hearing(model);
  const line = document.createElement("p");
  line.className = "labkit-busy";
  line.setAttribute("role", "status");
  el.append(line);
  const gone = new AbortController();
  let asked = null; // when the question left that has no answer yet
  let left = 0; // how many answers are wanted
  let clicked = []; // buttons, until then

  const cells = () =>
    [...(el.closest(".jp-Notebook")?.querySelectorAll(PROMPTS) ?? [])]
      .some((prompt) => prompt.textContent.includes("*"));
  const panel = () => el.closest(".labkit-panel") ?? el.parentElement;
  const runs = () => panel()?.querySelector(".labkit-pause:not(:disabled)");
  const waited = () => (asked === null ? 0 : performance.now() - asked);

  const say = () => {
    if (waited() < LATE) return;
    if (el.closest(".jupyter-widgets-disconnected")) {
      line.textContent = "";
      return;
    }
    const names = clicked.map((button) => button.textContent.trim()).join(", ");
    const why = cells() ? "Waits for cells that still run" : "The kernel is at work";
    line.textContent = `${why}. ${names ? `Then: ${names}.` : "What you do here comes after."}`;
    for (const button of clicked) button.classList.add("labkit-queued");
  };
  const ask = () => {
    asked = performance.now();
    model.send("busy?");
    setTimeout(say, LATE);
  };
  const hear = (content) => {
    if (content === "busy") {
      setTimeout(() => model.send("busy?"), LATE);
      return;
    }
    left -= 1;
    if (left > 0) {
      ask();
      return;
    }
    for (const button of clicked) button.classList.remove("labkit-queued");
    clicked = [];
    if (waited() < LATE) line.textContent = "";
    asked = null;
  };
  const touch = ({ type, target }) => {
    if (!panel()?.contains(target)) return;
    const button = type === "click" && target.closest("button");
    if (button) clicked.push(button);
    left = asked === null ? 2 : 3;
    if (asked === null) ask();
    else say();
  };
  const tick = () => {
    if (waited() > LOST) ask();
    else if (asked !== null) say();
    else if (cells() || runs()) ask();
    else line.textContent = "";
  };

  for (const type of ["click", "change", "keyup"])
    document.addEventListener(type, touch, { signal: gone.signal });
  model.on("msg:custom", hear);
  const timer = setInterval(tick, LATE);
  ask();
  return () => {
    clearInterval(timer);
    gone.abort();
    model.off("msg:custom", hear);
  };
}

export default { render };
