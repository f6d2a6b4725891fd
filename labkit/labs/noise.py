"""The noise experiment: repeated estimates beside exact RTRL, weights frozen."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pandas as pd
import torch
from ipywidgets import Label, VBox

from labkit.instruments import Trace, gradient_cosine, relative_variance
from labkit.labs.networks import (
    METHODS,
    Network,
    make_learner,
    method_label,
    new_network,
    train_network,
)
from labkit.panels import Bars, Controls, Lines, LivePlot, Stepper, knob
from labkit.rtrl import OK, RTRL, CharStream, minimum_variance, water_level


def measure_noise(
    network: Network, name: str, text, *, batch=1, repeats=20, seed=0
) -> Iterator[dict[str, float]]:
    """Compare a method with exact RTRL on one stretch of text, weights frozen.

    All repeats read the same ``batch`` sequences and differ in their signs alone, so
    one exact learner serves them all; they run as one batch.

    Yields
    ------
    dict per step: ``cosine`` and ``cosine_sd`` over the repeats, ``relative_variance``
    of the gradient; for OK also the spectrum ``d1``, ``d2``, ... (first sequence),
    its water ``level``, and the step's own mixing error relative to |d|^2, ``drawn``
    (mean over the repeats) beside ``theorem``.
    """
    cell, readout = network.cell, network.readout
    device, dtype = cell.weight.device, cell.weight.dtype
    stream = CharStream(
        text.tokens, cell.input_size, batch, reset_every=0, device=device, dtype=dtype
    )
    learner = make_learner(name, cell, batch_size=repeats * batch, seed=seed)
    exact = RTRL(cell, batch_size=batch)
    for x, target, _ in stream:
        learner.step(x.repeat(repeats, 1))
        _, dL_dh, _ = readout.loss(exact.step(x), target)
        truth = exact.gradient(dL_dh)
        drawn = learner.per_sequence_gradient(dL_dh.repeat(repeats, 1))
        drawn = drawn.unflatten(0, (repeats, batch)).sum(1)
        cosine = gradient_cosine(drawn, truth)
        yield {
            "cosine": float(cosine.mean()),
            "cosine_sd": float(cosine.std()),
            "relative_variance": float(relative_variance(drawn, truth)),
        } | _mixing_values(learner)


def _mixing_values(learner) -> dict[str, float]:
    if not isinstance(learner, OK) or learner.biased:
        return {}
    d, Y, rank = learner.spectrum, learner.mixing, learner.rank
    size = d.square().sum(-1).mean().clamp_min(1e-300)
    error = (Y @ Y.mT - torch.diag_embed(d)).square().sum((-2, -1)).mean()
    level = water_level(d[:1], rank).level
    values = {f"d{i}": float(v) for i, v in enumerate(d[0], start=1)}
    return values | {
        "level": float(level),
        "drawn": float(error / size),
        "theorem": float(minimum_variance(d, rank).mean() / size),
    }


def noise_table(
    network: Network, names: Sequence[str], text, *, steps, skip=0, repeats=20, seed=0
) -> pd.DataFrame:
    """Mean cosine and relative variance of each method over steps skip+1 .. steps.

    Means over ``repeats`` repeats and the steps; the relative variance is dominated by
    its largest steps, as a mean of ratios is.
    """
    rows = {}
    for name in names:
        records = measure_noise(network, name, text, repeats=repeats, seed=seed)
        taken = [next(records) for _ in range(steps)][skip:]
        frame = pd.DataFrame(taken)
        rows[name] = frame[["cosine", "relative_variance"]].mean()
    return pd.DataFrame(rows).T.rename_axis("method")


@dataclass(frozen=True)
class NoiseKnobs:
    """What can be turned in the noise experiment."""

    method: str = knob("OK", choices=tuple(METHODS), help="how G' is approximated")
    rank: int = knob(
        4, low=1, high=16, unit="terms", help="terms or copies; TBPTT: steps"
    )
    hidden: int = knob(32, low=8, high=64, step=8, unit="units", help="n")
    batch: int = knob(
        1,
        low=1,
        high=8,
        unit="sequences",
        help="sequences averaged: noise and gradient shrink",
    )
    trained: bool = knob(False, help="train on the text first, or start from noise")
    seed: int = knob(0, low=0, high=99, help="of the random signs: re-draw them")


@dataclass
class NoiseLab:
    """Knobs, stepper and live figure of :func:`measure_noise`.

    Moving a knob restarts the measurement with the new values; a running one goes on
    running. ``run(steps)`` is the headless way. Each restart writes its own trace,
    ``noise-1.jsonl``, ``noise-2.jsonl``, ... into ``folder``, if one is given.
    """

    text: object
    knobs: NoiseKnobs = field(default_factory=NoiseKnobs)
    interactive: bool = True
    folder: str = ""
    updates: int = 300  # of training, when ``trained`` is chosen
    device: str = "cpu"
    repeats: int = 20  # draws of the signs
    networks: dict = field(default_factory=dict)  # hidden -> trained Network

    def __post_init__(self):
        self.controls = Controls(self.knobs, interactive=self.interactive)
        self.note = Label()
        self._measurements = 0
        self.trace = self._new_trace()
        self.plot = LivePlot(
            self.trace, NOISE_PANELS, interactive=self.interactive, height=720
        )
        self.stepper = Stepper(
            self._records,
            on_record=self._log,
            on_show=lambda row: self.plot.show_until(row["step"]),
            on_reset=self._restart,
            interactive=self.interactive,
        )
        self.controls.observe(self._turn)

    def run(self, steps: int) -> pd.DataFrame:
        """Measure ``steps`` steps (after any training) and return the trace so far."""
        done = 0
        while done < steps and not self.stepper.exhausted:
            done += self.stepper.step()["measured"]
        self.plot.update()
        return self.trace.frame()

    def _log(self, row):
        self.trace.log(**row)
        if row["measured"]:
            self.note.value = f"reading with frozen weights, {self.repeats} draws"
        else:
            self.note.value = (
                f"training: update {row['step']} of {self.updates}, "
                f"{row['bits']:.2f} bits per character"
            )

    def _turn(self, knobs):
        running = self.stepper.running
        self.stepper.reset()
        if running:
            self.stepper.start()

    def _restart(self):
        self.trace.close()
        self.trace = self._new_trace()
        self.plot.attach(self.trace)

    def _new_trace(self):
        self._measurements += 1
        name = f"noise-{self._measurements}.jsonl"
        knobs = self.controls.value
        return Trace(
            Path(self.folder) / name if self.folder else None,
            parameters=vars(knobs),
            device=self.device,
            seed=knobs.seed,
        )

    def _records(self):
        """Rows for the trace: first training if asked for, then the measurement."""
        knobs = self.controls.value
        step = 0
        if knobs.trained and knobs.hidden not in self.networks:
            for update, network in train_network(
                self.text, knobs.hidden, updates=self.updates, device=self.device
            ):
                step = update
                yield {"step": step, "measured": False, "bits": network.bits}
            self.networks[knobs.hidden] = network
        if knobs.trained:
            network = self.networks[knobs.hidden]
        else:
            network = new_network(
                len(self.text.symbols), knobs.hidden, device=self.device
            )
        name = method_label(knobs.method, knobs.rank)
        options = {"batch": knobs.batch, "repeats": self.repeats, "seed": knobs.seed}
        for row in measure_noise(network, name, self.text, **options):
            step += 1
            yield {"step": step, "measured": True, **row}

    def _repr_mimebundle_(self, **options):
        # Headless the figure alone is shown: a plain plotly output.
        if not self.interactive:
            return self.plot._repr_mimebundle_(**options)
        return self.widget._repr_mimebundle_(**options)

    @property
    def widget(self):
        """Knobs and buttons above the figure."""
        controls = (self.controls.widget, self.stepper.widget, self.note)
        return VBox([*controls, self.plot.figure])


NOISE_PANELS = (
    Lines(
        {"cosine": "mean of the draws"},
        "Gradient cosine with exact RTRL",
        "cosine",
    ),
    Lines(
        {"relative_variance": "of the gradient"},
        "Relative variance of the gradient",
        "|dW' - dW|² / |dW|²",
        log=True,
        y_range=(1e-10, 1e3),
    ),
    Lines(
        {"drawn": "drawn, mean", "theorem": "theorem: s1²/k - s2"},
        "Noise added by this step's mixing",
        "variance / |d|²",
        log=True,
        y_range=(1e-12, 10),
    ),
    Bars(
        tuple(f"d{i}" for i in range(1, 18)),
        "Spectrum d: kept above the water, mixed below",
        "singular value",
        level="level",
        level_label="water level s1/k",
        log=True,
    ),
)
