"""Questions: an answer from the run is right, others are not, and forms are told."""

import math

import pytest
import torch

from labkit.lab import load_problem
from labkit.lab.broad import GrowthKnobs, growth_rows
from labkit.lab.exercises import Question, broad, check, exercises

FLOAT64 = {"dtype": torch.float64}
QUESTIONS = {n: q for n, q in exercises().items() if isinstance(q, Question)}
each = pytest.mark.parametrize("name", QUESTIONS)
# Wrong answers, and answers of a wrong form with what is said of them.
WRONG = {
    "rls-1": [lambda mu, Sigma, M, k: k * torch.outer(mu, mu)],
    "rls-2": [lambda X, P: 2 / (X.T @ X / len(X)).trace()],
    "rls-3": [lambda k, q, s: 1 + k * q, lambda k, q, s: 1 + 1 / s],
    "rls-4": [1e-5, 0.5],
    "rls-5": [lambda k, lr, P0_scale: (lr * k, P0_scale / k)],
    "bpls-1": [lambda M, J: J, lambda M, J: M],
    "bpls-2": [("rises", "falls"), ("rises", "rises")],
    "bpls-3": [lambda W: (1 / W).T @ W],
    "rtrl-1": [lambda S: S, lambda S: 0.9 * (S - 1)],
    "rtrl-2": [lambda G, m: m, lambda G, m: int(torch.linalg.matrix_rank(G))],
    "rtrl-3": [("OK", "OK"), ("OK", "B-OK"), ("B-OK", "B-OK")],
    "hessian_free-1": [lambda A, b, x0, damping: 0.0],
    "hessian_free-2": [("falls", "falls"), ["rises", "rises"]],
    "broad-1": [(1e-8, "larger"), (1e-11, "smaller")],
    "broad-2": [["chol-2"], ["bordered"], [], ["bordered", "d-rdg", "r-inv"]],
    "broad-3": [
        lambda F, AY, k: F[:k, :k] @ AY[:k],
        lambda F, AY, k: F[:k] @ (F.T @ AY),
    ],
    "compare-1": ["RLS", "Adam"],
    "compare-2": [lambda T: T - 1, lambda T: 6],
    "compare-3": ["SGD", "Adam"],
    "compare-4": [type("Plain", (torch.optim.SGD,), {})],
}
FORMS = {
    "rls-1": [(lambda mu, Sigma, M, k: k * mu, "a tensor of shape (3,), in place of")],
    "rls-2": [(lambda X, P: "2", "of the type str")],
    "rls-4": [(-1, "got -1"), ("1e-3", "got '1e-3'")],
    "rls-5": [(lambda k, lr, P0_scale: (-lr, 1.0), "lr must be >= 0")],
    "bpls-1": [(10, "the number 10")],
    "bpls-2": [("falls", "got 'falls'"), (("up", "down"), "the words are")],
    "rtrl-1": [(3, "number 3"), (lambda S: S + "1", "This line"), (len, "of the type")],
    "rtrl-2": [(7, "number 7")],
    "rtrl-3": [("OK", "got 'OK'"), (("KF", "OK"), "the names are")],
    "hessian_free-1": [(0.3, "the number 0.3")],
    "hessian_free-2": [(("up", "down"), "the words are")],
    "broad-1": [(1e-8, "got 1e-08"), ((1e-8, "up"), "the words are")],
    "broad-2": [("orig", "got 'orig'"), (["chol-3"], "the solvers are")],
    "broad-3": [
        (3, "the number 3"),
        (lambda F, AY, k: F @ F.T @ AY, "of shape (12, 2), not a tensor of shape (7"),
    ],
    "compare-1": [("Muon", "the rules are SGD, Adam, RLS"), (3, "got 3")],
    "compare-4": [(torch.zeros(2), "subclass of torch.optim.Optimizer")],
}


@each
def test_the_answer_of_the_run_is_right(name):
    told = check(name, solve=True)
    assert told.right, told.judgement.text
    assert told.judgement.text.endswith(".")
    assert check(name).judgement.kind == "open"


@pytest.mark.parametrize("name", WRONG)
def test_other_answers_are_not(name):
    for answer in WRONG[name]:
        told = check(name, answer).judgement
        assert told.kind == "wrong", told.text


@pytest.mark.parametrize("name", FORMS)
def test_a_wrong_form_is_told_in_words(name):
    for answer, words in FORMS[name]:
        told = check(name, answer).judgement
        assert told.kind == "shape" and words in told.text


def test_a_function_that_is_not_written_yet_is_open():
    def answer(S):
        return ...

    assert check("rtrl-1", answer).judgement.kind == "open"


def test_an_endless_answer_is_stopped():
    def answer(S):
        while True:
            S += 1

    told = check("rtrl-1", answer).judgement
    assert told.kind == "shape" and "loop without an end" in told.text


def test_an_answer_is_right_however_it_is_written():
    assert check("rtrl-1", lambda S: sum(1 for _ in range(1, S))).right
    assert check("rtrl-2", by_rank).right
    assert check("rtrl-3", ["B-OK", "OK"]).right
    assert check("hessian_free-1", by_two_solves).right
    assert check("broad-2", {"d-rdg", "bordered", "chol-1"}).right
    assert check("broad-3", by_a_sum).right
    assert check("compare-2", lambda T: math.ceil(T)).right
    assert check("rls-2", by_symmetric).right
    assert check("rls-3", lambda k, q, s: 1 + 1 / (1 / (k * q) + s - 1)).right
    assert check("rls-5", lambda k, lr, p: torch.tensor([lr / k, p * k])).right
    assert check(
        "bpls-3", lambda W: torch.einsum("nj,nk->jk", 1 / W, W / len(W.T))
    ).right


def by_rank(G, m):
    rows = torch.einsum("smc->msc", G.view(len(G), m, -1)).flatten(1)
    values = torch.linalg.eigvalsh(rows @ rows.T).flip(0).clamp_min(0)
    for r in range(m + 1):
        if values[r:].sum() <= 1e-12 * values.sum():
            return r


def by_symmetric(X, P):
    L = torch.linalg.cholesky(P)
    return 2 * len(X) / torch.linalg.matrix_norm(X @ L, 2) ** 2


def by_a_sum(F, AY, k):
    return sum(torch.outer(f, f @ AY[:k]) for f in F[:k, :k].T)


def by_two_solves(A, b, x0, damping):
    B = A.T @ A + damping**2 * torch.eye(len(x0)).to(A)
    zero = torch.linalg.solve(B, A.T @ b)
    start = x0 + torch.linalg.solve(B, A.T @ (b - A @ x0))
    return (start - zero).norm() / zero.norm()


ASKED = {"rls": 5, "bpls": 3, "hessian_free": 2, "broad": 3, "rtrl": 3, "compare": 3}


def test_the_older_exercises_are_judged_and_eight_or_more_ask_for_code():
    """The numbers are those of the exercises that once ended in prose."""
    older = [f"{room}-{i}" for room, n in ASKED.items() for i in range(1, n + 1)]
    asked = [QUESTIONS[name] for name in older]
    code = [each.name for each in asked if each.wants.startswith("a function of")]
    assert len(older) == 19 and len(code) >= 8, code


def test_the_growth_that_is_asked_about_is_the_live_one():
    *_, row = growth_rows(GrowthKnobs(ridge=1e-8), load_problem("digits", **FLOAT64))
    behind = row["accuracy exact"] - row["accuracy greville"]
    assert broad.points_behind(broad.growth_with(broad.ADDED), 1e-8) == behind > 1
