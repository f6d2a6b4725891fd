"""Show recursive least squares on two weights, with the ellipse of P and its effect."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from labkit.lab.panels import Experiment, knob
from labkit.lab.panels.figures.planes import (
    GHOST,
    arrow,
    contours,
    dots,
    ellipse,
    path,
    planes,
    put,
    words,
)
from labkit.lab.panels.figures.theme import INK, SCALE, colour_of
from labkit.lab.problem import seeded
from labkit.rls import RLS, loss_mse, rls_step

POINTS, TRUE, START = 60, (0.8, -0.5), (-1.1, 1.1)
FAR = 5.0  # of the plane of the inputs
RULES = {name: colour_of(name) for name in ("RLS", "SGD", "Adam")}
WIDE, BESIDE, GRID = 2.0, 3.0, 61  # of the plane of the weights: it is wider than high
LENGTH = 0.7  # of the longer of the two arrows
MINUS, STEP = "minus the gradient", "step of RLS"
LEGEND = (*RULES, MINUS)  # what is named below; the rest stands at its place
WORKED = (2.0, 1.0)  # the mean input of the worked example
KEPT = 300  # newest points of a path
ROOM = 1.7, 0.6  # half the width and height of the words for the mean input


@dataclass(frozen=True)
class EllipseKnobs:
    """Knobs of the picture; the seed determines the order of the data."""

    # fmt: off
    noise: float = knob(
        0.3, low=0.0, high=2.0, step=0.1, unit="sd", help="on the targets",
        restart=False, about="RLS's loss: loss RLS",
        look_for="Which path trembles at the end, and which stands?")
    batch: int = knob(
        16, choices=(1, 4, 16, 60), unit="points", help="of a step; 60: all",
        about="the thinness of P: thinness of P",
        look_for="At 1 P knows every input, at 60 the mean alone: how thin is it?")
    mean_weight: float = knob(
        0.3, low=0.01, high=10.0, log=True, label="mean weight k", restart=False,
        help="of RLS", about="the thinness of P: thinness of P",
        look_for="Does the ellipse thin faster, and the step turn more?")
    mean: float = knob(
        1.5, low=0.0, high=3.0, step=0.5, label="mean input", unit="sd",
        help="how far the inputs lie from 0", about="the thinness of P: thinness of P",
        look_for="At 0: what does P switch off?")
    lr: float = knob(
        1.0, low=0.1, high=3.0, label="step factor eta", help="of RLS", restart=False,
        about="RLS's loss: loss RLS",
        look_for="Above 2: is the minimum overshot?")
    others: float = knob(
        0.05, low=0.005, high=0.5, log=True, label="rate of SGD and Adam",
        restart=False, about="SGD's loss: loss SGD",
        look_for="At 0.5: who runs away along the steep direction?")
    seed: int = knob(0, low=0, high=99, help="of the data", look_for="Is it chance?")
    moved: str = knob(
        "", label="points moved", restart=False, about="RLS's loss: loss RLS",
        help="number and place of each, such as 7 1.5 -2, 12 0 3; targets stay",
        look_for="An outlier: whose path does it bend, and for how long?")
    # fmt: on

    def __post_init__(self):
        places(self.moved)


class Ellipse(NamedTuple):
    """The data of one step of RLS before it is taken, and all paths."""

    inputs: np.ndarray  # (n, 2)
    targets: np.ndarray  # (n,)
    mean: np.ndarray  # (2,) of the minibatch
    weights: np.ndarray  # (2,) of RLS
    P: np.ndarray  # (2, 2)
    gradient: np.ndarray  # (2,)
    step: np.ndarray  # (2,) what the optimiser then added to the weights
    loss: np.ndarray  # (GRID, GRID) of all data, at the plane's points
    paths: dict[str, np.ndarray]  # by rule, (steps, 2)


def places(moved: str) -> list[tuple[int, float, float]]:
    """Parse the numbers of points, from 1, and the places they were moved to.

    ValueError, with the format, if this fails.
    """
    parts = [part.split() for part in moved.split(",") if part.strip()]
    try:
        found = [(int(i), float(x), float(y)) for i, x, y in parts]
        if all(1 <= i <= POINTS and abs(x) <= FAR >= abs(y) for i, x, y in found):
            return found
    except ValueError:
        pass
    allowed = f"points 1 to {POINTS} with two inputs from {-FAR} to {FAR}"
    raise ValueError(f"moved must be like '7 1.5 -2, 12 0 3', {allowed}, got {moved!r}")


def data(knobs: EllipseKnobs) -> tuple[Tensor, Tensor]:
    """Return inputs (n, 2) with their mean on the diagonal, and noisy targets (n, 1).

    A point that was moved keeps its target.
    """
    g = seeded(knobs.seed)
    X = torch.randn(POINTS, 2, generator=g) * torch.tensor([1.0, 0.6]) + knobs.mean
    y = X @ torch.tensor([TRUE]).T
    y = y + knobs.noise * torch.randn(POINTS, 1, generator=g)
    for i, *place in places(knobs.moved):
        X[i - 1] = torch.tensor(place)
    return X, y


def surface(X: Tensor, y: Tensor) -> np.ndarray:
    """Compute the loss of all data over the plane of the weights, and beside it."""
    ticks = torch.linspace(-BESIDE, BESIDE, GRID)
    W = torch.cartesian_prod(ticks, ticks)
    losses = (X @ W.T - y).square().mean(0) / 2  # loss_mse; vmap imports for a second
    return losses.view(GRID, GRID).T.numpy()  # a row for each second weight


class Unit(nn.Linear):
    """A linear unit with two inputs and no bias; all rules start alike."""

    def reset_parameters(self) -> None:
        """Start where the paths do, without a random number."""
        with torch.no_grad():
            self.weight.copy_(torch.tensor([START]))


def ellipse_rows(knobs: EllipseKnobs) -> Iterator[dict]:
    """Yield one row per step, with all rules on the same minibatch."""
    units = {name: Unit(2, 1, bias=False) for name in RULES}
    rls = RLS(units["RLS"], mean_weight=knobs.mean_weight, on_failure="reset")
    optimizers = {"RLS": rls, "SGD": None, "Adam": None}
    for name, kind in (("SGD", torch.optim.SGD), ("Adam", torch.optim.Adam)):
        optimizers[name] = kind(units[name].parameters(), lr=knobs.others)
    paths = {name: [np.array(START)] for name in RULES}
    g, step, made_at = seeded(knobs.seed), 0, None
    while True:
        for rows in torch.randperm(POINTS, generator=g).split(knobs.batch):
            step, seen = step + 1, {}
            if made_at != (at := (knobs.noise, knobs.moved)):
                made_at, (X, y) = at, data(knobs)
                loss = surface(X, y)
            rls.param_groups[0] |= {"mean_weight": knobs.mean_weight, "lr": knobs.lr}
            for name, optimizer in optimizers.items():
                if name != "RLS":
                    optimizer.param_groups[0]["lr"] = knobs.others
                optimizer.zero_grad()
                loss_mse(units[name](X[rows]), y[rows]).backward()
                if name == "RLS":
                    seen = look(rls)
                optimizer.step()
                paths[name].append(units[name].weight.detach().numpy()[0].copy())
            shown = {name: np.stack(points[-KEPT:]) for name, points in paths.items()}
            seen["step"] = shown["RLS"][-1] - shown["RLS"][-2]
            row = {f"loss {k}": loss_mse(units[k](X), y).item() for k in RULES}
            row["thinness of P"] = float(np.linalg.cond(seen["P"]) ** 0.5)
            given = X.numpy(), y.numpy()[:, 0]
            made = Ellipse(*given, **seen, loss=loss, paths=shown)
            yield {"step": step} | row | {"pictures": made}


def opening(knobs: EllipseKnobs) -> Ellipse:
    """Return the data, and the first step of RLS, which is not taken."""
    X, y = data(knobs)
    rows = torch.randperm(POINTS, generator=seeded(knobs.seed))[: knobs.batch]
    made, P, mean = Unit(2, 1, bias=False), torch.eye(2), X[rows].mean(0)
    loss_mse(made(X[rows]), y[rows]).backward()
    before, after = (made.weight.detach().clone() for _ in range(2))
    gradient, (lr, k) = made.weight.grad, (knobs.lr, knobs.mean_weight)
    rls_step(after, P.clone(), mean, gradient, lr=lr, mean_weight=k)
    shown = {name: np.array([START]) for name in RULES}
    given = X.numpy(), y.numpy()[:, 0], mean.numpy()
    taken = (
        before.numpy()[0],
        P.numpy(),
        gradient.numpy()[0],
        (after - before).numpy()[0],
    )
    return Ellipse(*given, *taken, surface(X, y), shown)


def look(rls: RLS) -> dict[str, np.ndarray]:
    """Return the step that RLS is about to take, without a change."""
    (each,) = rls.pending()
    seen = {"mean": each.x_mean, "P": each.state["P"], "gradient": each.gradient[0]}
    seen["weights"] = each.block.weight.detach()[0]
    return {name: value.clone().numpy() for name, value in seen.items()}


def afresh(now: Ellipse, knobs: EllipseKnobs) -> Ellipse:
    """Return the same step with other data."""
    X, y = data(knobs)
    return now._replace(inputs=X.numpy(), targets=y.numpy()[:, 0], loss=surface(X, y))


def dragged(
    _now: Ellipse, knobs: EllipseKnobs, _name: str, index: int, point: Sequence[float]
) -> dict[str, str]:
    """Return the knob of moved points, with the dragged one at this point."""
    moved = {i: place for i, *place in places(knobs.moved)}
    moved[index + 1] = np.clip(point, -FAR, FAR)
    said = (f"{i} {x:.2f} {y:.2f}" for i, (x, y) in moved.items())
    return {"moved": ", ".join(said)}


CAPTION = (
    "P begins as a circle and grows thin along the mean input: the step of RLS, the "
    "green arrow, is the gradient with that direction taken out, so it goes down the "
    "valley instead of across it. Both arrows are drawn by the same factor."
)


def picture(now: Ellipse | None, before: Ellipse | None) -> dict:
    """Draw the inputs on the left and the weights on the right."""
    wide = ((-WIDE, WIDE),) * 2
    figure = planes(
        ["Inputs, and P (green)", "Weights: loss, paths, P at half size"],
        ["first input", "first weight"],
        ["second input", "second weight"],
        [((-FAR, FAR),) * 2, wide],
        caption=CAPTION,
        square=True,
    )
    if now:
        put(figure, 0, _inputs(now))
        put(figure, 1, [t | {"showlegend": t["name"] in LEGEND} for t in _weights(now)])
    if before:
        drawn = [path(p, GHOST, "an earlier run") for p in before.paths.values()]
        for i, trace in enumerate(drawn):
            put(figure, 1, [trace | {"showlegend": not i}])
    return figure


def _inputs(now: Ellipse) -> list[dict]:
    return [
        dots(now.inputs, INK, color=now.targets, colorscale=SCALE, size=6)
        | {"meta": {"touch": "points"}},
        ellipse((0, 0), now.P, 1.0, RULES["RLS"], width=3) | {"name": ""},
        arrow((0, 0), now.mean, INK) | {"name": ""},
        words(free_place(now), "mean input") | {"textposition": "middle center"},
    ]


def free_place(now: Ellipse) -> np.ndarray:
    """Return where the mean input's name stands, (2,): near it, off the points."""
    ticks = np.arange(-FAR + 1, FAR - 0.9, 0.5)
    places = np.stack(np.meshgrid(ticks, ticks), -1).reshape(-1, 1, 2)
    shaft = np.linspace(0, 1, 9)[:, None] * now.mean
    edge = ellipse((0, 0), now.P, 1.0, INK)
    drawn = np.concatenate([now.inputs, shaft, np.c_[edge["x"], edge["y"]]])
    hidden = (np.abs(drawn - places) < ROOM).all(-1).sum(1)
    far = np.linalg.norm(places[:, 0] - now.mean, axis=1)
    return places[np.lexsort((far, hidden))[0], 0]


def _weights(now: Ellipse) -> list[dict]:
    ticks = np.linspace(-BESIDE, BESIDE, GRID)
    drawn = [contours(ticks, ticks, now.loss, "loss")]
    for name, points in now.paths.items():
        drawn.append(path(points, RULES[name], name))
        drawn.append(dots(points[-1], RULES[name], size=9))
    drawn.append(ellipse(now.weights, 0.25 * now.P, 1.0, RULES["RLS"], "P, half size"))
    longest = max(np.linalg.norm(now.gradient), np.linalg.norm(now.step), 1e-12)
    for vector, colour, name in (
        (-now.gradient, INK, MINUS),
        (now.step, RULES["RLS"], STEP),
    ):
        end = now.weights + LENGTH / longest * vector
        drawn.append(arrow(now.weights, end, colour, name))
    return drawn


def worked(values: Sequence[float]) -> dict:
    """Draw the worked example: P before, the mean input, and P as it is filled in.

    ``values`` are h and the entries 11, 12 and 22 of P, nan where nothing is filled in.
    """
    figure = planes(
        ["P before (grey), and as you fill it in"],
        ["first input"],
        ["second input"],
        [((-2.6, 2.6), (-1.3, 1.6))],
        caption="P becomes thin along the mean input, and stays as it was across it.",
        height=330,
        square=True,
    )
    put(figure, 0, [ellipse((0, 0), np.eye(2), 1.0, GHOST, width=2) | {"name": ""}])
    name = words(WORKED, "mean input") | {"textposition": "top left"}  # has room there
    put(figure, 0, [arrow((0, 0), WORKED, INK), name])
    _, one, between, two = values
    P = np.array([[one, between], [between, two]])
    if np.isfinite(P).all() and np.linalg.eigvalsh(P)[0] > 0:
        put(figure, 0, [ellipse((0, 0), P, 1.0, RULES["RLS"], width=3) | {"name": ""}])
    return figure


def _status(row) -> str:
    losses = ", ".join(f"{name} {row[f'loss {name}']:.3g}" for name in RULES)
    return f"loss: {losses}; P is {row['thinness of P']:.1f} times as long as wide"


ELLIPSE = Experiment(
    "ellipse",
    EllipseKnobs,
    ellipse_rows,
    (),
    CAPTION,
    _status,
    front=("noise", "batch", "mean_weight"),
    playable={"mean_weight": (0.03, 3.0)},  # what the text asks for
    picture=picture,
    opening=opening,
    at_once=True,
    drag=dragged,
    afresh=afresh,
)
