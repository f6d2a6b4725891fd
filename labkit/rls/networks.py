"""The paper's three networks (section VI), and small ones for small images.

Sequential and plain: any model of Linear, Conv2d, RNN and LSTM layers will do as well.
Weights are torch's defaults from the global generator, as everywhere in torch; seed it
by ``torch.manual_seed``.
"""

from collections.abc import Callable, Sequence
from itertools import pairwise

import torch
from torch import Tensor, nn


def dense_network(
    inputs: int = 784, hidden: int = 512, classes: int = 10
) -> nn.Sequential:
    """FNN: (M, inputs) -> (M, classes); the paper's for MNIST, by default."""
    first = nn.Linear(inputs, hidden)
    return nn.Sequential(first, nn.ReLU(), nn.Linear(hidden, classes))


def small_cnn(
    side: int = 8,
    channels: Sequence[int] = (16, 32),
    hidden: int = 64,
    classes: int = 10,
) -> nn.Sequential:
    """CNN for gray images in rows: (M, side^2) -> (M, classes).

    3 x 3 filters, each layer pooled 2 x 2; 2 ** len(channels) must divide ``side``.
    """
    layers: list[nn.Module] = [nn.Unflatten(1, (1, side, side))]
    before = 1
    for after in channels:
        layers += [nn.Conv2d(before, after, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)]
        before, side = after, side // 2
    return nn.Sequential(
        *layers, nn.Flatten(), *dense_network(before * side**2, hidden, classes)
    )


def vgg5(classes: int = 10) -> nn.Sequential:
    """CNN of the paper for CIFAR-10: (M, 3, 32, 32) -> (M, classes).

    The first five CONV layers of VGG-16, a hidden layer of 1024. Pooled after the
    second, the fourth and, unlike VGG-16, the fifth CONV layer: the hidden layer's P
    would otherwise have 16,385 rows.
    """
    layers: list[nn.Module] = []
    before = 3
    for after, pool in ((64, 0), (64, 1), (128, 0), (128, 1), (256, 1)):
        layers += [nn.Conv2d(before, after, 3, padding=1), nn.ReLU()]
        layers += [nn.MaxPool2d(2)] * pool
        before = after
    return nn.Sequential(*layers, nn.Flatten(), *dense_network(256 * 16, 1024, classes))


class SequenceClassifier(nn.Module):
    """Stacked recurrent layers, the last output of the last one classified.

    (M, T, inputs), or rows (M, T * inputs), or words (M, T) -> (M, classes).

    Parameters
    ----------
    inputs : int, features per time step; with ``vocabulary``, width of the embedding.
    hidden, layers, classes : units per layer, layers, outputs. The paper: 512, 2, 2.
    cell : nn.LSTM or nn.RNN, one module a layer, so that RLS sees each one's inputs.
    vocabulary : int, words of an embedding in front, which RLS cannot train.
    """

    def __init__(
        self,
        inputs: int,
        hidden: int = 64,
        classes: int = 10,
        *,
        layers: int = 2,
        cell: type[nn.Module] = nn.LSTM,
        vocabulary: int | None = None,
    ):
        super().__init__()
        self.inputs = inputs
        self.embedding = vocabulary and nn.Embedding(vocabulary, inputs)
        widths = [inputs, *[hidden] * layers]
        self.layers = nn.ModuleList(
            cell(n, m, batch_first=True) for n, m in pairwise(widths)
        )
        self.head = nn.Linear(hidden, classes)

    def forward(self, x: Tensor) -> Tensor:
        """(M, classes) outputs."""
        y = self.embedding(x) if self.embedding else x
        if y.ndim == 2:
            y = y.unflatten(1, (-1, self.inputs))
        for layer in self.layers:
            y, _ = layer(y)
        return self.head(y[:, -1])


def accuracy(
    model: nn.Module, inputs: Tensor, labels: Tensor, batch_size: int = 1000
) -> float:
    """Share of the rows classified right, in [0, 1]; the model keeps its mode."""
    return accuracy_later(model, inputs, labels, batch_size)()


@torch.no_grad()
def accuracy_later(
    model: nn.Module, inputs: Tensor, labels: Tensor, batch_size: int = 1000
) -> Callable[[], float]:
    """:func:`accuracy` of the model as it is now, read from the device when called."""
    training = model.training
    model.eval()
    pairs = zip(inputs.split(batch_size), labels.split(batch_size), strict=True)
    right = sum((model(x).argmax(-1) == y).sum() for x, y in pairs)
    model.train(training)
    return lambda: float(right) / len(labels)
