"""Find a pinned file on this machine, or download it; check it either way.

Pooch's own store takes one folder and one source per file, and replaces a file that
has another checksum; here a found file is the user's and never touched.
"""

import os
import time
from contextlib import suppress
from pathlib import Path

import pooch
from tqdm import tqdm

from labkit.lab.datasets.registry import FILES

_SOURCE_TREE = Path(__file__).resolve().parents[3]
_ABANDONED = 3600  # [s] nobody has written to a download: its process was killed


class ChecksumError(ValueError):
    """A file is not the one that the registry pins."""


class DatasetUnavailable(RuntimeError):
    """A data set is neither on this machine nor to be had from its sources."""


def data_folders():
    """List the folders in which data files are looked for, in order.

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
        own = Path(pooch.os_cache("labkit"))
    if not (given := os.environ.get("LABKIT_DATA")):
        return [own]
    folder = Path(given).expanduser().absolute()
    if folder.exists() and not folder.is_dir():
        raise NotADirectoryError(
            f"LABKIT_DATA must name a folder, and {folder} is not one; "
            "give the folder that holds e.g. ptb/ptb.train.txt"
        )
    return [folder, own]


def find(path):
    """Give the first place where a file of the registry lies, unopened, or None."""
    places = (folder / path for folder in data_folders())
    return next((place for place in places if place.exists()), None)


def fetch(path):
    """Give the place of a file whose checksum holds, downloading it if need be.

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
    sha256 = pooch.file_hash(str(path), alg="sha256")
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
    partial = target.with_name(f".{target.name}.{os.getpid()}.part")
    try:
        # The bar is ours so that it is closed, too, when the download fails.
        with (
            tqdm(total=file.size, unit="B", unit_scale=True, desc=file.path) as bar,
            partial.open("wb") as output,
        ):
            pooch.HTTPDownloader(progressbar=bar)(
                url, _Bounded(output, file.size, url), None
            )
        _check(partial, file, name=url)
        os.replace(partial, target)
    finally:
        partial.unlink(missing_ok=True)
    return target


class _Bounded:
    """A file that takes no more bytes than the registry says."""

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
