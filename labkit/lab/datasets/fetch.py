"""Pinned files, found on this machine or downloaded by pooch, and checked either way.

A file that was found is the user's and is never changed: pooch would replace one that
has another checksum. What reads a file trusts what was checked here.
"""

import hashlib
import os
import sys
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path

_SOURCE_TREE = Path(__file__).resolve().parents[3]


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


def read_registry(text: str) -> dict[str, RemoteFile]:
    """Read the table of the registry into a dict of files by path.

    >>> read_registry("# a comment" + chr(10) + "a/b.txt 3 ff http://c/b.txt")
    {'a/b.txt': RemoteFile(path='a/b.txt', size=3, sha256='ff', urls=('http://c/b.txt',))}
    """
    rows = [line.split() for line in text.splitlines() if not line.startswith("#")]
    return {
        path: RemoteFile(path, int(size), sha256, tuple(urls))
        for path, size, sha256, *urls in rows
    }


FILES = read_registry(files(__package__).joinpath("registry.txt").read_text("utf-8"))


class ChecksumError(ValueError):
    """The error that a file is not the one that the registry pins."""


class DatasetUnavailable(RuntimeError):
    """The error that a data set is neither on this machine nor can be downloaded."""


def data_folders() -> list[Path]:
    """Return the folders in which data files are looked for, in order.

    Returns
    -------
    list of pathlib.Path
        ``$LABKIT_DATA`` if it is set and not empty; then ``data/`` of the source
        tree, or, for a package installed elsewhere, pooch's cache folder for
        labkit. A download goes to the first of them.

    Raises
    ------
    NotADirectoryError
        If ``$LABKIT_DATA`` names something that is not a folder. A folder that is
        not there yet is fine: the first download makes it.
    """
    # A source tree has pyproject.toml beside the package; site-packages has not.
    if (_SOURCE_TREE / "pyproject.toml").is_file():
        own = _SOURCE_TREE / "data"
    else:
        from pooch import os_cache

        own = Path(os_cache("labkit"))
    if not (given := os.environ.get("LABKIT_DATA")):
        return [own]
    folder = Path(given).expanduser().absolute()
    if folder.exists() and not folder.is_dir():
        raise NotADirectoryError(
            f"LABKIT_DATA must name a folder, and {folder} is not one; "
            "give the folder that holds e.g. ptb/ptb.train.txt"
        )
    return [folder, own]


def find(path: str) -> Path | None:
    """Return the first path at which a file of the registry exists, or None.

    The file is not opened.
    """
    places = (folder / path for folder in data_folders())
    return next((place for place in places if place.exists()), None)


def fetch(path: str) -> Path:
    """Return the path of a checked file, and download it if it is not here.

    Parameters
    ----------
    path : str, as in the registry: ``"ptb/ptb.train.txt"``

    Returns
    -------
    pathlib.Path
        A file found is read in place, never changed. A download comes in under a
        temporary name and takes its own name only once its checksum holds.

    Raises
    ------
    ChecksumError
        If the file found is another one (it stays where it is), or if no source
        works and at least one gave another file (nothing of it is kept).
    DatasetUnavailable
        If the file is not here and no source can be reached, or there is no place
        to write it to.
    """
    file = FILES[path]
    found = find(path)
    if found is None:
        return _download(file)
    _check(found, file)
    return found


def _check(path, file):
    """Raise ChecksumError unless the SHA-256 of `path` is the pinned one."""
    with open(path, "rb") as content:
        sha256 = hashlib.file_digest(content, "sha256").hexdigest()
    if sha256 == file.sha256:
        return
    raise ChecksumError(
        f"{path} is not the expected file: "
        f"expected SHA-256 {file.sha256} ({file.size:,} bytes), "
        f"found {sha256} ({path.stat().st_size:,} bytes). It was left as it "
        "is; move it away or replace it."
    )


def _download(file):
    """Try the sources in order; return the path of the first good file."""
    from pooch import retrieve

    target, failures = data_folders()[0] / file.path, []
    for url in file.urls:
        words = f"{file.path}, {file.size:,} bytes, from {url} to {target}"
        print(f"labkit: downloading {words}", file=sys.stderr)
        try:
            # under a temporary name until its checksum holds
            found = retrieve(
                url,
                f"sha256:{file.sha256}",
                fname=target.name,
                path=target.parent,
                progressbar=True,
            )
        except (ValueError, OSError) as error:  # another file; or no network, no room
            failures.append(error)
        else:
            os.chmod(found, 0o644)  # pooch's is the owner's alone
            return Path(found)
    reasons = zip(file.urls, failures, strict=True)
    tried = "".join(f"\n  {url}: {error}" for url, error in reasons)
    reason = f"Tried to download:{tried or ' it has no source.'}"
    if any(isinstance(error, ValueError) for error in failures):
        raise ChecksumError(f"no source gave the expected {target}. {reason}")
    raise _unavailable(file, reason)


def _unavailable(file, reason):
    places = "".join(f"\n  {folder / file.path}" for folder in data_folders())
    return DatasetUnavailable(
        f"{file.path} is not on this machine. Looked for:{places}\n{reason}\n"
        f"To place it by hand, put the file ({file.size:,} bytes, SHA-256 "
        f"{file.sha256}) at one of these places, or set LABKIT_DATA to the folder "
        f"that holds {file.path}."
    )
