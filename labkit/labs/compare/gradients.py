"""The gradients that the sequence rules go by, beside the exact one."""

import pandas as pd
import torch
from torch import Tensor, nn

from labkit.instruments import gradient_cosine
from labkit.labs.compare.harness import Job
from labkit.labs.compare.recurrent import as_online, last_gradient, lstm, online_layout
from labkit.rtrl import OK, TBPTT

HORIZONS = (2, 4)


def gradient_table(job: Job, *, ranks=(1, 4), draws=15, seed=0) -> pd.DataFrame:
    """Cosine with the exact gradient of the recurrent weights, on one minibatch.

    The network is as drawn. Exact is autograd through all rows, in float64.

    Parameters
    ----------
    draws : repetitions of OK, with fresh signs and with all else the same. Its single
        cosine is their mean; the other one is that of their mean gradient, which
        tends to 1 as draws are added, since the estimate is unbiased.

    Returns
    -------
    DataFrame by estimate: ``cosine`` and ``cosine of the mean``, and ``relative error``
    of the norm for estimates that draw nothing.
    """
    rows = slice(job.setting.batch)
    X, y = job.data.fit.inputs[rows].double(), job.data.fit.targets[rows]
    model = lstm(X, job.setting.hidden, seed)
    exact = autograd(model, X, y)
    cell, readout = as_online(model)
    steps = round(X.shape[1] ** 0.5)
    table = {}
    for horizon in (steps, *HORIZONS):
        learner = TBPTT(cell, batch_size=len(X), horizon=horizon)
        gradient, _ = last_gradient(learner, readout, X, y)
        name = f"TBPTT, {horizon} of {steps} rows"
        table[name] = _row(gradient, exact) | {
            "relative error": float((gradient - exact).norm() / exact.norm())
        }
    for rank in ranks:
        g = torch.Generator(X.device).manual_seed(seed)
        learner = OK(cell, batch_size=len(X), rank=rank, generator=g)
        drawn = [last_gradient(learner, readout, X, y)[0] for _ in range(draws)]
        single = [float(gradient_cosine(each, exact)) for each in drawn]
        mean = torch.stack(drawn).mean(0)
        table[f"{rank}-OK"] = {
            "cosine": sum(single) / draws,
            "cosine of the mean": float(gradient_cosine(mean, exact)),
        }
    return pd.DataFrame(table).T.rename_axis("estimate")


def _row(gradient, exact):
    return {"cosine": float(gradient_cosine(gradient, exact))}


def autograd(model, X: Tensor, y: Tensor) -> Tensor:
    """Exact gradient through torch's own LSTM, in the layout of the online cell."""
    (layer,) = model.layers
    weights = (layer.weight_hh_l0, layer.weight_ih_l0, layer.bias_ih_l0)
    loss = nn.functional.cross_entropy(model(X), y)
    return online_layout(*torch.autograd.grad(loss, weights))
