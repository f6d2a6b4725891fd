r"""What a step of recursive least squares must fulfil, on a small example.

Each function takes steps of the library in float64 and returns a
:class:`~labkit.theorems.Finding`. No constant is 1 and all sizes differ: N = 3 units,
n = 5 inputs.
"""

import torch
from torch import Tensor

from labkit.rls.update import clip_factor, rls_step
from labkit.theorems import Finding, drawn

RULE = {"forgetting": 0.9, "mean_weight": 0.3, "steps": 4}
SAID = r"$n = 5$ inputs, $N = 3$ units, $\lambda = 0.9$, $k = 0.3$, $T = 4$"
N_UNITS = 3
N_INPUTS = 5


def first_P(seed: int = 0, n: int = N_INPUTS) -> Tensor:
    """Draw a symmetric positive definite P that is no multiple of the identity."""
    A = drawn(n, n, seed=seed)
    P = A @ A.T / n + 0.5 * torch.eye(n, dtype=torch.float64)
    return (P + P.T) / 2  # symmetric to the last bit


def first_theta() -> Tensor:
    """Draw weights (N, n), of which one is 0."""
    theta = drawn(N_UNITS, N_INPUTS, seed=1)
    theta[1, 2] = 0  # sgn(0) = 0
    return theta


def minibatch(s: int) -> tuple[Tensor, Tensor]:
    """Draw the mean input (n,) and the gradient (N, n) of step s."""
    return drawn(N_INPUTS, seed=s + 1), drawn(N_UNITS, N_INPUTS, seed=s + 20)


def inverse_of_autocorrelation(
    n: int = N_INPUTS,
    seed: int = 0,
    count: int = 3,
    *,
    forgetting: float = RULE["forgetting"],
    mean_weight: float = RULE["mean_weight"],
    steps: int = RULE["steps"],
) -> Finding:
    r"""P is the inverse of $A_s = \lambda A_{s-1} + k T \bar x \bar x^\top$ (35).

    It is compared after ``count`` steps, as $P_s A_s = I$, whatever the rate, the
    momentum and the clip are.
    """
    P = first_P(seed, n)
    A = torch.linalg.inv(P)
    theta = torch.zeros(1, n).double()
    for s in range(count):
        x = drawn(n, seed=seed + s + 1)
        rls_step(
            theta,
            P,
            x,
            torch.zeros_like(theta),
            forgetting=forgetting,
            mean_weight=mean_weight,
            steps=steps,
            velocity=torch.zeros_like(theta),
            momentum=0.6,
            lr=0.7,
            clip=0.8,
        )
        A = forgetting * A + mean_weight * steps * torch.outer(x, x)
    claim = (
        r"$P_s$ is the inverse of $A_s = \lambda A_{s-1} + k T\,\bar x \bar x^\top$, "
        r"so that $P_s A_s = I$."
    )
    example = (
        rf"$n = {n}$ inputs, $\lambda = {forgetting:.3g}$, $k = {mean_weight:.3g}$"
    )
    example += f", $T = {steps}$, {count} steps"
    return Finding(claim, P @ A, torch.eye(n).to(P), example)


def P_stays_symmetric(count: int = 3) -> Finding:
    """P is equal to its transpose to the last bit, after each of ``count`` steps."""
    P, theta = first_P(), first_theta()
    apart = []
    for s in range(count):
        x, G = minibatch(s)
        rls_step(theta, P, x, G, **RULE)
        apart.append((P - P.T).abs().max())
    found = torch.stack(apart)
    claim = r"$P_s$ is symmetric to the last bit, $P_s = P_s^\top$."
    example = f"{SAID}, {count} steps"
    return Finding(claim, found, torch.zeros_like(found), example, tolerance=0.0)


def gain_is_the_new_P_on_the_input(count: int = 3) -> Finding:
    r"""The gain $u / h$ is the new P times the mean input, and h is returned.

    By the matrix inversion lemma, $P_s \bar x = u / h$ with $u = P_{s-1} \bar x$. It
    follows that $h = \lambda + k T \bar x^\top P_{s-1} \bar x$.
    """
    P, theta = first_P(), first_theta()
    found, wanted = [], []
    for s in range(count):
        x, G = minibatch(s)
        u = P @ x
        h = rls_step(theta, P, x, G, **RULE)
        found.append(h * (P @ x))
        wanted.append(u)
    claim = (
        r"The new $P_s$ takes $\bar x$ to the gain: $h\,P_s \bar x = P_{s-1}\bar x$."
    )
    example = f"{SAID}, {count} steps"
    return Finding(claim, torch.stack(found), torch.stack(wanted), example)


def weights_follow_the_gradient_times_P(count: int = 3) -> Finding:
    r"""Without momentum a step moves theta by $-\tfrac{\eta}{h} \nabla P_{s-1}$, (99).

    h is computed here from P, which is the inverse of the autocorrelation by
    :func:`inverse_of_autocorrelation`.
    """
    P, theta = first_P(), first_theta()
    eta, found, wanted = 0.7, [], []
    for s in range(count):
        x, G = minibatch(s)
        h = RULE["forgetting"] + RULE["mean_weight"] * RULE["steps"] * x @ P @ x
        before, P_before = theta.clone(), P.clone()
        rls_step(theta, P, x, G, lr=eta, **RULE)
        found.append(h * (theta - before))
        wanted.append(-eta * G @ P_before)
    claim = (
        r"Without momentum, a step moves the weights by $-\tfrac{\eta}{h}\nabla "
        r"P_{s-1}$ with $h = \lambda + kT\,\bar x^\top P_{s-1}\bar x$."
    )
    example = rf"{SAID}, $\eta = 0.7$, {count} steps"
    return Finding(claim, torch.stack(found), torch.stack(wanted), example)


def momentum_is_the_sum_of_earlier_steps(count: int = 4) -> Finding:
    r"""Momentum sums the plain steps, $\Omega_s = \sum_r \alpha^{s-r} \Delta_r$ (99).

    $\Delta_r = -\tfrac{\eta}{h_r} \nabla_r P_{r-1}$ is what :func:`rls_step` adds
    without momentum. The sum of all $\Omega_s$ is how far the weights have moved.
    """
    alpha, eta = 0.6, 0.7
    P, theta = first_P(), first_theta()
    start, velocity = theta.clone(), torch.zeros_like(theta)
    sums, moved = torch.zeros_like(theta), torch.zeros_like(theta)
    for s in range(count):
        x, G = minibatch(s)
        h = RULE["forgetting"] + RULE["mean_weight"] * RULE["steps"] * x @ P @ x
        sums = alpha * sums - eta / h * (G @ P)
        moved += sums
        rls_step(theta, P, x, G, velocity=velocity, momentum=alpha, lr=eta, **RULE)
    claim = (
        r"$\Omega_s$ is the sum of the earlier steps, the one $r$ steps ago times "
        r"$\alpha^r$, and the weights move by $\Omega_s$."
    )
    example = rf"{SAID}, $\alpha = 0.6$, $\eta = 0.7$, {count} steps"
    found = torch.stack([velocity, theta - start])
    return Finding(claim, found, torch.stack([sums, moved]), example)


def l1_acts_without_a_gradient(count: int = 2) -> Finding:
    r"""Where the gradient is 0, a step adds $-\gamma\,\mathrm{sgn}(\Theta) P_s$."""
    gamma = 0.02
    P, theta = first_P(), first_theta()
    found, wanted = [], []
    for s in range(count):
        (x, _), before = minibatch(s), theta.clone()
        rls_step(theta, P, x, torch.zeros_like(theta), l1=gamma, **RULE)
        found.append((theta - before) / gamma)
        wanted.append(-before.sign() @ P)
    claim = (
        r"Without a gradient, a step adds $-\gamma\,\mathrm{sgn}(\Theta_{s-1})\,P_s$, "
        r"with the new $P_s$."
    )
    example = rf"{SAID}, $\gamma = 0.02$, {count} steps"
    return Finding(claim, torch.stack(found), torch.stack(wanted), example)


def a_clip_is_a_scaled_gradient(count: int = 2) -> Finding:
    """A gradient of norm g above the limit L acts as the gradient times L / g.

    Weights, a velocity and P are compared with those of steps by the scaled gradient.
    """
    limit, states = 0.8, []
    for clipped in (True, False):
        P, theta = first_P(), first_theta()
        velocity = torch.zeros_like(theta)
        for s in range(count):
            x, G = minibatch(s)
            norm = torch.linalg.vector_norm(G)
            factor = clip_factor(norm, limit) if clipped else 1.0
            G = G if clipped else G * limit / (norm + 1e-6)
            rls_step(
                theta, P, x, G, velocity=velocity, momentum=0.6, clip=factor, **RULE
            )
        states.append(torch.cat([theta, velocity, P]))
    claim = (
        r"A gradient whose norm $g$ is above the limit $L$ acts as that gradient times "
        r"$L / g$, and $P$ does not notice."
    )
    example = f"{SAID}, $L = 0.8$, {count} steps"
    return Finding(claim, *states, example)


THEOREMS = {
    theorem.__name__: theorem
    for theorem in (
        inverse_of_autocorrelation,
        P_stays_symmetric,
        gain_is_the_new_P_on_the_input,
        weights_follow_the_gradient_times_P,
        momentum_is_the_sum_of_earlier_steps,
        l1_acts_without_a_gradient,
        a_clip_is_a_scaled_gradient,
    )
}
