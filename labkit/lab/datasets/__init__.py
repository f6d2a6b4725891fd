"""Data sets by name: embedded, found on disk, or downloaded and checked.

>>> from labkit.lab.datasets import available, load
>>> available()["imdb"].splits
('train', 'test')
>>> load("digits", "test").inputs.shape
torch.Size([360, 64])
"""

from labkit.lab import lazily

# `labkit run` looks for files before it begins; torch, which it does not need for
# that, takes seconds to import.
__getattr__, __dir__, __all__ = lazily(
    __name__,
    {
        "catalogue": ("DatasetInfo", "available", "load"),
        "fetch": ("ChecksumError", "DatasetUnavailable"),
        "imdb": ("load_imdb",),
        "own": ("load_own",),
        "results": ("Labelled", "Text"),
        "text": ("load_ptb",),
    },
)
