"""RLS written out in NumPy float64: loops, own backward passes, own clip, own Adam.

From the paper's equations, with nothing of torch or labkit. Parameters are (n, N) as
in the paper, the bias in the last row; sequences are (M, T, n).
"""

from functools import partial

import numpy as np


class Part:
    """One parameter matrix, its P and velocity, and what the last pass left."""

    def __init__(self, theta, bias):
        self.theta, self.bias = theta, bias
        self.P, self.omega = np.eye(len(theta)), np.zeros_like(theta)
        self.T = 1  # summed time steps
        self.h = None
        self.clear()

    def clear(self):
        self.rows, self.grad = [], np.zeros_like(self.theta)

    def linear(self, x):
        """z of one row x, which is remembered."""
        x = np.append(x, 1.0) if self.bias else x.copy()
        self.rows.append(x)
        z = np.zeros(self.theta.shape[1])
        for i in range(len(x)):
            z += x[i] * self.theta[i]
        return z

    def back(self, row, dz):
        """Derivative by the row's inputs; its share of the gradient is added."""
        for i in range(len(row)):
            self.grad[i] += row[i] * dz
        weights = self.theta[:-1] if self.bias else self.theta
        return weights @ dz

    def step(self, factor=1.0, *, lam=1.0, k=0.1, eta=1.0, alpha=0.0, gamma=0.0):
        x = sum(self.rows) / len(self.rows)
        self.h = lam + k * self.T * x @ self.P @ x
        self.omega = alpha * self.omega - eta / self.h * self.P @ (factor * self.grad)
        # the update of P by its definition: the inverse of A_s, (35), (74), (82)
        A = lam * np.linalg.inv(self.P) + k * self.T * np.outer(x, x)
        self.P = np.linalg.inv(A)
        self.theta = self.theta + self.omega - gamma * self.P @ np.sign(self.theta)


class Dense:
    def __init__(self, part, steps=1):
        self.parts, self.steps = [part], steps

    def forward(self, x):
        (part,) = self.parts
        part.T, first = self.steps, len(part.rows)
        y = np.zeros((*x.shape[:-1], part.theta.shape[1]))
        for i in np.ndindex(x.shape[:-1]):
            y[i] = part.linear(x[i])
        self.rows = part.rows[first:]
        return y

    def backward(self, dz):
        (part,) = self.parts
        index = list(np.ndindex(dz.shape[:-1]))
        dx = [part.back(row, dz[i]) for row, i in zip(self.rows, index, strict=True)]
        return np.array(dx).reshape(*dz.shape[:-1], -1)


class Conv:
    """Receptive fields one by one, (3) to (6), with a dilation."""

    def __init__(self, part, kernel, stride, padding, dilation):
        self.parts, self.kernel, self.stride = [part], kernel, stride
        self.padding, self.dilation = padding, dilation  # padding: (before, after) each

    def places(self, u, v):
        """Rows and columns of one receptive field in the unpadded map."""
        for h in range(self.kernel[0]):
            for w in range(self.kernel[1]):
                yield (
                    u * self.stride[0] + h * self.dilation[0] - self.padding[0][0],
                    v * self.stride[1] + w * self.dilation[1] - self.padding[1][0],
                )

    def forward(self, x):
        (part,) = self.parts
        self.shape = M, C, H, W = x.shape
        size = []
        for i, length in enumerate((H, W)):
            taken = self.dilation[i] * (self.kernel[i] - 1) + 1
            room = length + sum(self.padding[i]) - taken
            size.append(room // self.stride[i] + 1)
        z = np.zeros((M, part.theta.shape[1], *size))
        for m, u, v in np.ndindex(M, *size):
            field = [
                x[m, c, i, j] if 0 <= i < H and 0 <= j < W else 0.0
                for c in range(C)
                for i, j in self.places(u, v)
            ]
            z[m, :, u, v] = part.linear(np.array(field))
        return z

    def backward(self, dz):
        (part,) = self.parts
        M, C, H, W = self.shape
        dx = np.zeros(self.shape)
        index = list(np.ndindex(M, *dz.shape[2:]))
        for row, (m, u, v) in zip(part.rows, index, strict=True):
            field = iter(part.back(row, dz[m, :, u, v]))
            for c in range(C):
                for i, j in self.places(u, v):
                    d = next(field)
                    if 0 <= i < H and 0 <= j < W:
                        dx[m, c, i, j] += d
        return dx


def sigmoid(z):
    return 1 / (1 + np.exp(-z))


class RNN:
    def __init__(self, w, v, start=None):
        self.parts, self.start = [w, v], start

    def forward(self, x):
        w, v = self.parts
        M, T, _ = x.shape
        w.T = v.T = T
        N = v.theta.shape[1]
        self.y = np.zeros((M, T, N))
        for m in range(M):
            y = np.zeros(N) if self.start is None else self.start[m]
            for t in range(T):
                y = self.y[m, t] = np.tanh(w.linear(x[m, t]) + v.linear(y))
        return self.y

    def backward(self, dy):
        w, v = self.parts
        M, T, _ = dy.shape
        dx = np.zeros((M, T, len(w.rows[0]) - w.bias))
        for m in range(M):
            carry = 0.0
            for t in reversed(range(T)):
                dz = (dy[m, t] + carry) * (1 - self.y[m, t] ** 2)
                dx[m, t] = w.back(w.rows[m * T + t], dz)
                carry = v.back(v.rows[m * T + t], dz)
        return dx


class LSTM:
    """(13) to (18), with the columns of the gates in torch's order I, F, G, O."""

    def __init__(self, w, v, start=None):
        self.parts, self.start = [w, v], start

    def forward(self, x):
        w, v = self.parts
        M, T, _ = x.shape
        w.T = v.T = T
        N = v.theta.shape[1] // 4
        self.y, self.saved = np.zeros((M, T, N)), {}
        for m in range(M):
            y, c = np.zeros(N), np.zeros(N)
            if self.start is not None:
                y, c = self.start[0][m], self.start[1][m]
            for t in range(T):
                z = (w.linear(x[m, t]) + v.linear(y)).reshape(4, N)
                i, f, o = sigmoid(z[0]), sigmoid(z[1]), sigmoid(z[3])
                g, before = np.tanh(z[2]), c
                c = i * g + f * before
                y = self.y[m, t] = o * np.tanh(c)
                self.saved[m, t] = i, f, g, o, before, c
        return self.y

    def backward(self, dy):
        w, v = self.parts
        M, T, _ = dy.shape
        dx = np.zeros((M, T, len(w.rows[0]) - w.bias))
        for m in range(M):
            carry, dc = 0.0, 0.0
            for t in reversed(range(T)):
                i, f, g, o, before, c = self.saved[m, t]
                d = dy[m, t] + carry
                dc = dc + d * o * (1 - np.tanh(c) ** 2)
                gates = dc * g * i * (1 - i), dc * before * f * (1 - f)
                gates += dc * i * (1 - g**2), d * np.tanh(c) * o * (1 - o)
                dz = np.concatenate(gates)
                dc = dc * f
                dx[m, t] = w.back(w.rows[m * T + t], dz)
                carry = v.back(v.rows[m * T + t], dz)
        return dx


class Plain:
    """A layer without parameters, of y(x) and of the derivative by x from that by y."""

    parts = ()

    def __init__(self, forward, backward):
        self.y_of, self.dx_of = forward, backward

    def forward(self, x):
        self.x, self.y = x, self.y_of(x)
        return self.y

    def backward(self, dy):
        return self.dx_of(dy, self.x, self.y)


def at_the_end(dy, x, y):
    dx = np.zeros_like(x)
    dx[:, -1] = dy
    return dx


Tanh = partial(Plain, np.tanh, lambda dy, x, y: dy * (1 - y**2))
ReLU = partial(Plain, lambda x: x * (x > 0), lambda dy, x, y: dy * (x > 0))
Flatten = partial(
    Plain, lambda x: x.reshape(len(x), -1), lambda dy, x, y: dy.reshape(x.shape)
)
Last = partial(Plain, lambda x: x[:, -1], at_the_end)  # time step


def squared_error(Z, target):
    """(57), (87) and its derivative: a mean over the batch, sums over the rest."""
    loss = 0.0
    for i in np.ndindex(Z.shape):
        loss += (Z[i] - target[i]) ** 2 / (2 * len(Z))
    return loss, (Z - target) / len(Z)


def cross_entropy(Z, labels):
    """Mean over the batch, and its derivative."""
    loss, dZ = 0.0, np.zeros_like(Z)
    for m in range(len(Z)):
        p = np.exp(Z[m]) / np.exp(Z[m]).sum()
        loss -= np.log(p[labels[m]]) / len(Z)
        p[labels[m]] -= 1
        dZ[m] = p / len(Z)
    return loss, dZ


class Adam:
    def __init__(self, part, lr=1e-3, betas=(0.9, 0.999), eps=1e-8):
        self.part, self.lr, self.betas, self.eps = part, lr, betas, eps
        self.s, self.first, self.second = 0, 0.0, 0.0

    def step(self, factor):
        g, (b1, b2) = factor * self.part.grad, self.betas
        self.s += 1
        self.first = b1 * self.first + (1 - b1) * g
        self.second = b2 * self.second + (1 - b2) * g**2
        first, second = self.first / (1 - b1**self.s), self.second / (1 - b2**self.s)
        change = self.lr * first / (np.sqrt(second) + self.eps)
        self.part.theta = self.part.theta - change


class Net:
    """A chain of layers with one joint clip."""

    def __init__(self, layers):
        self.layers = layers

    @property
    def parts(self):
        """Each once, even if two layers share it."""
        parts = (part for layer in self.layers for part in layer.parts)
        return list(dict.fromkeys(parts))

    def gradients(self, x, target, loss=squared_error):
        """Leave gradient and rows in every part; return the loss."""
        x, target = np.asarray(x), np.asarray(target)
        for part in self.parts:
            part.clear()
        for layer in self.layers:
            x = layer.forward(x)
        value, d = loss(x, target)
        for layer in reversed(self.layers):
            d = layer.backward(d)
        self.dx = d
        return value

    def norm(self):
        return np.sqrt(sum((part.grad**2).sum() for part in self.parts))

    def factor(self, limit):
        """As torch clips, with 1e-6 beside the norm."""
        return 1.0 if limit is None else min(1.0, limit / (self.norm() + 1e-6))

    def step(self, x, target, limit=None, **rule):
        """One step of every part; return the loss and the factor of the clip."""
        value = self.gradients(x, target)
        for part in self.parts:
            part.step(self.factor(limit), **rule)
        return value, self.factor(limit)
