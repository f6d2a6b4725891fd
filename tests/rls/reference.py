"""RLS written out in NumPy float64: loops, own backward passes, own clip.

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
    """Receptive fields one by one, (3) to (6), in any number of dimensions."""

    def __init__(self, part, kernel, stride, padding, dilation):
        """With zeros before and after each side as the padding."""
        self.parts, self.padding = [part], [(0, 0), (0, 0), *padding]
        self.forms = list(zip(kernel, stride, dilation, strict=True))

    def field(self, place):
        """Where the field of a place lies in a padded map."""
        spans = [slice(None)]
        for start, (kernel, stride, dilation) in zip(place, self.forms, strict=True):
            first = start * stride
            spans.append(slice(first, first + dilation * (kernel - 1) + 1, dilation))
        return tuple(spans)

    def forward(self, x):
        (part,) = self.parts
        x = np.pad(x, self.padding)
        self.shape, size = x.shape, []
        for length, (kernel, stride, dilation) in zip(
            x.shape[2:], self.forms, strict=True
        ):
            size.append((length - dilation * (kernel - 1) - 1) // stride + 1)
        z = np.zeros((len(x), part.theta.shape[1], *size))
        for m, *place in np.ndindex(len(x), *size):
            z[m, :, *place] = part.linear(x[m][self.field(place)].ravel())
        return z

    def backward(self, dz):
        (part,) = self.parts
        dx, index = np.zeros(self.shape), np.ndindex(len(dz), *dz.shape[2:])
        for row, (m, *place) in zip(part.rows, index, strict=True):
            field = dx[m][self.field(place)]  # a view
            field += part.back(row, dz[m, :, *place]).reshape(field.shape)
        ends = zip(self.padding, self.shape, strict=True)
        return dx[tuple(slice(a, n - b) for (a, b), n in ends)]


def sigmoid(z):
    return 1 / (1 + np.exp(-z))


class RNN:
    """A recurrent layer; ``start`` is (y_0, c_0), each (M, N)."""

    def __init__(self, w, v, start=None):
        self.parts, self.start = [w, v], start

    def cell(self, z, c):
        """y and c of one step, and what its derivative needs."""
        y = np.tanh(z)
        return y, c, y

    def derivative(self, dy, dc, y):
        """Derivatives by z and by the c before."""
        return dy * (1 - y**2), dc

    def forward(self, x):
        w, v = self.parts
        M, T, _ = x.shape
        w.T = v.T = T
        N = len(v.theta) - v.bias
        start = np.zeros((2, M, N)) if self.start is None else self.start
        found, self.saved = np.zeros((M, T, N)), {}
        for m in range(M):
            y, c = start[0][m], start[1][m]
            for t in range(T):
                z = w.linear(x[m, t]) + v.linear(y)
                y, c, self.saved[m, t] = self.cell(z, c)
                found[m, t] = y
        return found

    def backward(self, dy):
        w, v = self.parts
        M, T, _ = dy.shape
        dx = np.zeros((M, T, len(w.theta) - w.bias))
        for m in range(M):
            carry, dc = 0.0, 0.0
            for t in reversed(range(T)):
                dz, dc = self.derivative(dy[m, t] + carry, dc, self.saved[m, t])
                dx[m, t] = w.back(w.rows[m * T + t], dz)
                carry = v.back(v.rows[m * T + t], dz)
        return dx


class LSTM(RNN):
    """(13) to (18), with the columns of the gates in torch's order I, F, G, O."""

    def cell(self, z, before):
        z = z.reshape(4, -1)
        i, f, o, g = sigmoid(z[0]), sigmoid(z[1]), sigmoid(z[3]), np.tanh(z[2])
        c = i * g + f * before
        return o * np.tanh(c), c, (i, f, g, o, before, c)

    def derivative(self, dy, dc, saved):
        i, f, g, o, before, c = saved
        dc = dc + dy * o * (1 - np.tanh(c) ** 2)
        gates = dc * g * i * (1 - i), dc * before * f * (1 - f)
        gates += dc * i * (1 - g**2), dy * np.tanh(c) * o * (1 - o)
        return np.concatenate(gates), dc * f


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
    return ((Z - target) ** 2).sum() / (2 * len(Z)), (Z - target) / len(Z)


def cross_entropy(Z, labels):
    """Mean over the batch, and its derivative."""
    p, hot = np.exp(Z), np.eye(Z.shape[1])[labels]
    p /= p.sum(1, keepdims=True)
    return -(hot * np.log(p)).sum() / len(Z), (p - hot) / len(Z)


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
