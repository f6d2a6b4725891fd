"""What a step of an online learner costs, by formula."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Cost:
    """Cost of one step of a learner, gradient included, and of its memory."""

    flops: int  # per step of the whole batch; a multiplication and an addition are 2
    bytes: int  # the estimator that is carried from step to step, whole batch
    flops_ratio: float  # to truncated back-propagation's flops
    bytes_ratio: float  # to truncated back-propagation's bytes


def cost(
    method: str,
    *,
    hidden: int,
    inputs: int,
    blocks: int = 2,
    parts: int = 1,
    batch: int = 1,
    rank: int = 1,
    horizon: int = 25,
    dtype_bytes: int = 4,
) -> Cost:
    r"""Operations per step and bytes of storage of an online learner.

    With n = ``hidden``, m = n + ``inputs`` + 1, K = ``blocks``, P = ``parts``,
    S = P n, r = ``rank``, T = ``horizon``, and per sequence:

    =======  ================  ===============================================
    method   numbers carried   operations beside the forward pass 2 m K n
    =======  ================  ===============================================
    rtrl     S m K n           J + 2 S^2 m K n + 2 m K S + 2 S m K n
    ok       r (m + S K n)     J + 2 r S^2 K n + 2 (2 r^2 S K n) + 4 r K S
                               + 2 (2 r^2 m) + 4 r m + 2 r (S + m) K n
    kf-avg   r (m + S K n)     J + 2 r S^2 K n + 3 r S K n + 2 r K S + 6 r m
                               + 2 r (S + m) K n
    kf       kf-avg, r = 1     kf-avg, r = 1
    uoro     S + m K n         2 K n^2 + 4 K S + 2 P S + 8 m K n + 5 S
                               + 2 (S + m K n)
    ktp      r (m + S + K n)   r (2 K n^2 + 2 K S + 2 P S) + 2 r q n (P + K)
                               + 8 r (m + S + K n) + r (2 S + K n + 2 m K n)
    tbptt    T (m + P K n      2 m K n + 2 K n^2 + 2 K S + 2 P S
             + P S + S + 1)
             + 1
    =======  ================  ===============================================

    J = 2 K S n builds H; q = min(P, K). The terms are, in order: the influence carried
    through H; what the method does with it (ok: Gram matrices and recombination of the
    A's, entries of D, the same for the u's); the gradient, which stands last. For tbptt
    the window's backward pass is spread over its T steps: d z, back through W, the
    weights' gradient.

    Left out, being of lower order: everything of size r by r (square roots, the
    singular value decomposition, signs), KTP's sort and frame, the nonlinearities, the
    sum of the gradient over the batch. Left out of the bytes: the weights and the state
    s, which every learner has, and the second buffer of the size of G or of the A's
    that RTRL, KF-RTRL and OK hold in order not to allocate.

    Parameters
    ----------
    method : "rtrl", "ok", "kf", "kf-avg", "uoro", "ktp" or "tbptt".
    hidden, inputs : n and d_x.
    blocks, parts : K and P of the cell: RNN 1, 1; RHN 2, 1; LSTM 4, 2.
    batch : sequences.
    rank : terms of "ok" and "ktp", copies of "kf-avg"; the others ignore it.
    horizon : T of "tbptt", and of what the ratios refer to.
    dtype_bytes : of one number.

    Returns
    -------
    Cost. The ratios are to "tbptt" of the same cell and batch.

    Raises
    ------
    ValueError
        If the method is unknown or a size is not a positive integer.

    Notes
    -----
    Source of the orders: Benzing et al. 2019, Table 1, for K = 1 and m = n: memory n^3,
    r n^2, n^2, r n, T n and time n^4, r n^3, n^2, r n^2, n^2 per step (T n^2 per update
    of truncated back-propagation) of RTRL, OK and KF-RTRL-AVG, UORO, KTP, TBPTT. The
    constants are counted from the step functions of the rtrl room.

    Examples
    --------
    >>> round(cost("ok", hidden=128, inputs=10, rank=16).flops_ratio)
    816
    """
    sizes = {
        "hidden": hidden,
        "inputs": inputs,
        "blocks": blocks,
        "parts": parts,
        "batch": batch,
        "rank": rank,
        "horizon": horizon,
        "dtype_bytes": dtype_bytes,
    }
    for name, size in sizes.items():
        if not isinstance(size, int) or isinstance(size, bool) or size < 1:
            raise ValueError(f"{name} must be an integer >= 1, got {size!r}")
    if method not in _COUNTS:
        names = ", ".join(sorted(_COUNTS))
        raise ValueError(f"method must be one of {names}, got {method!r}")

    def count(name):
        r = 1 if name == "kf" else rank
        return _COUNTS[name](hidden, hidden + inputs + 1, blocks, parts, r, horizon)

    flops, numbers = count(method)
    base_flops, base_numbers = count("tbptt")
    return Cost(
        flops=batch * flops,
        bytes=batch * numbers * dtype_bytes,
        flops_ratio=flops / base_flops,
        bytes_ratio=numbers / base_numbers,
    )


# Each: (n, m, K, P, r, T) -> operations and numbers carried, per sequence.


def _forward(n, m, K):
    return 2 * m * K * n


def _jacobian(n, K, P):
    return 2 * K * P * n * n


def _rtrl(n, m, K, P, r, T):
    S, W = P * n, m * K * n
    carry = 2 * S * S * W
    flops = _forward(n, m, K) + _jacobian(n, K, P) + carry + 2 * m * K * S + 2 * S * W
    return flops, S * W


def _ok(n, m, K, P, r, T):
    S = P * n
    A = S * K * n
    carry = 2 * r * S * A
    mix = 4 * r * r * A + 4 * r * K * S + 4 * r * r * m + 4 * r * m
    gradient = 2 * r * (S + m) * K * n
    flops = _forward(n, m, K) + _jacobian(n, K, P) + carry + mix + gradient
    return flops, r * (m + A)


def _kf(n, m, K, P, r, T):
    S = P * n
    A = S * K * n
    carry = 2 * r * S * A
    mix = 3 * r * A + 2 * r * K * S + 6 * r * m
    gradient = 2 * r * (S + m) * K * n
    flops = _forward(n, m, K) + _jacobian(n, K, P) + carry + mix + gradient
    return flops, r * (m + A)


def _uoro(n, m, K, P, r, T):
    S, W = P * n, m * K * n
    carry = 2 * K * n * n + 2 * K * S + 2 * P * S
    mix = 2 * K * S + 8 * W + 5 * S
    gradient = 2 * (S + W)
    return _forward(n, m, K) + carry + mix + gradient, S + W


def _ktp(n, m, K, P, r, T):
    S = P * n
    numbers = r * (m + S + K * n)
    carry = r * (2 * K * n * n + 2 * K * S + 2 * P * S)
    factors = 2 * r * min(P, K) * n * (P + K)
    gradient = r * (2 * S + K * n + 2 * m * K * n)
    return _forward(n, m, K) + carry + factors + 8 * numbers + gradient, numbers


def _tbptt(n, m, K, P, r, T):
    S = P * n
    back = 2 * m * K * n + 2 * K * n * n + 2 * K * S + 2 * P * S
    return _forward(n, m, K) + back, T * (m + P * K * n + P * S + S + 1) + 1


_COUNTS = {
    "rtrl": _rtrl,
    "ok": _ok,
    "kf": _kf,
    "kf-avg": _kf,
    "uoro": _uoro,
    "ktp": _ktp,
    "tbptt": _tbptt,
}
