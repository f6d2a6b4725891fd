"""Problems that several tests share (float64)."""

import numpy as np
import torch


def problem(l=60, k=12, q=6, c=3, seed=0):  # noqa: E741
    """A (l, k), H (l, q), Y (l, c) of normal numbers."""
    generator = np.random.default_rng(seed)
    shapes = [(l, k), (l, q), (l, c)]
    return [torch.from_numpy(generator.normal(size=shape)) for shape in shapes]


def ridge_by_numpy(A, Y, ridge):
    """W from the stacked least-squares problem, by QR: another way altogether."""
    A, Y = np.asarray(A), np.asarray(Y)
    tall = np.vstack([A, np.sqrt(ridge) * np.eye(A.shape[1])])
    Q, R = np.linalg.qr(tall)
    return np.linalg.solve(R, Q.T @ np.vstack([Y, np.zeros((A.shape[1], Y.shape[1]))]))


def residual(A, Y, W, ridge):
    """Norm of A^T (A W - Y) + ridge W, relative to A^T Y."""
    gradient = A.T @ (A @ W - Y) + ridge * W
    return float(gradient.norm() / (A.T @ Y).norm())
