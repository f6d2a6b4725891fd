"""BPLS in NumPy, written from the paper's Algorithms 1 and 2, neuron by neuron.

As in the paper, the samples are the columns of a layer's matrix A_l, and every neuron
has a least-squares problem of its own. Where the paper is silent or contradicts itself:

* (6) is solved by the pseudo-inverse, or with a relative ridge on A A^T, since the
  matrix may be singular;
* (5) corrects all neurons of a sample together, by the smallest change that meets the
  targets above;
* corrected values are clamped into the range of the activation before its inverse;
* a one-hot label is clamped to [1e-6, 1] before the inverse of the output's softmax;
* line 19 starts from the current weights, and line 18 ends the loop at the first walk
  that does not lower the misses, whose weights are not kept.
"""

import numpy as np

LABEL_CLAMP = 1e-6

# name: value, inverse, ends of the range
FUNCTIONS = {
    "identity": (lambda z: z, lambda p: p, (-np.inf, np.inf)),
    "sigmoid": (
        lambda z: 1 / (1 + np.exp(-z)),
        lambda p: np.log(p) - np.log(1 - p),
        (0, 1),
    ),
    "tanh": (np.tanh, np.arctanh, (-1, 1)),
    "softplus": (
        lambda z: np.log(1 + np.exp(z)),
        lambda p: np.log(np.exp(p) - 1),
        (0, np.inf),
    ),
}


def solve(A, b, ridge):
    """(6): the weights of one neuron, for the values A (K, D) and its targets (D,)."""
    if ridge == 0:
        return np.linalg.pinv(A @ A.T, rcond=1e-12) @ (A @ b)
    shift = ridge * np.trace(A @ A.T) / len(A) * np.eye(len(A))
    return np.linalg.inv(A @ A.T + shift) @ (A @ b)


def solve_all(A, targets, ridge):
    """(6) for each neuron of a layer; targets are the rows, weights the columns."""
    return np.stack([solve(A, b, ridge) for b in targets], 1)


def corrected(n, W, b):
    """(5): what the values n (N,) of one sample should be, for targets b (J,) above."""
    return n + np.linalg.pinv(W.T, rcond=1e-8) @ (b - W.T @ n)


def walk(x, b, W, function, *, clamp, ridge, second):
    """Algorithm 1 (lines 2 to 11), or lines 2 to 14 of Algorithm 2 if ``second``.

    x (M, D) are the inputs and b (J, D) the targets before the output's activation.
    """
    value, inverse, (low, high) = function
    n = [x]  # values of the network before the walk: (1) to (3)
    for w in W[:-1]:
        n.append(value(w.T @ n[-1]))
    new = list(W)
    for layer in range(len(W), 0, -1):
        A = n[layer - 1]
        new[layer - 1] = solve_all(A, b, ridge)
        if layer > 1:
            columns = zip(A.T, b.T, strict=True)
            hat = np.stack([corrected(n, new[layer - 1], t) for n, t in columns], 1)
            hat = np.clip(hat, low + clamp, high - clamp)
            if second:
                new[layer - 1] = solve_all(hat, b, ridge)
            b = inverse(hat)
    return new


def outputs(x, W, value):
    """(1) to (3): the outputs (J, D) before their activation."""
    for w in W[:-1]:
        x = value(w.T @ x)
    return W[-1].T @ x


def algorithm_2(x, labels, W, name, *, walks, ridge):
    """Return the weights that are kept, and the misses after each walk."""
    options = {"clamp": 1e-2, "ridge": ridge, "second": True}
    function = FUNCTIONS[name]
    one_hot = np.equal.outer(np.arange(W[-1].shape[1]), labels)
    b = np.log(np.clip(one_hot, LABEL_CLAMP, 1))
    W = best = walk(x, b, W, function, **options)
    miss = outputs(x, W, function[0]).argmax(0) != labels
    counts = [miss.sum()]
    for _ in range(walks):
        if not miss.any():
            break
        on_misses = walk(x[:, miss], b[:, miss], W, function, **options)
        f = miss.sum() / len(labels)
        W = [(1 - f) * w + f * v for w, v in zip(W, on_misses, strict=True)]
        miss = outputs(x, W, function[0]).argmax(0) != labels
        counts.append(miss.sum())
        if counts[-1] >= counts[-2]:
            break
        best = W
    return best, counts
