"""Right and wrong answers: what learners may write in the place of a blank."""

import torch

OUTER = "mean_weight * steps / h * torch.outer(u, u)"
NEW_P = f"P_new = (P - {OUTER}) / forgetting\nP.copy_(P_new)"
N_HAT = "population * V / (V + t**2 * (population - 1) * g2)"
RHO0 = "rho0 = balance(norm(v, 2)[..., 0], norm(Hu, 1))"
RHO1 = "rho1 = balance(norm(w, 2)[..., 0], norm(signs, 1))"
MOVE = "move = (R * w).sum(-1) * scale[..., i, None]"
LEFT = "R = R - move[..., None] * w"
SVD = "\nU, d, V = svd(C)"

RIGHT = {
    "rls-P": [
        NEW_P,
        "P.copy_(1 / forgetting * P - mean_weight * steps / (forgetting * h) * "
        "torch.outer(u, u))",
        "P_new = P / forgetting - mean_weight * steps / (forgetting * h) * u[:, None] "
        "* u\nP.copy_(P_new)",
        "P_new = torch.addr(P, u, u, alpha=-mean_weight * steps / h.item())\n"
        "P.copy_(P_new / forgetting)",
        "A = forgetting * torch.linalg.inv(P)\n"
        "P.copy_((A + mean_weight * steps * torch.outer(x_mean, x_mean)).inverse())",
        "P.sub_(torch.outer(u, u) * mean_weight * steps / h).div_(forgetting)",
        "v = u * (mean_weight * steps / (forgetting * h)).sqrt()\n"
        "P.div_(forgetting).addcmul_(v[:, None], v, value=-1)",
        "P[:] = (P - torch.einsum('i,j->ij', u, u) * (mean_weight * steps) / h) / "
        "forgetting",
        "g = u / h\nP.copy_((P - mean_weight * steps * torch.outer(g, x_mean) @ P) / "
        "forgetting)",
        "k = u * steps * mean_weight / h\none = torch.eye(len(u), dtype=u.dtype)\n"
        "P.copy_((one - k[:, None] * x_mean) @ P / forgetting)",
        "for i in range(len(u)):\n"
        "    P[i] = (P[i] - mean_weight * steps * u[i] * u / h) / forgetting",
    ],
    "rls-clip": [
        "h_clipped = h / clip",
        "h_clipped = h * clip**-1",
        "h_clipped = torch.div(h, clip)",
        "h_clipped = (1 / clip) * h",
        "h_clipped = h / torch.as_tensor(clip)",
        "h_clipped = h.clone().div_(clip)",
        "h_clipped = (forgetting + mean_weight * steps * (x_mean @ u)) / clip",
        "preconditioned = preconditioned * clip\nh_clipped = h",
        "h_clipped = h\nif clip != 1:\n    h_clipped = h / clip",
        "h_clipped = torch.reciprocal(clip / h)",
        "divisor = h / clip\nh_clipped = divisor",
    ],
    "bpls-targets": [
        "return H + R @ inverse",
        "return torch.addmm(H, R, inverse)",
        "return (inverse.mT @ R.mT).mT + H",
        "return H + torch.einsum('ij,jk->ik', R, inverse)",
        "return H + R @ torch.linalg.solve(W.mT @ W, W.mT)",
        "return H + torch.linalg.lstsq(W.mT, R.mT, driver='gelsd').solution.mT",
        "return B @ inverse + H - H @ W @ inverse",
        "change = R @ torch.linalg.pinv(W)\nreturn change.add_(H)",
        "result = H.clone()\nresult += R.matmul(inverse)\nreturn result",
        "Q, S = torch.linalg.qr(W)\nreturn H + R @ torch.linalg.inv(S) @ Q.mT",
        "return H + sum(torch.outer(R[:, j], inverse[j]) for j in range(R.shape[1]))",
    ],
    "bpls-neurons": [
        f"{MOVE}\n{LEFT}",
        "move = torch.einsum('dj,j->d', R, W[i]) * scale[i]\n"
        "R = R - torch.outer(move, W[i])",
        "move = (R @ w.mT)[..., 0] * scale[..., i, None]\n"
        "R = R - move.unsqueeze(-1) @ w",
        "move = (R * (scale[..., i, None, None] * w)).sum(-1)\n"
        "R = torch.addcmul(R, move[..., None], w, value=-1)",
        "move = R @ W[i] / W[i].square().sum()\nR = R - move[:, None] * W[i]",
        "move = R @ w[0] * scale[i]\n"
        "R = R @ (torch.eye(w.shape[-1]).to(w) - w.mT @ w * scale[i])",
        f"move = (R * w).mean(-1) * w.shape[-1] * scale[..., i, None]\n{LEFT}",
        "move = torch.linalg.lstsq(w.mT, R.mT, driver='gelsd').solution[0]\n" + LEFT,
        "unit = W[i] / W[i].norm()\nmove = R @ unit / W[i].norm()\n"
        "R = R - torch.outer(R @ unit, unit)",
        "move = R.matmul(W[i]).mul(scale[i])\nR = R.sub(move.unsqueeze(1).mul(w))",
        "amount = R @ W[i] / (W[i] @ W[i])\nmove = amount\nR = R - amount.outer(W[i])",
    ],
    "hessian_free-adjoint": [
        "return tuple(S.T @ F_l for S, F_l in pairs)",
        "return tuple(torch.mm(S.T, F_l) for S, F_l in pairs)",
        "return tuple(torch.einsum('ni,nj->ij', S, F_l) for S, F_l in pairs)",
        "return tuple((F_l.T @ S).T for S, F_l in pairs)",
        "return tuple(S.mT.matmul(F_l) for S, F_l in pairs)",
        "return [S.T @ F_l for S, F_l in pairs]",
        "found = ()\nfor S, F_l in pairs:\n    found += (S.T @ F_l,)\nreturn found",
        "return tuple(sum(map(torch.outer, S, F_l)) for S, F_l in pairs)",
        "return tuple(torch.tensordot(S, F_l, ([0], [0])) for S, F_l in pairs)",
        "return tuple(map(lambda pair: pair[0].T @ pair[1], pairs))",
        "return tuple((S[:, :, None] * F_l[:, None]).sum(0) for S, F_l in pairs)",
    ],
    "hessian_free-batch": [
        f"n = math.ceil({N_HAT})",
        "n = -(-population * V // (V + t * t * g2 * (population - 1)))",
        "bound = t**2 * g2\n"
        "n = math.ceil(V / ((V + (population - 1) * bound) / population))",
        "n = math.ceil(Fraction(population) * V / (V + g2 * t**2 * (population - 1)))",
        f"n = int({N_HAT})\n"
        "if V * (population - n) > t**2 * g2 * n * (population - 1):\n    n += 1",
        f"q = {N_HAT}\nn = q.numerator // q.denominator + (q.denominator > 1)",
        "n = math.ceil(V * population * (V + g2 * (population - 1) * t**2) ** -1)",
        f"n = -math.floor(-({N_HAT}))",
        "n, rest = divmod(population * V, V + t**2 * (population - 1) * g2)\n"
        "n += rest > 0",
        f"n = int(math.ceil({N_HAT}))",
        f"n = math.ceil({N_HAT})\nassert n <= population",
    ],
    "broad-chol1": [
        "T = -F @ V @ G",
        "T = torch.einsum('ij,jk,kl->il', F, V, G).neg()",
        "T = (V @ -G).T.mm(F.T).T",
        "T = -torch.linalg.multi_dot([F, V, G])",
        "T = -(F @ (V @ G))",
        "T = F @ V @ G * -1",
        "T = torch.zeros_like(V) - F @ V @ G",
        "T = -F.matmul(V).matmul(G)",
        "T = -F @ F.T @ P @ G",
        "R = A.T @ A + state.ridge * torch.eye(len(F)).to(F)\n"
        "T = -torch.linalg.solve(R, P) @ G",
        "T = torch.linalg.solve(torch.linalg.inv(F), -V @ G)",
    ],
    "broad-greville": [
        "A_dagger = torch.cat([A_dagger - D @ B, B])",
        "A_dagger = torch.vstack([torch.addmm(A_dagger, D, B, alpha=-1), B])",
        "A_dagger = torch.cat([A_dagger - torch.einsum('kq,ql->kl', D, B), B])",
        "A_dagger = torch.cat([A_dagger @ (torch.eye(len(H)).to(H) - H @ B), B])",
        "A_dagger = torch.cat((A_dagger + -D @ B, B), dim=0)",
        "A_dagger = torch.concat([A_dagger.sub(D.mm(B)), B])",
        "below = torch.cat([-D, torch.eye(len(B)).to(B)])\n"
        "A_dagger = torch.nn.functional.pad(A_dagger, (0, 0, 0, len(B))) + below @ B",
        "upper = A_dagger - D @ B\nA_dagger = torch.cat([upper, B], 0)",
        "A_dagger = torch.linalg.pinv(torch.cat([A, H], 1))",
        "k = len(A_dagger)\nnew = torch.empty(k + len(B), B.shape[1]).to(B)\n"
        "new[:k], new[k:] = A_dagger - D @ B, B\nA_dagger = new",
        "A_dagger = torch.cat([A_dagger.T - B.T @ D.T, B.T], 1).T",
    ],
    "rtrl-uoro-factors": [
        f"{RHO0}\n{RHO1}",
        "rho0 = (norm(v, 2)[..., 0] / norm(Hu, 1)).sqrt().nan_to_num(1, 1)\n"
        "rho0 = rho0.where(rho0 > 0, 1)\nrho1 = balance(norm(w.flatten(1), 1), "
        "norm(signs, 1))",
        "lengths = [x.flatten(1).norm(dim=1, keepdim=True) for x in (v, Hu, w, nu)]\n"
        "rho0, rho1 = balance(*lengths[:2]), balance(*lengths[2:])",
        "rho0 = balance(v.flatten(1).norm(dim=1)[:, None], norm(Hu, 1))\n" + RHO1,
        "rho1 = torch.ones_like(signs[:, :1])\nrho0 = balance(norm(v, 2)[..., 0] * "
        "norm(signs, 1), norm(Hu, 1) * norm(w, 2)[..., 0])",
        "rho0 = balance(norm(v, 2).squeeze(-1), norm(Hu, 1))\n"
        "rho1 = balance(norm(w, 2).squeeze(-1), norm(nu, 2).squeeze(-1))",
        f"{RHO0}\nrho1 = balance(norm(w, 2)[..., 0], norm(Hu, 1) * 0 + "
        "signs.shape[1] ** 0.5)",
        f"{RHO0} * 2\n{RHO1} * 2",
        "rho0, rho1 = (balance(norm(a, 2)[..., 0], norm(b, 1)) for a, b in ((v, Hu), "
        "(w, signs)))",
        "rho0 = 1 / balance(norm(Hu, 1), norm(v, 2)[..., 0])\n"
        "rho1 = 1 / balance(norm(signs, 1), norm(w, 2)[..., 0])",
        f"{RHO0}\n{RHO1}\nreturn rho0 * Hu + rho1 * signs, v / rho0[..., None] + w / "
        "rho1[..., None]",
    ],
    "rtrl-ok-C": [
        "C = L @ R.mT" + SVD,
        "C = torch.einsum('bik,bjk->bij', L, R)" + SVD,
        "C = L.matmul(R.transpose(1, 2))" + SVD,
        "C = (R @ L.mT).mT" + SVD,
        "C = torch.bmm(L, R.mT)" + SVD,
        "C = (L[:, :, None] * R[:, None]).sum(-1)" + SVD,
        "C = sum(L[..., i, None] * R[..., None, :, i] for i in range(L.shape[-1]))"
        + SVD,
        "C = torch.stack([one @ other.T for one, other in zip(L, R)])" + SVD,
        "C = roots[0] @ roots[1].mT" + SVD,
        "C = torch.matmul(L, R.swapaxes(-1, -2))" + SVD,
        "U, d, V = svd(L @ R.mT)",
    ],
}

# What stands in the blank, the kind of the judgement, and words in it; a kind with
# "slip" wants the slip whose words these are, and any other kind wants none.
WRONG = {
    "rls-P": [
        (NEW_P.replace("P - ", "P + "), "slip", "is added and not taken off"),
        (f"P.copy_(P / forgetting - {OUTER})", "slip", "only the first term"),
        ("P.div_(forgetting)", "slip", "rank one is left out"),
        (f"P.sub_({OUTER})", "slip", "nothing is divided by `forgetting`"),
        (NEW_P.replace("(u, u)", "(x_mean, x_mean)"), "slip", "in the place of `u`"),
        (NEW_P.replace("torch.outer(u, u)", "(u @ u)"), "wrong", "inverse of"),
        (NEW_P.replace("(u, u)", "(u, x_mean)"), "wrong", "inverse of"),
        (NEW_P.partition("\n")[0], "wrong", "does not hold"),
        (NEW_P.replace("/ h", "/ h**2"), "wrong", "does not hold"),
        (NEW_P.replace("mean_weight", "mean_wieght"), "error", "mean_wieght"),
        (NEW_P + "\nreturn float(h)", "shape", "is the Python float"),
        (NEW_P + "\nreturn u", "shape", "is a tensor of shape (5,), and has to be a"),
        (NEW_P + "\nx_mean.mul_(2)", "shape", "changes `x_mean`"),
        ("while True:\n    P.copy_(P)", "error", "loop without an end"),
    ],
    "rls-clip": [
        ("h_clipped = h * clip", "slip", "so that the step grows"),
        ("h_clipped = h", "slip", "the clip is left out"),
        ("h_clipped = h / clip**2", "slip", "acts twice"),
        ("h_clipped = torch.ones_like(h) / clip", "slip", "`h` is left out"),
        ("h_clipped = h - clip", "wrong", "does not hold"),
        ("h_clipped = clip / h", "wrong", "does not hold"),
        ("h_clipped = h / clip**0.5", "wrong", "does not hold"),
        ("h = h / clip\nh_clipped = h", "wrong", "does not hold"),
        ("h_clipped = h.div_(clip)", "wrong", "does not hold"),
        ("h_clipped = None", "error", "`h_clipped` is None"),
        ("h_clipped = float(h / clip)", "error", "`h_clipped` is the Python float"),
        ("gradient.mul_(clip)\nh_clipped = h", "shape", "changes `gradient`"),
    ],
    "bpls-targets": [
        ("return H - R @ inverse", "slip", "the wrong sign"),
        ("return R @ inverse", "slip", "values that are there are left out"),
        ("return H + B @ inverse", "slip", "the targets `B` stand"),
        ("return H + R @ W.mT", "slip", "the transpose of `W`"),
        ("return H + 0.5 * R @ inverse", "slip", "halved"),
        ("return H", "wrong", "the layer above is right"),
        ("return 1.1 * (H + R @ inverse)", "wrong", "the layer above is right"),
        ("return H + R @ inverse.mT", "error", "`inverse` is a tensor of shape (3, 5)"),
        ("return (H + R @ inverse).mT", "shape", "(5, 11), and has to be"),
        ("return (H + R @ inverse).float()", "shape", "in torch.float32"),
        ("return", "shape", "is None, and has to be a tensor"),
        ("return H.add_(R @ inverse)", "shape", "changes `H`"),
    ],
    "bpls-neurons": [
        (f"move = -{MOVE[7:]}\n{LEFT}", "slip", "the move has the wrong sign"),
        (f"{MOVE}\nR = R + move[..., None] * w", "slip", "grows by what was repaired"),
        (f"{MOVE}\nR = R", "slip", "the residual stays as it was"),
        (f"move = R @ W[i]\n{LEFT}", "slip", "not divided by"),
        (f"move = R @ W[i] / W[i].norm()\n{LEFT}", "slip", "not by its square"),
        (f"{MOVE}\n{LEFT} / 2", "wrong", "does not hold"),
        (f"move = R[:, 0] * scale[i]\n{LEFT}", "wrong", "does not hold"),
        (f"move = R.sum(-1) * scale[i]\n{LEFT}", "wrong", "does not hold"),
        (f"{MOVE}\nR = R - move * w", "error", "`move` is a tensor of shape (11,)"),
        (f"{MOVE[:-1]}, None]\n{LEFT}", "shape", "and has to be"),
        (f"{MOVE}\nR -= move[..., None] * w", "shape", "changes `R`"),
        (f"{MOVE}\n{LEFT}\nreturn move", "shape", "(11,), and has to be"),
    ],
    "hessian_free-adjoint": [
        ("return tuple(-S.T @ F_l for S, F_l in pairs)", "slip", "sign is turned"),
        ("return tuple(S.T @ F_l / len(S) for S, F_l in pairs)", "slip", "$1 / n$"),
        (
            "return tuple(S.T @ F_l / self.n**0.5 for S, F_l in pairs)",
            "slip",
            "stands there twice",
        ),
        (
            "return tuple(torch.outer(S[0], F_l[0]) for S, F_l in pairs)",
            "slip",
            "first row alone",
        ),
        ("return tuple(2 * S.T @ F_l for S, F_l in pairs)", "wrong", "are adjoint"),
        ("return tuple(S.T @ F_l.abs() for S, F_l in pairs)", "wrong", "are adjoint"),
        ("return tuple(S.T @ F_l.relu() for S, F_l in pairs)", "wrong", "are adjoint"),
        ("return tuple(S @ F_l for S, F_l in pairs)", "error", "`F_l` is a tensor"),
        ("return tuple(F_l.T @ S for S, F_l in pairs)", "shape", "part 1, is a tensor"),
        ("return (S.T @ F_l for S, F_l in pairs)", "shape", "of the type generator"),
        ("return None", "shape", "is None, and has to be a tuple of 4"),
        ("return tuple(S.T @ F_l for S, F_l in pairs)[1:]", "shape", "a tuple of 3"),
    ],
    "hessian_free-batch": [
        (f"n = math.floor({N_HAT})", "slip", "rounded down"),
        (f"n = math.ceil({N_HAT.replace('t**2', 't')})", "slip", "is not squared"),
        (
            f"n = math.ceil({N_HAT.replace('(population - 1)', 'population')})",
            "slip",
            "$N - 1$",
        ),
        (f"n = math.ceil({N_HAT.replace(' * g2', '')})", "slip", "norm is left out"),
        ("n = math.ceil(V / (t**2 * g2))", "slip", "without replacement"),
        (f"n = math.ceil({N_HAT.replace('g2', 'g2**0.5')})", "wrong", "least batch"),
        (f"n = round({N_HAT})", "wrong", "least batch"),
        (f"n = math.ceil({N_HAT}) + 1", "wrong", "least batch"),
        (f"n = {N_HAT}", "shape", "of the type Fraction"),
        (f"n = float({N_HAT})", "shape", "is the Python float"),
        (
            "n = math.ceil(population / (1 + t**2 * (population - 1) * g2 / V))",
            "error",
            "ZeroDivision",
        ),
        (f"n = ceil({N_HAT})", "error", "name 'ceil' is not defined"),
    ],
    "broad-chol1": [
        ("T = F @ V @ G", "slip", "minus is missing"),
        ("T = -F.T @ V @ G", "slip", "`F` is transposed"),
        ("T = -F @ V @ G.T", "slip", "`G` is transposed"),
        ("T = -V @ G", "slip", "`F` is left out"),
        ("T = -F @ V", "slip", "`G` is left out"),
        ("T = -F @ P @ G", "slip", "`P` stands"),
        ("T = -F @ V @ G / 2", "wrong", "does not hold"),
        ("T = 0 * V", "wrong", "the library cannot go on"),
        ("T = -V @ F @ G", "error", "`V` is a tensor of shape (5, 3)"),
        ("T = -(F @ V @ G).T", "error", "This line of yours"),
        ("T = 0.0", "error", "`T` is the Python float 0"),
        ("T = -F @ V @ G\nH.zero_()", "shape", "changes `H`"),
    ],
    "broad-greville": [
        ("A_dagger = torch.cat([A_dagger + D @ B, B])", "slip", "is added"),
        ("A_dagger = torch.cat([A_dagger, B])", "slip", "stay as they are"),
        ("A_dagger = torch.cat([B, A_dagger - D @ B])", "slip", "above the old ones"),
        ("A_dagger = torch.cat([A_dagger - D @ B, -B])", "slip", "wrong sign"),
        ("A_dagger = torch.cat([A_dagger - D @ B / 2, B])", "wrong", "does not hold"),
        ("A_dagger = torch.cat([A_dagger - B.T[:5], B])", "error", "`B` is a tensor"),
        (
            "A_dagger = torch.cat([A_dagger - D @ B, D.T @ A_dagger])",
            "wrong",
            "does not hold",
        ),
        ("A_dagger = torch.cat([0 * A_dagger, B])", "wrong", "does not hold"),
        ("A_dagger = torch.cat([A_dagger - D @ B, B], 1)", "error", "Sizes of tensors"),
        ("A_dagger = A_dagger - D @ B", "shape", "part A_dagger, is a tensor"),
        ("A_dagger = torch.cat([A_dagger - B @ D, B])", "error", "`D` is a tensor"),
        ("A_dagger = torch.cat([A_dagger.sub_(D @ B), B])", "shape", "changes `state`"),
    ],
    "rtrl-uoro-factors": [
        (f"rho0 = 1 / {RHO0[7:]}\n{RHO1}", "slip", "first factor is upside down"),
        (f"{RHO0}\nrho1 = 1 / {RHO1[7:]}", "slip", "second factor is upside down"),
        (f"{RHO0}\nrho1 = torch.ones_like(rho0)", "slip", "second factor is 1"),
        (f"rho0 = 0 * Hu[:, :1] + 1\n{RHO1}", "slip", "first factor is 1"),
        (f"{RHO0} ** 2\n{RHO1}", "slip", "first factor has no root"),
        (f"{RHO0}\n{RHO1} ** 2", "slip", "second factor has no root"),
        ("rho0 = rho1 = 0 * Hu[:, :1] + 1", "wrong", "the noise, least"),
        (f"{RHO0}\nrho1 = rho0", "wrong", "the noise, least"),
        (f"{RHO0} * 2\n{RHO1}", "wrong", "the noise, least"),
        (f"rho0 = (v.norm() / Hu.norm()) ** 0.5\n{RHO1}", "wrong", "nan on one side"),
        (f"{RHO0}[:, 0]\n{RHO1}", "error", "`rho0` is a tensor of shape (64,)"),
        (f"{RHO0}\n{RHO1}\nreturn rho0 * Hu + rho1 * signs", "shape", "a tuple of 2"),
    ],
    "rtrl-ok-C": [
        ("C = L.mT @ R" + SVD, "slip", "as the paper prints it"),
        ("C = L @ R" + SVD, "slip", "`R` is not transposed"),
        ("C = R @ L.mT" + SVD, "slip", "C is transposed"),
        ("C = L @ L.mT" + SVD, "slip", "`L` stands for `R`"),
        ("C = R @ R.mT" + SVD, "slip", "`R` stands for `L`"),
        ("C = -(L @ R.mT)" + SVD, "slip", "sign is turned"),
        ("C = L @ R.mT / 2" + SVD, "wrong", "the exact influence"),
        ("C = L * R" + SVD, "wrong", "the exact influence"),
        ("C = L + R" + SVD, "wrong", "the exact influence"),
        ("C = (L @ R.mT).float()" + SVD, "error", "expected scalar type Double"),
        ("C = L @ R.mT.flatten(1)" + SVD, "error", "`L` is a tensor of shape"),
        ("U, d, V = svd(L @ R.mT)\nreturn U, d, V", "shape", "a tuple of 3"),
    ],
}


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
                self.move(p, mean.sign(), **{k: group[k] for k in self.defaults})

    def move(self, p, sign, lr, weight_decay):
        p.mul_(1 - lr * weight_decay).sub_(lr * sign)


class Joined(Decayed):
    def move(self, p, sign, lr, weight_decay):
        p.sub_(lr * (sign + weight_decay * p))


class Later(Decayed):
    def move(self, p, sign, lr, weight_decay):
        p.sub_(lr * sign).mul_(1 - lr * weight_decay)


class Without(Decayed):
    def move(self, p, sign, lr, weight_decay):
        p.sub_(lr * sign)


def two_solves(A, b, x0, damping):
    B = A.T @ A + damping**2 * torch.eye(len(x0)).to(A)
    zero = torch.linalg.solve(B, A.T @ b)
    start = x0 + torch.linalg.solve(B, A.T @ (b - A @ x0))
    return (start - zero).norm() / zero.norm()


def inverted(A, b, x0, damping):
    B = torch.linalg.inv(A.T @ A + damping**2 * torch.eye(len(x0)).to(A))
    return float(damping**2 * (B @ x0).norm() / (B @ A.T @ b).norm())


def endless(*args):
    while True:
        pass


RIGHT_ANSWERS = {
    "rls-curve": [
        lambda k, q, s: 1 + k * q / (1 + (s - 1) * k * q),
        lambda k, q, s: 1 + 1 / (1 / (k * q) + s - 1),
        lambda k, q, s: (1 + s * k * q) / (1 + s * k * q - k * q),
        lambda k, q, s: torch.tensor(1 + k * q / (1 + (s - 1) * k * q)),
    ],
    "bpls-width": [
        lambda M, J: min(M, J),
        lambda M, J: M if M < J else J,
        lambda M, J: (M + J - abs(M - J)) // 2,
        lambda M, J: sorted([M, J])[0],
    ],
    "hessian_free-start": [two_solves, inverted],
    "broad-drop": [
        lambda F, AY, k: F[:k, :k] @ (F[:k, :k].T @ AY[:k]),
        lambda F, AY, k: F[:k, :k] @ F[:k, :k].T @ AY[:k],
        lambda F, AY, k: sum(torch.outer(f, f @ AY[:k]) for f in F[:k, :k].T),
        lambda F, AY, k: (F[:k, :k] @ (F[:k, :k].T @ AY[:k])).tolist(),
    ],
    "rtrl-variance": [
        lambda S: S - 1,
        lambda S: sum(1 for _ in range(1, S)),
        lambda S: S * (1 - 1 / S),
        lambda S: torch.tensor(S - 1.0),
    ],
    "compare-rank": [lambda T: T, lambda T: T * 1.0, lambda T: len(range(T))],
    "compare-noise": ["RLS"],
    "compare-decay": [Decayed, Joined],
}
WRONG_ANSWERS = {
    "rls-curve": [
        (lambda k, q, s: 1 + k * q, "wrong", "your answer"),
        (lambda k, q, s: 1 + 1 / s, "wrong", "your answer"),
        (lambda k, q, s: 1 + k * q / (1 + s * k * q), "wrong", "your answer"),
        (lambda k, q, s: [k, q], "shape", "a tensor of shape (2,), and has to be"),
        (lambda k, q: 1 + k * q, "error", "takes 2 positional arguments"),
        (lambda k, q, s: 1 + k * q / (s - 1), "error", "division by zero"),
    ],
    "bpls-width": [
        (lambda M, J: J, "wrong", "7, 3: 3, your answer 3"),
        (lambda M, J: M, "wrong", "your answer"),
        (lambda M, J: max(M, J), "wrong", "your answer"),
        (lambda M, J: M + J, "wrong", "your answer"),
        (10, "error", "This is the Python int 10"),
        (lambda M, J: "M", "shape", "of the type str"),
    ],
    "hessian_free-start": [
        (lambda A, b, x0, damping: 0.0, "wrong", "your answer 0"),
        (lambda A, b, x0, damping: x0.norm() / b.norm(), "wrong", "your answer"),
        (lambda A, b, x0, damping: x0, "shape", "a tensor of shape (8,)"),
        (0.3, "error", "the Python float 0.3"),
        (lambda A, b, x0, damping: A @ b, "error", "`A` is a tensor of shape (11, 8)"),
        (endless, "error", "loop without an end"),
    ],
    "broad-drop": [
        (lambda F, AY, k: F[:k, :k] @ AY[:k], "wrong", "your answer a tensor"),
        (lambda F, AY, k: F[:k] @ (F.T @ AY), "wrong", "your answer a tensor"),
        (lambda F, AY, k: F[:k, :k].T @ F[:k, :k] @ AY[:k], "wrong", "your answer"),
        (lambda F, AY, k: F @ F.T @ AY, "shape", "of shape (12, 2), and has to be a"),
        (lambda F, AY, k: F[:k] @ AY[:k], "error", "`AY` is a tensor of shape (12, 2)"),
        (3, "error", "the Python int 3"),
    ],
    "rtrl-variance": [
        (lambda S: S, "wrong", "2: 1, your answer 2"),
        (lambda S: 0.9 * (S - 1), "wrong", "your answer"),
        (lambda S: S**2 - 1, "wrong", "your answer"),
        (lambda S: S + "1", "error", "unsupported operand"),
        (len, "error", "of the type builtin"),
        (endless, "error", "loop without an end"),
    ],
    "compare-rank": [
        (lambda T: T - 1, "wrong", "your answer"),
        (lambda T: 6, "wrong", "your answer 6"),
        (lambda T: None, "shape", "is None"),
    ],
    "compare-noise": [
        ("SGD", "wrong", "RLS, your answer SGD"),
        ("Adam", "wrong", "your answer Adam"),
        ("Muon", "error", "The rules are SGD, Adam, RLS"),
        (3, "error", "got 3"),
    ],
    "compare-decay": [
        (Later, "wrong", "your answer"),
        (Without, "wrong", "your answer"),
        (torch.optim.SGD, "wrong", "your answer"),
        (torch.zeros(2), "error", "subclass of torch.optim.Optimizer"),
        (torch.optim.LBFGS, "error", "weight_decay"),
    ],
}
