"""What an accelerator asks of RLS beyond a row of the table."""

from functools import partial

import pytest
import torch

from labkit.errors import DivergedError
from labkit.rls import RLS, Settings, train
from labkit.scale import graphed
from tests.device.rls import batch, network
from tests.device.rows import in_dtype, seeded
from tests.device.strict_device import NAME, strict

NUMBERS = ("step", "epoch", "loss", "gradient_norm", "clipped", "epoch_loss")
clipped = partial(RLS, momentum=0.5, max_grad_norm=0.6)


def run_on(device, make=clipped, turn=None, **options):
    """Records of a run on a device in batches of 3, 3 and 1, and its weights."""
    with in_dtype():
        model = network("Linear").to(device)
        optimizer, size = make(model), Settings(3)
        options = {"batch_size": size, "epochs": 2, "generator": seeded()} | options
        records = []
        for record in train(model, optimizer, *batch(device), **options):
            records.append(record)
            if record.step == turn:
                optimizer.param_groups[0]["lr"] = 0.5
                size.batch_size = 2
    return records, [p.detach().cpu() for p in model.parameters()]


def waits(tally):
    """Of labkit since the last time."""
    found = sum(n for (_, line), n in tally.waits.items() if line != "elsewhere")
    tally.clear()
    return found


def test_a_run_waits_at_the_end_of_an_epoch_and_for_who_reads():
    with strict() as tally:
        records, weights = run_on(NAME)
        assert waits(tally) == 2 * 2  # two epochs: what was noted, and the losses
        read, again = (
            [[getattr(r, name) for name in NUMBERS] for r in records] for _ in range(2)
        )
        assert read == again and waits(tally) == 6 + 6 + 2  # each number once
    plain, wanted = run_on("cpu")
    torch.testing.assert_close(weights, wanted, rtol=1e-9, atol=1e-12)
    for found, record in zip(read, plain, strict=True):
        assert found == pytest.approx([getattr(record, name) for name in NUMBERS])


def test_an_accelerator_sees_a_divergence_at_the_end_of_the_epoch():
    found = []
    for device in ("cpu", NAME):
        with strict(), pytest.raises(DivergedError, match="the loss is") as error:
            run_on(device, partial(RLS, lr=300.0), epochs=9)
        found.append(str(error.value))
    assert found[0] == found[1]


@pytest.mark.parametrize("on_failure", ["raise", "reset"])
def test_a_recorded_run_is_the_run(taped, on_failure):
    """Short batches, a rate that is turned and a size that changes are recorded."""
    make = partial(clipped, l1=1e-3, on_failure=on_failure)
    with strict():
        (plain, weights), (replayed, others) = (
            run_on(NAME, make, turn=12, epochs=9, record=record)
            for record in (None, graphed)
        )
        assert [r.loss for r in plain] == [r.loss for r in replayed]
    assert all(map(torch.equal, weights, others))


def test_what_cannot_be_recorded_says_so():
    with pytest.raises(ValueError, match="CUDA graph; the data are on cpu: move model"):
        run_on("cpu", record=graphed)
    with pytest.raises(ValueError, match="leave out watch, and use one process"):
        run_on("cpu", record=graphed, watch=print)


def test_a_checkpoint_goes_on_on_another_device():
    """From the CPU to an accelerator, and back."""

    def on(device, saved=None, steps=2):
        model = network("Linear").double().to(device)
        optimizer = clipped(model)
        if saved:
            model.load_state_dict(saved[0])
            optimizer.load_state_dict(saved[1])
        X, y = batch(device)
        for _ in range(steps):
            optimizer.zero_grad()
            torch.nn.functional.cross_entropy(model(X), y).backward()
            optimizer.step()
        optimizer.check()
        return model.state_dict(), optimizer.state_dict()

    with in_dtype(), strict():
        back = on("cpu", on(NAME, on("cpu")))
        stayed = on("cpu", None, steps=6)
    torch.testing.assert_close(back[0], stayed[0], rtol=1e-9, atol=1e-12)
