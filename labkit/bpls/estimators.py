"""BPLS as scikit-learn estimators; torch inside, on any device."""

import dataclasses
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import ArrayLike
from scipy.special import softmax
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
from sklearn.utils import Tags, check_random_state
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data
from torch import Tensor
from torch.nn import functional as F

from labkit.at_once import at_once
from labkit.bpls.activations import CLAMP
from labkit.bpls.solve import DTYPES
from labkit.bpls.train import WalkEnd, train
from labkit.bpls.walk import Settings, random_weights, scores
from labkit.check import (
    COUNT,
    YES_OR_NO,
    Range,
    check_device,
    check_options,
    check_squares,
    one_of,
    optional,
)

SPREAD = 1000  # of the columns' standard deviations, above which `fit` warns
HISTORY = [field.name for field in dataclasses.fields(WalkEnd) if field.repr]
RANGES = {
    "hidden_sizes": Range(
        "a sequence of at least one width >= 1",
        lambda sizes: (
            np.iterable(sizes) and len(sizes) and all(map(COUNT.holds, sizes))
        ),
    ),
    "bias": YES_OR_NO,
    "dtype": optional(one_of(["float32", "float64", *DTYPES])),
}


@dataclass(eq=False, repr=False)
class BaseBPLS(BaseEstimator):
    """The parameters of both estimators, their fit and their scores."""

    hidden_sizes: Sequence[int] = (50,)
    activation: str = "sigmoid"
    interpretation: str | int = "min_norm"
    clamp: float | None = CLAMP
    ridge: float | None = None
    bias: bool = False
    random_state: int | np.random.RandomState | None = None
    dtype: str | torch.dtype | None = None
    device: str | torch.device | None = None

    def _read(self, X: ArrayLike, y: ArrayLike, **checks: Any) -> tuple[Tensor, Any]:
        """Return inputs with their bias as a tensor, and targets as an array."""
        check_options({name: getattr(self, name) for name in RANGES}, RANGES)
        check_device(self.device)
        accepted = [np.float64, np.float32]
        if self.dtype is not None:
            accepted = str(self.dtype).removeprefix("torch.")
        X, y = validate_data(self, X, y, dtype=accepted, order="C", **checks)
        deviations = X.std(0, dtype=np.float64)[np.ptp(X, 0) > 0]
        if len(deviations) and deviations.max() > SPREAD * deviations.min():
            warnings.warn(
                f"standard deviations of the columns of X go from "
                f"{deviations.min():.3g} to {deviations.max():.3g}; scale the columns, "
                f"for instance by scikit-learn's StandardScaler",
                stacklevel=4,  # of who calls fit
            )
        self._bias = self.bias
        return self._inputs(X, self.device), y

    def _inputs(self, X: np.ndarray, device: str | torch.device | None) -> Tensor:
        check_squares("X", X)
        X = torch.tensor(X, device=device)
        return F.pad(X, (0, 1), value=1) if self._bias else X

    def _fit(self, X: Tensor, Y: Tensor, outputs: int, **options: Any) -> None:
        """Train from random weights; Y are values or labels."""
        seed = check_random_state(self.random_state).randint(np.iinfo(np.int32).max)
        start = random_weights(
            (X.shape[1], *self.hidden_sizes, outputs),
            generator=torch.Generator().manual_seed(int(seed)),
            dtype=X.dtype,
            device=X.device,
        )
        settings = Settings(self.interpretation, self.clamp, self.ridge, **options)
        records = train(X, Y, start, self.activation, settings)
        ends = [record.end for record in records if record.end]
        self.history_ = [{name: getattr(end, name) for name in HISTORY} for end in ends]
        self.weights_, self._activation = ends[-1].best, self.activation

    def _scores(self, X: ArrayLike) -> np.ndarray:
        """Return the outputs (D, J) of the fitted network."""
        check_is_fitted(self, "weights_")
        W = self.weights_[0]
        dtype = str(W.dtype).removeprefix("torch.")
        X = validate_data(self, X, reset=False, dtype=dtype, order="C")
        S = scores(self._inputs(X, W.device), self.weights_, self._activation)
        return S.cpu().numpy()


@dataclass(eq=False, repr=False)
class BPLSRegressor(RegressorMixin, BaseBPLS):
    r"""A small network fitted in closed form (Tomic et al. 2024, Algorithm 1).

    Parameters
    ----------
    hidden_sizes : tuple of int, widths of the hidden layers
    activation : str
        "identity", "sigmoid", "tanh", "softplus", "softminus", "elu" or "softmax"; the
        outputs have none.
    interpretation : str or int, of equation (5), see `hidden_targets`
    clamp : float in (0, 0.5) or None
        Distance of hidden targets from the ends of the activation's range. None does
        not clamp, which raises an error if a target has no inverse.
    ridge : float >= 0, optional
        Relative ridge of every solve, by default 1e-4. 0 gives the exact minimum-norm
        solution.
    bias : bool, append a column of ones to the inputs, the paper's only bias
    random_state : int, RandomState or None
        Source of the initial weights, the same on every device and in every dtype.
    dtype : {None, "float32", "float64"}
        Type of the network. None takes that of X, or float64 if X is not
        floating-point.
    device : str or torch.device, optional; torch's default if not given

    Attributes
    ----------
    weights_ : tuple of tensors, W_1, ..., W_{L+1}, (N_{l-1}, N_l)
    history_ : list of dict, one per walk: the numbers of `WalkEnd`
    n_features_in_ : int

    Notes
    -----
    In a small network single draws of the initial weights end in saturated units, as in
    the paper's non-linear toy: compare a few of ``random_state``, or take
    ``interpretation="none"``, which leaves the hidden layer random.

    The mean of the targets is taken off before the walk, since the output layer has no
    intercept, and added to what the network gives.

    Columns of X must be of one scale, as after scikit-learn's ``StandardScaler``: the
    random first weights and the relative ridge are the same for all of them. `fit`
    warns where the standard deviations of two columns that are not constant differ by a
    factor of more than a thousand.

    Whatever stops `fit`, an error, an interrupt or a lack of memory, leaves the
    estimator as it was.

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
    def fit(self, X: ArrayLike, y: ArrayLike) -> Self:
        """Fit to X (D, M) and y (D,) or (D, J); ValueError if they cannot be used."""
        X, y = self._read(X, y, multi_output=True, y_numeric=True)
        self._single, y = y.ndim == 1, y.reshape(len(X), -1)
        self._mean = y.mean(0, dtype=np.float64)
        Y = torch.tensor(y - self._mean, dtype=X.dtype, device=X.device)
        self._fit(X, Y, Y.shape[1])
        return self

    def predict(self, X: ArrayLike) -> np.ndarray:
        """Return outputs, (D,) or (D, J) as y was; ValueError for another width."""
        S = self._scores(X)
        S = S + self._mean.astype(S.dtype)
        return S[:, 0] if self._single else S


@dataclass(eq=False, repr=False)
class BPLSClassifier(ClassifierMixin, BaseBPLS):
    r"""A small classifier by walks in closed form (Tomic et al. 2024, Algorithm 2).

    A first walk over all samples, then walks over the misses alone, each blended in by
    the share of misses; it stops at the first walk that does not lower the misses, and
    keeps the best.

    Parameters
    ----------
    hidden_sizes, activation, interpretation, clamp, ridge, bias
        As for `BPLSRegressor`, whose notes on the scales of columns hold here too. The
        outputs are a softmax: the largest score decides.
    random_state, dtype, device : as for `BPLSRegressor`
    max_walks : int >= 0
        Limit on the walks over misses; 0 means the first walk only.

    Attributes
    ----------
    classes_ : (J,) array
    weights_, history_, n_features_in_ : as of `BPLSRegressor`

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> X, y = load_iris(return_X_y=True)
    >>> net = BPLSClassifier(hidden_sizes=(20,), random_state=0).fit(X, y)
    >>> bool(net.score(X, y) > 0.9)
    True
    """

    max_walks: int = 20

    @at_once
    def fit(self, X: ArrayLike, y: ArrayLike) -> Self:
        """Fit to X (D, M) and labels y (D,); ValueError also for a single class."""
        X, y = self._read(X, y)
        check_classification_targets(y)
        self.classes_, labels = np.unique(y, return_inverse=True)
        if len(self.classes_) < 2:
            raise ValueError(
                f"y holds one class only, {self.classes_[0]}; a classifier needs at "
                "least two"
            )
        Y = torch.tensor(labels, dtype=torch.int64, device=X.device)
        self._fit(X, Y, len(self.classes_), max_walks=self.max_walks)
        return self

    def decision_function(self, X: ArrayLike) -> np.ndarray:
        """Return scores (D, J) before the softmax; ValueError for another width.

        For two classes (D,): the second's score minus the first's.
        """
        S = self._scores(X)
        return S[:, 1] - S[:, 0] if len(self.classes_) == 2 else S

    def predict(self, X: ArrayLike) -> np.ndarray:
        """Return the class of the largest score, (D,); ValueError for another width."""
        S = self._scores(X)
        return self.classes_[S.argmax(1)]

    def predict_proba(self, X: ArrayLike) -> np.ndarray:
        """Return shares (D, J) of the classes, the softmax of the scores.

        Rows sum to one. They are not calibrated.
        """
        return softmax(self._scores(X), 1)
