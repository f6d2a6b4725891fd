"""Numbers of the instruments: gradient quality, gradient noise, traces and costs."""

import tempfile
from pathlib import Path

import torch
from torch import nn

from labkit.instruments import (
    GradientNoise,
    Trace,
    angle,
    best_ratio,
    cost,
    gradient_cosine,
    gradient_variance,
    relative_variance,
)
from labkit.rtrl import LEARNERS


def gradients():
    draw = torch.Generator().manual_seed(0)
    exact = torch.randn(3, 4, dtype=torch.float64, generator=draw)
    estimates = exact + torch.randn(5, 3, 4, dtype=torch.float64, generator=draw)
    ratio, residual = best_ratio(estimates.flatten(1))
    return {
        "cosine": gradient_cosine(estimates[0], exact),
        "cosines": gradient_cosine(estimates, exact),
        "variance": gradient_variance(estimates),
        "relative": relative_variance(estimates, exact),
        "angle": angle(estimates[0], exact),
        "ratio": ratio,
        "residual": residual,
    }


class Recurrent(nn.Module):
    """An embedding, a recurrent layer and a Linear layer on its sequence."""

    def __init__(self, kind, **options):
        super().__init__()
        self.embedding = nn.Embedding(7, 4, padding_idx=0)
        self.layer = kind(4, 5, batch_first=True, **options)
        self.readout = nn.Linear(5, 3)

    def forward(self, tokens):
        return self.readout(self.layer(self.embedding(tokens))[0])


class Convolved(nn.Module):
    """Two CONV layers, the second with options, and a Linear layer on the maps."""

    def __init__(self):
        super().__init__()
        self.first = nn.Conv2d(2, 3, 3, padding="same")
        self.second = nn.Conv2d(3, 4, (3, 2), stride=2, dilation=(1, 2), padding=1)
        self.flat = nn.LazyLinear(3)

    def forward(self, x):
        return self.flat(self.second(torch.tanh(self.first(x))).flatten(1))


def rows(draw, *shape):
    return torch.randn(*shape, dtype=torch.float64, generator=draw)


def tokens(draw):
    return torch.randint(7, (6, 9), generator=draw)


DENSE = [nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 3)]
MODELS = {
    "linear": (lambda: nn.Sequential(*DENSE), lambda draw: rows(draw, 8, 4)),
    "sequences": (lambda: nn.Sequential(*DENSE), lambda draw: rows(draw, 8, 5, 4)),
    "conv": (Convolved, lambda draw: rows(draw, 6, 2, 8, 7)),
    "rnn": (lambda: Recurrent(nn.RNN), tokens),
    "relu": (lambda: Recurrent(nn.RNN, nonlinearity="relu", bias=False), tokens),
    "lstm": (lambda: Recurrent(nn.LSTM), tokens),
}


def noise_of(name, reduction, calls):
    make, data = MODELS[name]
    draw = torch.Generator().manual_seed(1)
    model = make().double()
    model(data(draw))
    for parameter in model.parameters():
        values = torch.randn(parameter.shape, dtype=torch.float64, generator=draw)
        parameter.data.copy_(values / 2)
    noise = GradientNoise(model, every=2, reduction=reduction)
    found = {}
    for step in range(3):
        loss = sum(model(data(draw)).tanh().square().sum() for _ in range(calls))
        (loss / 8 if reduction == "mean" else loss).backward()
        found[f"{step}/measured"] = noise.measured
        model.zero_grad()
        for layer, each in (noise.per_layer | {"total": noise.total}).items():
            found[f"{step}/{layer}"] = torch.stack(
                [each.squares, each.norm2, each.variance, each.signal, each.noise_scale]
            )
    return found


def traces():
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "deep" / "run.jsonl"
        with Trace(path, parameters={"rate": 0.1, "sizes": (3, 4)}, seed=3) as trace:
            trace.log(0, loss=2.5)
            trace.log(1, loss=torch.tensor(1.5), note="first")
            trace.log(3, loss=float("nan"), fine=True)
        with Trace(path, resume=1) as trace:
            trace.log(2, loss=1)
        loaded = Trace.load(path)
        header = {k: v for k, v in loaded.header.items() if k != "versions"}
        body = path.read_text().partition("\n")[2]
        return {
            "header": list(str(header).encode()),
            "body": list(body.encode()),
            "loss": loaded.column("loss"),
            "frame": loaded.frame()["loss"].to_numpy(),
        }


def costs():
    return {
        f"{name}/{blocks}": list(vars(counted).values())
        for name, row in LEARNERS.items()
        if name != "KF-APPROX"  # whose formula lost an r x r product with its step
        for blocks, parts in ((1, 1), (2, 1), (4, 2))
        for counted in [
            cost(
                row.count,
                hidden=7,
                inputs=3,
                blocks=blocks,
                parts=parts,
                batch=2,
                rank=4,
            )
        ]
    }


def noisy(name, reduction, calls=1):
    return lambda: noise_of(name, reduction, calls)


CASES = {"gradients": gradients, "traces": traces, "costs": costs}
CASES |= {f"noise {name}": noisy(name, "mean") for name in MODELS}
CASES |= {f"noise {name}, summed": noisy(name, "sum") for name in MODELS}
CASES |= {f"noise {name}, twice": noisy(name, "sum", 2) for name in MODELS}
