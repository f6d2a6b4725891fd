"""The autoencoders that the Hessian-free lab trains: rows, nets and settings."""

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from labkit.datasets import available, load
from labkit.hessian_free import PAPER, Autoencoder, mirrored
from labkit.hessian_free.train import Setting

# Train, validation and test rows; the paper's, except for digits.
SIZES = {
    "digits": (1297, 250, 250),
    "usps": (8000, 1000, 2000),
    "mnist": (50000, 10000, 10000),
    "curves": (20000, 2000, 8000),
}
# The short settings fall from a smaller lambda, faster than the paper's.
SHORT = {
    "digits": replace(
        PAPER["usps"],
        encoder=(64, 32, 16, 8),
        n1=60,
        nmax=650,
        theta=0.5,
        damp=1.0,
        drop=0.8,
        ftol=1e-5,
        table2={},
    )
}
SHORT |= {
    name: replace(setting, theta=0.5, damp=0.5, drop=0.7)
    for name, setting in PAPER.items()
}
MARTENS_DAMP = {"digits": 3.0}  # unsquared; 4 elsewhere
CHUNKS = {"digits": 4, "curves": 4}  # 8 elsewhere
ADAM_BATCH = {"digits": 64}  # 100 elsewhere


@dataclass(frozen=True, eq=False)
class Problem:
    """A data set in three disjoint parts, and the net and settings for it."""

    name: str
    train: Tensor  # (N, pixels)
    valid: Tensor
    test: Tensor
    side: tuple[int, int]  # of an image, in pixels
    setting: Setting
    martens_damp: float
    chunks: int
    adam_batch: int

    @property
    def parts(self) -> tuple[Tensor, Tensor, Tensor]:
        """Training, validation and test rows."""
        return self.train, self.valid, self.test

    def network(self, seed: int) -> tuple[Autoencoder, torch.Generator]:
        """A net with sparse weights, and the generator that goes on to the batches."""
        g = torch.Generator().manual_seed(seed)
        net = Autoencoder(
            mirrored(self.setting.encoder),
            incoming=self.setting.incoming,
            generator=g,
            dtype=self.train.dtype,
        )
        return net.to(self.train.device), g


def make_problem(
    dataset="digits",
    *,
    published=False,
    samples=None,
    device=None,
    dtype=torch.float32,
) -> Problem:
    """Load a data set, shuffle it once for all, and choose the net for it.

    Parameters
    ----------
    dataset : "digits", "usps", "mnist" or "curves" (a stand-in, drawn by us).
    published : take the paper's lambda_1, drop and theta, not those for short runs.
    samples : so many training rows at most; None: all.
    """
    if dataset not in SIZES:
        raise ValueError(f"unknown data {dataset!r}; there are {', '.join(SIZES)}")
    if published and dataset not in PAPER:
        raise ValueError(f"the paper has no {dataset}; it has {', '.join(PAPER)}")
    parts = [
        load(dataset, split, dtype=dtype, device=device).inputs.flatten(1)
        for split in available()[dataset].splits
    ]
    train, valid, test = _cut(dataset, parts)
    setting = PAPER[dataset] if published else SHORT[dataset]
    train = train[:samples]
    height = round(train.shape[1] ** 0.5)
    return Problem(
        dataset,
        *(train, valid, test),
        side=(height, height),
        setting=replace(setting, nmax=min(setting.nmax, len(train))),
        martens_damp=MARTENS_DAMP.get(dataset, 4.0),
        chunks=CHUNKS.get(dataset, 8),
        adam_batch=ADAM_BATCH.get(dataset, 100),
    )


def _cut(dataset, parts):
    n_train, n_valid, n_test = SIZES[dataset]
    if dataset == "mnist":  # its test part stays apart
        rows = _shuffled(torch.cat(parts[:-1]))
        return rows[:n_train], rows[n_train:][:n_valid], parts[-1]
    if dataset == "curves":  # validation rows come out of the test part
        held = _shuffled(parts[-1])
        return parts[0], held[:n_valid], held[n_valid:]
    return _shuffled(torch.cat(parts)).split((n_train, n_valid, n_test))


def _shuffled(rows):
    order = torch.randperm(len(rows), generator=torch.Generator().manual_seed(1))
    return rows[order.to(rows.device)]
