"""Broad learning as scikit-learn estimators that grow by columns, exactly.

The output weights are the ridge solution without intercept on the expanded input A,
with ``A^T A + ridge I`` not divided by the number of samples. They are those of
scikit-learn's ``Ridge(alpha=ridge, fit_intercept=False)`` on the same columns.
"""

from collections.abc import Iterator
from typing import Self

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import softmax
from sklearn.base import ClassifierMixin, RegressorMixin
from sklearn.metrics import accuracy_score, r2_score
from sklearn.utils import Tags, assert_all_finite, column_or_1d
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import validate_data
from torch import Tensor

from labkit.at_once import at_once
from labkit.broad.base import BroadLearning


class BroadLearningClassifier(ClassifierMixin, BroadLearning):
    r"""Broad learning classifier that grows without being trained again.

    The defaults suit tables; with few rows, as many columns and two classes try
    ``ridge=1``. ``**labkit.broad.PAPER`` is the paper's setting for MNIST.

    Parameters
    ----------
    n_groups : int or None, feature groups of the start
        None is ten. With more than a hundred columns it is as many as give two feature
        nodes for a column, but at most a thousand nodes, and never fewer than ten
        groups; with ``scaling="sample"`` ten.
    nodes_per_group : int, feature nodes in each group
    n_enhancement : int, enhancement nodes of the start
    ridge : float, $\lambda$ > 0, a list of them, or None
        From a list ``fit`` takes the ridge with the least mean squared leave-one-out
        error on its columns, as ``RidgeCV`` does, by one eigendecomposition for all.
        Ridges that its sums of squares cannot resolve are skipped. None is the list
        1e-6, 1e-5, ... 1e3.
    solver : str
        A name of :data:`labkit.broad.SOLVERS`. ``"orig"`` and ``"exg-e"`` are the
        published predecessors, which drift from the ridge solution as they grow.
    scaling : str
        ``"feature"`` standardises every column, the choice for tables; ``"sample"``
        standardises every row, as the paper does with images; ``"none"`` does neither.
    shrink : float or None
        Largest pre-activation of an enhancement group in training. The paper's 0.8
        leaves nodes that are nearly linear and needs a tiny ridge. None is 3, or
        0.3 for a regression on more than a hundred columns that are not scaled by row.
    orthonormal : bool, whether enhancement weights are orthonormalised
    sparse_penalty, sparse_iter : float, int, of the autoencoder that tunes features
    dtype : str
        ``"float64"``, or ``"float32"`` for large ridges only: ``fit`` warns where it
        cannot resolve the ridge.
    device : str, optional, of all tensors, for example ``"cuda"``
    random_state : int, RandomState or None
        The seed of the nodes, which are drawn on the CPU in float64 for every device.
    fallback : str, optional
        ``"chol-2"`` replaces ``chol-1`` for good once that loses a pivot in an update;
        ``history_`` says so.

    Attributes
    ----------
    classes_ : (c,) array, class labels
    history_ : list of :class:`~labkit.broad.Growth`
    nodes_ : :class:`~labkit.broad.nodes.Nodes`, all that expands an input
    solver_ : str, the solver in use
    ridge_ : float, the ridge in use
    loo_errors_ : (r,) array, of all ridges to choose from; None where there was one
    weights_ : (k, c) array, output weights; one column for two classes
    n_features_in_, feature_names_in_ : int, array, as in scikit-learn

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> X, y = load_digits(return_X_y=True)
    >>> model = BroadLearningClassifier(8, 8, 100, random_state=0)
    >>> before = model.fit(X[:1200], y[:1200]).score(X[1200:], y[1200:])
    >>> after = model.add_nodes(200).score(X[1200:], y[1200:])
    >>> [record.columns for record in model.history_], bool(after > before)
    ([164, 364], True)
    """

    @at_once
    def fit(self, X: ArrayLike, y: ArrayLike) -> Self:
        """Draw the nodes and solve for the weights; an error changes nothing.

        Parameters
        ----------
        X : (l, d) array
        y : (l,) array of class labels

        Returns
        -------
        self

        Raises
        ------
        NotPositiveDefinite
            The ridge is too small for the start.
        """
        X, y = validate_data(self, X, y)
        check_classification_targets(y)
        self.classes_ = self._labels_of(y)
        self._fit(X, self._coded(y))

    def _labels_of(self, y: np.ndarray) -> np.ndarray:
        """Return the labels of all classes, in order."""
        return np.unique(y)

    def _coded(self, y: np.ndarray) -> np.ndarray:
        """Return the targets coded -1 and +1: (l, c), or (l, 1) for two classes."""
        if len(self.classes_) < 2:
            raise ValueError(
                f"y must hold two classes or more, got 1 class: {self.classes_[0]}"
            )
        Y = np.where(y[:, None] == self.classes_, 1.0, -1.0)
        return Y[:, 1:] if len(self.classes_) == 2 else Y

    def decision_function(self, X: ArrayLike) -> np.ndarray:
        """Compute the outputs A W, (l, c) or (l,) for two classes, coded -1 and +1."""
        raw = self._raw(X).cpu().numpy()
        return raw[:, 0] if raw.shape[1] == 1 else raw

    def predict_proba(self, X: ArrayLike) -> np.ndarray:
        """Return the softmax (l, c) of the outputs, whose rows sum to one.

        For two classes it is the softmax of (-f, f). Least squares on -1 and +1
        estimates 2 p - 1; the softmax has the slope of (f + 1) / 2 at f = 0 and keeps
        the outputs' order. The values are not calibrated; see scikit-learn's
        ``CalibratedClassifierCV``.
        """
        scores = self.decision_function(X)
        if scores.ndim == 1:
            scores = np.stack([-scores, scores], 1)
        return softmax(scores, 1)

    def predict(self, X: ArrayLike) -> np.ndarray:
        """Predict the class labels (l,), each that of the largest output."""
        return self._classes(self._raw(X))

    def staged_score(self, X: ArrayLike, y: ArrayLike) -> Iterator[float]:
        """Yield the accuracy at every size that the present columns went through.

        ``X`` is expanded once. Compare ``staged_score`` of scikit-learn's boosting.
        """
        y = column_or_1d(y)
        for raw in self._staged_raw(X):
            yield accuracy_score(y, self._classes(raw))

    def _classes(self, raw: Tensor) -> np.ndarray:
        chosen = raw[:, 0] > 0 if raw.shape[1] == 1 else raw.argmax(1)
        return self.classes_[chosen.cpu().numpy().astype(int)]

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        # A standardised row loses its mean and scale: a pair keeps only a sign.
        tags.classifier_tags.poor_score = str(self.scaling) == "sample"
        return tags


class BroadLearningRegressor(RegressorMixin, BroadLearning):
    """Broad learning regressor, a ridge regression that grows by columns, exactly.

    Parameters and attributes are those of :class:`BroadLearningClassifier` except
    ``classes_``. The mean of the targets is taken off before the solvers, which have no
    intercept, and added to what they predict.

    Examples
    --------
    >>> import numpy as np
    >>> x = np.linspace(-3, 3, 200)[:, None]
    >>> model = BroadLearningRegressor(3, 4, 30, ridge=1e-6, random_state=0)
    >>> model = model.fit(x, np.sin(x[:, 0]))
    >>> bool(model.add_nodes(50).score(x, np.sin(x[:, 0])) > 0.99)
    True
    """

    _wide_shrink = 0.3

    @at_once
    def fit(self, X: ArrayLike, y: ArrayLike) -> Self:
        """Fit as :meth:`BroadLearningClassifier.fit` to numbers y, (l,) or (l, c)."""
        X, y = validate_data(self, X, y, multi_output=True, y_numeric=True)
        assert_all_finite(y, input_name="y")  # None has become nan
        self._flat, y = y.ndim == 1, y.reshape(len(y), -1)
        self._mean = self._mean_of(y)
        self._fit(X, y - self._mean)

    def _mean_of(self, y: np.ndarray) -> np.ndarray:
        """Return the mean (c,) of all samples' targets."""
        return y.mean(0, dtype=np.float64)

    def predict(self, X: ArrayLike) -> np.ndarray:
        """Predict A W and the mean target, (l,) or (l, c) as the targets were."""
        return self._shaped(self._raw(X))

    def staged_score(self, X: ArrayLike, y: ArrayLike) -> Iterator[float]:
        """Yield R^2 at every size that the present columns went through."""
        for raw in self._staged_raw(X):
            yield r2_score(y, self._shaped(raw))

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        # A standardised row loses its mean and scale: a pair keeps only a sign.
        tags.regressor_tags.poor_score = str(self.scaling) == "sample"
        return tags

    def _shaped(self, raw: Tensor) -> np.ndarray:
        raw = raw.cpu().numpy()
        raw = raw + self._mean.astype(raw.dtype)
        return raw[:, 0] if self._flat else raw
