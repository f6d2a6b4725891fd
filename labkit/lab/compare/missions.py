"""Missions for the plane of all rules, each checked while its panel runs."""

import html
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from ipywidgets import HTML, Dropdown, VBox

from labkit.lab.compare.live import ALL
from labkit.lab.compare.training import NEWTON
from labkit.lab.panels import LiveLab
from labkit.lab.panels.figures.shown import Page, Shown

HOLDS = 5  # minibatches in a row at which one rule has to have more errors
NOISY = 10  # minibatches with noise, at least, from which a rule recovers
LOST, BACK = 30.0, 10.0  # errors [%] of a rule that has suffered, and has recovered
ASK = "which rule?"
NARROW = {"max_width": "calc(100% - 4px)"}  # in a page with less room than a menu has
LEVELS = "label_noise", "input_noise"

Steps = Sequence[tuple[Mapping, Mapping]]  # a row and the knobs at it, of one run


def beats(steps: Steps, winner: str, loser: str) -> str:
    """Say that one rule has fewer errors than another; empty if it has not."""
    rows = [row for row, _ in steps[-HOLDS:] if winner in row and loser in row]
    if len(rows) < HOLDS or any(row[winner] >= row[loser] for row in rows):
        return ""
    row, knobs = steps[-1]
    noise = ", ".join(f"{name.replace('_', ' ')} {knobs[name]:g}" for name in LEVELS)
    errors = f"{winner} {row[winner]:.0f} %, {loser} {row[loser]:.0f} %"
    return f"{errors} at minibatch {row['step']}, with {noise}"


def recovered(steps: Steps) -> dict[str, int]:
    """Return how many minibatches after the noise each rule that suffered was back.

    Rules that are not back are left out, and so are those that did not suffer.
    """
    noisy = [any(knobs[name] > 0 for name in LEVELS) for _, knobs in steps]
    if sum(noisy) < NOISY or noisy[-1]:
        return {}
    end = len(noisy) - noisy[::-1].index(True)  # the first step without noise
    last, back = steps[end - 1][0], {}
    for name, error in last.items():
        if isinstance(error, float) and error >= LOST:
            after = enumerate((row for row, _ in steps[end:]), start=1)
            found = (i for i, row in after if row.get(name, LOST) < BACK)
            back[name] = next(found, 0)
    return {name: count for name, count in back.items() if count}


class Mission(NamedTuple):
    """What is to be done, and a function that says how it was done, or nothing."""

    text: str
    done: Callable[[Steps], str]


MISSIONS = (
    Mission("Make Adam beat Hessian-free.", lambda steps: beats(steps, "Adam", NEWTON)),
    Mission(
        "Find the noise at which BPLS loses to broad learning.",
        lambda steps: beats(steps, "broad", "BPLS"),
    ),
)
LAST = (
    "Turn a noise up until most rules have lost the arms, and back to 0: which of them "
    "recovers first?"
)


class Missions(Shown):
    """A list of missions that follows a panel, and marks what has been done.

    Parameters
    ----------
    lab : LiveLab, of `RACE` on a plane
    interactive : bool, follow the panel; otherwise the list alone is shown

    Attributes
    ----------
    lines : list of HTML, a mission each; the last one is answered by ``choice``
    """

    def __init__(self, lab: LiveLab, *, interactive: bool = True) -> None:
        self.interactive, self._lab, self.widget = interactive, lab, None
        self._steps, self._done = [], [""] * len(MISSIONS)
        if interactive:
            self.lines = [HTML() for _ in (*MISSIONS, LAST)]
            self.choice = Dropdown(options=(ASK, *ALL), layout=NARROW)
            self.choice.observe(lambda _: self._show(), "value")
            self.widget = VBox([*self.lines, self.choice])
            lab.follow(self._add)
            self._show()

    def _add(self, row: Mapping, knobs: Mapping) -> None:
        if self._steps and row["step"] <= self._steps[-1][0]["step"]:
            self._steps = []  # the run has begun anew
        self._steps.append((row, knobs))
        for i, mission in enumerate(MISSIONS):
            self._done[i] = self._done[i] or mission.done(self._steps)
        self._show()

    def _answer(self) -> str:
        """Say whether the rule that is chosen was back first."""
        if self.choice.value == ASK:
            return ""
        back = recovered(self._steps)
        if not back:
            return "no rule has suffered and recovered so far"
        first = min(back.values())
        best = [name for name, count in back.items() if count == first]
        said = f"{' and '.join(best)} had less than {BACK:.0f} % after {first}"
        right = "yes" if self.choice.value in best else "no"
        return f"{right}: {said} minibatches without noise"

    def _show(self) -> None:
        texts = [mission.text for mission in MISSIONS] + [LAST]
        for line, text, said in zip(
            self.lines, texts, [*self._done, self._answer()], strict=True
        ):
            mark = "✓" if said and not said.startswith("no") else "○"
            told = f" <i>{html.escape(said)}.</i>" if said else ""
            value = f"<div>{mark} {html.escape(text)}{told}</div>"
            if line.value != value:
                line.value = value

    @property
    def _still(self) -> Page:
        texts = [mission.text for mission in MISSIONS] + [LAST]
        items = "".join(f"<li>{html.escape(text)}</li>" for text in texts)
        return Page(f"<ul>{items}</ul>", "\n".join(texts))
