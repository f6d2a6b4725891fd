"""Several solvers that grow over the same columns, one update at a time.

The comparison is fair because models that grow separately have different nodes.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field

import torch
from torch import Tensor

from labkit.broad.factor import FLOATS, NotPositiveDefinite, factor_error as error_of
from labkit.broad.nodes import Nodes, Preparation, Recipe, Update, draw
from labkit.broad.ridge import with_ridge
from labkit.broad.solvers import SOLVERS, start_operations, update_operations
from labkit.broad.state import MOST, FactorState, State, check_start
from labkit.broad.triangular import gram
from labkit.check import COUNT, check_options, check_tensor, described, integer, one_of
from labkit.clock import Clock
from labkit.precision import outside_modes


class SharedColumns:
    """Expanded inputs that grow by the same nodes for all solvers.

    Parameters
    ----------
    fit, test : pairs of (l, d) and (l,) tensors, inputs and classes
    room : int, columns at most
    seed : int, of all nodes

    Attributes
    ----------
    A, B : (l, room), (t, room) tensors, of fit and of test, filled up to ``widths[-1]``
    Y : (l, c) tensor, classes to learn from, coded -1 and +1
    widths : tuple of int, columns after every change
    """

    @outside_modes()
    def __init__(
        self,
        fit: tuple[Tensor, Tensor],
        test: tuple[Tensor, Tensor],
        room: int,
        *,
        seed: int = 0,
    ) -> None:
        for name, pair in {"fit": fit, "test": test}.items():
            if not (isinstance(pair, (tuple, list)) and len(pair) == 2):
                raise TypeError(
                    f"{name} must be a pair of tensors, got {described(pair)}"
                )
        (X, y), (tests, classes) = fit, test
        check_options(
            {"room": room, "seed": seed}, {"room": integer(1, MOST), "seed": integer(0)}
        )
        check_tensor("inputs to fit", X, dtype=FLOATS, shape=("l", "d"), finite=True)
        check_tensor(
            "inputs to test", tests, like=X, shape=("t", X.shape[1]), finite=True
        )
        for Xs, ys in (fit, test):
            check_tensor("classes", ys, dtype=torch.int64, shape=(len(Xs),))
        if not X.numel() or not len(tests):
            raise ValueError(
                f"inputs to fit and to test must have rows, got shapes "
                f"{tuple(X.shape)} and {tuple(tests.shape)}"
            )
        if (least := int(min(y.min(), classes.min()))) < 0:
            raise ValueError(f"classes must be 0 or more, got {least}")
        self._tests, self._classes = tests.clone(), classes.clone()
        self.A, self.B = (x.new_empty(len(x), room) for x in (X, tests))
        c = 1 + int(max(y.max(), classes.max()))
        self.Y = 2 * torch.nn.functional.one_hot(y, c).to(X) - 1
        self.widths = ()
        self._generator = torch.Generator().manual_seed(seed)
        self._nodes = Nodes(Preparation.fit("sample", X))
        self._prepared = self._nodes.prepare(X)
        self._Z = X.new_zeros(len(X), 0)

    @outside_modes()
    def add(self, *updates: Update) -> int:
        """Draw the nodes of updates, make their columns, and return the new width."""
        nodes, Z, k = self._nodes, self._Z, self._nodes.columns
        if not updates:
            raise ValueError("updates must be one or more, got none")
        for update in updates:
            if not isinstance(update, Update):
                raise TypeError(f"updates must be Updates, got {described(update)}")
        columns, room = k + sum(update.columns for update in updates), self.A.shape[1]
        if columns > room:
            raise ValueError(f"{columns} columns exceed the room of {room}")
        generator = torch.Generator()
        generator.set_state(self._generator.get_state())
        for update in updates:
            nodes, Z = draw(nodes, self._prepared, Z, update, Recipe(), generator)
        new = nodes.between(k, nodes.columns)
        new.expand(Z, out=self.A[:, k : nodes.columns])
        new.expand(nodes.features_of(self._tests), out=self.B[:, k : nodes.columns])
        widths = (*self.widths, nodes.columns)
        self._nodes, self._Z, self._generator, self.widths = nodes, Z, generator, widths
        return nodes.columns

    @outside_modes()
    def score(self, W: Tensor) -> float:
        """Return the test accuracy of W (k, c) [%]; k may be any of the widths."""
        check_tensor("W", W, like=self.B, shape=("k", self.Y.shape[1]))
        if len(W) > self._nodes.columns:
            raise ValueError(
                f"W must be of at most {self._nodes.columns} columns made, got shape "
                f"{tuple(W.shape)}"
            )
        right = (self.B[:, : len(W)] @ W).argmax(1) == self._classes
        return 100 * float(right.double().mean())


@dataclass(frozen=True)
class SolverRecord:
    """The measurements of one solver at one size, or its lost pivot in ``lost``."""

    step: int  # 0 is the start
    solver: str
    columns: int
    seconds: float
    operations: float = 0.0  # by the formulas of labkit.broad.solvers
    smallest_pivot: float | None = None
    residual: float | None = None  # |A^T (A W - Y) + ridge W| / |A^T Y|: 0 if exact
    score: float | None = None
    lost: NotPositiveDefinite | None = None  # the error with which the solver ended
    W: Tensor | None = field(default=None, repr=False)  # (k, c)
    factor_error: float | None = None  # |F^T R F - I|, where asked for and F is kept


def side_by_side(
    A: Tensor,
    widths: Iterable[int],
    Y: Tensor,
    ridge: float,
    solvers: Iterable[str],
    *,
    score: Callable[[Tensor], float] | None = None,
    factor_error: bool = False,
) -> Iterator[list[SolverRecord]]:
    r"""Grow several solvers over the columns of A, in turn at every size.

    Parameters
    ----------
    A : (l, k) tensor, all columns
    widths : iterable of int
        Columns at the start and after every update, ascending, at most k. They are read
        one by one, and may fill the columns of A as they come.
    Y : (l, c) tensor
    ridge : float, $\lambda$ > 0
    solvers : iterable of str
        Names of :data:`~labkit.broad.solvers.SOLVERS`; a solver that loses a pivot
        yields a record with ``lost`` and drops out.
    score : callable, optional, from W (k, c) to a number
    factor_error : bool, whether to measure it: costs more than the update

    Yields
    ------
    list of SolverRecord
        For every width, the records of the solvers that are left, in order.
    """
    check_start(A, Y, ridge)
    names = list(solvers)
    for name in names:
        check_options({"solver": name}, {"solver": one_of(SOLVERS)})
    states, clock, k = dict.fromkeys(names), Clock(A.device), 0
    for step, grown in enumerate(widths):
        if not states:
            return
        check_options({"width": grown}, {"width": COUNT})
        if not k < grown <= A.shape[1]:
            raise ValueError(
                f"widths must ascend to at most {A.shape[1]} columns, "
                f"got {grown} after {k}"
            )
        old, new, whole = A[:, :k], A[:, k:grown], A[:, :grown]
        l, c = len(A), Y.shape[1]  # noqa: E741
        records = []
        for name, state in list(states.items()):
            solver = SOLVERS[name]
            try:
                with clock:
                    if step == 0:
                        state = solver.start(whole, Y, ridge)
                        operations = start_operations(name, l, grown, c)
                    else:
                        state = solver.update(state, old, new, Y)
                        operations = update_operations(name, l, k, grown - k, c)
            except NotPositiveDefinite as lost:
                del states[name]
                records.append(SolverRecord(step, name, grown, clock.lap, lost=lost))
                continue
            states[name] = state
            records.append(
                SolverRecord(
                    step=step,
                    solver=name,
                    columns=grown,
                    seconds=clock.lap,
                    operations=operations,
                    smallest_pivot=float(state.pivot),
                    residual=_residual(whole, Y, state),
                    score=None if score is None else float(score(state.W)),
                    factor_error=_factor_error(state, whole) if factor_error else None,
                    W=state.W,
                )
            )
        yield records
        k = grown
    if not k:
        raise ValueError("widths must hold the columns of a start, got none")


@outside_modes()
def _residual(A: Tensor, Y: Tensor, state: State) -> float:
    AY = A.T @ Y
    gradient = A.T @ (A @ state.W) - AY + state.ridge * state.W
    return float(torch.linalg.norm(gradient) / torch.linalg.norm(AY))


def _factor_error(state: State, A: Tensor) -> float | None:
    if not isinstance(state, FactorState):
        return None
    return float(error_of(state.F, with_ridge(gram(A), state.ridge)))
