"""Data sets by name: embedded, made, found on disk, or downloaded and checked.

>>> from labkit.datasets import available, load
>>> available()["imdb"].splits
('train', 'test')
>>> load("copy", "test").inputs.shape
torch.Size([1000, 12])
"""

from labkit.datasets.catalogue import DatasetInfo, available, load
from labkit.datasets.curves import Images, curve_images
from labkit.datasets.digits import Labelled
from labkit.datasets.fetch import ChecksumError, DatasetUnavailable, data_folders
from labkit.datasets.imdb import (
    Reviews,
    encode_words,
    load_imdb,
    most_frequent_words,
    split_words,
)
from labkit.datasets.synthetic import Sequences, copy_sequences
from labkit.datasets.text import Text, encode

__all__ = [
    "ChecksumError",
    "DatasetInfo",
    "DatasetUnavailable",
    "Images",
    "Labelled",
    "Reviews",
    "Sequences",
    "Text",
    "available",
    "copy_sequences",
    "curve_images",
    "data_folders",
    "encode",
    "encode_words",
    "load",
    "load_imdb",
    "most_frequent_words",
    "split_words",
]
