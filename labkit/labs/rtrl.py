"""The RTRL lab: networks, the noise experiment, the Copy race, text.

Wires `labkit.rtrl` to its knobs, instruments and panels; holds no mathematics.
"""

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pandas as pd
import torch
from ipywidgets import Label, VBox

from labkit.datasets import load
from labkit.instruments import Trace, gradient_cosine, relative_variance
from labkit.panels import Bars, Controls, Lines, LivePlot, Stepper, knob
from labkit.rtrl import (
    KFRTRL,
    KTP,
    OK,
    RTRL,
    TBPTT,
    UORO,
    CharStream,
    CopyTask,
    Readout,
    RHNCell,
    minimum_variance,
    train,
    water_level,
)

# name -> how to make it from a rank; the name is what knobs and tables show
METHODS = {
    "OK": lambda cell, r, **kw: OK(cell, rank=r, **kw),
    "B-OK": lambda cell, r, **kw: OK(cell, rank=r, biased=True, **kw),
    "KF-AVG": lambda cell, r, **kw: KFRTRL(cell, copies=r, **kw),
    "KF-APPROX": lambda cell, r, **kw: KFRTRL(cell, diagonal_rank=r, **kw),
    "KTP": lambda cell, r, **kw: KTP(cell, rank=r, **kw),
    "KTP-SHARED": lambda cell, r, **kw: KTP(cell, rank=r, shared=True, **kw),
    "UORO": lambda cell, r, **kw: UORO(cell, **kw),
    "RTRL": lambda cell, r, **kw: RTRL(cell, **kw),
    "TBPTT": lambda cell, r, **kw: TBPTT(cell, horizon=r, **kw),
}
UNRANKED = ("UORO", "RTRL")


def parse_method(name: str) -> tuple[str, int]:
    """Split a name such as ``8-OK``, ``KF`` (one copy), ``UORO`` or ``25-TBPTT``."""
    number, _, rest = name.partition("-")
    method, rank = (rest, int(number)) if number.isdigit() else (name, 1)
    method = "KF-AVG" if method in ("KF", "KF-RTRL") else method
    if method not in METHODS or rank < 1:
        raise ValueError(
            f"unknown method {name!r}; write r-NAME with r >= 1, or NAME, of "
            f"{', '.join(METHODS)}, KF"
        )
    return method, rank


def method_label(method: str, rank: int) -> str:
    """Inverse of :func:`parse_method`: ``8-OK``, ``UORO``."""
    return method if method in UNRANKED else f"{rank}-{method}"


def make_learner(name: str, cell, *, batch_size: int, seed: int):
    """Make the learner called ``name`` with its own generator seeded with ``seed``."""
    method, rank = parse_method(name)
    generator = torch.Generator(cell.weight.device).manual_seed(seed)
    make = METHODS[method]
    return make(cell, rank, batch_size=batch_size, generator=generator)


@dataclass(frozen=True)
class Network:
    """A cell with its readout, and what was read to get there."""

    cell: RHNCell
    readout: Readout
    bits: float = float("nan")  # mean of the last training steps; nan if untrained


def new_network(inputs, hidden, *, seed=0, device=None, dtype=None) -> Network:
    """Untrained recurrent highway network, weights N(0, 0.01^2)."""
    options = {"device": device, "dtype": dtype}
    g = torch.Generator(device or "cpu").manual_seed(seed)
    cell = RHNCell(inputs, hidden, generator=g, **options)
    return Network(cell, Readout(hidden, inputs, generator=g, **options))


def train_network(
    text, hidden, *, updates, batch=32, horizon=25, lr=3e-3, seed=0, device=None
) -> Iterator[tuple[int, Network]]:
    """Train on text by TBPTT with Adam; yields (update, network) after each update."""
    network = new_network(len(text.symbols), hidden, seed=seed, device=device)
    stream = CharStream(text.tokens, len(text.symbols), batch, device=device)
    learner = TBPTT(network.cell, batch_size=batch, horizon=horizon)
    optimizer = adam(network, lr)
    bits = []
    for record in train(
        learner, network.readout, stream, steps=updates * horizon, optimizer=optimizer
    ):
        bits.append(record.bits)
        if record.updated:
            recent = bits[-20 * horizon :]
            mean = sum(recent) / len(recent)
            yield (
                record.step // horizon,
                Network(network.cell, network.readout, mean),
            )


def trained_network(text, hidden, **options) -> Network:
    """Last network of :func:`train_network`."""
    *_, (_, network) = train_network(text, hidden, **options)
    return network


def adam(network: Network, lr: float) -> torch.optim.Adam:
    """Adam over cell and readout."""
    return torch.optim.Adam([network.cell.weight, network.readout.weight], lr=lr)


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
    batch: int = knob(1, low=1, high=8, unit="sequences", help="averaged: noise / b")
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


def copy_race(
    names: Sequence[str],
    *,
    hidden,
    batch,
    steps,
    lr=3e-3,
    seed=0,
    path=None,
    device=None,
    every=20,
) -> Trace:
    """Train every method on the Copy task, in turn symbol by symbol.

    Logged every ``every`` symbols: ``level NAME``, ``error NAME`` (running bits per
    symbol) and ``seconds NAME``, the time that this method alone has taken.
    """
    runs = {}
    for name in names:
        network = new_network(4, hidden, seed=seed, device=device)
        generator = torch.Generator().manual_seed(seed)  # the same symbols for all
        task = CopyTask(batch, generator=generator, device=device)
        learner = make_learner(name, network.cell, batch_size=batch, seed=seed)
        records = train(
            learner, network.readout, task, steps=steps, optimizer=adam(network, lr)
        )
        runs[name] = (task, records)
    parameters = {
        "hidden": hidden, "batch": batch, "steps": steps, "lr": lr,
        "methods": ", ".join(names),
    }  # fmt: skip
    trace = Trace(path, parameters=parameters, device=str(device or "cpu"), seed=seed)
    seconds = dict.fromkeys(names, 0.0)
    with trace:
        for step in range(every, steps + 1, every):
            row = {}
            for name, (task, records) in runs.items():
                begin = time.perf_counter()
                for _ in range(every):
                    next(records)
                seconds[name] += time.perf_counter() - begin
                row[f"level {name}"] = task.level
                row[f"error {name}"] = task.error
                row[f"seconds {name}"] = seconds[name]
            trace.log(step, **row)
    return trace


def race_table(trace: Trace, names: Sequence[str]) -> pd.DataFrame:
    """Levels at equal data, and at the time that the fastest method needed for it."""
    frame = trace.frame()
    budget = min(frame[f"seconds {name}"].iloc[-1] for name in names)
    rows = {}
    for name in names:
        in_time = frame[frame[f"seconds {name}"] <= budget]
        rows[name] = {
            "level at equal data": int(frame[f"level {name}"].iloc[-1]),
            "symbols in equal time": int(in_time.index[-1]) if len(in_time) else 0,
            "level in equal time": int(in_time[f"level {name}"].iloc[-1])
            if len(in_time)
            else 1,
            "ms per symbol": 1e3 * frame[f"seconds {name}"].iloc[-1] / frame.index[-1],
        }
    return pd.DataFrame(rows).T.rename_axis("method")


def race_plot(trace: Trace, names: Sequence[str], *, interactive=True) -> LivePlot:
    """Level and running error of a Copy race against symbols read."""
    levels = Lines(
        {f"level {n}": n for n in names}, "Length reached", "T", x_title="symbols read"
    )
    errors = Lines(
        {f"error {n}": n for n in names},
        "Running error",
        "bits per symbol",
        x_title="symbols read",
    )
    return LivePlot(trace, (levels, errors), interactive=interactive)


def learn_text(
    names: Sequence[str],
    text,
    *,
    hidden,
    batch,
    steps,
    lr=3e-3,
    seed=0,
    path=None,
    device=None,
    every=25,
) -> Trace:
    """Train every method online on text; logs ``bits NAME``, means over ``every``."""
    runs = {}
    for name in names:
        network = new_network(len(text.symbols), hidden, seed=seed, device=device)
        stream = CharStream(text.tokens, len(text.symbols), batch, device=device)
        learner = make_learner(name, network.cell, batch_size=batch, seed=seed)
        runs[name] = train(
            learner, network.readout, stream, steps=steps, optimizer=adam(network, lr)
        )
    parameters = {
        "hidden": hidden, "batch": batch, "steps": steps, "lr": lr,
        "methods": ", ".join(names), "text": text.name,
    }  # fmt: skip
    trace = Trace(path, parameters=parameters, device=str(device or "cpu"), seed=seed)
    with trace:
        for step in range(every, steps + 1, every):
            row = {
                f"bits {name}": sum(next(records).bits for _ in range(every)) / every
                for name, records in runs.items()
            }
            trace.log(step, **row)
    return trace


def text_plot(trace: Trace, names: Sequence[str], *, interactive=True) -> LivePlot:
    """Bits per character against characters read."""
    panel = Lines(
        {f"bits {n}": n for n in names},
        "Text, learned online",
        "bits per character",
        x_title="characters read by each stream",
    )
    return LivePlot(trace, (panel,), interactive=interactive, columns=1)


def paper_table(
    untrained: pd.DataFrame, trained: pd.DataFrame, race: pd.DataFrame, setting: str
) -> pd.DataFrame:
    """The paper's claims beside what this run measured; figures without comment."""

    def cos(table, name):
        return f"{table.cosine[name]:.4f}"

    def var(table, name):
        return f"{table.relative_variance[name]:.2g}"

    level = race["level at equal data"].astype(int)
    rows = [
        ("2-OK, untrained: cosine about 1 (fig. 6)", cos(untrained, "2-OK")),
        (
            "8-OK far above 8-KF-AVG, trained on text (fig. 3): cosines",
            f"{cos(trained, '8-OK')} and {cos(trained, '8-KF-AVG')}",
        ),
        (
            "the same: relative variances",
            f"{var(trained, '8-OK')} and {var(trained, '8-KF-AVG')}",
        ),
        (
            "1-OK better than KF-RTRL: relative variances, trained",
            f"{var(trained, '1-OK')} and {var(trained, 'KF')}",
        ),
        ("UORO's noise is large: cosine, trained", cos(trained, "UORO")),
        (
            "Copy: OK reaches longer strings than the others (fig. 1): levels",
            ", ".join(f"{name} {level[name]}" for name in level.index),
        ),
    ]
    return pd.DataFrame(
        [(claim, here, setting) for claim, here in rows],
        columns=["paper", "measured here", "setting"],
    )


def read_text(corpus: str, device=None):
    """Load the corpus named by a notebook's parameter: ``text`` or ``ptb``."""
    return load(corpus, split="train", device=device)
