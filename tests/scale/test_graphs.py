"""A recording proves itself: a fault planted in a replay is noticed at first use."""

import warnings
from types import SimpleNamespace

import pytest
import torch

from labkit.scale import graphs
from tests.device.tape import on_tape
from tests.draws import seeded


def stale_input(run, generators):
    """Reads what lay in the arguments when it was recorded, not what lies there now."""
    held = [cell.cell_contents for cell in run.__closure__]
    (own,) = [each for each in held if type(each) is list]
    replay, results = on_tape(run, generators)
    old = [each.clone() for each in own]

    def from_stale_memory():
        torch._foreach_copy_(own, old)
        replay()

    return from_stale_memory, results


def frozen(run, generators):
    """Does nothing: results and state are those of before."""
    _, results = on_tape(run, generators)
    return lambda: None, results


def other_noise(run, generators):
    """Draws what was drawn already."""
    replay, results = on_tape(run, generators)

    def drawn_anew():
        for each in generators:
            each.manual_seed(99)
        replay()

    return drawn_anew, results


def raises(run, generators):
    def failing():
        raise RuntimeError("an illegal memory access")

    return failing, on_tape(run, generators)[1]


FAULTS = {
    stale_input: r"(result|state) \d of shape .* is .* off",
    frozen: r"(result|state) \d of shape .* is .* off",
    other_noise: r"(result|state) \d of shape .* is .* off",
    raises: "it failed: an illegal memory access",
}


def setting():
    """A noisy running mean: arguments, state and random numbers all count.

    The state exchanges its place with that of a buffer.
    """
    generator = seeded()
    learner = SimpleNamespace(
        generator=generator, state=torch.zeros(3), _work=torch.ones(3)
    )

    def step(x):
        noise = torch.randn(3, generator=generator)
        torch.add(0.9 * learner.state, x + noise, out=learner._work)
        learner.state, learner._work = learner._work, learner.state
        return (learner.state.sum(),)

    return step, learner


XS = torch.randn(8, 3, generator=seeded(1))


def replayed(monkeypatch, record):
    """What eight calls give, what they leave, and the `Replayed`."""
    monkeypatch.setattr(graphs, "aside", lambda run: run())
    monkeypatch.setattr(graphs, "record", record)
    step, learner = setting()
    made = graphs.Replayed(step, None, learner)
    return (torch.stack([made(x)[0] for x in XS]), learner.state), made


def plainly():
    step, learner = setting()
    return torch.stack([step(x)[0] for x in XS]), learner.state


def test_a_faithful_replay_is_taken_without_a_word(monkeypatch):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found, made = replayed(monkeypatch, on_tape)
    assert all(map(torch.equal, found, plainly()))
    assert len(made.recorded) == 2 and not made.fault  # one for each place


@pytest.mark.parametrize("record", FAULTS)
def test_a_planted_fault_is_named_and_steps_run_as_written(monkeypatch, record):
    """One warning; nothing of the bad replay is left in results, state or streams."""
    with pytest.warns(
        RuntimeWarning, match=f"not the step: {FAULTS[record]}"
    ) as caught:
        found, made = replayed(monkeypatch, record)
    assert len(caught) == 1 and not made.recorded and made.fault
    assert all(map(torch.equal, found, plainly()))
