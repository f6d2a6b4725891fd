"""Exercises of the comparison: predictions of short races, a rank, and an optimiser."""

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from labkit.lab.datasets import load
from labkit.lab.exercises.answers import Question, called
from labkit.rls import RLS, loss_one_hot
from labkit.rtrl import OK, LSTMCell

RULES = {
    "SGD": (lambda model: torch.optim.SGD(model.parameters(), lr=0.1), cross_entropy),
    "Adam": (
        lambda model: torch.optim.Adam(model.parameters(), lr=3e-3),
        cross_entropy,
    ),
    "RLS": (RLS, loss_one_hot),
}
FIT, TEST, BATCH = 300, 500, 32  # rows
FEW, MANY = 5, 15  # passes
BEFORE, NOISY, AFTER = 60, 40, 20  # minibatches


class Runner:
    """A small network on digits, a rule, and the test error after some minibatches."""

    def __init__(self, name: str, seed: int = 0) -> None:
        data = load("digits")
        X, y = data.inputs.flatten(1), data.targets
        self.X, self.y = X[:FIT], y[:FIT]
        self.test = X[FIT : FIT + TEST], y[FIT : FIT + TEST]
        with torch.random.fork_rng(devices=()):
            torch.manual_seed(seed)
            layers = nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 10)
            self.model = nn.Sequential(*layers)
        make, self.loss = RULES[name]
        self.optimizer = make(self.model)
        self.generator = torch.Generator().manual_seed(seed)

    def step(self, rows: Tensor, labels: Tensor) -> None:
        """Take one step on some rows with the given labels."""
        self.optimizer.zero_grad()
        self.loss(self.model(self.X[rows]), labels).backward()
        self.optimizer.step()

    @torch.no_grad()
    def error(self) -> float:
        """Return the share of test rows that are wrong, in %."""
        X, y = self.test
        return 100 * float((self.model(X).argmax(1) != y).double().mean())


def gains() -> dict[str, float]:
    """Return by how many points of accuracy more passes help each rule."""
    found = {}
    for name in RULES:
        runner, errors = Runner(name), {}
        for number in range(1, MANY + 1):
            for rows in torch.randperm(FIT, generator=runner.generator).split(BATCH):
                runner.step(rows, runner.y[rows])
            errors[number] = runner.error()
        found[name] = errors[FEW] - errors[MANY]
    return found


def recovered() -> dict[str, float]:
    """Return the test errors [%] a while after labels were noisy."""
    found = {}
    for name in RULES:
        runner = Runner(name)
        g = runner.generator
        for s in range(BEFORE + NOISY + AFTER):
            rows = torch.randint(FIT, (BATCH,), generator=g)
            wrong = torch.rand(BATCH, generator=g) < 0.8
            drawn = torch.randint(10, (BATCH,), generator=g)
            noisy = wrong & (BEFORE <= s < BEFORE + NOISY)
            runner.step(rows, torch.where(noisy, drawn, runner.y[rows]))
        found[name] = runner.error()
    return found


def judge_name(
    answer: Any, numbers: dict[str, float], best: Callable, words: str
) -> tuple[bool, str]:
    """Compare a rule's name with the best one of a run."""
    if answer not in RULES:
        raise ValueError(f"the rules are {', '.join(RULES)}, got {answer!r}")
    said = ", ".join(f"{name} {value:.1f}" for name, value in numbers.items())
    return answer == best(numbers), f"{words}: {said}."


def most(numbers: dict[str, float]) -> str:
    """Return the name of the largest number."""
    return max(numbers, key=numbers.get)


def least(numbers: dict[str, float]) -> str:
    """Return the name of the smallest number."""
    return min(numbers, key=numbers.get)


def least_ranks() -> dict[int, int]:
    """Return, by the rows of a sequence, the least rank at which OK has no noise."""
    g = torch.Generator().manual_seed(0)
    cell = LSTMCell(5, 3, dtype=torch.float64)
    cell.weight.data.normal_(0, 0.6, generator=g)
    xs = torch.randn(6, 1, 5, generator=g, dtype=torch.float64)
    found = {}
    for T in range(2, 7):
        for rank in range(1, T + 1):
            learner = OK(cell, batch_size=20, rank=rank, generator=g)
            for x in xs[:T]:
                learner.step(x.expand(20, -1))
            G = learner.influence()
            if (G - G.mean(0)).norm() < 1e-5 * G.norm():
                found[T] = rank
                break
    return found


def judge_ranks(answer: Callable, measured: dict[int, int]) -> tuple[bool, str]:
    """Compare a function of T with the ranks that were found."""
    said = {T: called(answer, T) for T in measured}
    rows = ", ".join(f"{rank} for T = {T}" for T, rank in measured.items())
    return said == measured, f"The least ranks are {rows}; you say {[*said.values()]}."


LR, DECAY = 0.05, 0.3  # of the optimiser that is asked for


def sign_steps(weight_decay: float) -> list[Tensor]:
    """Return the weights of three steps by the sign of a running mean."""
    p, mean = torch.linspace(-2, 3, 7).double(), torch.zeros(7).double()
    found = []
    for s in range(3):
        mean = 0.9 * mean + 0.1 * torch.cos(torch.arange(7) * (s + 1.5)).double()
        p = p * (1 - LR * weight_decay) - LR * mean.sign()
        found.append(p)
    return found


def judge_optimizer(answer: type, measured: dict) -> tuple[bool, str]:
    """Take three steps of an optimiser, with its decay and without."""
    if not (isinstance(answer, type) and issubclass(answer, torch.optim.Optimizer)):
        raise TypeError(f"got {answer!r}")
    off = {}
    for words, wanted in measured.items():
        p = torch.linspace(-2, 3, 7).double().requires_grad_()
        options = {"weight_decay": DECAY} if words == "with the decay" else {}
        optimizer = answer([p], lr=LR, **options)
        errors = []
        for s, want in enumerate(wanted):
            p.grad = torch.cos(torch.arange(7) * (s + 1.5)).double()
            optimizer.step()
            errors.append(float((p.detach() - want).abs().max()))
        off[words] = max(errors)
    said = "; ".join(f"{words} {error:.2g}" for words, error in off.items())
    return max(off.values()) < 1e-9, f"The weights of three steps are off by: {said}."


def right_optimizer(_: object) -> type:
    """Return an optimiser that shrinks the weights before its step."""

    class SignMomentum(torch.optim.Optimizer):
        def __init__(self, params, lr, decay=0.9, weight_decay=0.0):
            rates = {"lr": lr, "decay": decay, "weight_decay": weight_decay}
            super().__init__(params, rates)

        @torch.no_grad()
        def step(self):
            for group in self.param_groups:
                for p in group["params"]:
                    mean = self.state[p].setdefault("mean", torch.zeros_like(p))
                    mean.lerp_(p.grad, 1 - group["decay"])
                    p.mul_(1 - group["lr"] * group["weight_decay"])
                    p.sub_(group["lr"] * mean.sign())

    return SignMomentum


EXERCISES = (
    Question(
        name="compare-1",
        title=(
            f"On {FIT} digits, {MANY} passes are taken in the place of {FEW}. Which of "
            "SGD, Adam and RLS gains most? Predict its name."
        ),
        wants="one of the names 'SGD', 'Adam' and 'RLS'",
        measured=gains,
        right=most,
        verdict=partial(judge_name, best=most, words="Gains in points of accuracy"),
        hints=(
            "A rule that is near its end after a few passes has little to gain.",
            "Look at the curves of the race: some are flat at its end, and some are "
            "not.",
            "RLS takes the steps of least squares, Adam scales each weight by itself, "
            "and SGD does neither.",
        ),
        because=(
            "SGD, which is the slowest at first. In the race, RLS and RLS+M gain less "
            "and stay behind Adam; BPLS and broad learning have no use for more passes."
        ),
    ),
    Question(
        name="compare-2",
        title=(
            "OK reads a sequence of T rows from a state without influence. What is the "
            "least rank at which it draws nothing, so that its gradient is exact? "
            "Write it as a function of T."
        ),
        wants="a function of one whole number T that returns a whole number",
        measured=least_ranks,
        right=lambda _: lambda T: T,
        verdict=judge_ranks,
        hints=(
            "Before the first row the influence is 0, and after it one Kronecker "
            "product.",
            r"Each row adds one product, $\hat h_t \otimes D_t$.",
            "A sum of r products holds r of them without any mixing.",
        ),
        because=(
            "`lambda T: T`. On eight rows rank 8 leaves nothing to mix: the cosine is "
            "1 but for rounding. OK is then level with Adam, at many times its seconds."
        ),
    ),
    Question(
        name="compare-3",
        title=(
            f"After {BEFORE} minibatches, 80 in 100 labels are drawn at random for "
            f"{NOISY} minibatches; then labels are right again. Which of SGD, Adam and "
            f"RLS has the lowest error {AFTER} minibatches later? Predict its name."
        ),
        wants="one of the names 'SGD', 'Adam' and 'RLS'",
        measured=recovered,
        right=least,
        verdict=partial(judge_name, best=least, words="Test errors in %"),
        hints=(
            "The noise disturbs all of them. What counts is how fast each one learns.",
            "In the live race, put *label noise* up and back to 0, and look at the "
            "curves after it.",
            "The rule that needs the fewest minibatches from the start also needs the "
            "fewest here.",
        ),
        because=(
            "RLS here. In the live race HRLS+M, RLS and RLS+M come first, SGD and Adam "
            "later, and Hessian-free, which solves each minibatch most closely, last. "
            "Nobody is undisturbed: rules that are solved anew suffer as noisy rows "
            "pile up, and recover as clean ones dilute them."
        ),
    ),
    Question(
        name="compare-4",
        title=(
            "Put `weight_decay`, by default 0, into the optimiser of your own: it "
            "shrinks the weights by `lr * weight_decay` of themselves before each step."
        ),
        wants="a subclass of torch.optim.Optimizer that takes lr and weight_decay",
        measured=lambda: {
            "without a decay": sign_steps(0.0),
            "with the decay": sign_steps(DECAY),
        },
        right=right_optimizer,
        verdict=judge_optimizer,
        hints=(
            "Add `weight_decay=0.0` to `__init__`, and to the defaults that it hands "
            "on.",
            'A step finds it as `group["weight_decay"]`.',
            '`p.mul_(1 - group["lr"] * group["weight_decay"])` stands before the step.',
        ),
        because=(
            "`p.mul_(1 - group['lr'] * group['weight_decay'])` before the step. In the "
            "race its range is one more keyword of `lab.optimizer_rule`. On digits a "
            "decay of up to about 3 makes no difference beyond the spread."
        ),
    ),
)
