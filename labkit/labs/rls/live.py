"""RLS while it learns: what P has seen, and what it does to the gradient."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count

import torch

from labkit.instruments import angle, best_ratio, gradient_cosine
from labkit.labs.rls.methods import (
    LAYERS,
    METHODS,
    make_problem,
    make_training,
    noisy_labels,
)
from labkit.panels import Lines, LiveLab, knob
from labkit.rls import RLS, DivergedError, gain, train

EVERY = 10  # steps between two looks at the eigenvalues


@torch.no_grad()
def inspect(
    rls: RLS, totals: dict[str, torch.Tensor], *, spectrum=True
) -> dict[str, float]:
    """Look at every block between ``backward`` and ``step``; changes nothing there.

    Parameters
    ----------
    rls : with a gradient to step along.
    totals : sum of the mean inputs so far, by block; this step's are added.
    spectrum : whether to count the eigenvalues, n^3 operations a block.

    Returns
    -------
    dict, per block named NAME: ``h NAME``; ``angle NAME`` [degrees] between this mean
    input and the running mean; ``cosine NAME`` of the gradient and the preconditioned
    one; ``shrink NAME``, the ratio of their norms, with 1/h; ``below NAME``, how many
    eigenvalues of P are below 0.5; and, where the block keeps its inputs, ``ratio
    NAME``, the best-fitting k.
    """
    row = {}
    for each in rls.gather():
        name, P = each.block.name, each.state["P"]
        G = each.block.gradient()
        _, h = gain(P, each.x_mean, **each.rule)
        total = totals.get(name, each.x_mean)
        row |= {
            f"h {name}": float(h),
            f"angle {name}": float(angle(each.x_mean, total)),
            f"cosine {name}": float(gradient_cosine(G @ P, G)),
            f"shrink {name}": float((G @ P).norm() / (h * G.norm())),
        }
        if spectrum:
            row[f"below {name}"] = int((torch.linalg.eigvalsh(P) < 0.5).sum())
        if each.X is not None:
            row[f"ratio {name}"] = float(best_ratio(each.X)[0])
        totals[name] = each.x_mean + total if name in totals else each.x_mean
    return row


@dataclass(frozen=True)
class TrainingKnobs:
    """What can be turned in the live experiment."""

    method: str = knob("RLS+M", choices=METHODS, help="what trains the network")
    layers: str = knob("FC", choices=LAYERS, help="kind of the hidden layers")
    ratio: float = knob(0.1, low=1e-3, high=100.0, log=True, label="ratio k")
    eta: float = knob(1.0, low=0.01, high=10.0, log=True, label="step factor eta")
    forgetting: float = knob(
        1.0, low=0.9, high=1.0, step=0.001, label="forgetting lambda"
    )
    batch: int = knob(128, low=8, high=256, step=8, unit="images")
    momentum: float = knob(0.5, low=0.0, high=0.95, step=0.05, help="of +M")
    l1: float = knob(1e-5, low=1e-7, high=1e-2, log=True, help="of +R")
    label_noise: float = knob(
        0.0, low=0.0, high=0.8, step=0.05, help="share of labels drawn at random"
    )
    seed: int = knob(0, low=0, high=99)


def training_lab(
    knobs: TrainingKnobs | None = None,
    *,
    dataset="digits",
    samples=None,
    hidden=None,
    epochs=20,
    interactive=True,
    folder="",
    device="cpu",
    problems: dict | None = None,
    **look,
) -> LiveLab:
    """Knobs, stepper and live figure of one network in training.

    Parameters
    ----------
    knobs : where they start.  dataset, samples, hidden, epochs : see
        :func:`make_problem` and :func:`labkit.rls.train`.
    problems : by layer kind, used and filled.
    look : keywords of :class:`~labkit.panels.LiveLab` in place of this lab's own, as
        ``panels``, ``only`` and ``height``.
    """
    problems = {} if problems is None else problems

    def rows(now):
        knobs = now()
        if knobs.layers not in problems:
            problems[knobs.layers] = make_problem(
                dataset, knobs.layers, hidden=hidden, samples=samples, device=device
            )
        return train_rows(problems[knobs.layers], knobs, epochs=epochs)

    return LiveLab(
        knobs or TrainingKnobs(),
        rows,
        name="training",
        tell=_tell,
        interactive=interactive,
        folder=folder,
        device=device,
        **{"panels": TRAINING_PANELS, "height": 900} | look,
    )


def train_rows(problem, knobs: TrainingKnobs, *, epochs) -> Iterator[dict]:
    """One row per minibatch: loss, accuracy, and :func:`inspect` of first and last."""
    torch.manual_seed(knobs.seed)
    model = problem.network()
    training = make_training(
        knobs.method,
        model,
        clip=problem.clip,
        l1=knobs.l1,
        momentum=knobs.momentum,
        ratio=knobs.ratio,
        eta=knobs.eta,
        forgetting=knobs.forgetting,
        on_failure="reset",
    )
    labels = noisy_labels(problem.train.targets, knobs.label_noise, seed=knobs.seed)
    totals: dict = {}
    watch = None
    if training.rls is not None:
        blocks = [block.name for block in training.rls.blocks]
        ends = {blocks[-1]: "last", blocks[0]: "first"}
        steps = count()
        watch = lambda: _ends(  # noqa: E731
            inspect(training.rls, totals, spectrum=next(steps) % EVERY == 0), ends
        )
    records = train(
        model,
        training.optimizer,
        problem.train.inputs,
        labels,
        loss=training.loss,
        epochs=epochs,
        batch_size=min(knobs.batch, len(labels)),
        generator=torch.Generator().manual_seed(knobs.seed),
        max_grad_norm=training.max_grad_norm,
        test=(problem.test.inputs, problem.test.targets),
        watch=watch,
    )
    clipped = 0
    try:
        for record in records:
            clipped += record.clipped
            row = {"step": record.step, "loss": record.loss, "clipped": clipped}
            row["gradient norm"] = record.gradient_norm
            if record.test_accuracy is not None:
                row["accuracy"] = 100 * record.test_accuracy
            yield row | dict(record.watched)
    except DivergedError as error:
        yield {"step": record.step + 1, "clipped": clipped, "note": str(error)}


def _ends(row, ends) -> dict[str, float]:
    """Of a row for all blocks, the first and the last, renamed."""
    split = {key: key.rpartition(" ") for key in row}
    return {
        f"{quantity} {ends[block]}": row[key]
        for key, (quantity, _, block) in split.items()
        if block in ends
    }


def _tell(row) -> str:
    if "note" in row:
        return row["note"]
    ways = f"loss {row['loss']:.4f}, {row['clipped']} steps clipped"
    return ways + (f", test {row['accuracy']:.1f} %" if "accuracy" in row else "")


_FIRST_LAST = {"first": "first layer", "last": "last trained by RLS"}


def _pair(quantity):
    return {f"{quantity} {key}": label for key, label in _FIRST_LAST.items()}


TRAINING_PANELS = (
    Lines({"loss": "minibatch"}, "Loss", "loss", log=True),
    Lines({"accuracy": "after each epoch"}, "Test accuracy", "%"),
    Lines(_pair("h"), "Normaliser h (1 is lambda)", "h"),
    Lines(_pair("cosine"), "Gradient and preconditioned gradient", "cosine"),
    Lines(_pair("below"), "Directions that P has switched off", "eigenvalues < 0.5"),
    Lines(_pair("angle"), "Mean input to running mean", "degrees"),
    Lines({"ratio first": "first layer"}, "Best-fitting k", "k"),
    Lines({"gradient norm": "before clipping"}, "Gradient norm", "L2 norm", log=True),
)
