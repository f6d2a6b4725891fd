"""BPLS as scikit-learn estimators; torch inside, on any device."""

import dataclasses
import inspect
import numbers
from collections.abc import Sequence

import numpy as np
import torch
from scipy import sparse
from scipy.special import softmax
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
from sklearn.utils import check_random_state
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data
from torch.nn import functional as F

from labkit.arrays import plain, weights_of_rows
from labkit.bpls.activations import CLAMP, activation, invertible
from labkit.bpls.refine import SCALE, refine, refined_scores
from labkit.bpls.train import WalkEnd, train
from labkit.bpls.walk import Settings, random_weights, scores
from labkit.ranges import Range, check, check_squares, one_of

DTYPES = {"float32": np.float32, "float64": np.float64}
HISTORY = [f.name for f in dataclasses.fields(WalkEnd) if f.repr]


def _widths(sizes):
    whole = isinstance(sizes, Sequence) and len(sizes) > 0
    return whole and all(isinstance(n, numbers.Integral) and n >= 1 for n in sizes)


def _name(dtype):
    return str(dtype).removeprefix("torch.")


RANGES = {
    "hidden_sizes": Range("a sequence of at least one width >= 1", _widths),
    "refine": one_of([None, "gauss-newton"]),
    "dtype": Range(
        "None, float32 or float64", lambda d: d is None or _name(d) in DTYPES
    ),
}


def _coo(X, bias, device):
    """A SciPy matrix (D, M) as a sparse tensor, with or without a column of ones."""
    ones = np.ones((X.shape[0], int(bias)), X.dtype)
    X = sparse.hstack([X, sparse.csr_array(ones)], "csr")
    X.sum_duplicates()
    X = X.tocoo()
    where = torch.from_numpy(np.stack(X.coords).astype(np.int64))
    how = {"device": device, "is_coalesced": True, "check_invariants": True}
    return torch.sparse_coo_tensor(where, torch.from_numpy(X.data), X.shape, **how)


class _BPLS(BaseEstimator):
    """What the two estimators share: the door, the network and its history."""

    def __init__(
        self,
        hidden_sizes=(50,),
        activation="sigmoid",
        interpretation="min_norm",
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
        self.interpretation = interpretation
        self.clamp = clamp
        self.ridge = ridge
        self.bias = bias
        self.max_walks = max_walks
        self.refine = refine
        self.random_state = random_state
        self.dtype = dtype
        self.device = device

    def _check_parameters(self):
        check({name: getattr(self, name) for name in RANGES}, RANGES)
        self._settings().check()
        vars(self).pop("weights_", None)  # a fit that fails leaves nothing fitted
        (activation if self.refine else invertible)(self.activation)
        if self.refine and len(self.hidden_sizes) != 1:
            raise ValueError(
                "the refinement takes one hidden layer, got hidden_sizes="
                f"{self.hidden_sizes!r}"
            )
        idle = () if isinstance(self, ClassifierMixin) else ("max_walks",)
        for name in ("interpretation", "clamp") if self.refine else idle:
            value, default = getattr(self, name), DEFAULTS[name].default
            if value != default:
                raise ValueError(
                    f"{name}={value!r} changes nothing with refine={self.refine!r}; "
                    f"leave it at {default!r}"
                )

    def _settings(self):
        return Settings(
            self.interpretation, self.clamp, self.ridge, max_walks=self.max_walks
        )

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags

    def _validated(self, X, reset=False, **y):
        """X, and y if given, as arrays of the type that the network has."""
        accepted = [np.float64, np.float32]
        if self.dtype is not None:
            accepted = DTYPES[_name(self.dtype)]
        elif not reset:
            accepted = DTYPES[self._dtype]
        y = {name: plain(value) for name, value in y.items()}
        how = {"reset": reset, "dtype": accepted, "order": "C"}
        how["accept_sparse"] = "csr"
        found = validate_data(self, plain(X), **how, **y)
        values = found[0] if y else found
        check_squares("X", values.data if sparse.issparse(values) else values)
        return found

    def _inputs(self, X):
        """An array or matrix (D, M) as a tensor there, with the bias column."""
        if sparse.issparse(X):
            return _coo(X, self.bias, self.device)
        X = torch.tensor(X, device=self.device)
        return F.pad(X, (0, 1), value=1) if self.bias else X

    def _scores(self, X):
        """Outputs (D, J) of the fitted network, as an array."""
        check_is_fitted(self, "weights_")
        X = self._inputs(self._validated(X))
        if self.refine:
            S = refined_scores(X, self.weights_, self.activation)
        else:
            hidden = [activation(self.activation)] * len(self.hidden_sizes)
            S = scores(X, self.weights_, hidden)
        return S.cpu().numpy()

    def _fit(self, X, Y, outputs, weight):
        """Run the generators; Y is a tensor of values or labels."""
        if weight is not None:
            weight = torch.tensor(weight, dtype=X.dtype, device=X.device)
        seed = check_random_state(self.random_state).randint(np.iinfo(np.int32).max)
        sizes = (X.shape[1], *self.hidden_sizes, outputs)
        how = {"generator": torch.Generator().manual_seed(int(seed))}
        how["scale"] = SCALE if self.refine else 1.0
        start = random_weights(sizes, dtype=X.dtype, device=X.device, **how)
        if self.refine:
            options = {} if self.ridge is None else {"ridge": self.ridge}
            options |= {"sweeps": self.max_walks, "weight": weight}
            ends = refine(X, Y, start[0], self.activation, **options)
        else:
            told = self.activation, self._settings()
            records = train(X, Y, start, *told, weight=weight)
            ends = (record.end for record in records if record.end)
        self.history_ = []
        for end in ends:
            self.history_.append({name: getattr(end, name) for name in HISTORY})
        self.weights_ = end.best
        self._dtype = _name(X.dtype)
        return self


DEFAULTS = inspect.signature(_BPLS).parameters


class BPLSRegressor(RegressorMixin, _BPLS):
    r"""A small network fitted in closed form (Tomic et al. 2024, Algorithm 1).

    Parameters
    ----------
    hidden_sizes : tuple of int, widths of the hidden layers
    activation : str
        "identity", "sigmoid", "tanh", "softplus", "elu" or "softmax"; the outputs have
        none. With ``refine`` also "relu", and not "softmax".
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
        refuses other values than their defaults.
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
    n_features_in_ : int

    Notes
    -----
    In a small network single draws of the initial weights end in saturated units, as in
    the paper's non-linear toy: compare a few of ``random_state``, or take
    ``interpretation="none"``, which leaves the hidden layer random.

    A sparse X stays sparse, unless it has at most 65,536 entries and ``ridge=0``. There
    is no ``partial_fit``: every walk needs all rows.

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

    def fit(self, X, y, sample_weight=None):
        """Fit to X (D, M), y (D,) or (D, J) and weights (D,) of the samples, if any.

        X may be sparse. A sample of weight 2 is there twice, one of weight 0 not at
        all. ValueError if they cannot be used.
        """
        self._check_parameters()
        X, y = self._validated(X, reset=True, y=y, multi_output=True, y_numeric=True)
        with np.errstate(over="ignore"):
            y = np.ascontiguousarray(y, dtype=X.dtype)
        check_squares("y", y)
        weight, rows = weights_of_rows(sample_weight, X)
        X, y = self._inputs(X[rows]), y[rows]
        Y = torch.tensor(y.reshape(len(y), -1), device=X.device)
        self._single = y.ndim == 1
        return self._fit(X, Y, Y.shape[1], weight)

    def predict(self, X):
        """Outputs, (D,) or (D, J) as y was; ValueError if X has another width."""
        S = self._scores(X)
        return S[:, 0] if self._single else S


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

    def fit(self, X, y, sample_weight=None):
        """Fit to X (D, M), labels y (D,) and weights (D,); as for `BPLSRegressor`.

        A miss counts by its weight, in the choice of the best walk too. ValueError also
        for a single class.
        """
        self._check_parameters()
        X, y = self._validated(X, reset=True, y=y)
        check_classification_targets(y)
        weight, rows = weights_of_rows(sample_weight, X)
        X, y = X[rows], y[rows]
        self.classes_, labels = np.unique(y, return_inverse=True)
        if len(self.classes_) < 2:
            one = self.classes_[0]
            raise ValueError(
                f"y holds one class only, {one}; a classifier needs at least two"
            )
        X = self._inputs(X)
        Y = torch.tensor(labels, dtype=torch.int64, device=X.device)
        return self._fit(X, Y, len(self.classes_), weight)

    def decision_function(self, X):
        """Scores (D, J) before the output softmax; ValueError if X has another width.

        For two classes (D,): the second's score minus the first's.
        """
        S = self._scores(X)
        return S[:, 1] - S[:, 0] if len(self.classes_) == 2 else S

    def predict(self, X):
        """Class of the largest score, (D,); ValueError if X has another width."""
        S = self._scores(X)
        return self.classes_[S.argmax(1)]

    def predict_proba(self, X):
        """Shares (D, J) of the classes, rows sum to one: the softmax of the scores.

        Not calibrated; with ``refine`` the scores are for one-hot labels.
        """
        return softmax(self._scores(X), 1)
