"""Data sets by name: embedded, synthetic, found on disk, or downloaded and checked.

>>> from labkit.lab.datasets import available, load
>>> available()["imdb"].splits
('train', 'test')
>>> load("copy", "test").inputs.shape
torch.Size([1000, 12])
"""

from labkit.lab.datasets.catalogue import DatasetInfo, available, load
from labkit.lab.datasets.fetch import ChecksumError, DatasetUnavailable
from labkit.lab.datasets.imdb import load_imdb
from labkit.lab.datasets.own import load_own
from labkit.lab.datasets.results import Labelled, Text
from labkit.lab.datasets.synthetic import copy_sequences, curve_images
from labkit.lab.datasets.text import encode, load_ptb

__all__ = [
    "ChecksumError",
    "DatasetInfo",
    "DatasetUnavailable",
    "Labelled",
    "Text",
    "available",
    "copy_sequences",
    "curve_images",
    "encode",
    "load",
    "load_imdb",
    "load_own",
    "load_ptb",
]
