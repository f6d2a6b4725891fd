"""Right and wrong answers to questions; those to exercises are in ``lines.txt``."""

import torch


class Decayed(torch.optim.Optimizer):
    """Steps by the sign of a running mean, and a decay of the weights."""

    def __init__(self, params, lr, weight_decay=0.0):
        super().__init__(params, {"lr": lr, "weight_decay": weight_decay})

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            for p in group["params"]:
                mean = self.state[p].setdefault("mean", torch.zeros_like(p))
                mean.mul_(0.9).add_(p.grad, alpha=0.1)
                self.move(p, mean.sign(), group["lr"], group["weight_decay"])

    def move(self, p, sign, lr, weight_decay):
        p.mul_(1 - lr * weight_decay).sub_(lr * sign)


class Joined(Decayed):
    def move(self, p, sign, lr, weight_decay):
        p.sub_(lr * (sign + weight_decay * p))


class Later(Decayed):
    def move(self, p, sign, lr, weight_decay):
        p.sub_(lr * sign).mul_(1 - lr * weight_decay)


def two_solves(A, b, x0, damping):
    B = A.T @ A + damping**2 * torch.eye(len(x0)).to(A)
    zero = torch.linalg.solve(B, A.T @ b)
    start = x0 + torch.linalg.solve(B, A.T @ (b - A @ x0))
    return (start - zero).norm() / zero.norm()


def inverted(A, b, x0, damping):
    B = torch.linalg.inv(A.T @ A + damping**2 * torch.eye(len(x0)).to(A))
    return float(damping**2 * (B @ x0).norm() / (B @ A.T @ b).norm())


RIGHT_ANSWERS = {
    "rls-curve": [
        lambda k, q, s: 1 + k * q / (1 + (s - 1) * k * q),
        lambda k, q, s: torch.tensor(1 + 1 / (1 / (k * q) + s - 1)),
    ],
    "bpls-width": [lambda M, J: min(M, J), lambda M, J: (M + J - abs(M - J)) // 2],
    "hessian_free-start": [two_solves, inverted],
    "broad-drop": [
        lambda F, AY, k: F[:k, :k] @ (F[:k, :k].T @ AY[:k]),
        lambda F, AY, k: sum(torch.outer(f, f @ AY[:k]) for f in F[:k, :k].T).tolist(),
    ],
    "rtrl-variance": [lambda S: S - 1, lambda S: torch.tensor(S * (1 - 1 / S))],
    "compare-rank": [lambda T: T, lambda T: T * 1.0],
    "compare-noise": ["RLS"],
    "compare-decay": [Decayed, Joined],
}
WRONG_ANSWERS = {
    "rls-curve": [
        (lambda k, q, s: 1 + k * q / (1 + s * k * q), "wrong", "your answer"),
        (lambda k, q, s: [k, q], "shape", "a tensor of shape (2,), and has to be"),
        (lambda k, q: 1 + k * q, "error", "takes 2 positional arguments"),
        (lambda k, q, s: 1 + k * q / (s - 1), "error", "division by zero"),
    ],
    "bpls-width": [
        (lambda M, J: J, "wrong", "7, 3: 3, your answer 3"),
        (lambda M, J: max(M, J), "wrong", "your answer"),
        (10, "error", "This is the Python int 10"),
        (lambda M, J: "M", "shape", "of the type str"),
    ],
    "hessian_free-start": [
        (lambda A, b, x0, damping: x0.norm() / b.norm(), "wrong", "your answer"),
        (lambda A, b, x0, damping: x0, "shape", "a tensor of shape (8,)"),
        (lambda A, b, x0, damping: A @ b, "error", "`A` is a tensor of shape (11, 8)"),
    ],
    "broad-drop": [
        (lambda F, AY, k: F[:k, :k] @ AY[:k], "wrong", "your answer a tensor"),
        (lambda F, AY, k: F[:k] @ (F.T @ AY), "wrong", "your answer a tensor"),
        (lambda F, AY, k: F @ F.T @ AY, "shape", "of shape (12, 2), and has to be a"),
        (lambda F, AY, k: F[:k] @ AY[:k], "error", "`AY` is a tensor of shape (12, 2)"),
    ],
    "rtrl-variance": [
        (lambda S: S, "wrong", "2: 1, your answer 2"),
        (lambda S: S**2 - 1, "wrong", "your answer"),
        (lambda S: S + "1", "error", "unsupported operand"),
        (len, "error", "of the type builtin"),
    ],
    "compare-rank": [
        (lambda T: T - 1, "wrong", "your answer"),
        (lambda T: 6, "wrong", "your answer 6"),
        (lambda T: None, "shape", "is None"),
    ],
    "compare-noise": [
        ("SGD", "wrong", "RLS, your answer SGD"),
        ("Muon", "error", "The rules are SGD, Adam, RLS"),
        (3, "error", "got 3"),
    ],
    "compare-decay": [
        (Later, "wrong", "your answer"),
        (torch.optim.SGD, "wrong", "your answer"),
        (torch.zeros(2), "error", "subclass of torch.optim.Optimizer"),
        (torch.optim.LBFGS, "error", "weight_decay"),
    ],
}
