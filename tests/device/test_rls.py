"""What an accelerator asks of RLS: no waits, one place for what stays, one graph."""

import pytest
import torch
from torch.nn.functional import cross_entropy

from labkit.errors import DivergedError
from labkit.rls import RLS, Hybrid, Residuals, Settings, rls_step as step, train
from labkit.rls.update import Masked
from labkit.scale import graphed
from tests.device.strict_device import NAME, strict
from tests.rls.conftest import RULE, assert_close, batch, identical, randn, spd, take
from tests.rls.test_health import held
from tests.rls.twins import fcs

LABELS = torch.arange(20) % 3


def run_on(device, make, **options):
    """Records of a run on a device, and its weights."""
    model = fcs().to(device)
    g = torch.Generator().manual_seed(3)
    place = {"batch_size": 8, "generator": g, "epochs": 2, **options}
    data = randn(20, 5, seed=2).to(device), LABELS.to(device)
    records = list(train(model, make(model), *data, **place))
    return records, [p.detach().cpu() for p in model.parameters()]


def clipped(model):
    return RLS(model, momentum=0.5, max_grad_norm=0.6)


def hybrid(model):
    rls = RLS(model, layers=["0"], max_grad_norm=0.6)
    return Hybrid(rls, torch.optim.Adam(model[2].parameters()))


NUMBERS = ("step", "epoch", "loss", "gradient_norm", "clipped", "epoch_loss")


def waits(tally):
    """Of labkit since the last time."""
    found = sum(n for (_, line), n in tally.waits.items() if line != "elsewhere")
    tally.clear()
    return found


@pytest.mark.parametrize("make", [clipped, hybrid])
def test_a_run_waits_at_the_end_of_an_epoch_and_for_who_reads(make):
    with strict() as tally:
        records, weights = run_on(NAME, make)
        assert waits(tally) == 2 * 2  # two epochs: what was noted, and the losses
        read, again = (
            [[getattr(r, name) for name in NUMBERS] for r in records] for _ in range(2)
        )
        assert read == again and waits(tally) == 6 + 6 + 2  # each number once
    plain, wanted = run_on("cpu", make)
    assert_close(weights, wanted)
    for found, record in zip(read, plain, strict=True):
        assert found == pytest.approx([getattr(record, name) for name in NUMBERS])


def test_an_accelerator_sees_a_divergence_at_the_end_of_the_epoch():
    found = []
    for device in ("cpu", NAME):
        with strict(), pytest.raises(DivergedError, match="the loss is") as error:
            run_on(device, lambda model: RLS(model, lr=300.0), epochs=9)
        found.append(str(error.value))
    assert found[0] == found[1]


@pytest.mark.parametrize("on_failure", ["raise", "reset"])
@pytest.mark.parametrize("limit", [None, 0.6])
def test_a_recorded_run_is_the_run(taped, limit, on_failure):
    """Short batches, an option that is turned and a size that changes are recorded."""
    found = []
    for record in (None, graphed):
        model, size = fcs(), Settings(8)
        rule = {"momentum": 0.5, "l1": 1e-3, "on_failure": on_failure}
        optimizer = held(RLS)(model, **rule, max_grad_norm=limit)
        options = {"generator": torch.Generator().manual_seed(3), "epochs": 9}
        options |= {"batch_size": size, "record": record, "loss": cross_entropy}
        losses = []
        for row in train(model, optimizer, randn(20, 5, seed=2), LABELS, **options):
            losses.append([row.loss, row.gradient_norm])
            if row.step == 12:
                optimizer.param_groups[0]["lr"] = 0.5
                size.batch_size = 6
        steps = [state["step"].item() for state in optimizer.state.values()]
        found.append((losses, steps, list(model.parameters())))
    (losses, steps, weights), (again, counted, others) = found
    assert losses == again and steps == counted == [len(losses)] * 2
    assert identical(weights, others)


def test_the_cpu_records_nothing():
    with pytest.raises(ValueError, match="CUDA graph; the data are on cpu: move model"):
        run_on("cpu", RLS, record=graphed)
    with pytest.raises(ValueError, match="leave out watch, and use one process"):
        run_on("cpu", RLS, record=graphed, watch=print)
    with pytest.raises(TypeError, match="record must be a function or None, got"):
        run_on("cpu", RLS, record=True)


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("formed", [True, False])
def test_the_step_compiles_without_a_break(backend, formed):
    torch._dynamo.reset()
    compiled = torch.compile(step, fullgraph=True, backend=backend)
    parts = Residuals(randn(7, 3, seed=5), randn(7, 5, seed=6))
    gradient = parts.dZ.T @ parts.X if formed else parts
    found, factor = [], torch.tensor(0.3)
    for each in (step, compiled):
        theta, velocity, P = randn(3, 5, seed=1), randn(3, 5, seed=2), spd(5, seed=3)
        x_mean, still = randn(5, seed=4), torch.tensor(False)
        masked = Masked(gradient, still)
        h = each(theta, P, x_mean, masked, velocity=velocity, clip=factor, **RULE)
        found.append((h, theta, velocity, P))
    assert_close(*found)


def test_a_checkpoint_goes_on_on_another_device():
    """From the CPU to an accelerator, and back."""

    def on(device, saved=None, steps=range(2)):
        model = fcs().to(device)
        optimizer = RLS(model, momentum=0.5, max_grad_norm=1.0)
        if saved:
            model.load_state_dict(saved[0])
            optimizer.load_state_dict(saved[1])
        for s in steps:
            take(model, optimizer, *(each.to(device) for each in batch(2, s)))
        optimizer.check()
        return model.state_dict(), optimizer.state_dict()

    with strict():
        there = on(NAME, on("cpu"), range(2, 4))
        back = on("cpu", there, range(4, 6))
        stayed = on("cpu", None, range(6))
    assert_close(back[0].values(), stayed[0].values())
