"""Golden numbers of the room rtrl: learners, training, decompositions."""

from functools import partial

import torch
from torch import nn

from labkit import rtrl
from labkit.rtrl.ktp import diagonal_factors
from labkit.rtrl.low_rank import mixing_matrix

B, N, CLASSES = 3, 3, 4
CELLS = {"RNN": rtrl.RNNCell, "LSTM": rtrl.LSTMCell, "GRU": rtrl.GRUCell}
CELLS["RHN"] = rtrl.RHNCell
OPTIONS = {"dtype": torch.float64}


def seeded(seed=0):
    return torch.Generator().manual_seed(seed)


def made(kind, name, rank=2, inputs=2):
    cell = CELLS[kind](inputs, N, generator=seeded(1), **OPTIONS)
    with torch.no_grad():
        cell.weight.mul_(60)
    row = rtrl.LEARNERS[name]
    return row.make(cell, rank, batch_size=B, generator=seeded(2))


def steps(kind, name):
    """Seven steps, of which one has a mask and one comes after a reset."""
    learner = made(kind, name)
    g = seeded(3)
    xs = torch.randn(7, B, 2, generator=g, **OPTIONS)
    dLs = torch.randn(7, B, N, generator=g, **OPTIONS)
    few = torch.tensor([True, False, True])
    found = {}
    for t, (x, dL) in enumerate(zip(xs, dLs, strict=True)):
        if t == 5:
            learner.reset(few)
        if t == 3 and name != "TBPTT":
            learner.step(x, mask=few)
        else:
            learner.step(x)
        found[f"gradient{t}"] = learner.gradient(dL)
        given = learner.backward(dL)
        if given is not None and name == "TBPTT":
            found[f"backward{t}"] = given
    found["per_sequence"] = learner.per_sequence_gradient(dLs[-1])
    found["state"], found["influence"] = learner.state, learner.influence()
    if name in ("OK", "B-OK"):
        found["spectrum"] = learner.spectrum
        found["mixing"] = learner.mixing.abs()  # LAPACK may turn both vectors of a pair
    return found


def rank_changed():
    learner = made("RHN", "OK", 3)
    xs = torch.randn(9, B, 2, generator=seeded(4), **OPTIONS)
    for t, x in enumerate(xs):
        learner.change_rank({3: 5, 6: 2}.get(t, learner.rank))
        learner.step(x)
    return {"influence": learner.influence(), "spectrum": learner.spectrum}


def task_of(which):
    if which == "copy":
        return rtrl.CopyTask(B, level=2, generator=seeded(5), **OPTIONS)
    text = torch.randint(CLASSES, (50,), generator=seeded(6))
    return rtrl.CharStream(text, CLASSES, B, reset_every=5, **OPTIONS)


def trained(which, name, *, readout=None, loss=None, watched=()):
    learner = made("RHN", name, inputs=CLASSES)
    if readout is None:
        readout = rtrl.Readout(N, CLASSES, generator=seeded(7), **OPTIONS)
    weights = [learner.cell.weight, *readout.parameters()]
    optimizer = torch.optim.Adam(weights, lr=0.01)
    watch = {
        each: rtrl.LEARNERS[each].make(
            learner.cell, 2, batch_size=B, generator=seeded(8)
        )
        for each in watched
    }
    records = list(
        rtrl.train(
            learner,
            readout,
            task_of(which),
            loss=loss,
            steps=25,
            optimizer=optimizer,
            clip=0.5,
            watch=watch,
        )
    )
    found = {
        "losses": torch.tensor([each.loss for each in records]),
        "bits": torch.tensor([each.bits for each in records]),
        "levels": torch.tensor([each.level for each in records]),
        "updated": torch.tensor([each.updated for each in records]),
        "influence": learner.influence(),
    }
    for i, weight in enumerate(weights):
        found[f"weight{i}"] = weight
    for each, gradient in records[-1].gradients.items():
        found[f"gradient {each}"] = gradient
    return found


def by_a_module():
    torch.manual_seed(11)
    readout = nn.Sequential(nn.Linear(N, 5), nn.Tanh(), nn.Linear(5, CLASSES))
    return trained("copy", "OK", readout=readout.double())


def by_a_loss():
    loss = partial(nn.functional.cross_entropy, label_smoothing=0.1)
    return trained("text", "UORO", loss=loss)


def raised():
    """The curriculum rises: the errors given are small."""
    task = rtrl.CopyTask(B, level=1, generator=seeded(9), **OPTIONS)
    seen = []
    for t in range(60):
        symbols = next(task)
        if t % 20 == 10:
            task.error = 0.1
        level = task.observe(0.2)
        seen.append([*symbols.x.argmax(1), *symbols.target, *symbols.restart, level])
    return {"seen": torch.tensor(seen), "error": torch.tensor(task.error)}


def streams():
    text = torch.randint(CLASSES, (30,), generator=seeded(10))
    stream = rtrl.CharStream(text, CLASSES, B, reset_every=4)
    seen = [next(stream) for _ in range(40)]
    rows = [[*each.x.argmax(1), *each.target, *each.restart] for each in seen]
    return {"seen": torch.tensor(rows)}


def low_rank():
    C = torch.randn(2, 5, 4, generator=seeded(12), **OPTIONS)
    d = torch.linalg.svdvals(C)
    found = {}
    for rank in (1, 2, 3, 5):
        L, R = rtrl.optimal_low_rank(C, rank, generator=seeded(13))
        found[f"product{rank}"] = L @ R.mT
        found[f"variance{rank}"] = rtrl.minimum_variance(d, rank)
        if rank <= 4:
            found[f"level{rank}"] = rtrl.water_level(d, rank)
        found[f"mixing{rank}"] = mixing_matrix(d, rank, torch.ones(4).double())
    return found


def decompositions():
    C = torch.randn(3, 5, 5, generator=seeded(14), **OPTIONS)
    C[1] *= 10.0 ** -torch.arange(5)
    U, d, V = torch.ops.labkit.jacobi(C)
    D = torch.randn(2, 2, 4, 3, generator=seeded(15), **OPTIONS)
    signs = 2.0 * torch.randint(0, 2, (2, 6), generator=seeded(16)).double() - 1
    left, right = diagonal_factors(D, 2, signs)
    return {"U": U, "d": d, "V": V, "left": left, "right": right}


CASES = {
    f"{kind} {name}": partial(steps, kind, name)
    for kind in CELLS
    for name in rtrl.LEARNERS
}
CASES |= {
    f"{which} {name}": partial(trained, which, name)
    for which in ("copy", "text")
    for name in ("OK", "KF-AVG", "UORO", "TBPTT")
}
CASES["watched"] = partial(trained, "copy", "OK", watched=("RTRL", "KTP", "RFLO"))
CASES["by a module"], CASES["by a loss"] = by_a_module, by_a_loss
CASES["rank changed"], CASES["raised"], CASES["streams"] = rank_changed, raised, streams
CASES["low rank"], CASES["decompositions"] = low_rank, decompositions
