"""The knobs of the live Hessian-free training, and what each of them shows."""

from dataclasses import dataclass

from labkit.hessian_free.precondition import KINDS
from labkit.hessian_free.system import CENTRES, DAMPINGS
from labkit.labs.hessian_free.problems import Problem
from labkit.panels import knob


@dataclass(frozen=True)
class TrainingKnobs:
    """What can be turned in the live experiment; looked for are the digits."""

    theta: float = knob(
        0.5,
        low=0.05,
        high=0.95,
        step=0.05,
        unit="relative",
        help="noise tolerated in the gradient",
        look_for="The bound in the variance test; at 0.05 the batch is soon at its "
        "largest, at 0.95 it stands.",
        restart=False,
    )
    nmax: int = knob(
        650,
        low=2,
        high=6000,
        label="largest batch",
        unit="rows",
        help="nmax, at most all training rows",
        look_for="Growth stops there, never back; a run begun with 60 is at 1.6 after "
        "40 steps, not at 0.9.",
        restart=False,
    )
    drop: float = knob(
        0.8,
        low=0.5,
        high=0.99,
        step=0.01,
        unit="factor",
        help="of lambda, at steps that the model predicted well",
        look_for="The slope of the damping; a run begun with 0.99 is at an error of 5 "
        "after 30 steps.",
        restart=False,
    )
    preconditioner: str = knob(
        "random_signs",
        choices=KINDS,
        help="c of d = c o y",
        look_for="Late iterations: more with none, fewer with jacobi and fisher; "
        "nearly the same error.",
        restart=False,
    )
    budget: int = knob(
        150,
        low=1,
        high=300,
        unit="iterations",
        help="of the next Krylov run; grows with the batch",
        look_for="At 5 done meets allowed and the error nearly stands; a large one "
        "changes nothing.",
        restart=False,
    )
    recover: int = knob(
        20,
        low=0,
        high=100,
        unit="iterations",
        help="LSMR's patience; paper: 100",
        look_for="The gap between iterations done and taken: the same step, found out "
        "later.",
        restart=False,
    )
    published: bool = knob(
        False,
        label="last iterate, as published",
        help="off: the iterate of least merit",
        look_for="Taken rises to done, rho falls, and the batch's error falls below "
        "that of validation.",
        restart=False,
    )
    noise: float = knob(
        0.0,
        low=0.0,
        high=0.5,
        step=0.02,
        label="input noise",
        unit="sd",
        help="on the next batches; targets stay clean",
        look_for="At 0.3 the gradient's noise leaps sevenfold and the batch grows "
        "after it.",
        restart=False,
    )
    damping: str = knob(
        "identity",
        choices=DAMPINGS,
        help="identity: the stated one",
        look_for="Late nothing; a run begun with scaled is at 1.17 after 30 steps, not "
        "at 0.99.",
        restart=False,
    )
    centre: str = knob(
        "zero",
        choices=CENTRES,
        help="zero: the stated problem",
        look_for="Late nothing; a run begun with start, a momentum, leads at step 10 "
        "and trails at 30.",
        restart=False,
    )
    n1: int = knob(
        60,
        low=2,
        high=2500,
        label="first batch",
        unit="rows",
        help="n1, what a run begins with",
        look_for="At step 11 the batch has some hundreds of rows, begun with 10 or "
        "with 300.",
    )
    lam1: float = knob(
        1.0,
        low=0.01,
        high=30.0,
        log=True,
        label="damping lambda_1",
        help="what a run begins with",
        look_for="At 30 the error is still 12 after 15 steps; at 0.01 it is lower at "
        "first, then higher.",
    )
    seed: int = knob(
        0,
        low=0,
        high=99,
        help="of weights, batches and noise",
        look_for="Chance: seeds 0, 1 and 2 are at 0.99, 1.04 and 1.23 after 30 steps.",
    )


def knobs_of(problem: Problem, **changes) -> TrainingKnobs:
    """The knobs at a problem's setting."""
    s = problem.setting
    names = {"theta": s.theta, "n1": s.n1, "nmax": s.nmax, "lam1": s.damp}
    names |= {"drop": s.drop, "budget": s.maxiter}
    return TrainingKnobs(**names | changes)
