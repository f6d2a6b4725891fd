"""What both estimators of BPLS share: parameters, doors, a fit that happens at once."""

import dataclasses
import math
import numbers
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from copy import copy, deepcopy
from dataclasses import dataclass
from functools import wraps
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import ArrayLike
from scipy import sparse
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils import Tags, check_random_state
from sklearn.utils.validation import check_is_fitted, validate_data
from torch import Tensor
from torch.nn import functional as F

from labkit.arrays import plain
from labkit.bpls.activations import CLAMP, activation, invertible
from labkit.bpls.batches import LayerSums, all_finite, batch_walk
from labkit.bpls.refine import SCALE, refine, refined_scores
from labkit.bpls.samples import counted, judged, relative
from labkit.bpls.solve import RIDGE, weighed
from labkit.bpls.train import WalkEnd, blend, train
from labkit.bpls.walk import (
    Settings,
    Weights,
    check_sizes,
    output_targets,
    random_weights,
    scores,
)
from labkit.check import (
    Range,
    check_device,
    check_options,
    check_squares,
    described,
    integer,
    one_of,
)
from labkit.clock import Clock
from labkit.errors import DivergedError

DTYPES = {"float32": np.float32, "float64": np.float64}
HISTORY = [f.name for f in dataclasses.fields(WalkEnd) if f.repr]
WIDEST = 2**31 - 1
SEED = integer(0, 2**32 - 1)


def _is_widths(sizes: object) -> bool:
    whole = isinstance(sizes, Sequence) and len(sizes) > 0
    return whole and all(
        isinstance(n, numbers.Integral) and 1 <= n <= WIDEST for n in sizes
    )


def _name(dtype: object) -> str:
    return str(dtype).removeprefix("torch.")


RANGES = {
    "hidden_sizes": Range("a sequence of at least one width >= 1", _is_widths),
    "bias": Range("True or False", lambda b: isinstance(b, bool | np.bool_)),
    "refine": one_of([None, "gauss-newton"]),
    "random_state": Range(
        "None, an integer in 0..2**32 - 1 or a RandomState",
        lambda s: s is None or isinstance(s, np.random.RandomState) or SEED.holds(s),
    ),
    "dtype": Range(
        "None, float32 or float64", lambda d: d is None or _name(d) in DTYPES
    ),
}


class Network(NamedTuple):
    """What the fitted network was made with; the parameters may change after that."""

    hidden_sizes: tuple[int, ...]
    activation: str
    bias: bool
    refine: str | None
    dtype: str


class Batches(NamedTuple):
    """What `partial_fit` goes on from."""

    start: Weights  # the random network, or the one that `fit` has made
    sums: list[LayerSums | None]
    outputs: int
    fitted: float = 0  # rows of `fit`, or what they weigh
    added: float = 0  # rows since then


def at_once(method: Callable) -> Callable:
    """Have a method change its estimator in one moment, when all is done, or never.

    The method changes a copy. An error, an interrupt or a lack of memory on the way
    leaves the estimator as it was, and its ``random_state`` too.
    """

    @wraps(method)
    def change(self: "BaseBPLS", *args: Any, **options: Any) -> "BaseBPLS":
        changed = copy(self)
        drawn = method(changed, *args, **options)
        self.__dict__ = changed.__dict__
        if drawn and isinstance(self.random_state, np.random.RandomState):
            _seed(self.random_state)
        return self

    return change


def _seed(random_state: np.random.RandomState) -> int:
    return int(random_state.randint(np.iinfo(np.int32).max))


@contextmanager
def as_floats(names: str) -> Iterator[None]:
    """Refuse Python integers that no float can hold; NumPy's error names nothing."""
    try:
        yield
    except OverflowError as error:
        raise ValueError(f"{names} must fit into floats: {error}") from error


def labels_of(classes: ArrayLike) -> np.ndarray:
    """Sorted labels; ValueError for what is no list of them."""
    try:
        labels = np.unique(plain(classes, "classes"))
    except (TypeError, ValueError) as error:
        raise ValueError(
            f"classes must be a list of labels, got {described(classes)}"
        ) from error
    if labels.dtype.kind == "O" and not all(isinstance(v, str) for v in labels):
        raise ValueError(f"classes must be a list of labels, got {described(classes)}")
    return labels


def refuse_none(name: str, values: object) -> None:
    """Raise ValueError for values among which there is None."""
    if values is None or isinstance(values, Tensor) or sparse.issparse(values):
        return
    if getattr(getattr(values, "dtype", None), "kind", "O") != "O":
        return
    missing = np.argwhere(np.equal(np.asarray(values, dtype=object), None))
    if len(missing):
        raise ValueError(f"{name} must hold no None, got one in row {missing[0][0]}")


def _coo(X: sparse.csr_array, bias: bool, device: torch.device | None) -> Tensor:
    """A SciPy matrix (D, M) as a sparse tensor, with or without a column of ones."""
    ones = np.ones((X.shape[0], int(bias)), X.dtype)
    X = sparse.hstack([X, sparse.csr_array(ones)], "csr")
    X.sum_duplicates()
    X = X.tocoo()
    where = torch.from_numpy(np.stack(X.coords).astype(np.int64))
    return torch.sparse_coo_tensor(
        where,
        torch.from_numpy(X.data),
        X.shape,
        device=device,
        is_coalesced=True,
        check_invariants=True,
    )


def as_inputs(
    X: np.ndarray | sparse.csr_array, bias: bool, device: torch.device | str | None
) -> Tensor:
    """An array or matrix (D, M) as a tensor there, with the bias column."""
    if sparse.issparse(X):
        return _coo(X, bias, device)
    X = torch.tensor(X, device=device)
    return F.pad(X, (0, 1), value=1) if bias else X


def takes_batches(self: "BaseBPLS") -> bool:
    """Whether the rows may come in batches, or are all needed at once."""
    return self.refine is None and getattr(self, "class_weight", None) != "balanced"


@dataclass(eq=False, repr=False)
class BaseBPLS(BaseEstimator):
    """What the two estimators share: the door, the network and its history."""

    hidden_sizes: Sequence[int] = (50,)
    activation: str = "sigmoid"
    interpretation: str | int = "min_norm"
    clamp: float | None = CLAMP
    ridge: float | None = None
    bias: bool = False
    max_walks: int = 20
    refine: str | None = None
    random_state: int | np.random.RandomState | None = None
    dtype: str | torch.dtype | None = None
    device: str | torch.device | None = None

    def _check_parameters(self) -> None:
        check_options({name: getattr(self, name) for name in RANGES}, RANGES)
        self._settings().check()
        check_device(self.device)
        (activation if self.refine else invertible)(self.activation)
        if self.refine and len(self.hidden_sizes) != 1:
            raise ValueError(
                "the refinement takes one hidden layer, got hidden_sizes="
                f"{self.hidden_sizes!r}"
            )
        idle = () if isinstance(self, ClassifierMixin) else ("max_walks",)
        for name in ("interpretation", "clamp") if self.refine else idle:
            value, default = getattr(self, name), DEFAULTS[name]
            if value != default:
                raise ValueError(
                    f"{name}={value!r} changes nothing with refine={self.refine!r}; "
                    f"leave it at {default!r}"
                )

    def _settings(self) -> Settings:
        return Settings(
            self.interpretation, self.clamp, self.ridge, max_walks=self.max_walks
        )

    def _made_of(self, dtype: str) -> Network:
        return Network(
            tuple(self.hidden_sizes), self.activation, self.bias, self.refine, dtype
        )

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags

    def _validated(
        self, X: ArrayLike, reset: bool = False, **y: Any
    ) -> np.ndarray | sparse.csr_array | tuple:
        """X, and y if given, as arrays of the type that the network has."""
        accepted = [np.float64, np.float32]
        if reset and self.dtype is not None:
            accepted = DTYPES[_name(self.dtype)]
        elif not reset:
            accepted = DTYPES[self._network.dtype]
        if "y" in y:
            refuse_none("y", y["y"])
            y["y"] = plain(y["y"], "y")
        with as_floats("X and y"):
            validated = validate_data(
                self,
                plain(X),
                reset=reset,
                dtype=accepted,
                order="C",
                accept_sparse="csr",
                **y,
            )
        values = validated[0] if y else validated
        values = values.data if sparse.issparse(values) else values
        if values.size:  # a sparse matrix of zeros has none
            check_squares("X", values)
        return validated

    def _scores(self, X: ArrayLike) -> np.ndarray:
        """Outputs (D, J) of the fitted network, as an array."""
        check_is_fitted(self, "weights_")
        X, where = self._validated(X), self.weights_[0].device
        return self._outputs(as_inputs(X, self._network.bias, where)).cpu().numpy()

    def _outputs(self, X: Tensor) -> Tensor:
        made = self._network
        if made.refine:
            return refined_scores(X, self.weights_, made.activation)
        return scores(X, self.weights_, made.activation)

    def _draw(self, inputs: int, outputs: int, like: Tensor) -> Weights:
        """Random weights, by a copy of ``random_state``; see `at_once`."""
        sizes = (inputs, *self.hidden_sizes, outputs)
        check_sizes(sizes)
        seed = _seed(check_random_state(deepcopy(self.random_state)))
        return random_weights(
            sizes,
            scale=SCALE if self.refine else 1.0,
            generator=torch.Generator().manual_seed(seed),
            dtype=like.dtype,
            device=like.device,
        )

    def _fit(
        self, X: Tensor, Y: Tensor, outputs: int, weight: np.ndarray | None
    ) -> bool:
        """Run the generators; Y is a tensor of values or labels."""
        if weight is not None:
            weight = torch.tensor(weight, dtype=X.dtype, device=X.device)
        start = self._draw(X.shape[1], outputs, X)
        if self.refine:
            ridge = {} if self.ridge is None else {"ridge": self.ridge}
            ends = refine(
                X,
                Y,
                start[0],
                self.activation,
                sweeps=self.max_walks,
                weight=weight,
                **ridge,
            )
        else:
            records = train(
                X, Y, start, self.activation, self._settings(), weight=weight
            )
            ends = (record.end for record in records if record.end)
        self.history_ = []
        for end in ends:
            self.history_.append({name: getattr(end, name) for name in HISTORY})
        self.weights_ = end.best
        self.n_samples_seen_ = len(X)
        self._network = self._made_of(_name(X.dtype))
        mass = len(X) if weight is None else weight.sum().item()
        self._batches = Batches(end.best, [None] * len(end.best), outputs, mass)
        return True

    def _is_first(self) -> bool:
        """Whether `partial_fit` begins; ValueError where it cannot go on."""
        self._check_parameters()
        if not hasattr(self, "weights_"):
            return True
        made, asked = self._network, self._made_of(self._network.dtype)
        for name, before, now in zip(made._fields, made, asked, strict=True):
            if before != now:
                raise ValueError(
                    f"{name} must stay {before!r}, as at the first call, got {now!r}"
                )
        if self.dtype is not None and _name(self.dtype) != made.dtype:
            raise ValueError(
                f"dtype must stay {made.dtype}, as at the first call, got {self.dtype}"
            )
        return False

    def _add(
        self, X: Tensor, Y: Tensor, outputs: int, weight: np.ndarray | None, first: bool
    ) -> bool:
        """Take a batch in; Y is a tensor of values or labels."""
        if weight is not None:
            weight = torch.tensor(weight, dtype=X.dtype, device=X.device)
        if first:
            start = self._draw(X.shape[1], outputs, X)
            self._batches = Batches(start, [None] * len(start), outputs)
            self.history_, self.n_samples_seen_ = [], 0
            self._network = self._made_of(_name(X.dtype))
        batches = self._batches
        labelled, clock = Y.dtype == torch.int64, Clock(X.device)
        with clock:
            sums, weights, infos = batch_walk(
                batches.sums,
                X,
                output_targets(Y, classes=outputs, dtype=X.dtype),
                batches.start,
                [activation(self.activation)] * len(self.hidden_sizes),
                self._settings(),
                ridge=RIDGE if self.ridge is None else float(self.ridge),
                second_solve=labelled,
                root=None if weight is None else weight[:, None].sqrt(),
            )
            mass = len(X) if weight is None else weight.sum().item()
            added = batches.added + mass
            f = added / (batches.fitted + added)
            self.weights_ = blend(batches.start, weights, f)
            S = self._outputs(X)
            if labelled:
                error = counted(S.argmax(-1) != Y, weight)
            else:
                squares = weighed(relative(weight), (S - Y).square())
                error = squares.mean().sqrt()
            error = error.item()
        if not math.isfinite(error) or not all_finite(self.weights_):
            raise DivergedError("the weights that this batch leads to are not finite")
        row = {"walk": len(self.history_), "samples": len(X), "blend": f}
        row.update(judged(error, mass, labelled)._asdict())
        row.update(seconds=clock.seconds, rank=int(infos[0].rank))
        row["condition"] = max(float(info.condition) for info in infos)
        self.history_ = [*self.history_, row]
        self._batches = batches._replace(sums=sums, added=added)
        self.n_samples_seen_ += len(X)
        return first


DEFAULTS = {field.name: field.default for field in dataclasses.fields(BaseBPLS)}
