"""Wrong lines are refused and their slip is named; equal ones are accepted.

A mutant is the library's step with one small change in a line that an exercise leaves
out. One that gives the same numbers is an equal rewriting, and has to be accepted. Any
other that is accepted stands in SURVIVORS with the reason.
"""

import ast
from collections import Counter
from functools import cache

import pytest
import torch

from labkit.lab.exercises import Exercise, exercises, judge
from labkit.lab.exercises.blank import blanks, compiled
from labkit.lab.exercises.judging import run_example

STEPS = {name: e for name, e in exercises().items() if isinstance(e, Exercise)}
EVERY = 8  # of all mutants, one is in the sample
OF_STEP = {name: exercise.mutants() for name, exercise in STEPS.items()}
MUTANTS = [(name, i) for name, made in OF_STEP.items() for i in range(len(made))]

NOISE = "the noise has the other sign, and its distribution is the same"
COLUMNS = "the signs of the factor's columns are free, and the weights are the same"
SURVIVORS = {
    ("broad-chol2", "its sign is turned"): COLUMNS,
    ("rtrl-uoro-factors", "its sign is turned"): NOISE,
    ("rtrl-kf-factors", "its sign is turned"): NOISE,
}


@cache
def numbers(exercise):
    """Return what the library's own lines compute on the exercise's example."""
    return run_example(exercise, exercise.own()).tensors


def judged(name, i):
    """Return a mutant, whether it gives the same numbers, and its judgement."""
    exercise = STEPS[name]
    mutant = OF_STEP[name][i]
    hers = compiled(mutant.text, exercise.function, f"{name}, mutant {i}")
    run = run_example(exercise, hers)
    pairs = zip(run.tensors, numbers(exercise), strict=True) if not run.error else ()
    same = bool(pairs) and all(
        a.shape == b.shape and torch.allclose(a, b, rtol=1e-9, atol=1e-9)
        for a, b in pairs
    )
    return mutant, same, judge(exercise, hers)


@pytest.mark.parametrize(("name", "i"), MUTANTS[::EVERY])
def test_a_mutant_is_refused(name, i):
    mutant, same, judgement = judged(name, i)
    accepted = same or (name, mutant.change) in SURVIVORS
    assert judgement.right == accepted, mutant.text


@pytest.mark.long
def test_mutants_are_refused_and_named():
    """At least 95 in 100 are refused, and of these 75 in 100 with the right kind."""
    refused, named, equal, survived = 0, 0, [], set()
    for name, i in MUTANTS:
        mutant, same, judgement = judged(name, i)
        if not judgement.right:
            refused += 1
            named += judgement.slip == mutant.kind
        elif same:
            equal.append((name, mutant.change))
        else:
            survived.add((name, mutant.change))
    print(f"{len(MUTANTS)} mutants: {refused} refused, {named} of them named")
    print(f"accepted, since the numbers are the same: {len(equal)}", *equal, sep="\n  ")
    print("accepted for another reason:", *survived, sep="\n  ")
    assert survived == set(SURVIVORS)
    wrong = len(MUTANTS) - len(equal)
    assert wrong >= 150 and refused >= 0.95 * wrong and named >= 0.75 * refused


def test_there_are_mutants_of_every_line_and_kind():
    """At least 150 in all, of each statement that is left out, and of all kinds."""
    assert len(MUTANTS) >= 150
    kinds = Counter(m.kind for made in OF_STEP.values() for m in made)
    assert min(kinds.values()) >= 5, kinds
    for name, exercise in STEPS.items():
        texts = [m.text for m in OF_STEP[name]]
        for statement in (
            s for group in blanks(exercise.text, exercise.tags) for s in group
        ):
            kept = ast.unparse(statement)
            assert any(kept not in text for text in texts), (name, kept)


# Algebraically equal lines: for an exercise, what stands in the place of the blank


REWRITTEN = [
    (
        "rls-gain",
        "u = torch.mv(P, x_mean)\n"
        "h = forgetting + steps * mean_weight * torch.dot(x_mean, u)",
    ),
    (
        "rls-gain",
        "u = x_mean @ P.T\nh = (u * x_mean).sum() * (mean_weight * steps) + forgetting",
    ),
    (
        "rls-gain",
        "h = forgetting + mean_weight * steps * torch.einsum('i,ij,j->', x_mean, P, "
        "x_mean)\nu = torch.einsum('ij,j->i', P, x_mean)",
    ),
    (
        "rls-P",
        "P / forgetting - mean_weight * steps / (forgetting * h) * u[:, None] * u",
    ),
    (
        "rls-P",
        "(P - torch.einsum('i,j->ij', u, u) * (mean_weight * steps) / h) / forgetting",
    ),
    (
        "rls-P",
        "torch.addr(P, u, u, alpha=-mean_weight * steps / h.item()) / forgetting",
    ),
    (
        "rls-P",
        "torch.linalg.inv(forgetting * torch.linalg.inv(P) + mean_weight * steps * "
        "torch.outer(x_mean, x_mean))",
    ),
    (
        "rls-momentum",
        "preconditioned * (-lr / h)\nvelocity * momentum - preconditioned * lr / h",
    ),
    (
        "rls-momentum",
        "preconditioned.mul(lr).div(h).neg()\n"
        "-lr * preconditioned / h + momentum * velocity",
    ),
    ("rls-l1", "-l1 * torch.einsum('ij,jk->ik', signs, P)"),
    ("rls-l1", "-(l1 * signs) @ P.T"),
    ("rls-l1", "(P @ signs.T).T * -l1"),
    ("bpls-ridge", "regular.solve(cross(A, B))"),
    ("bpls-ridge", "torch.cholesky_solve(A.mT @ B, regular.L)"),
    (  # as printed
        "bpls-ridge",
        "torch.linalg.inv(A.mT @ A + ridge * (A.mT @ A).trace() / A.shape[1] * "
        "torch.eye(A.shape[1])) @ A.mT @ B",
    ),
    ("bpls-eigen", "W = V @ torch.diag_embed(filtered) @ V.mT @ C"),
    ("bpls-eigen", "W = (V * filtered[..., None, :]) @ (V.mT @ C)"),
    ("bpls-eigen", "W = torch.einsum('ik,k,jk,jn->in', V, filtered, V, C)"),
    (
        "bpls-neurons",
        "move = torch.einsum('dj,j->d', R, W[i]) * scale[i]\n"
        "R = R - torch.outer(move, W[i])",
    ),
    (
        "bpls-neurons",
        "move = (R @ w.mT)[..., 0] * scale[..., i, None]\n"
        "R = R - move.unsqueeze(-1) @ w",
    ),
    (
        "bpls-neurons",
        "move = (R * (scale[..., i, None, None] * w)).sum(-1)\n"
        "R = torch.addcmul(R, move[..., None], w, value=-1)",
    ),
    (
        "bpls-targets",
        "return torch.addmm(H, R, inverse)",
    ),
    ("bpls-targets", "return (inverse.mT @ R.mT).mT + H"),
    ("bpls-targets", "return H + torch.einsum('ij,jk->ik', R, inverse)"),
    ("rls-clip", "h_clipped = h / (1.0 if clip is None else clip)"),
    ("rls-clip", "h_clipped = h\nif clip is not None:\n    h_clipped = h * clip**-1"),
    (
        "broad-weights",
        "new = G @ (T.T @ AY + G.T @ HY)\n"
        "W = torch.cat([W + T @ torch.linalg.solve(G, new), new])",
    ),
    (
        "broad-weights",
        "both = torch.cat([T, G])\nE = both.T @ torch.cat([AY, HY])\n"
        "W = torch.nn.functional.pad(W, (0, 0, 0, len(G))) + both @ E",
    ),
    (
        "broad-weights",
        "E = torch.einsum('kq,kc->qc', T, AY) + torch.einsum('pq,pc->qc', G, HY)\n"
        "W = torch.vstack((torch.addmm(W, T, E), torch.mm(G, E)))",
    ),
    ("broad-chol1", "torch.einsum('ij,jk,kl->il', F, V, G).neg()"),
    ("broad-chol1", "(V @ -G).T.mm(F.T).T"),
    ("broad-chol1", "-torch.linalg.multi_dot([F, V, G])"),
    ("broad-chol2", "with_ridge(gram(C) + ridge * gram(D), ridge)"),
    ("broad-chol2", "C.T @ C + D.T @ D * ridge + torch.diag(ridge + 0 * C[0])"),
    (
        "broad-chol2",
        "torch.cat([C, ridge**0.5 * D]).T @ torch.cat([C, ridge**0.5 * D])"
        " + ridge * torch.eye(C.shape[1], dtype=C.dtype)",
    ),
    ("broad-rinv", "C.T.mm(C) + ridge * D.T.mm(D) + ridge * torch.eye(len(D.T)).to(C)"),
    (
        "broad-rinv",
        "torch.einsum('lq,lp->qp', C, C) + ridge * with_ridge(gram(D), 1.0)",
    ),
    ("broad-greville", "torch.vstack([torch.addmm(A_dagger, D, B, alpha=-1), B])"),
    ("broad-greville", "torch.cat([A_dagger - torch.einsum('kq,ql->kl', D, B), B])"),
    (
        "broad-greville",
        "torch.cat([A_dagger @ (torch.eye(len(H)).to(H) - H @ B), B])",
    ),
    ("rtrl-exact", "torch.bmm(H, G)"),
    ("rtrl-exact", "torch.einsum('bst,btw->bsw', H, G)"),
    ("rtrl-exact", "(G.mT @ H.mT).mT"),
    ("rtrl-exact", "torch.matmul(H, G)"),
    ("rtrl-exact", "torch.stack([one @ other for one, other in zip(H, G)])"),
    (
        "rtrl-uoro-factors",
        "rho0 = (norm(v, 2)[..., 0] / norm(Hu, 1)).sqrt().nan_to_num(1, 1)\n"
        "rho0 = rho0.where(rho0 > 0, 1)\n"
        "rho1 = balance(norm(w.flatten(1), 1), norm(signs, 1))",
    ),
    (
        "rtrl-uoro-factors",
        "lengths = [x.flatten(1).norm(dim=1, keepdim=True) for x in (v, Hu, w, nu)]\n"
        "rho0, rho1 = balance(*lengths[:2]), balance(*lengths[2:])",
    ),
    (
        "rtrl-uoro-mix",
        "u = torch.addcmul(rho1 * signs, Hu, rho0)\n"
        "v = v * (1 / rho0)[..., None] + w * (1 / rho1)[..., None]",
    ),
    (
        "rtrl-uoro-mix",
        "u = signs * rho1 + Hu * rho0\n"
        "a, b = rho0.view(-1, 1, 1), rho1.view(-1, 1, 1)\n"
        "v = (b * v + a * w) / (a * b)",
    ),
    (
        "rtrl-uoro-mix",
        "u, v = rho0 * (Hu + rho1 / rho0 * signs), (v + rho0[..., None] / "
        "rho1[..., None] * w) / rho0[..., None]",
    ),
    (
        "rtrl-kf-factors",
        "p1 = balance(HA.flatten(2).norm(dim=-1, keepdim=True), norm(u, 1))\n"
        "p2 = balance(size.flatten(1)[..., None], h_hat.norm(dim=1)[:, None, None])",
    ),
    (
        "rtrl-kf-factors",
        "p2 = balance(size[:, :, 0], norm(h_hat[:, None], 1))\n"
        "p1 = balance(norm(HA, 2).squeeze(-1), norm(u, 1))",
    ),
    ("rtrl-kf-mix", "u = c * p2 * h_hat.unsqueeze(1) + u * p1"),
    ("rtrl-kf-mix", "u = torch.addcmul(p1 * u, c * p2, h_hat[:, None])"),
    (
        "rtrl-kf-mix",
        "u = p1 * u + torch.einsum('bc,bc,bm->bcm', signs, p2[..., 0], h_hat)",
    ),
    ("rtrl-ok-u", "u = torch.einsum('bij,bim->bjm', X, u)"),
    ("rtrl-ok-u", "u = (u.mT @ X).mT"),
    ("rtrl-ok-u", "u = torch.bmm(X.transpose(1, 2), u)"),
    ("rtrl-ok-u", "u = (X[..., None] * u[:, :, None]).sum(1)"),
    (
        "rtrl-ok-A",
        "(Z[:, :-1].mT @ HA.flatten(2)).view_as(HA)\n"
        "diagonals(A, D).add_(\n"
        "    Z[:, -1, :, None, None, None] * D.movedim(1, 2)[:, None]\n"
        ")",
    ),
    (
        "rtrl-ok-A",
        "torch.einsum('bij,bicd->bjcd', Z[:, :-1], HA)\n"
        "diagonals(A, D).add_(torch.einsum('bj,bpki->bjkpi', Z[:, -1], D))",
    ),
    (
        "rtrl-ok-A",
        "combine(HA, Z[:, :-1])\n"
        "diagonals(A, D).add_(torch.einsum('bj,bpki->bjkpi', Z[:, -1], D))",
    ),
    ("rtrl-ok-C", "torch.einsum('bik,bjk->bij', L, R)"),
    ("rtrl-ok-C", "L.matmul(R.transpose(1, 2))"),
    ("rtrl-ok-C", "(R @ L.mT).mT"),
    (
        "rtrl-snap1-carry",
        "own = torch.einsum('bpjqj->bpqj', H.view(b, P, n, P, n))\n"
        "J = (own[:, :, :, None, None] * J[:, None]).sum(2)",
    ),
    (
        "rtrl-snap1-carry",
        "blocks = H.reshape(b, P, n, P, n)\n"
        "J = torch.einsum('bpjqj,bqikj->bpikj', blocks, J)",
    ),
    ("rtrl-snap1-direct", "torch.einsum('bi,bpkj->bpikj', h_hat, D)"),
    ("rtrl-snap1-direct", "D.unsqueeze(2) * h_hat.view(b, 1, -1, 1, 1)"),
    (
        "hessian_free-rotation",
        "rho = (s.alphabar**2 + beta**2) ** 0.5\n"
        "cos = s.alphabar / rho\nsin = beta / rho",
    ),
    (
        "hessian_free-rotation",
        "rho = math.hypot(beta, s.alphabar)\n"
        "sin, cos = beta / rho, s.alphabar * rho**-1",
    ),
    ("hessian_free-next-column", "theta = alpha * sin\nalphabar = alpha * cos"),
    ("hessian_free-next-column", "alphabar, theta = cos * alpha, alpha * sin"),
    (
        "hessian_free-second-rotation",
        "a = rho * s.cbar\nthetabar = rho * s.sbar\n"
        "rhobar = (a * a + theta * theta) ** 0.5\n"
        "cbar, sbar = a / rhobar, theta / rhobar",
    ),
    (
        "hessian_free-second-rotation",
        "thetabar, rhobar = rho * s.sbar, math.hypot(theta, rho * s.cbar)\n"
        "sbar, cbar = theta / rhobar, rho * s.cbar / rhobar",
    ),
    ("hessian_free-zeta", "zeta, zetabar = s.zetabar * cbar, -(s.zetabar * sbar)"),
    ("hessian_free-zeta", "zetabar = -s.zetabar * sbar\nzeta = s.zetabar * cbar"),
    (
        "hessian_free-batch",
        "n = -(-population * V // (V + t * t * g2 * (population - 1)))",
    ),
    (
        "hessian_free-batch",
        "bound = t**2 * g2\n"
        "n = math.ceil(V / ((V + (population - 1) * bound) / population))",
    ),
    ("hessian_free-noise", "V = (squares - n * g2) / (n - 1)"),
    ("hessian_free-noise", "V = squares / (n - 1) - g2 * n / (n - 1)"),
    ("hessian_free-diagonal", "return point.sum_squares(signs * point.n**-0.5)"),
    (
        "hessian_free-diagonal",
        "return tuple(t / point.n for t in point.sum_squares(signs))",
    ),
    ("hessian_free-forward", "F = S_[i] * (F @ W[i][:-1] + S[i] @ d[i])"),
    (
        "hessian_free-forward",
        "F = torch.addmm(S[i] @ d[i], F, W[i][:-1]) * S_[i]",
    ),
    (
        "hessian_free-forward",
        "F = torch.einsum('nm,nk,km->nm', S_[i], F, W[i][:-1]) + S_[i] * (S[i] @ d[i])",
    ),
    ("hessian_free-adjoint", "return tuple(S.mT @ F_l for S, F_l in pairs)"),
    (
        "hessian_free-adjoint",
        "return tuple(torch.einsum('ni,nj->ij', S, F_l) for S, F_l in pairs)",
    ),
    ("hessian_free-adjoint", "return tuple((F_l.T @ S).T for S, F_l in pairs)"),
]


def filled(exercise, lines):
    """Return the step's text with some lines in the place of the blank.

    Where the blank is ``name = ...`` with given lines after it, the first of the lines
    may be a bare expression. Where there are several such blanks, each line is one of
    theirs.
    """
    rows, new = exercise.open_text.splitlines(), lines.splitlines()
    open_rows = [
        i for i, row in enumerate(rows) if "..." in row.split("#")[0] and is_blank(row)
    ]
    if len(exercise.given) > 1:
        for i, line in zip(open_rows, new, strict=True):
            rows[i] = rows[i].replace("...", line, 1)
        return "\n".join(rows) + "\n"
    first = rows[open_rows[0]]
    indent = first[: len(first) - len(first.lstrip())]
    if exercise.given:
        new[0] = first.strip().partition("=")[0] + "= " + new[0]
    rows[open_rows[0] : open_rows[-1] + 1] = [indent + row for row in new]
    return "\n".join(rows) + "\n"


def is_blank(row):
    """Return whether a row of an open cell is one that a learner fills in."""
    code = row.split("#")[0].strip()
    return code.endswith("...")


@pytest.mark.parametrize(("name", "lines"), REWRITTEN)
def test_an_equal_way_of_writing_is_accepted(name, lines):
    exercise = STEPS[name]
    hers = compiled(filled(exercise, lines), exercise.function, f"{name}, rewritten")
    judgement = judge(exercise, hers)
    assert judgement.right, judgement.text


def test_there_are_at_least_forty_equal_ways():
    """And some of each room's steps; those of broad are not written yet."""
    assert len(set(REWRITTEN)) >= 40
    rooms = Counter(name.partition("-")[0] for name, _ in REWRITTEN)
    assert min(rooms[room] for room in ("rls", "bpls", "hessian_free", "rtrl")) >= 10
