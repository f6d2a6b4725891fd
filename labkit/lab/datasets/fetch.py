"""Pinned files, found on this machine or downloaded, and checked either way.

Pooch's own store takes one folder and one source for each file, and it replaces a file
that has another checksum. Here a file that was found is the user's and is never
changed. Pooch and tqdm are imported only for a download.
"""

import hashlib
import os
import sys
import time
from contextlib import suppress
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path

_SOURCE_TREE = Path(__file__).resolve().parents[3]
_ABANDONED = 3600  # [s] without a write, after which a download counts as abandoned


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


def megabytes(size: int) -> str:
    """Return a number of bytes in words.

    >>> megabytes(170052171), megabytes(1484005), megabytes(4542)
    ('170 MB', '1.5 MB', '0.0045 MB')
    """
    return f"{size / 1e6:.3g} MB" if size >= 1e8 else f"{size / 1e6:.2g} MB"


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
    _check(found, file, advice=" It was left as it is; move it away or replace it.")
    return found


def _check(path, file, *, name=None, advice=""):
    """Raise ChecksumError unless the SHA-256 of `path` is the pinned one."""
    with open(path, "rb") as content:
        sha256 = hashlib.file_digest(content, "sha256").hexdigest()
    if sha256 == file.sha256:
        return
    size = Path(path).stat().st_size
    hint = ""
    if size < file.size:
        hint = " It is too short: a truncated copy?"
    elif size > file.size:
        hint = " It is too long: another version, or line ends changed to CR LF?"
    raise ChecksumError(
        f"{name or path} is not the expected file: "
        f"expected SHA-256 {file.sha256} ({file.size:,} bytes), "
        f"found {sha256} ({size:,} bytes).{hint}{advice}"
    )


def _download(file):
    """Try the sources in order; return the path of the first good file."""
    target = data_folders()[0] / file.path
    made = [folder for folder in target.parents if not folder.exists()]
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise _unavailable(file, f"Its folder cannot be made: {error}.") from error
    for left in target.parent.glob(f".{target.name}.*.part"):
        with suppress(OSError):  # another process was faster
            if time.time() - left.stat().st_mtime > _ABANDONED:
                left.unlink()
    failures = []
    for url in file.urls:
        told = f"{file.path}, {megabytes(file.size)}, from {url} to {target}"
        print(f"labkit: downloading {told}", file=sys.stderr)
        try:
            return _download_from(url, file, target)
        except (ChecksumError, OSError) as error:  # requests' errors are OSErrors
            failures.append((url, error))
    for folder in made:
        with suppress(OSError):  # not empty: another process has put a file there
            folder.rmdir()
    cause = failures[-1][1] if failures else None
    tried = "".join(f"\n  {url}: {error}" for url, error in failures)
    tried = tried or " it has no source."
    if any(isinstance(error, ChecksumError) for _, error in failures):
        raise ChecksumError(
            f"no source gave the expected {target}; nothing was kept. Tried:{tried}"
        ) from cause
    raise _unavailable(file, f"Tried to download:{tried}") from cause


def _download_from(url, file, target):
    from pooch import HTTPDownloader
    from tqdm import tqdm

    partial = target.with_name(f".{target.name}.{os.getpid()}.part")
    try:
        # The bar is ours so that it is closed, too, when the download fails.
        with (
            tqdm(total=file.size, unit="B", unit_scale=True, desc=file.path) as bar,
            partial.open("wb") as output,
        ):
            HTTPDownloader(progressbar=bar)(url, _Bounded(output, file.size, url), None)
        _check(partial, file, name=url)
        os.replace(partial, target)
    finally:
        partial.unlink(missing_ok=True)
    return target


class _Bounded:
    """A file that accepts no more bytes than the registry gives."""

    def __init__(self, output, size, url):
        self.output, self.left, self.size, self.url = output, size, size, url
        self.flush = output.flush

    def write(self, chunk):
        self.left -= len(chunk)
        if self.left < 0:
            raise ChecksumError(
                f"{self.url} is not the expected file: it has more than "
                f"{self.size:,} bytes; the rest was not read"
            )
        self.output.write(chunk)


def _unavailable(file, reason):
    places = "".join(f"\n  {folder / file.path}" for folder in data_folders())
    return DatasetUnavailable(
        f"{file.path} is not on this machine. Looked for:{places}\n{reason}\n"
        f"To place it by hand, put the file ({file.size:,} bytes, SHA-256 "
        f"{file.sha256}) at one of these places, or set LABKIT_DATA to the folder "
        f"that holds {file.path}."
    )
