"""Golden numbers of RLS: weights, P, velocities and records of seeded runs."""

import math

import torch
from torch import nn
from torch.nn.functional import cross_entropy

from labkit.rls import (
    RLS,
    AveragedRLS,
    Hybrid,
    KailathRLS,
    RunningMeanRLS,
    loss_mse,
    loss_one_hot,
    rls_step,
    train,
)

try:
    from labkit.lab.rls import networks as nets
except ImportError:  # where they stood before
    from labkit.rls import networks as nets

SequenceClassifier = nets.SequenceClassifier
FORMS = {"formed": None, "unformed": math.inf}


def randn(*shape, seed=0):
    g = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=g, dtype=torch.float64)


def seeded(model, scale=0.5):
    model.double()
    with torch.no_grad():
        for i, p in enumerate(model.parameters()):
            p.copy_(scale * randn(*p.shape, seed=1000 + i))
    return model


def fc(bias=True):
    layers = nn.Linear(5, 7, bias=bias), nn.ReLU(), nn.Linear(7, 3, bias=bias)
    return seeded(nn.Sequential(*layers))


def conv():
    form = {"stride": (1, 2), "padding": (2, 1), "dilation": (2, 1)}
    first = nn.Conv2d(2, 3, 3, stride=2, padding=1), nn.ReLU(inplace=True)
    second = nn.Conv2d(3, 4, (2, 3), **form), nn.Tanh(), nn.Flatten()
    return seeded(nn.Sequential(*first, *second, nn.Linear(4 * 6 * 2, 3)))


def words():
    """One dimension, padding to the same length, and none."""
    convs = nn.Conv1d(2, 3, 4, padding="same"), nn.Tanh(), nn.Conv1d(3, 2, 2)
    return seeded(nn.Sequential(*convs, nn.Flatten(), nn.Linear(10, 3)))


def recurrent(cell):
    return seeded(SequenceClassifier(3, 5, 3, layers=2, cell=cell))


class Predictor(nn.Module):
    """An output at every step, (8) with t_0 = 1."""

    def __init__(self):
        super().__init__()
        self.lstm, self.head = nn.LSTM(3, 5, batch_first=True), nn.Linear(5, 9)
        seeded(self)

    def forward(self, x):
        return self.head(self.lstm(x)[0])


def kept(model, optimizer, **more):
    """All numbers that a run leaves."""
    found = {f"weight {name}": p for name, p in model.named_parameters()}
    for name, p in model.named_parameters():
        for key in ("P", "velocity", "h", "resets", "total", "count"):
            if key in optimizer.state.get(p, {}):
                found[f"{key} {name}"] = optimizer.state[p][key]
    found["norm"] = optimizer.gradient_norm
    return found | more


def run(model, optimizer, shape, outputs=(3,), rows=4, steps=5):
    """Some steps on the squared error; what they leave, and the losses."""
    losses = []
    for s in range(steps):
        optimizer.zero_grad()
        x, target = randn(rows, *shape, seed=s) + 0.5, randn(rows, *outputs, seed=99)
        loss = loss_mse(model(x), target)
        loss.backward()
        losses.append(loss.detach())
        optimizer.step()
    return kept(model, optimizer, losses=torch.stack(losses))


LAYERS = {
    "fc": (fc, (5,)),
    "fc without bias": (lambda: fc(bias=False), (5,)),
    "conv": (conv, (2, 8, 8)),
    "conv1d": (words, (2, 6)),
    "rnn": (lambda: recurrent(nn.RNN), (4, 3)),
    "lstm": (lambda: recurrent(nn.LSTM), (4, 3)),
}
OPTIONS = {
    "plain": {},
    "M": {"momentum": 0.5},
    "R": {"l1": 1e-2},
    "M and R": {"momentum": 0.5, "l1": 1e-2, "lr": 0.7, "P0_scale": 2.0},
    "clipped": {"max_grad_norm": 0.3, "momentum": 0.5},
    "forgetting": {"forgetting": 0.97, "mean_weight": 0.3},
}


def by_layers(layers, options):
    make, shape = LAYERS[layers]

    def case():
        model = make()
        return run(model, RLS(model, **OPTIONS[options]), shape)

    return case


CASES = {
    f"{layers}, {options}": by_layers(layers, options)
    for layers in LAYERS
    for options in OPTIONS
}


def predictor():
    model = Predictor()
    layers = ["lstm", {"layer": "head", "time_steps": 4, "lr": 0.3}]
    optimizer = RLS(model, layers=layers, momentum=0.5, max_grad_norm=0.5)
    return run(model, optimizer, (4, 3), (4, 9), rows=2)


def wide():
    """Fewer rows than units: the path by residuals, clipped and not."""
    model = fc()
    return run(
        model, RLS(model, momentum=0.5, l1=1e-3, max_grad_norm=1.0), (5,), rows=2
    )


CASES |= {"an output at every step": predictor, "few rows": wide}


def stepped(passes, limit):
    def case():
        model = fc()
        optimizer = RLS(model, momentum=0.5, max_grad_norm=limit)
        run(model, optimizer, (5,), rows=2, steps=2)
        optimizer.zero_grad()
        passes(model, optimizer)
        optimizer.step()
        return kept(model, optimizer)

    return case


ONE = randn(2, 5, seed=1), randn(2, 3, seed=2)


def backward(model, x, target, scale=1.0):
    (scale * loss_mse(model(x), target)).backward()


def micro_batches(model, optimizer):
    x, target = randn(12, 5, seed=1), randn(12, 3, seed=2)
    backward(model, x[:2], target[:2], 2 / 12)
    backward(model, x[2:], target[2:], 10 / 12)


def forward_without_backward(model, optimizer):
    model(randn(6, 5, seed=3))
    backward(model, *ONE)
    model(randn(6, 5, seed=4))


def evaluation(model, optimizer):
    backward(model, *ONE)
    model.eval()
    model(randn(6, 5, seed=3))
    with torch.no_grad():
        model.train()(randn(6, 5, seed=3))


def retained_graph(model, optimizer):
    loss = loss_mse(model(ONE[0]), ONE[1])
    loss.backward(retain_graph=True)
    loss.backward()


def zero_grad_between(model, optimizer):
    backward(model, randn(4, 5, seed=3), randn(4, 3, seed=4))
    loss = loss_mse(model(ONE[0]), ONE[1])
    optimizer.zero_grad()
    loss.backward()


def gradient_to_inputs(model, optimizer):
    x = randn(6, 5, seed=3).requires_grad_()
    torch.autograd.grad(model(x).sum(), x)
    backward(model, *ONE)


PASSES = (
    micro_batches,
    forward_without_backward,
    evaluation,
    retained_graph,
    zero_grad_between,
    gradient_to_inputs,
)
CASES |= {
    f"{passes.__name__}, {form}": stepped(passes, limit)
    for passes in PASSES
    for form, limit in FORMS.items()
}


def called_twice(limit):
    def case():
        layer = nn.Linear(5, 5)
        model = seeded(nn.Sequential(layer, nn.Tanh(), layer))
        return run(model, RLS(model, max_grad_norm=limit), (5,), (5,), rows=2)

    return case


def critic(limit):
    """A penalty on the gradient by the inputs."""

    def case():
        model = seeded(nn.Sequential(nn.Linear(4, 9), nn.Tanh(), nn.Linear(9, 1)))
        optimizer = RLS(model, momentum=0.5, max_grad_norm=limit)
        for s in range(3):
            optimizer.zero_grad()
            x = randn(3, 4, seed=s).requires_grad_()
            (slope,) = torch.autograd.grad(model(x).sum(), x, create_graph=True)
            loss = model(randn(3, 4, seed=50 + s)).mean()
            (loss + (slope.norm(dim=1) - 1).square().mean()).backward()
            optimizer.step()
        return kept(model, optimizer)

    return case


for form, limit in FORMS.items():
    CASES |= {f"called twice, {form}": called_twice(limit)}
    CASES |= {f"gradient penalty, {form}": critic(limit)}


def started(cell):
    """Recurrent layers whose first state is not 0, time first."""

    def case():
        layer = seeded(cell(3, 5))
        optimizer, N = RLS(layer), (1, 2, 5)
        for s in range(3):
            start = randn(*N, seed=s + 10)
            start = (start, randn(*N, seed=s + 20)) if cell is nn.LSTM else start
            optimizer.zero_grad()
            y, _ = layer(randn(4, 2, 3, seed=s), start)
            y.square().sum().backward()
            optimizer.step()
        return kept(layer, optimizer)

    return case


def reset():
    model = fc()
    optimizer = RLS(model, momentum=0.5, on_failure="reset", P0_scale=2.0)
    run(model, optimizer, (5,), steps=2)
    optimizer.state[model[2].weight]["P"].neg_()
    return run(model, optimizer, (5,), steps=2)


def relative(kind, **options):
    def case():
        model = fc()
        return run(model, kind(model, momentum=0.5, **options), (5,))

    return case


CASES |= {
    "rnn, started": started(nn.RNN),
    "lstm, started": started(nn.LSTM),
    "reset": reset,
    "Kailath": relative(KailathRLS, l1=1e-3, forgetting=0.97, lr=0.3),
    "averaged": relative(AveragedRLS, forgetting=0.97),
    "running mean": relative(RunningMeanRLS, max_grad_norm=1.0),
    "Kailath, clipped": relative(KailathRLS, max_grad_norm=0.5),
    "averaged, clipped": relative(AveragedRLS, max_grad_norm=0.5),
}


def of_the_function():
    theta, velocity = randn(3, 5, seed=1), randn(3, 5, seed=2)
    A = randn(5, 5, seed=3)
    P = A @ A.T + torch.eye(5).double()
    rule = {"forgetting": 0.97, "mean_weight": 0.3, "lr": 0.7, "momentum": 0.6}
    x, G = randn(5, seed=4), randn(3, 5, seed=5)
    h = rls_step(theta, P, x, G, velocity=velocity, l1=1e-2, steps=4, clip=0.3, **rule)
    return {"theta": theta, "P": P, "velocity": velocity, "h": h}


def hybrid(model, limit):
    first = RLS(model, layers=["0"], momentum=0.5, max_grad_norm=limit)
    return Hybrid(first, torch.optim.Adam(model[2].parameters(), lr=0.01))


def data():
    y = torch.randint(3, (20,), generator=torch.Generator().manual_seed(1))
    return randn(20, 5, seed=2), y


def training(make, **options):
    """Records of `train`, and what it leaves."""

    def case():
        model = fc()
        optimizer = make(model)
        g = torch.Generator().manual_seed(3)
        test = randn(7, 5, seed=5), torch.arange(7) % 3
        run = train(
            model,
            optimizer,
            *data(),
            generator=g,
            batch_size=8,
            epochs=3,
            test=test,
            **options,
        )
        records = list(run)
        names = ("step", "epoch", "loss", "gradient_norm", "limit", "clipped")
        found = {
            k: torch.tensor([float(getattr(r, k)) for r in records]) for k in names
        }
        ends = [r for r in records if r.epoch_loss is not None]
        found["epoch_loss"] = torch.tensor([r.epoch_loss for r in ends]).double()
        found["accuracy"] = torch.tensor([r.test_accuracy for r in ends]).double()
        found |= {f"weight {name}": p for name, p in model.named_parameters()}
        return found

    return case


CASES |= {
    "rls_step": of_the_function,
    "train, RLS": training(lambda m: RLS(m, momentum=0.5, max_grad_norm=1.0)),
    "train, HRLS": training(lambda m: hybrid(m, 0.6), loss=cross_entropy),
    "train, HRLS, formed": training(lambda m: hybrid(m, None), loss=cross_entropy),
    "train, Adam": training(
        lambda m: torch.optim.Adam(m.parameters()), max_grad_norm=0.5, drop_last=True
    ),
}


def networks():
    """Outputs of the networks, from torch's own start."""
    torch.manual_seed(0)
    made = nets.dense_network(), nets.small_cnn(), nets.SequenceClassifier(8, 16)
    inputs = randn(2, 784), randn(2, 64), randn(2, 64)
    return {
        str(i): model.double()(x)
        for i, (model, x) in enumerate(zip(made, inputs, strict=True))
    } | {"loss": loss_one_hot(randn(4, 3, seed=1), torch.tensor([0, 2, 1, 1]))}


CASES |= {"networks": networks}
