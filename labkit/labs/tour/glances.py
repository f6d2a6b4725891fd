"""The live experiments of the five labs at a glance: few knobs, two panels.

Each function takes what :class:`~labkit.panels.LiveLab` takes, ``interactive``,
``folder`` and ``device``, and returns one.
"""

from labkit.labs.bpls.live import WALK_PANELS, walk_lab
from labkit.labs.bpls.problems import make_problem as bpls_problem
from labkit.labs.broad.live import GROWTH_PANELS, growth_lab
from labkit.labs.hessian_free.live import TRAINING_PANELS as SHF_PANELS
from labkit.labs.hessian_free.live import training_lab as shf_lab
from labkit.labs.hessian_free.problems import make_problem as autoencoder_problem
from labkit.labs.rls.live import TRAINING_PANELS as RLS_PANELS
from labkit.labs.rls.live import training_lab as rls_lab
from labkit.labs.rtrl.noise import NOISE_PANELS, NoiseKnobs, noise_lab
from labkit.panels import LiveLab

HEIGHT = 420


def rls(**options) -> LiveLab:
    """RLS or a baseline on digits: loss, and what P does to the gradient."""
    return rls_lab(
        name="rls",
        only=("method", "eta", "label_noise"),
        panels=_pick(RLS_PANELS, "loss", "cosine first"),
        reading="P turns the step away from the gradient while the loss falls: a "
        "cosine well below 1 is what RLS changes.",
        height=HEIGHT,
        **options,
    )


def bpls(**options) -> LiveLab:
    """BPLS on digits: accuracy layer by layer, and the misses that are walked on."""
    return walk_lab(
        bpls_problem("digits", device=options.get("device")),
        only=("reading", "sigma", "width"),
        panels=_pick(WALK_PANELS, "accuracy so far", "misses"),
        reading="Each walk on the misses of the one before leaves fewer of them, until "
        "one leaves no fewer.",
        height=HEIGHT,
        **options,
    )


def hessian_free(**options) -> LiveLab:
    """SHF on an autoencoder of digits: its batch, its errors, and what it draws."""
    return shf_lab(
        autoencoder_problem("digits", device=options.get("device")),
        name="hessian_free",
        only=("theta", "drop", "budget"),
        panels=_pick(SHF_PANELS, "n", "validation"),
        reading="The error falls on a few dozen rows at first; the batch grows when "
        "they say too little about all rows.",
        height=HEIGHT,
        **options,
    )


def broad(**options) -> LiveLab:
    """Two solvers that grow over the same columns: accuracy, and who is exact."""
    return growth_lab(
        only=("ridge", "exact", "greville"),
        panels=_pick(GROWTH_PANELS, "accuracy exact", "residual exact"),
        reading="Both solvers grow over the same columns; the one that leaves the "
        "ridge solution, on the right, loses accuracy on the left.",
        height=HEIGHT,
        **options,
    )


def rtrl(text, **options) -> LiveLab:
    """OK beside exact RTRL on a text: the estimate's noise, and the spectrum."""
    return noise_lab(
        text,
        NoiseKnobs(method="OK", rank=2, hidden=16, trained=True),
        only=("method", "rank", "trained"),
        panels=_pick(NOISE_PANELS, "relative_variance", "d1"),
        reading="The estimate is noisy only by the terms under the water level, which "
        "are mixed; those above are kept.",
        height=HEIGHT,
        **options,
    )


def _pick(panels, *columns):
    """Return the panels that draw these columns of the rows."""
    return tuple(next(p for p in panels if c in p.columns) for c in columns)
