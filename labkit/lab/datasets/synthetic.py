r"""Drawn curves, in place of the CURVES data set.

The file of CURVES could not be reached at the address that the papers give. It holds
30,000 synthetic images, each of a curve through three random points in the plane. The
papers that use it do not say how its curves were drawn, so these are drawn afresh. They
are alike in kind and not in detail: **errors measured on them are not comparable with
published ones**.

Symbols: b images of a chunk, t the parameter along a curve, s places along its length.
The numbers of the equations are this module's, not a paper's.
"""

import torch

from labkit.lab.datasets.results import Labelled

SIDE = 28  # [pixels]
_CORNER, _WIDTH = 3.0, 21.0  # the points are uniform in [3, 24]^2 [pixels]
_STEPS, _PLACES = 201, 120  # values of t, places at which ink is added
_INK = 1.3  # per pixel of length
_BLUR = (0.15, 0.70, 0.15)
_CHUNK = 1000  # images drawn at once, few enough for the caches
_CURVE_SEEDS = {"train": 0, "test": 1}
_SIZES = {"train": 20_000, "test": 10_000}


def draw_curves(points: torch.Tensor) -> torch.Tensor:
    r"""Draw the parabolic arc through three points of each image.

    (1) $c(t) = (1-t)(1-2t)\,p_1 + 4t(1-t)\,p_2 + t(2t-1)\,p_3$, $t \in [0, 1]$,
    clipped to the canvas, so that $c$ meets the points at $t = 0, 1/2, 1$
    (2) the places: the middles of 120 pieces of equal length of $c$
    (3) ink $1.3\,|c| / 120$ at each, shared bilinearly among the four nearest pixels
    (4) 3 x 3 smoothing, (0.15, 0.70, 0.15) along either axis, then a cut at 1

    By (2) and (3) every pixel of length gets the same ink, whatever the speed of $c$.

    Parameters
    ----------
    points : torch.Tensor, shape (b, 3, 2), floating point
        Row and column of $p_1, p_2, p_3$ [pixels], 0 to 27.

    Returns
    -------
    torch.Tensor, shape (b, 28, 28), ink in [0, 1]
    """
    b, device, dtype = len(points), points.device, points.dtype
    t = torch.linspace(0, 1, _STEPS, device=device, dtype=dtype)
    weights = torch.stack([(1 - t) * (1 - 2 * t), 4 * t * (1 - t), t * (2 * t - 1)], 1)
    c = (weights @ points).clamp(0, SIDE - 1)  # (1)

    run = c.diff(dim=1).norm(dim=2).cumsum(1)
    run = torch.cat([run.new_zeros(b, 1), run], 1)
    length = run[:, -1:]
    s = (torch.arange(_PLACES, device=device, dtype=dtype) + 0.5) / _PLACES * length
    last = torch.searchsorted(run, s, right=True).clamp(1, _STEPS - 1)
    start, stop = run.gather(1, last - 1), run.gather(1, last)
    # A piece without length (clipped, or points that coincide) has no inside.
    share = ((s - start) / (stop - start).clamp_min(1e-12)).clamp(0, 1)[..., None]
    row = last[..., None].expand(-1, -1, 2)
    place = torch.lerp(c.gather(1, row - 1), c.gather(1, row), share)  # (2)

    corner = place.floor().clamp(0, SIDE - 2)
    far = place - corner
    pixel = (corner @ corner.new_tensor([SIDE, 1.0])).long()
    ink = _INK * length / _PLACES
    rows, columns = (torch.stack([1 - part, part]) for part in far.unbind(2))
    image = points.new_zeros(b, SIDE * SIDE)
    for down in (0, 1):
        for right in (0, 1):
            drop = ink * rows[down] * columns[right]
            image.scatter_add_(1, pixel + SIDE * down + right, drop)  # (3)

    side, middle, _ = _BLUR
    blur = middle * torch.eye(SIDE, device=device, dtype=dtype)
    blur += side * torch.eye(SIDE + 1, device=device, dtype=dtype)[1:, :-1]
    blur += side * torch.eye(SIDE + 1, device=device, dtype=dtype)[:-1, 1:]
    return (blur @ image.view(b, SIDE, SIDE) @ blur).clamp_max(1)  # (4)


def load_curves(split: str, dtype: torch.dtype = torch.float32) -> Labelled:
    """Draw the substitute for CURVES, which is the same at every call.

    It has the sizes of the original, of which the literature takes 20,000 images to
    train and 10,000 to test, and none of its images.

    Returns
    -------
    Labelled, without targets; `inputs` (20000 or 10000, 784): ink in [0, 1]

    References
    ----------
    For the original: G. Hinton, R. Salakhutdinov, *Reducing the dimensionality of data
    with neural networks*, Science 313, 2006; J. Martens, *Deep learning via
    Hessian-free optimization*, ICML 2010.
    """
    generator = torch.Generator().manual_seed(_CURVE_SEEDS[split])
    points = torch.rand(_SIZES[split], 3, 2, generator=generator, dtype=torch.float64)
    chunks = (_CORNER + _WIDTH * points).split(_CHUNK)
    inputs = torch.cat([draw_curves(chunk).flatten(1).to(dtype) for chunk in chunks])
    return Labelled("curves", inputs)
