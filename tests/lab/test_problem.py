"""Rows to learn from, to tune on and to be judged by; noise on the first alone."""

import pytest
import torch

from labkit.lab.problem import load_problem, percent, squared_error, with_noise

PROBLEM = load_problem("digits", samples=240, tune=1 / 6)


def test_tuning_rows_are_no_training_rows_whatever_the_samples():
    whole = load_problem("digits", tune=1 / 6)
    sizes = [len(part.targets) for part in (whole.fit, whole.tune, whole.test)]
    assert sizes == [1198, 239, 360]
    assert torch.equal(PROBLEM.fit.inputs, whole.fit.inputs[:240])
    assert torch.equal(PROBLEM.tune.inputs, whole.tune.inputs)
    assert load_problem("digits").tune is None
    assert (whole.name, whole.classes) == ("digits", 10)


def test_noise_disturbs_the_rows_to_learn_from_and_no_others():
    noisy = with_noise(PROBLEM, input_noise=0.5, label_noise=0.5, seed=1)
    assert noisy.tune is PROBLEM.tune and noisy.test is PROBLEM.test
    added = noisy.fit.inputs - PROBLEM.fit.inputs
    assert float(added.std()) == pytest.approx(0.5, rel=0.05)  # 15,360 draws
    share = float((noisy.fit.targets != PROBLEM.fit.targets).double().mean())
    assert 0.3 < share < 0.6  # of half the labels, a tenth is right by chance
    clean = with_noise(PROBLEM, seed=1).fit
    assert clean.inputs is PROBLEM.fit.inputs and clean.targets is PROBLEM.fit.targets
    stronger = with_noise(PROBLEM, input_noise=1.0, seed=1).fit.inputs
    torch.testing.assert_close(stronger - PROBLEM.fit.inputs, 2 * added)
    refused = {"input_noise": (-0.1, ">= 0"), "label_noise": (1.1, r"in \[0, 1\]")}
    for name, (level, words) in refused.items():
        with pytest.raises(ValueError, match=rf"{name} must be {words}.*got {level}"):
            with_noise(PROBLEM, **{name: level})


def test_scores():
    outputs = torch.tensor([[1.0, 0.0], [0.0, 1.0], [2.0, 1.0]])
    assert percent(outputs, torch.tensor([0, 1, 1])) == pytest.approx(200 / 3)
    assert squared_error(outputs, torch.zeros(3, 2)) == pytest.approx(7 / 3)
