"""The files that data sets are made of, each pinned by length and SHA-256."""

from dataclasses import dataclass
from importlib.resources import files


@dataclass(frozen=True)
class RemoteFile:
    """One file of a data set: a line of ``registry.txt``.

    Attributes
    ----------
    path : str, place below a data folder, with forward slashes: ``"ptb/ptb.train.txt"``
    size : int, length [bytes]
    sha256 : str, SHA-256 of the file's bytes, 64 lower-case hexadecimal digits
    urls : tuple of str, sources, tried in this order
    """

    path: str
    size: int
    sha256: str
    urls: tuple[str, ...] = ()


def read_registry(text):
    """Read the registry's table; by path.

    >>> read_registry("# a comment" + chr(10) + "a/b.txt 3 ff http://c/b.txt")
    {'a/b.txt': RemoteFile(path='a/b.txt', size=3, sha256='ff', urls=('http://c/b.txt',))}
    """
    rows = [line.split() for line in text.splitlines() if not line.startswith("#")]
    return {
        path: RemoteFile(path, int(size), sha256, tuple(urls))
        for path, size, sha256, *urls in rows
    }


FILES = read_registry(files(__package__).joinpath("registry.txt").read_text("utf-8"))
