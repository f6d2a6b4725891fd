"""Find a pinned file on this machine, or download it; check it either way."""

import os
from contextlib import suppress
from functools import partial
from pathlib import Path

import pooch
from tqdm import tqdm

_SOURCE_TREE = Path(__file__).resolve().parents[2]


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

    Examples
    --------
    >>> len(data_folders()) in (1, 2)
    True
    """
    folders = []
    if given := os.environ.get("LABKIT_DATA"):
        folder = Path(given).expanduser().absolute()
        if folder.exists() and not folder.is_dir():
            raise NotADirectoryError(
                f"LABKIT_DATA must name a folder, and {folder} is not one; "
                "give the folder that holds e.g. ptb/ptb.train.txt"
            )
        folders.append(folder)
    # A source tree has pyproject.toml beside the package; site-packages has not.
    if (_SOURCE_TREE / "pyproject.toml").is_file():
        folders.append(_SOURCE_TREE / "data")
    else:
        folders.append(Path(pooch.os_cache("labkit")))
    return folders


def find(file):
    """Look for a file in the data folders, without opening it.

    Parameters
    ----------
    file : RemoteFile

    Returns
    -------
    pathlib.Path or None
        The first place where it lies; None if it lies nowhere.
    """
    places = (folder / file.path for folder in data_folders())
    return next((place for place in places if place.exists()), None)


def fetch(file):
    """Give the path of a file whose checksum holds, downloading it if need be.

    Parameters
    ----------
    file : RemoteFile

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
    found = find(file)
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


def _download_checked(file, url, output, pooch_):
    # Pooch runs this on its temporary file. Checking here, before pooch does, puts
    # both sums and both lengths into the error; pooch removes the file in any case.
    # The bar is ours so that it is closed, too, when the download fails.
    with tqdm(total=file.size, unit="B", unit_scale=True, desc=file.path) as bar:
        pooch.HTTPDownloader(progressbar=bar)(url, output, pooch_)
    _check(output, file, name=url)


def _download(file):
    """Try the sources in order; return the path of the first good file."""
    target = data_folders()[0] / file.path
    made = not target.parent.exists()
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise _unavailable(file, f"Its folder cannot be made: {error}.") from error
    failures = []
    for url in file.urls:
        try:
            pooch.retrieve(
                url,
                known_hash=f"sha256:{file.sha256}",
                fname=target.name,
                path=target.parent,
                downloader=partial(_download_checked, file),
            )
            return target
        except (ChecksumError, OSError) as error:  # requests' errors are OSErrors
            failures.append((url, error))
    if made:
        with suppress(OSError):  # not empty: another process has put a file there
            target.parent.rmdir()
    tried = "".join(f"\n  {url}: {error}" for url, error in failures)
    if any(isinstance(error, ChecksumError) for _, error in failures):
        raise ChecksumError(
            f"no source gave the expected {target}; nothing was kept. Tried:{tried}"
        ) from failures[-1][1]
    raise _unavailable(file, f"Tried to download:{tried}") from failures[-1][1]


def _unavailable(file, reason):
    places = "".join(f"\n  {folder / file.path}" for folder in data_folders())
    return DatasetUnavailable(
        f"{file.path} is not on this machine. Looked for:{places}\n{reason}\n"
        f"To place it by hand, put the file ({file.size:,} bytes, SHA-256 "
        f"{file.sha256}) at one of these places, or set LABKIT_DATA to the folder "
        f"that holds {file.path}."
    )
