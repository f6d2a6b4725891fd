"""BPLS as scikit-learn estimators; torch inside, on any device."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike
from scipy import sparse
from scipy.special import softmax
from sklearn.base import ClassifierMixin, RegressorMixin
from sklearn.utils import Tags
from sklearn.utils.class_weight import compute_class_weight
from sklearn.utils.metaestimators import available_if
from sklearn.utils.multiclass import check_classification_targets
from torch import Tensor

from labkit.arrays import weights_of_rows
from labkit.bpls.base import (
    BaseBPLS,
    as_floats,
    as_inputs,
    at_once,
    labels_of,
    refuse_none,
    takes_batches,
)
from labkit.check import check_squares


@dataclass(eq=False, repr=False)
class BPLSRegressor(RegressorMixin, BaseBPLS):
    r"""A small network fitted in closed form (Tomic et al. 2024, Algorithm 1).

    Parameters
    ----------
    hidden_sizes : tuple of int, widths of the hidden layers
    activation : str
        "identity", "sigmoid", "tanh", "softplus", "softminus", "elu" or "softmax"; the
        outputs have none. With ``refine``, "relu" is allowed and "softmax" is not.
    interpretation : str or int, of equation (5), see `hidden_targets`
    clamp : float in (0, 0.5) or None
        Distance of hidden targets from the ends of the activation's range. None does
        not clamp, which raises an error if a target has no inverse.
    ridge : float >= 0, optional
        Relative ridge of every solve, by default 1e-4, or 1e-3 with ``refine``. 0 gives
        the exact minimum-norm solution and is not allowed with ``refine``.
    bias : bool, append a column of ones to the inputs, the paper's only bias
    max_walks : int >= 0
        Number of sweeps of the refinement. The paper's algorithm makes one walk, so
        without ``refine`` only the default is accepted.
    refine : {None, "gauss-newton"}
        "gauss-newton" trains by the refinement instead, which is ours and not the
        paper's: see `labkit.bpls.refine`. It starts from weights in U[-0.3, 0.3], the
        paper's walk from U[-1, 1]. It does not use ``interpretation`` and ``clamp``,
        and accepts only their defaults. It has no `partial_fit`.
    random_state : int, RandomState or None
        Source of the initial weights, the same on every device and in every dtype.
    dtype : {None, "float32", "float64"}
        Type of the network. None takes that of X, or float64 if X is not
        floating-point.
    device : str or torch.device, optional; torch's default if not given

    Attributes
    ----------
    weights_ : tuple of tensors
        W_1, ..., W_{L+1}, (N_{l-1}, N_l). With ``refine`` the last has one more row,
        for the constant unit.
    history_ : list of dict, one per walk or sweep: the numbers of `WalkEnd`
        A call of `partial_fit` adds one, with fewer numbers; its error is of the batch.
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

    @available_if(takes_batches)
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
        with as_floats("y"), np.errstate(over="ignore"):
            y = np.ascontiguousarray(y, dtype=X.dtype)
        check_squares("y", y)
        with as_floats("sample_weight"):
            weight, rows = weights_of_rows(sample_weight, X)
        X, y = as_inputs(X[rows], self.bias, self.device), y[rows]
        if reset:
            self._single = y.ndim == 1
        return X, torch.tensor(y.reshape(len(y), -1), device=X.device), weight

    def predict(self, X: ArrayLike) -> np.ndarray:
        """Outputs, (D,) or (D, J) as y was; ValueError if X has another width."""
        S = self._scores(X)
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
        As for `BPLSRegressor`. The outputs are a softmax: the largest score decides.
    max_walks : int >= 0
        Limit on the walks over misses; 0 means the first walk only. With ``refine`` it
        is the number of sweeps.
    refine, random_state, dtype, device : as for `BPLSRegressor`
    class_weight : {None, "balanced"} or dict of class to weight
        Weight of the samples of each class, times their ``sample_weight``; "balanced"
        gives all classes the same weight, for which `partial_fit` lacks the rows.

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

    @available_if(takes_batches)
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
            refuse_none("classes", classes)
            known = self._checked_classes(labels_of(classes))
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
        with as_floats("sample_weight"):
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
        X = as_inputs(X, self.bias, self.device)
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
