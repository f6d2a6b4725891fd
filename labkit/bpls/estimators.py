"""BPLS as scikit-learn estimators; torch inside, on any device."""

import dataclasses
import numbers

import numpy as np
import torch
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
from sklearn.utils import check_random_state
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data
from torch.nn import functional as F

from labkit.bpls.activations import CLAMP, activation, invertible
from labkit.bpls.refine import SCALE, refine, refined_scores
from labkit.bpls.train import WalkEnd, check_walks, train
from labkit.bpls.walk import random_weights, scores

REFINE = (None, "gauss-newton")
DTYPES = {"float32": np.float32, "float64": np.float64}
HISTORY = [f.name for f in dataclasses.fields(WalkEnd) if f.repr]


class _BPLS(BaseEstimator):
    """What the two estimators share: the door, the network and its history."""

    def __init__(
        self,
        hidden_sizes=(50,),
        activation="sigmoid",
        reading="min_norm",
        clamp=CLAMP,
        ridge=None,
        bias=False,
        max_walks=20,
        refine=None,
        random_state=None,
        dtype=None,
        device=None,
    ):
        self.hidden_sizes = hidden_sizes
        self.activation = activation
        self.reading = reading
        self.clamp = clamp
        self.ridge = ridge
        self.bias = bias
        self.max_walks = max_walks
        self.refine = refine
        self.random_state = random_state
        self.dtype = dtype
        self.device = device

    def _check_parameters(self):
        sizes = self.hidden_sizes
        if isinstance(sizes, numbers.Integral):
            raise ValueError(f"hidden_sizes must be a sequence of widths, got {sizes}")
        if not sizes or any(
            not isinstance(n, numbers.Integral) or n < 1 for n in sizes
        ):
            raise ValueError(
                f"hidden_sizes must hold at least one width >= 1, got {sizes!r}"
            )
        if self.refine not in REFINE:
            raise ValueError(
                f'refine must be None or "gauss-newton", got {self.refine!r}'
            )
        if self.refine and len(sizes) != 1:
            raise ValueError(
                f"the refinement takes one hidden layer, got hidden_sizes={sizes!r}"
            )
        check_walks(self.reading, self.clamp, self.max_walks)
        (activation if self.refine else invertible)(self.activation)
        if self.ridge is not None and not self.ridge >= 0:
            raise ValueError(f"ridge must be >= 0, got {self.ridge}")
        if self.dtype is not None and _name(self.dtype) not in DTYPES:
            known = ", ".join(DTYPES)
            raise ValueError(
                f"dtype must be None or one of {known}; got {self.dtype!r}"
            )

    def _validated(self, X, reset=False, **y):
        """X, and y if given, as arrays of the type that the network has."""
        accepted = [np.float64, np.float32]
        if self.dtype is not None:
            accepted = DTYPES[_name(self.dtype)]
        elif not reset:
            accepted = DTYPES[self._dtype]
        return validate_data(self, X, reset=reset, dtype=accepted, order="C", **y)

    def _inputs(self, X):
        """An array (D, M) as a tensor on the device, with the bias column."""
        X = torch.tensor(X, device=self.device)
        return F.pad(X, (0, 1), value=1) if self.bias else X

    def _scores(self, X):
        """Outputs (D, J) of the fitted network, as an array."""
        check_is_fitted(self)
        X = self._inputs(self._validated(X))
        if self.refine:
            S = refined_scores(X, self.weights_, self.activation)
        else:
            hidden = [activation(self.activation)] * len(self.hidden_sizes)
            S = scores(X, self.weights_, hidden)
        return S.cpu().numpy()

    def _fit(self, X, Y, outputs):
        """Run the generators; Y is a tensor of values or labels."""
        seed = check_random_state(self.random_state).randint(np.iinfo(np.int32).max)
        start = random_weights(
            (X.shape[1], *self.hidden_sizes, outputs),
            scale=SCALE if self.refine else 1.0,
            generator=torch.Generator().manual_seed(int(seed)),
            dtype=X.dtype,
            device=X.device,
        )
        ridge = {} if self.ridge is None else {"ridge": self.ridge}
        if self.refine:
            ends = refine(
                X, Y, start[0], self.activation, sweeps=self.max_walks, **ridge
            )
        else:
            records = train(
                X,
                Y,
                start,
                self.activation,
                reading=self.reading,
                clamp=self.clamp,
                max_walks=self.max_walks,
                **ridge,
            )
            ends = (record.end for record in records if record.end)
        self.history_ = []
        for end in ends:
            self.history_.append({name: getattr(end, name) for name in HISTORY})
        self.weights_ = end.best
        self._dtype = _name(X.dtype)
        return self


class BPLSRegressor(RegressorMixin, _BPLS):
    r"""A small network fitted in closed form (Tomic et al. 2024, Algorithm 1).

    Parameters
    ----------
    hidden_sizes : tuple of int
        Widths of the hidden layers.
    activation : str
        "identity", "sigmoid", "tanh", "softplus", "elu" or "softmax"; the outputs have
        none. With ``refine`` also "relu", and not "softmax".
    reading : str or int
        Of equation (5), see `hidden_targets`.
    clamp : float in [0, 0.5) or None
        How far hidden targets are kept from the ends of the activation's range. 0 or
        None leaves them, which raises where a target has no inverse.
    ridge : float >= 0, optional
        Relative ridge of every solve: 1e-4 if not given, 1e-3 with ``refine``. 0 is the
        exact minimum-norm solution, not for ``refine``.
    bias : bool
        Append a column of ones to the inputs, the only bias that the paper has.
    max_walks : int >= 0
        Sweeps of the refinement; the paper's algorithm makes one walk, whatever it is.
    refine : {None, "gauss-newton"}
        "gauss-newton" trains by the refinement instead, which is ours and not the
        paper's: see `labkit.bpls.refine`. It starts from weights in U[-0.3, 0.3], the
        paper's walk from U[-1, 1].
    random_state : int, RandomState or None
        Of the initial weights; the same network on every device and in every dtype.
    dtype : {None, "float32", "float64"}
        Of the network. None follows X, float64 for what is not floating-point.
    device : str or torch.device, optional
        Where the network is fitted and used; torch's default device if not given.

    Attributes
    ----------
    weights_ : tuple of tensors
        W_1, ..., W_{L+1}, (N_{l-1}, N_l). With ``refine`` the last has one more row, of
        the constant unit.
    history_ : list of dict
        One per walk or sweep: the numbers of `WalkEnd`.
    n_features_in_ : int

    Notes
    -----
    In a small network single draws of the initial weights end in saturated units, as in
    the paper's non-linear toy: compare a few of ``random_state``, or take
    ``reading="none"``, which leaves the hidden layer random.

    Examples
    --------
    >>> import numpy as np
    >>> x = np.linspace(-1, 1, 50)[:, None]
    >>> y = np.sin(3 * x[:, 0])
    >>> net = BPLSRegressor(activation="tanh", bias=True, random_state=0).fit(x, y)
    >>> bool(net.score(x, y) > 0.99)
    True
    """

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags

    def fit(self, X, y):
        """Fit the weights.

        Parameters
        ----------
        X : (D, M) array-like
        y : (D,) or (D, J) array-like

        Returns
        -------
        self

        Raises
        ------
        ValueError
            Parameters or data that cannot be used, NaN among them.
        """
        self._check_parameters()
        X, y = self._validated(X, reset=True, y=y, multi_output=True, y_numeric=True)
        X = self._inputs(X)
        Y = torch.tensor(y.reshape(len(y), -1), dtype=X.dtype, device=X.device)
        self._single = y.ndim == 1
        return self._fit(X, Y, Y.shape[1])

    def predict(self, X):
        """Outputs of the network.

        Parameters
        ----------
        X : (D, M) array-like

        Returns
        -------
        (D,) or (D, J) array, as y was

        Raises
        ------
        ValueError
            If X has another width than at ``fit``.
        """
        S = self._scores(X)
        return S[:, 0] if self._single else S


class BPLSClassifier(ClassifierMixin, _BPLS):
    r"""A small classifier by walks in closed form (Tomic et al. 2024, Algorithm 2).

    A first walk over all samples, then walks over the misses alone, each blended in by
    the share of misses; it stops at the first walk that does not lower the misses, and
    keeps the best.

    Parameters
    ----------
    hidden_sizes, activation, reading, clamp, ridge, bias, random_state, dtype, device :
        See `BPLSRegressor`. The outputs are a softmax, whose decision is the largest
        score.
    max_walks : int >= 0
        Cap on the walks over misses; 0 leaves the first walk only. With ``refine`` the
        number of sweeps.
    refine : {None, "gauss-newton"}
        See `BPLSRegressor`.

    Attributes
    ----------
    classes_ : (J,) array
    weights_, history_, n_features_in_ : see `BPLSRegressor`

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> X, y = load_iris(return_X_y=True)
    >>> net = BPLSClassifier(hidden_sizes=(20,), random_state=0).fit(X, y)
    >>> bool(net.score(X, y) > 0.9)
    True
    >>> [row["walk"] for row in net.history_][:2]
    [0, 1]
    """

    def fit(self, X, y):
        """Fit the weights.

        Parameters
        ----------
        X : (D, M) array-like
        y : (D,) array-like of labels

        Returns
        -------
        self

        Raises
        ------
        ValueError
            Parameters or data that cannot be used, NaN and a single class among them.
        """
        self._check_parameters()
        X, y = self._validated(X, reset=True, y=y)
        check_classification_targets(y)
        self.classes_, labels = np.unique(y, return_inverse=True)
        if len(self.classes_) < 2:
            raise ValueError(
                f"y holds one class only, {self.classes_[0]}; a classifier needs at "
                "least two"
            )
        X = self._inputs(X)
        Y = torch.tensor(labels, dtype=torch.int64, device=X.device)
        return self._fit(X, Y, len(self.classes_))

    def decision_function(self, X):
        """Scores before the output softmax.

        Parameters
        ----------
        X : (D, M) array-like

        Returns
        -------
        (D, J) array, or (D,) for two classes: the second's score minus the first's

        Raises
        ------
        ValueError
            If X has another width than at ``fit``.
        """
        S = self._scores(X)
        return S[:, 1] - S[:, 0] if len(self.classes_) == 2 else S

    def predict(self, X):
        """Class of the largest score.

        Parameters
        ----------
        X : (D, M) array-like

        Returns
        -------
        (D,) array

        Raises
        ------
        ValueError
            If X has another width than at ``fit``.
        """
        S = self._scores(X)
        return self.classes_[S.argmax(1)]


def _name(dtype):
    return str(dtype).removeprefix("torch.")
