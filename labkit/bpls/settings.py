"""What the walks can be told, and what may change between two of their steps."""

from dataclasses import dataclass

from torch import Tensor

from labkit.bpls import solve
from labkit.bpls.activations import CLAMP
from labkit.bpls.targets import check_interpretation
from labkit.ranges import NOT_NEGATIVE, check, integer, number, optional

RANGES = {
    "clamp": optional(number("in (0, 0.5)", lambda v: 0 < v < 0.5)),
    "ridge": optional(NOT_NEGATIVE),
    "rcond": optional(NOT_NEGATIVE),
    "method": optional(solve.RANGES["method"]),
    "max_walks": integer(0),
}


@dataclass(eq=False)
class Settings:
    """Options of the walks, read and checked before every layer.

    Whoever holds the object may change it between two steps of `walk` or `train`.

    Attributes
    ----------
    interpretation : str or int, of equation (5); see `hidden_targets`
    clamp : float in (0, 0.5) or None
        See `clamp_targets`; for values also of the outputs. None leaves targets as they
        are, and one without inverse raises.
    ridge, rcond, method : optional, see `solve_layer`
    max_walks : int >= 0, cap on the walks over misses; 0 leaves the first walk only
    stop : bool
        Stop at the first walk that does not lower the misses. The paper's own
        condition, line 18, lets later walks undo what earlier ones found; False shows
        it. The best weights are kept either way.
    data : pair of tensors, optional
        (X, Y) from the next walk on misses on, such as the same images with other
        noise. Where they are not the tensors of the walk before, the misses are counted
        anew on them, and the best weights are looked for from there on.
    """

    interpretation: str | int = "min_norm"
    clamp: float | None = CLAMP
    ridge: float | None = None
    rcond: float | None = None
    method: str | None = None
    max_walks: int = 20
    stop: bool = True
    data: tuple[Tensor, Tensor] | None = None

    def check(self) -> None:
        """Raise ValueError for what no walk can take."""
        check_interpretation(self.interpretation)
        check({name: getattr(self, name) for name in RANGES}, RANGES)

    def of_solve(self, careful: bool = True) -> dict:
        """Keywords of `solve_layer`, checked.

        ``careful`` at least where no Cholesky factor is taken: a decomposition makes a
        device be waited for anyway, and refuses what is not finite.
        """
        self.check()
        solver = {"ridge": self.ridge, "rcond": self.rcond, "method": self.method}
        decomposed = self.ridge == 0 or self.method in ("eigh", "svd")
        return solver | {"careful": careful or decomposed}

    def of_layer(self, careful: bool = True) -> dict:
        """Keywords of `layer_step`, checked."""
        correction = {"interpretation": self.interpretation, "clamp": self.clamp}
        return correction | self.of_solve(careful)
