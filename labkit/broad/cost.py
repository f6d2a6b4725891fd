"""Operations of a solver's start and updates, by formula.

An m x n times n x p product counts 2 m n p; symmetric results and triangular factors
count half, an inverse Cholesky factor of q x q counts 2 q^3 / 3. These are structured
counts: what block rows compute of the skipped half is not in them. W's share with c
outputs is included.
"""


def start_operations(solver: str, l: int, k: int, c: int) -> float:  # noqa: E741
    """Operations of the start from A (l, k) and Y (l, c)."""
    normal = l * k**2 + 2 * l * k * c
    if solver in ("orig", "r-inv"):
        return normal + k**3 / 3 + 2 * l * k**2
    if solver in ("d-rdg", "bordered"):
        return normal + k**3 / 3 + 2 * k**2 * c
    return normal + 2 * k**3 / 3 + 2 * k**2 * c


def update_operations(solver: str, l: int, k: int, q: int, c: int) -> float:  # noqa: E741
    """Operations of one update from k to k + q columns."""
    if solver == "d-rdg":
        return start_operations(solver, l, k + q, c) - 2 * l * k * c
    cross, square = 2 * l * k * q, l * q**2
    if solver in ("orig", "r-inv"):
        inverse = q**3 / 3 + 2 * l * q**2 + (k * q**2 if solver == "r-inv" else 0)
        return 3 * cross + square + inverse + 2 * (l + k) * q * c
    if solver == "bordered":
        triangle = k**2 * q + k * q**2 + q**3 / 3
        return cross + square + triangle + 2 * (l + k) * q * c + (k + q) ** 2 * c
    factor = 2 * k**2 * q + k * q**2 + 2 * q**3 / 3
    weights = 2 * l * q * c + 4 * k * q * c + 2 * q**2 * c
    if solver == "exg-e":
        return 2 * cross + square + factor + weights
    own = k * q**2  # V^T V or D^T D
    return (1 if solver == "chol-1" else 2) * cross + square + factor + own + weights
