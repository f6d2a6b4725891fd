"""BPLS as scikit-learn estimators; torch inside, on any device."""

import dataclasses
import math
import numbers
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import copy, deepcopy
from dataclasses import dataclass
from functools import wraps
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import ArrayLike
from scipy import sparse
from scipy.special import softmax
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
from sklearn.utils import Tags, check_random_state
from sklearn.utils.class_weight import compute_class_weight
from sklearn.utils.metaestimators import available_if
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data
from torch import Tensor
from torch.nn import functional as F

from labkit.arrays import check_device, plain, weights_of_rows
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
from labkit.clock import Clock
from labkit.door import described
from labkit.errors import DivergedError
from labkit.ranges import Range, check, check_squares, integer, one_of

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
    def change(self: "_BPLS", *args: Any, **options: Any) -> "_BPLS":
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
def _as_floats(names: str) -> Iterator[None]:
    """Refuse Python integers that no float can hold; NumPy's error names nothing."""
    try:
        yield
    except OverflowError as error:
        raise ValueError(f"{names} must fit into floats: {error}") from error


def _labels_of(classes: ArrayLike) -> np.ndarray:
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


def _refuse_none(name: str, values: object) -> None:
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


def _inputs(
    X: np.ndarray | sparse.csr_array, bias: bool, device: torch.device | str | None
) -> Tensor:
    """An array or matrix (D, M) as a tensor there, with the bias column."""
    if sparse.issparse(X):
        return _coo(X, bias, device)
    X = torch.tensor(X, device=device)
    return F.pad(X, (0, 1), value=1) if bias else X


def _takes_batches(self: "_BPLS") -> bool:
    """Whether the rows may come in batches, or are all needed at once."""
    return self.refine is None and getattr(self, "class_weight", None) != "balanced"


@dataclass(eq=False, repr=False)
class _BPLS(BaseEstimator):
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
        check({name: getattr(self, name) for name in RANGES}, RANGES)
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
            _refuse_none("y", y["y"])
            y["y"] = plain(y["y"], "y")
        with _as_floats("X and y"):
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
        return self._outputs(_inputs(X, self._network.bias, where)).cpu().numpy()

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
            self.weights_ = blend(batches.start, weights, f)  # (20)
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


DEFAULTS = {field.name: field.default for field in dataclasses.fields(_BPLS)}


@dataclass(eq=False, repr=False)
class BPLSRegressor(RegressorMixin, _BPLS):
    r"""A small network fitted in closed form (Tomic et al. 2024, Algorithm 1).

    Parameters
    ----------
    hidden_sizes : tuple of int, widths of the hidden layers
    activation : str
        "identity", "sigmoid", "tanh", "softplus", "softminus", "elu" or "softmax"; the
        outputs have none. With ``refine`` also "relu", and not "softmax".
    interpretation : str or int, of equation (5), see `hidden_targets`
    clamp : float in (0, 0.5) or None
        How far hidden targets are kept from the ends of the activation's range. None
        leaves them, which raises where a target has no inverse.
    ridge : float >= 0, optional
        Relative ridge of every solve: 1e-4 if not given, 1e-3 with ``refine``. 0 is the
        exact minimum-norm solution, not for ``refine``.
    bias : bool, append a column of ones to the inputs, the paper's only bias
    max_walks : int >= 0
        Sweeps of the refinement. The paper's algorithm makes one walk: without
        ``refine`` another value than the default is refused.
    refine : {None, "gauss-newton"}
        "gauss-newton" trains by the refinement instead, which is ours and not the
        paper's: see `labkit.bpls.refine`. It starts from weights in U[-0.3, 0.3], the
        paper's walk from U[-1, 1]. It reads no ``interpretation`` and no ``clamp``, and
        refuses other values than their defaults. It has no `partial_fit`.
    random_state : int, RandomState or None
        Of the initial weights; the same network on every device and in every dtype.
    dtype : {None, "float32", "float64"}
        Of the network. None follows X, float64 for what is not floating-point.
    device : str or torch.device, optional; torch's default if not given

    Attributes
    ----------
    weights_ : tuple of tensors
        W_1, ..., W_{L+1}, (N_{l-1}, N_l). With ``refine`` the last has one more row, of
        the constant unit.
    history_ : list of dict, one per walk or sweep: the numbers of `WalkEnd`
        One per call of `partial_fit`, with fewer numbers: its error is of the batch.
    n_features_in_, n_samples_seen_ : int

    Notes
    -----
    In a small network single draws of the initial weights end in saturated units, as in
    the paper's non-linear toy: compare a few of ``random_state``, or take
    ``interpretation="none"``, which leaves the hidden layer random.

    A sparse X stays sparse, unless it has at most 65,536 entries and ``ridge=0``.

    Whatever stops `fit` or `partial_fit`, an error, an interrupt or a lack of memory,
    leaves the estimator as it was.

    Examples
    --------
    >>> import numpy as np
    >>> x = np.linspace(-1, 1, 50)[:, None]
    >>> y = np.sin(3 * x[:, 0])
    >>> net = BPLSRegressor(activation="tanh", bias=True, random_state=0).fit(x, y)
    >>> bool(net.score(x, y) > 0.99)
    True
    """

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags

    @at_once
    def fit(
        self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None = None
    ) -> "BPLSRegressor":
        """Fit to X (D, M), y (D,) or (D, J) and weights (D,) of the samples, if any.

        X may be sparse. A sample of weight 2 is there twice, one of weight 0 not at
        all. ValueError if they cannot be used.
        """
        self._check_parameters()
        X, Y, weight = self._rows(X, y, sample_weight, reset=True)
        return self._fit(X, Y, Y.shape[1], weight)

    @available_if(_takes_batches)
    @at_once
    def partial_fit(
        self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None = None
    ) -> "BPLSRegressor":
        r"""Take a batch of rows into the one walk of Algorithm 1.

        The walk's normal equations are sums over the rows of all calls: see
        `labkit.bpls.batches`. The first call gives what `fit` gives on its rows, and
        the output layer is always that of `fit` on all rows so far. The targets of a
        hidden layer are made with the weights that the rows up to their batch give.

        After `fit` the walk starts from the network W that `fit` made, and its result
        W' is blended in by the share f of the rows since then among all rows, as
        Algorithm 2 blends its walks:

        (20) $W \leftarrow (1 - f)\,W + f\,W'$.

        Parameters
        ----------
        X, y, sample_weight : as for `fit`
            y must keep its number of columns.

        Raises
        ------
        ValueError
            Rows that cannot be used; parameters of another network than at the first
            call.
        AttributeError
            With ``refine``, which needs all rows in every sweep.
        """
        first = self._is_first()
        X, Y, weight = self._rows(X, y, sample_weight, reset=first)
        if not first and Y.shape[1] != self._batches.outputs:
            raise ValueError(
                f"y must have {self._batches.outputs} columns, as at the first call, "
                f"got {Y.shape[1]}"
            )
        return self._add(X, Y, Y.shape[1], weight, first)

    def _rows(
        self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None, reset: bool
    ) -> tuple[Tensor, Tensor, np.ndarray | None]:
        X, y = self._validated(X, reset=reset, y=y, multi_output=True, y_numeric=True)
        with _as_floats("y"), np.errstate(over="ignore"):
            y = np.ascontiguousarray(y, dtype=X.dtype)
        check_squares("y", y)
        with _as_floats("sample_weight"):
            weight, rows = weights_of_rows(sample_weight, X)
        X, y = _inputs(X[rows], self.bias, self.device), y[rows]
        if reset:
            self._single = y.ndim == 1
        return X, torch.tensor(y.reshape(len(y), -1), device=X.device), weight

    def predict(self, X: ArrayLike) -> np.ndarray:
        """Outputs, (D,) or (D, J) as y was; ValueError if X has another width."""
        S = self._scores(X)
        return S[:, 0] if self._single else S


@dataclass(eq=False, repr=False)
class BPLSClassifier(ClassifierMixin, _BPLS):
    r"""A small classifier by walks in closed form (Tomic et al. 2024, Algorithm 2).

    A first walk over all samples, then walks over the misses alone, each blended in by
    the share of misses; it stops at the first walk that does not lower the misses, and
    keeps the best.

    Parameters
    ----------
    hidden_sizes, activation, interpretation, clamp, ridge, bias
        As for `BPLSRegressor`. The outputs are a softmax: the largest score decides.
    max_walks : int >= 0
        Cap on the walks over misses; 0 leaves the first walk only. With ``refine`` the
        number of sweeps.
    refine, random_state, dtype, device : as for `BPLSRegressor`
    class_weight : {None, "balanced"} or dict of class to weight
        What the samples of a class weigh, times their ``sample_weight``; "balanced"
        has all classes weigh the same, for which `partial_fit` lacks the rows.

    Attributes
    ----------
    classes_ : (J,) array
    weights_, history_, n_features_in_, n_samples_seen_ : as of `BPLSRegressor`

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> X, y = load_iris(return_X_y=True)
    >>> net = BPLSClassifier(hidden_sizes=(20,), random_state=0).fit(X, y)
    >>> bool(net.score(X, y) > 0.9)
    True
    """

    class_weight: Mapping[Any, float] | str | None = None

    @at_once
    def fit(
        self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None = None
    ) -> "BPLSClassifier":
        """Fit to X (D, M), labels y (D,) and weights (D,); as for `BPLSRegressor`.

        A miss counts by its weight, in the choice of the best walk too. ValueError also
        for a single class.
        """
        self._check_parameters()
        X, y, weight = self._rows(X, y, sample_weight, reset=True)
        self.classes_ = self._checked_classes(np.unique(y))
        return self._fit(*self._encoded(X, y, weight))

    @available_if(_takes_batches)
    @at_once
    def partial_fit(
        self,
        X: ArrayLike,
        y: ArrayLike,
        classes: ArrayLike | None = None,
        sample_weight: ArrayLike | None = None,
    ) -> "BPLSClassifier":
        r"""Take a batch of rows into the first walk of Algorithm 2.

        The walk's normal equations are sums over the rows of all calls: see
        `labkit.bpls.batches`. The first call gives what `fit` gives on its rows with
        ``max_walks=0``; there are no walks over misses, which need all rows. After
        `fit` it is as for `BPLSRegressor`.

        Parameters
        ----------
        X, y, sample_weight : as for `fit`
            A batch may lack classes.
        classes : (J,) array, all labels; for the first call, unless `fit` came before

        Raises
        ------
        ValueError
            Rows that cannot be used; a label that is not among the classes; no classes
            in the first call, or others later; parameters of another network than at
            the first call.
        AttributeError
            With ``refine`` or ``class_weight="balanced"``, which need all rows.
        """
        first = self._is_first()
        if first and classes is None:
            raise ValueError("the first call of partial_fit needs all classes=")
        X, y, weight = self._rows(X, y, sample_weight, reset=first)
        if classes is not None:
            _refuse_none("classes", classes)
            known = self._checked_classes(_labels_of(classes))
            if not first and not np.array_equal(known, self.classes_):
                raise ValueError(
                    f"classes must stay {self.classes_}, as at the first call, got "
                    f"{known}"
                )
            self.classes_ = known
        strange = np.setdiff1d(y, self.classes_)
        if len(strange):
            raise ValueError(
                f"y holds {strange.tolist()[0]!r}, which is not among the classes "
                f"{self.classes_}"
            )
        return self._add(*self._encoded(X, y, weight), first)

    def _rows(
        self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None, reset: bool
    ) -> tuple[np.ndarray | sparse.csr_array, np.ndarray, np.ndarray | None]:
        X, y = self._validated(X, reset=reset, y=y)
        check_classification_targets(y)
        with _as_floats("sample_weight"):
            weight, rows = weights_of_rows(sample_weight, X)
        return X[rows], y[rows], weight

    @staticmethod
    def _checked_classes(classes: np.ndarray) -> np.ndarray:
        if len(classes) < 2:
            only = classes[0] if len(classes) else "none"
            raise ValueError(
                f"y holds one class only, {only}; a classifier needs at least two"
            )
        return classes

    def _encoded(
        self,
        X: np.ndarray | sparse.csr_array,
        y: np.ndarray,
        weight: np.ndarray | None,
    ) -> tuple[Tensor, Tensor, int, np.ndarray | None]:
        """Inputs, labels 0..J-1, J, and the weights of samples and classes together."""
        labels = np.searchsorted(self.classes_, y)
        if self.class_weight is not None:
            of_class = compute_class_weight(
                self.class_weight, classes=self.classes_, y=y, sample_weight=weight
            )
            if not (np.isfinite(of_class) & (of_class >= 0)).all():
                raise ValueError(
                    f"class_weight must be >= 0 and finite, got {self.class_weight!r}"
                )
            of_row = of_class[labels] * (1.0 if weight is None else weight)
            weight, rows = weights_of_rows(of_row, X)
            X, labels = X[rows], labels[rows]
        X = _inputs(X, self.bias, self.device)
        Y = torch.tensor(labels, dtype=torch.int64, device=X.device)
        return X, Y, len(self.classes_), weight

    def decision_function(self, X: ArrayLike) -> np.ndarray:
        """Scores (D, J) before the output softmax; ValueError if X has another width.

        For two classes (D,): the second's score minus the first's.
        """
        S = self._scores(X)
        return S[:, 1] - S[:, 0] if len(self.classes_) == 2 else S

    def predict(self, X: ArrayLike) -> np.ndarray:
        """Class of the largest score, (D,); ValueError if X has another width."""
        S = self._scores(X)
        return self.classes_[S.argmax(1)]

    def predict_proba(self, X: ArrayLike) -> np.ndarray:
        """Shares (D, J) of the classes, rows sum to one: the softmax of the scores.

        Not calibrated; with ``refine`` the scores are for one-hot labels.
        """
        return softmax(self._scores(X), 1)
