r"""What the theorems say of LSMR, the linearisation and the batch rule, on examples.

The library is run on a small problem and judged by dense matrices and explicit loops; a
:class:`~labkit.theorems.Finding` is returned (Emirahmetoglu and Stewart, sections 3 to
5; Fong and Saunders 2011).
"""

import itertools
import math
from bisect import bisect_left
from collections.abc import Callable, Iterable, Sequence
from fractions import Fraction

import torch
from torch import Tensor, nn
from torch.func import functional_call, jvp

from labkit.hessian_free.batch_size import batch_gradient_variance, next_batch_size
from labkit.hessian_free.linearise import linearise
from labkit.hessian_free.lsmr import Rotations, lsmr_steps, rotate
from labkit.hessian_free.optimizer import Subproblem
from labkit.hessian_free.preconditioner import diagonal_estimate
from labkit.hessian_free.system import build_system
from labkit.hessian_free.vectors import Blocks, add, dot
from labkit.theorems import Finding


def joined(blocks: Blocks) -> Tensor:
    """Return blocks as one flat vector."""
    return torch.cat([t.reshape(-1) for t in blocks])


# LSMR


def explicit(
    A: Tensor,
    b: Tensor,
    *,
    x0: Tensor,
    scale: Tensor,
    damping: float,
    damping_norm: str = "identity",
    damp_towards: str = "zero",
) -> tuple[Tensor, Tensor]:
    """Return K and the residual of the start, in y = x / c, as one dense system."""
    identity = damping_norm == "identity"
    low = torch.diag(scale) if identity else torch.eye(len(x0)).to(A)
    z = -damping * (x0 if identity else x0 / scale)
    z = z if damp_towards == "zero" else 0 * z
    return torch.cat([A * scale, damping * low]), torch.cat([b - A @ x0, z])


def iterates(A: Tensor, b: Tensor, k: int, **options: object) -> tuple[Tensor, Tensor]:
    """Return LSMR's iterates (k + 1, n), and its norms |r| and |K'r| (2, k + 1)."""
    x, norms = [], []
    for step in itertools.islice(lsmr_steps(build_system(A, b, **options)), k + 1):
        x.append(step.x[0].clone())
        norms.append(step.norms[:2])
    return torch.stack(x), b.new_tensor(norms).T


def least_gradient(A: Tensor, b: Tensor, k: int, **options: object) -> Finding:
    r"""Judge whether iterate k has the least $|K^T r|$ over its Krylov space.

    Equation (17), from the definition, without bidiagonalisation or rotations; A (m, n)
    and b (m,) in float64, k so small that the space still grows.
    """
    K, r0 = explicit(A, b, **options)
    G, g = K.T @ K, K.T @ r0
    basis = torch.stack([torch.linalg.matrix_power(G, i) @ g for i in range(k)], 1)
    basis = torch.linalg.qr(basis)[0]
    y = basis @ torch.linalg.pinv(G @ basis) @ g
    wanted = options["x0"] + options["scale"] * y
    claim = f"Iterate {k} has the least $|K^T r|$ over its Krylov space."
    found = iterates(A, b, k, **options)[0][k]
    return Finding(claim, found, wanted, _shape(A))


def true_norms(A: Tensor, b: Tensor, k: int, **options: object) -> Finding:
    """Judge whether the norms by the recurrences are those of the iterates 0..k.

    ``found`` and ``wanted`` are (2, k + 1): the residual of K, and its gradient.
    """
    K, r0 = explicit(A, b, **options)
    x, norms = iterates(A, b, k, **options)
    y = (x - options["x0"]) / options["scale"]
    r = r0 - y @ K.T
    wanted = torch.stack([r.norm(dim=1), (r @ K).norm(dim=1)])
    claim = "The recurrences give the norms of the residual $r$ and of $K^T r$."
    return Finding(claim, norms, wanted, _shape(A))


def norms_fall(A: Tensor, b: Tensor, k: int, **options: object) -> Finding:
    """Judge whether |r| and |K'r| never rise, by the recurrences of k iterations."""
    _, found = iterates(A, b, k, **options)
    claim = "The norms of the residual $r$ and of $K^T r$ never rise."
    return Finding(claim, found, found.cummin(1).values, _shape(A), tolerance=0.0)


def _shape(A: Tensor) -> str:
    return f"$A$ of shape {tuple(A.shape)}"


def rotations_annihilate(alphas: Sequence[float], betas: Sequence[float]) -> Finding:
    r"""Judge :func:`~labkit.hessian_free.lsmr.rotate` by two dense QR factorisations.

    B = Q R, of the lower bidiagonal B with $\alpha_1, \alpha_2, \dots$ on its diagonal
    and $\beta_2, \dots$ below it, and $R^T = \bar Q \bar R$. Both diagonals are made
    positive. ``found`` and ``wanted`` have the rows $\rho_i$, diagonal of R;
    $\bar\rho_i$, diagonal of $\bar R$; and $\zeta_i$, entries of
    $\bar Q^T \alpha_1 \beta_1 e_1$.

    Parameters
    ----------
    alphas, betas : sequences of k + 1 floats > 0, $\alpha_1 \dots$, $\beta_1 \dots$
    """
    a, b = (torch.tensor(each, dtype=torch.float64) for each in (alphas, betas))
    R = _positive_qr(torch.diag(a) + torch.diag(b[1:], -1))[1][:-1]
    Q_bar, R_bar = _positive_qr(R.T)
    wanted = torch.stack([R.diag(), R_bar.diag(), a[0] * b[0] * Q_bar[0]])
    alpha, beta, found = float(a[0]), float(b[0]), []
    state = Rotations(alpha, alpha * beta, alpha**2, beta)
    for next_alpha, next_beta in zip(a[1:].tolist(), b[1:].tolist(), strict=True):
        state, *_ = rotate(state, next_alpha, next_beta)
        found.append([state.rho, state.rhobar, state.zeta])
    claim = (
        r"The rotations annihilate: $\rho_i$, $\bar\rho_i$ and $\zeta_i$ are those of "
        r"$B = QR$ and $R^T = \bar Q \bar R$."
    )
    example = rf"$\alpha = {alphas}$ and $\beta = {betas}$"
    found = torch.tensor(found, dtype=torch.float64).T
    return Finding(claim, found, wanted, example, tolerance=1e-12)


def _positive_qr(M: Tensor) -> tuple[Tensor, Tensor]:
    Q, R = torch.linalg.qr(M)
    signs = R.diag().sign()
    return Q * signs, signs[:, None] * R


# The linearisation


def normal_map(problem: Subproblem, p: Blocks) -> Blocks:
    """Return (A'A + lambda^2 I) p, the product of CG, for the norm "identity"."""
    Gp = problem.point.transpose_map(problem.point.forward_map(p))
    return add(Gp, problem.options.damping**2, p)


def normal_rhs(problem: Subproblem) -> Blocks:
    """Return A'b, the negative gradient of the batch's loss."""
    return problem.point.transpose_map(problem.b)


def adjoint(point: object, d: Blocks, U: Tensor) -> Finding:
    r"""Judge whether A and A' of a linearisation are adjoint, for one pair d, U.

    $\langle A d, U \rangle = \langle d, A^T U \rangle$, relative to $|A d| |U|$.
    """
    Ad = point.forward_map(d)
    left, right = (Ad * U).sum(), dot(d, point.transpose_map(U))
    size = Ad.norm() * U.norm()
    claim = (
        r"$A$ and $A^T$ are adjoint, $\langle Ad, U\rangle = \langle d, A^T U\rangle$."
    )
    example = f"{len(d)} layers and {len(U)} rows"
    return Finding(claim, right / size, left / size, example, tolerance=1e-12)


def derivative(net: nn.Module, X: Tensor, T: Tensor, d: Blocks) -> Finding:
    """Judge whether A d is torch.func's derivative of the residual along d."""
    names = [name for name, _ in net.named_parameters()]

    def residual(*weights: Tensor) -> Tensor:
        named = dict(zip(names, weights, strict=True))
        return (functional_call(net, named, (X,)) - T) / math.sqrt(len(X))

    _, wanted = jvp(residual, tuple(p.detach() for p in net.parameters()), tuple(d))
    found = linearise(net, X, T).forward_map(d)
    claim, example = "$A d$ is the derivative of $R$ along $d$.", f"{len(X)} rows"
    return Finding(claim, found, wanted, example, tolerance=1e-12)


def per_example_gradients(
    net: nn.Module, X: Tensor, T: Tensor, U: Tensor | None = None
) -> Tensor:
    """Return grad f_i as row i, or J_i' u_i with U, by an explicit loop."""
    rows = []
    for i in range(len(X)):
        out = net(X[i : i + 1])
        seed = (out - T[i : i + 1]).detach() if U is None else U[i : i + 1]
        grads = torch.autograd.grad(out, list(net.parameters()), seed)
        rows.append(joined(grads))
    return torch.stack(rows)


def dense(matrix_free: Callable, like: Blocks) -> Tensor:
    """Return the matrix of an operator on tuples, column by column."""
    columns = []
    for block in range(len(like)):
        for entry in range(like[block].numel()):
            e = [torch.zeros_like(t) for t in like]
            e[block].view(-1)[entry] = 1
            columns.append(matrix_free(tuple(e)).reshape(-1))
    return torch.stack(columns, 1)


def unbiased_diagonal(net: nn.Module, X: Tensor) -> Finding:
    """Judge whether the estimate of diag(A'A) is right in the mean over all signs.

    There are 2^(n m) patterns for n rows of m outputs.
    """
    point = linearise(net, X)
    shape = point.residual.shape
    patterns = itertools.product([-1.0, 1.0], repeat=point.residual.numel())
    draws = [
        joined(diagonal_estimate(point, torch.tensor(signs).to(X).reshape(shape)))
        for signs in patterns
    ]
    A = dense(point.forward_map, point.weights)
    claim = "The mean of the estimate over all signs is the diagonal of $A^T A$."
    found, example = torch.stack(draws).mean(0), f"all {len(draws)} patterns of signs"
    return Finding(claim, found, A.square().sum(0), example, tolerance=1e-12)


# The batch rule


def gradient_noise(net: nn.Module, X: Tensor) -> Finding:
    """Judge the variance and the squared norm of the gradient by an explicit loop."""
    G = per_example_gradients(net, X, X)
    found = G.new_tensor(batch_gradient_variance(linearise(net, X)))
    wanted = torch.stack([G.var(0, unbiased=True).sum(), G.mean(0).square().sum()])
    claim = "$V$ is the sample variance of one example's gradient."
    return Finding(claim, found, wanted, f"{len(X)} rows", tolerance=1e-10)


def least_batch(cases: Iterable[tuple[float, float, int, float]]) -> Finding:
    r"""Judge whether :func:`~labkit.hessian_free.next_batch_size` is the least of all.

    Equation (14), with the square, in exact arithmetic:
    $\frac{V}{n} \cdot \frac{N - n}{N - 1} \le \theta^2 |\nabla f|^2$.

    Parameters
    ----------
    cases : iterable of arguments, V, |grad f|^2, N and theta
    """
    cases = list(cases)
    found = [next_batch_size(V, g2, N, theta) for V, g2, N, theta in cases]
    wanted = [_least(V, g2, N, theta) for V, g2, N, theta in cases]
    claim = r"$\hat n$ is the least batch whose noise is within $\theta^2|\nabla f|^2$."
    example = r"$(V, |\nabla f|^2, N, \theta)$ = " + ", ".join(map(str, cases))
    sides = torch.tensor(found).double(), torch.tensor(wanted).double()
    return Finding(claim, *sides, example, tolerance=0.0)


def _least(V: float, g2: float, N: int, theta: float) -> int:
    """Return the least batch that meets the test, by bisection in exact fractions."""
    v, limit = Fraction(V), Fraction(theta) ** 2 * Fraction(g2)
    sizes = range(1, N)
    return 1 + bisect_left(
        sizes, True, key=lambda n: v * (N - n) <= limit * n * (N - 1)
    )
