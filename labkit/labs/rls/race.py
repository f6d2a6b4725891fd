"""Optimisers side by side, over epochs and seeds; the paper's sweeps; its claims."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pandas as pd
import torch

from labkit.instruments import Trace
from labkit.labs.rls.methods import Problem, make_training, noisy_labels
from labkit.panels import Lines, LivePlot
from labkit.rls import DivergedError, Record, train


@dataclass(frozen=True)
class Race:
    """Results by label, seed and epoch, and their means as a trace."""

    problem: str
    setting: str
    runs: pd.DataFrame  # label, seed, epoch, loss, accuracy [%], seconds; nan: diverged
    trace: Trace  # "accuracy LABEL" [%] and "loss LABEL", means over the seeds

    @property
    def labels(self) -> list[str]:
        """Runners, in their order."""
        return list(dict.fromkeys(self.runs.label))


def race(
    problem: Problem,
    runners: Sequence[str] | Mapping[str, tuple[str, dict]],
    *,
    epochs,
    seeds=1,
    batch=128,
    label_noise=0.0,
    drop_last=False,
    path=None,
) -> Race:
    """Train every runner on one problem, all from the same weights for a seed.

    Parameters
    ----------
    runners : names as of :func:`make_training`, or label -> (name, its options).
    seeds : runs 0 .. seeds - 1, of weights, order of samples and label noise.
    label_noise : share of the training labels drawn at random.
    """
    if not isinstance(runners, Mapping):
        runners = {name: (name, {}) for name in runners}
    setting = f"{epochs} epochs, {seeds} seeds, {len(problem.train.targets):,} examples"
    parameters = {"problem": problem.name, "epochs": epochs, "batch": batch}
    trace = Trace(path, parameters=parameters | {"label_noise": label_noise})
    rows = []
    options = {"epochs": epochs, "batch": batch, "drop_last": drop_last}
    runs = {
        (label, seed): _epochs(problem, *runner, seed, label_noise, **options)
        for label, runner in runners.items()
        for seed in range(seeds)
    }
    with trace:
        for epoch in range(1, epochs + 1):
            for (label, seed), each in runs.items():
                values = next(each)
                rows.append({"label": label, "seed": seed, "epoch": epoch} | values)
            frame = pd.DataFrame(rows[-len(runs) :])
            means = frame.groupby("label")[["accuracy", "loss"]].mean()
            trace.log(
                epoch,
                **{
                    f"{quantity} {label}": value
                    for label, row in means.iterrows()
                    for quantity, value in row.items()
                    if not math.isnan(value)
                },
            )
    return Race(problem.name, setting, pd.DataFrame(rows), trace)


def run_epochs(problem, model, training, *, epochs, batch=128, seed=0) -> list[Record]:
    """Train and return the records; for a model that is looked at afterwards."""
    return list(_records(problem, model, training, seed, 0.0, epochs, batch, False))


def _records(problem, model, training, seed, noise, epochs, batch, drop_last):
    return train(
        model,
        training.optimizer,
        problem.train.inputs,
        noisy_labels(problem.train.targets, noise, seed=seed),
        loss=training.loss,
        epochs=epochs,
        batch_size=batch,
        drop_last=drop_last,
        generator=torch.Generator().manual_seed(seed),
        max_grad_norm=training.max_grad_norm,
        test=(problem.test.inputs, problem.test.targets),
    )


def _epochs(problem, name, options, seed, label_noise, *, epochs, batch, drop_last):
    """Loss, accuracy and seconds after each epoch; nan from a divergence on."""
    torch.manual_seed(seed)
    model = problem.network()
    defaults = {"clip": problem.clip, "l1": problem.l1}
    training = make_training(name, model, **(defaults | options))
    records = _records(
        problem, model, training, seed, label_noise, epochs, batch, drop_last
    )
    seconds = 0.0
    try:
        for record in records:
            seconds += record.seconds
            if record.epoch_loss is not None:
                yield {
                    "loss": record.epoch_loss,
                    "accuracy": 100 * record.test_accuracy,
                    "seconds": seconds,
                }
    except DivergedError:
        while True:
            yield dict.fromkeys(("loss", "accuracy", "seconds"), math.nan)


def race_table(result: Race) -> pd.DataFrame:
    """First and last epoch of each runner; means and sample sd over the seeds."""
    rows = {}
    for label in result.labels:
        runs = result.runs[result.runs.label == label]
        first = runs[runs.epoch == 1]
        last = runs[runs.epoch == runs.epoch.max()]
        rows[label] = {
            "loss, first epoch": first.loss.mean(),
            "loss, last": last.loss.mean(skipna=False),
            "accuracy, first epoch [%]": first.accuracy.mean(),
            "accuracy, last [%]": last.accuracy.mean(skipna=False),
            "sd [%]": last.accuracy.std(),
            "seconds": last.seconds.mean(),
            "diverged": f"{int(last.loss.isna().sum())} of {len(last)}",
        }
    return pd.DataFrame(rows).T.rename_axis("method")


def race_plot(result: Race, *, reading="", interactive=True) -> LivePlot:
    """Training loss and test accuracy against epochs; ``reading`` stands below."""
    labels = result.labels
    panels = (
        Lines(
            {f"loss {n}": n for n in labels},
            "Training loss",
            "mean over the epoch",
            x_title="epoch",
            log=True,
        ),
        Lines(
            {f"accuracy {n}": n for n in labels}, "Test accuracy", "%", x_title="epoch"
        ),
    )
    return LivePlot(result.trace, panels, reading=reading, interactive=interactive)


def sweep(name: str, option: str, values: Sequence[float]) -> dict:
    """Runners for :func:`race` that differ in one option."""
    return {f"{option} = {v:g}": (name, {option: v}) for v in values}
