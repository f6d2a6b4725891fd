"""Build the paper's three networks (section VI), and smaller ones for small images.

The networks are plain modules; RLS trains any model of Linear, Conv2d, RNN and LSTM
layers. The weights are torch's defaults from the global generator, seeded by
``torch.manual_seed``.
"""

from collections.abc import Sequence
from itertools import pairwise

from torch import Tensor, nn


def dense_network(
    inputs: int = 784, hidden: int = 512, classes: int = 10
) -> nn.Sequential:
    """Build an FNN, (M, inputs) -> (M, classes), by default the paper's for MNIST."""
    first = nn.Linear(inputs, hidden)
    return nn.Sequential(first, nn.ReLU(), nn.Linear(hidden, classes))


def small_cnn(
    side: int = 8,
    channels: Sequence[int] = (16, 32),
    hidden: int = 64,
    classes: int = 10,
) -> nn.Sequential:
    """Build a CNN for gray images given as rows, (M, side^2) -> (M, classes).

    Filters are 3 x 3. Each layer is pooled 2 x 2, without an odd last row or column.
    """
    layers = _filters(1, [(after, 1) for after in channels])
    inputs = channels[-1] * (side // 2 ** len(channels)) ** 2
    return nn.Sequential(
        nn.Unflatten(1, (1, side, side)),
        *layers,
        *dense_network(inputs, hidden, classes),
    )


def vgg5(classes: int = 10) -> nn.Sequential:
    """Build the paper's CNN for CIFAR-10, (M, 3, 32, 32) -> (M, classes).

    It has the first five CONV layers of VGG-16 and a hidden layer of 1024 units. There
    is a pooling after the second, the fourth and, unlike in VGG-16, the fifth CONV
    layer, since otherwise the P of the hidden layer would have 16,385 rows.
    """
    layers = _filters(3, [(64, 0), (64, 1), (128, 0), (128, 1), (256, 1)])
    return nn.Sequential(*layers, *dense_network(256 * 16, 1024, classes))


def _filters(before: int, sizes: Sequence[tuple[int, int]]) -> list[nn.Module]:
    """Build CONV layers from (channels, number of poolings), with rows as output."""
    layers: list[nn.Module] = []
    for after, poolings in sizes:
        layers += [nn.Conv2d(before, after, 3, padding=1), nn.ReLU()]
        layers += [nn.MaxPool2d(2)] * poolings
        before = after
    return [*layers, nn.Flatten()]


class SequenceClassifier(nn.Module):
    """Stacked recurrent layers with a classifier of the last output of the last layer.

    The input is (M, T, inputs), rows (M, T * inputs), or words (M, T); the output is
    (M, classes).

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
        """Compute the outputs, (M, classes)."""
        y = self.embedding(x) if self.embedding else x
        if y.ndim == 2:
            y = y.unflatten(1, (-1, self.inputs))
        for layer in self.layers:
            y, _ = layer(y)
        return self.head(y[:, -1])
