"""Data sets by name: embedded, made, found on disk, or downloaded and checked.

>>> from labkit.datasets import available, load
>>> len(available())
7
>>> load("copy", "test").inputs.shape
torch.Size([1000, 12])
"""

from labkit.datasets.catalogue import DatasetInfo, available, load
from labkit.datasets.digits import Labelled
from labkit.datasets.fetch import ChecksumError, DatasetUnavailable, data_folders
from labkit.datasets.synthetic import Sequences, copy_sequences
from labkit.datasets.text import Text, encode

__all__ = [
    "ChecksumError",
    "DatasetInfo",
    "DatasetUnavailable",
    "Labelled",
    "Sequences",
    "Text",
    "available",
    "copy_sequences",
    "data_folders",
    "encode",
    "load",
]
