"""What the broad learning notebook shares with the tour, and what only draws."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import pandas as pd
import torch
from ipywidgets import VBox
from plotly.subplots import make_subplots
from torch import Tensor

from labkit.broad import SOLVERS, SharedColumns, Update, side_by_side
from labkit.broad.factor import column_growth, panel_sweep
from labkit.broad.state import squared_norm
from labkit.lab.panels import Controls, Experiment, HeatMap, Lines, Stepper, knob
from labkit.lab.panels.figures.captions import Figure, describe, panel_text
from labkit.lab.panels.figures.drawing import corner, panel_title
from labkit.lab.panels.figures.shown import Shown, close
from labkit.lab.panels.figures.theme import COLOURS, PAPER, axis, layout
from labkit.lab.panels.live.cells import replace_earlier
from labkit.lab.problem import Problem, with_noise

EXACT = tuple(name for name in SOLVERS if SOLVERS[name].exact)
GREVILLE = tuple(name for name in SOLVERS if not SOLVERS[name].exact)


def start_of(groups=1, nodes_per_group=10, enhancement=100) -> list[Update]:
    """The nodes of a start."""
    return [*groups * [Update(nodes_per_group)], Update(extra=enhancement)]


def paper_update(enhancement: int, features: int = 0) -> Update:
    """As the paper's: 750 of 2,000 enhancement nodes see new features only, if any."""
    own = enhancement * 3 // 8 if features else 0
    return Update(features, own, enhancement - own)


def room_of(problem: Problem, columns: int, *, seed=0, dtype=torch.float64):
    """Room for so many columns of a problem's rows, which all solvers share."""
    parts = [(p.inputs.to(dtype), p.targets) for p in (problem.fit, problem.test)]
    return SharedColumns(*parts, columns, seed=seed)


# Growth while it happens: an exact ridge solver and a Greville solver

START, LARGEST = 110, 80  # nodes at the start, and in an update at most
LAW = 0.04  # |F^T R F - I| over eps |A|^2 / ridge, measured on such models; float64


@dataclass(frozen=True)
class GrowthKnobs:
    """What can be turned; what to look for are the digits.

    A growing factor allows other updates at any time. What it was made of, ridge,
    images, labels and arithmetic, is inside it and cannot be exchanged.
    """

    # fmt: off
    ridge: float = knob(
        1e-4, low=1e-12, high=100.0, log=True, help="lambda, inside the factor",
        about="residual greville",
        look_for="The curves part between 1e-8 and 1; not at 1e-12, nor at 100.")
    precision: str = knob(
        "float64", choices=("float64", "float32"), help="of nodes and solvers",
        look_for="float32, ridge 1e-2: a pivot below the ridge; chol-1 falls and ends.")
    exact: str = knob(
        "chol-1", choices=EXACT, label="ridge solver",
        help="each keeps a state of its own",
        look_for="float32, ridge 1e-3: chol-2 and r-inv grow on, the others end.")
    greville: str = knob(
        "orig", choices=GREVILLE, label="Greville solver",
        help="each keeps a state of its own",
        look_for="float32, ridge 1e-3: orig's distance is seven times exg-e's.")
    budget: int = knob(
        50, low=10, high=LARGEST, step=5, unit="nodes", label="per update",
        restart=False, help="of the updates to come", about="accuracy greville",
        look_for="Twelve updates of 80 cost the Greville solver 33 points, of 10 15.")
    features: int = knob(
        4, low=0, high=9, unit="nodes", label="features of it", restart=False,
        help="of the updates to come",
        look_for="At 0 nodes only mix known features; at ridge 1e-2 no climb is left.")
    input_noise: float = knob(
        0.0, low=0.0, high=1.0, step=0.05, unit="sd", about="accuracy exact",
        help="on training pixels, under all columns",
        look_for="What the nodes still bring: at 0.5 nine points, from 79 % on.")
    label_noise: float = knob(
        0.0, low=0.0, high=0.8, step=0.05, unit="share", about="accuracy exact",
        help="labels drawn at random; solvers keep A'Y",
        look_for="From 0.5 on more nodes harm the ridge solver too: they fit noise.")
    seed: int = knob(
        0, low=0, high=99, help="of nodes and noise",
        look_for="Chance: below two points.")
    # fmt: on


def growth_rows(settings, problem: Problem, updates: int = 12) -> Iterator[dict]:
    """One row for the start and for every update; ``step`` counts columns.

    What an update brings is read when its columns are made, the other knobs once. A
    solver that has lost a pivot is left out from there, and ``note`` says why.
    """
    problem = with_noise(
        problem,
        input_noise=settings.input_noise,
        label_noise=settings.label_noise,
        seed=settings.seed,
    )
    dtype, room = getattr(torch, settings.precision), START + updates * LARGEST
    columns = room_of(problem, room, seed=settings.seed, dtype=dtype)

    def widths():
        yield columns.add(*start_of())
        for _ in range(updates):
            enhancement = settings.budget - settings.features
            yield columns.add(paper_update(enhancement, settings.features))

    kinds, notes = {settings.exact: "exact", settings.greville: "greville"}, []
    A, options = columns.A, {"score": columns.score, "factor_error": True}
    growth = side_by_side(A, widths(), columns.Y, settings.ridge, kinds, **options)
    for records in growth:
        k, eps = records[0].columns, torch.finfo(A.dtype).eps
        law = LAW * eps * float(squared_norm(A[:, :k])) / settings.ridge
        row = {"step": k, "ridge": settings.ridge, "law": law}
        for record in records:
            kind = kinds[record.solver]
            if record.lost is not None:
                notes.append(f"{record.solver} ended at {k} columns: {record.lost}")
                continue
            row[f"accuracy {kind}"] = record.score
            row[f"residual {kind}"] = record.residual
            row[f"pivot {kind}"] = record.smallest_pivot
            if kind == "exact" and record.factor_error is not None:
                row["factor error"] = record.factor_error
        yield row | ({"note": "; ".join(notes)} if notes else {})


_KINDS = {"exact": "ridge solver", "greville": "Greville solver"}


def _status(row) -> str:
    found = {label: row.get(f"accuracy {kind}") for kind, label in _KINDS.items()}
    parts = [f"{label} {x:.1f} %" for label, x in found.items() if x is not None]
    note = [row["note"]] if "note" in row else []
    return "; ".join([f"{row['step']} columns", *parts, *note])


def _panel(drawn: str | Mapping, title, y_title, *, log=True, **more) -> Lines:
    if isinstance(drawn, str):  # a quantity of both solvers
        drawn = {f"{drawn} {kind}": label for kind, label in _KINDS.items()}
    return Lines(drawn | more, title, y_title, x_title="columns of A", log=log)


_GRADIENT = "|A'(AW - Y) + ridge W| / |A'Y|"
_ERRORS = {"factor error": "measured", "law": "0.04 eps |A|² / ridge"}
_BOUND = {"ridge": "ridge, its bound"}
GROWTH = Experiment(
    "growth",
    GrowthKnobs,
    growth_rows,
    (
        _panel("accuracy", "Test accuracy", "%", log=False),
        _panel("residual", "Distance from the ridge solution", _GRADIENT),
        _panel("pivot", "Smallest pivot of the update", "pivot", **_BOUND),
        _panel(_ERRORS, "Error of the factor F", "largest |F'RF - I|"),
    ),
    "The ridge solver stays at rounding error from the solution for all its columns; "
    "Greville's recursion leaves it, and as columns come that shows in the accuracy.",
    _status,
    front=("ridge", "label_noise", "budget"),
    playable={"label_noise": (0.0, 0.2, 0.5)},
)

# The inverse Cholesky factor while it is filled in, in the memory of R


@dataclass(frozen=True)
class FactorKnobs:
    """What can be turned in the view; R is overwritten on the way, so it restarts."""

    # fmt: off
    method: str = knob(
        "sweep", choices=("sweep", "column by column"), help="how F is filled in",
        look_for="The right side: the sweep keeps changing it, column by column not.")
    panel: int = knob(
        1, low=1, high=16, unit="columns", help="at a time, of a step of the sweep",
        look_for="The number of steps until F is there, and that F is the same.")
    # fmt: on


def factor_steps(R: Tensor, knobs: FactorKnobs) -> Iterator[tuple[int, Tensor]]:
    """Factorise a copy of R (k, k): finished columns of F, and what is in memory."""
    memory = R.clone()
    sweep = panel_sweep(memory, knobs.panel)
    yield 0, memory.triu()
    for finished in sweep if knobs.method == "sweep" else column_growth(memory):
        yield finished, memory.triu()


class FactorView(Shown):
    """Knobs, buttons and a heat map of the factorisation of R (k, k), step by step."""

    def __init__(self, R: Tensor, *, interactive=True):
        self.interactive = interactive
        self.controls = Controls(FactorKnobs(), interactive=interactive)
        shown = [magnitude(matrix) for _, matrix in factor_steps(R, FactorKnobs())]
        sizes = torch.cat(shown)
        sizes = sizes[~sizes.isnan()].sort().values.tolist()
        # A few tiny entries would take most of the colours.
        look = {"limits": (sizes[len(sizes) // 20], sizes[-1])}
        look["caption"] = (
            "Left of the outline F is finished; the outlined corner is still to be "
            "factorised, and shrinks towards the ridge once the feature columns are "
            "swept."
        )
        titles = "R, before the first step", "log10 of the size"
        self.heat = HeatMap(shown[0], *titles, **look, interactive=interactive)
        self.figure = self.heat.figure
        told = dict(on_record=self._draw, on_show=self._draw, interactive=interactive)
        self.stepper = Stepper(lambda: factor_steps(R, self.controls.value), **told)
        self.controls.observe(self._turn)
        self.widget = None
        if interactive:  # knobs and buttons above the heat map
            parts = self.controls, self.stepper, self.heat
            self.widget = VBox([part.widget for part in parts])
            replace_earlier(self)

    def close(self) -> None:
        """Stop for good and leave the page, as when the panel's cell runs again."""
        self.stepper.pause()
        if self.interactive:
            close(self.widget)

    def _turn(self, _knobs, _changed):
        running = self.stepper.running
        self.stepper.reset()
        if running:
            self.stepper.start()

    def _draw(self, record):
        finished, matrix = record
        pivots = matrix.diagonal()[:finished].square().reciprocal()
        title = f"{finished} of {len(matrix)} columns of F"
        title += f", smallest pivot {float(pivots.amin()):.2g}" if finished else ""
        self.heat.draw(magnitude(matrix), title=title, corner=finished)


def magnitude(matrix: Tensor) -> Tensor:
    """Base-10 logarithm of the sizes of entries; nan for zeros."""
    return matrix.abs().log10().masked_fill(matrix == 0, torch.nan).cpu()


# What growth costs

_TERMS = {
    "cross": ("A'H or A†H", ""),
    "residual": ("C = H - AD", "/"),
    "square": ("C'C or H'H, D'D or V'V", "x"),
    "factor": ("with F or L, G, T", "."),
    "dagger": ("B, A† - DB", "\\"),
    "weights": ("W", "-"),
}


def cost_figure(operations: pd.DataFrame, seconds: pd.DataFrame) -> Figure:
    """Operations by `labkit.broad.cost.TERMS` and seconds by step: a row a solver."""
    figure = make_subplots(cols=2, shared_yaxes=True, figure=Figure())
    bars = {"y": operations.index, "orientation": "h", "row": 1}
    for i, (term, (label, pattern)) in enumerate(_TERMS.items()):
        look = {"color": COLOURS[i], "pattern": {"shape": pattern}}
        figure.add_bar(x=operations[term] / 1e9, name=label, marker=look, col=1, **bars)
    for i, step in enumerate(seconds):
        look = {"color": COLOURS[0], "line": {"color": PAPER, "width": 2}}
        look["pattern"] = {"shape": "" if i else "/", "fgcolor": PAPER}
        bars |= {"name": str(step), "showlegend": False}
        figure.add_bar(x=seconds[step], marker=look, col=2, **bars)
    titles = "Operations, by formula", "Seconds, measured"
    labels = [label for label, _ in _TERMS.values()]
    words = [panel_text(titles[0], "solver", "1e9 operations", labels)]
    words.append(panel_text(titles[1], "solver", "seconds"))
    places = [corner(figure.get_subplot(1, column)) for column in (1, 2)]
    legend = dict(orientation="h", x=0, y=0, yref="container", traceorder="normal")
    look = layout(width=960, height=420, barmode="stack", legend=legend)
    look["annotations"] = list(map(panel_title, titles, places))
    look |= {"xaxis": axis("1e9 operations"), "yaxis": {"autorange": "reversed"}}
    look["xaxis2"] = axis("seconds, start (striped) and updates")
    look["margin"] |= {"l": 90, "b": 100}
    caption = "Chol-1 needs neither C nor B: its bar on the left lacks what they cost."
    return describe(figure.update_layout(look), caption, words)
