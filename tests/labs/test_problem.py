"""Rows to learn from, to tune on and to be judged by; noise on the first alone."""

import pytest
import torch

from labkit.labs.problem import load_problem, percent, squared_error, with_noise


@pytest.fixture(scope="module")
def problem():
    return load_problem("digits", samples=240, tune=1 / 6)


def test_tuning_rows_are_no_training_rows_whatever_the_samples(problem):
    whole = load_problem("digits", tune=1 / 6)
    sizes = [len(part.targets) for part in (whole.fit, whole.tune, whole.test)]
    assert sizes == [1198, 239, 360]
    assert torch.equal(problem.fit.inputs, whole.fit.inputs[:240])
    assert torch.equal(problem.tune.inputs, whole.tune.inputs)
    assert load_problem("digits").tune is None
    assert (whole.name, whole.classes) == ("digits", 10)


def test_noise_disturbs_the_rows_to_learn_from_and_no_others(problem):
    noisy = with_noise(problem, inputs=0.5, labels=0.5, seed=1)
    assert noisy.tune is problem.tune and noisy.test is problem.test
    added = noisy.fit.inputs - problem.fit.inputs
    assert float(added.std()) == pytest.approx(0.5, rel=0.05)  # 15,360 draws
    share = float((noisy.fit.targets != problem.fit.targets).double().mean())
    assert 0.3 < share < 0.6  # of half the labels, a tenth is right by chance
    clean = with_noise(problem, seed=1).fit
    assert torch.equal(clean.inputs, problem.fit.inputs)
    assert torch.equal(clean.targets, problem.fit.targets)
    stronger = with_noise(problem, inputs=1.0, seed=1).fit.inputs
    torch.testing.assert_close(stronger - problem.fit.inputs, 2 * added)


@pytest.mark.parametrize("noise", [{"inputs": -0.1}, {"labels": 1.1}])
def test_noise_out_of_range_is_refused(problem, noise):
    with pytest.raises(ValueError, match=r"inputs must be >= 0 and labels in \[0, 1\]"):
        with_noise(problem, **noise)


def test_scores():
    outputs = torch.tensor([[1.0, 0.0], [0.0, 1.0], [2.0, 1.0]])
    assert percent(outputs, torch.tensor([0, 1, 1])) == pytest.approx(200 / 3)
    assert squared_error(outputs, torch.zeros(3, 2)) == pytest.approx(7 / 3)
