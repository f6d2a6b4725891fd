import hashlib
import io
import tarfile

import pytest

from labkit.lab.datasets import fetch
from labkit.lab.datasets.fetch import FILES, RemoteFile


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """An empty $LABKIT_DATA, and an empty source tree as the second place."""
    given, tree = tmp_path / "given", tmp_path / "tree"
    given.mkdir()
    tree.mkdir()
    (tree / "pyproject.toml").touch()
    monkeypatch.setenv("LABKIT_DATA", str(given))
    monkeypatch.setattr(fetch, "_SOURCE_TREE", tree)
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    return given


@pytest.fixture
def pin(monkeypatch):
    """Have the registry expect a content under a path, from some sources."""

    def pinned(path, content, *urls):
        sha256 = hashlib.sha256(content).hexdigest()
        monkeypatch.setitem(FILES, path, RemoteFile(path, len(content), sha256, urls))
        return path

    return pinned


def pinned(contents):
    """Have the registry pin small files in each test but those on real data."""

    @pytest.fixture(autouse=True)
    def small(request):
        if "real_data" not in request.keywords:
            request.getfixturevalue("folder")
            pin = request.getfixturevalue("pin")
            for path, content in contents.items():
                pin(path, content, "http://127.0.0.1:9/cifar-10-binary.tar.gz")

    return small


@pytest.fixture
def put(folder):
    """Put contents under their paths into the data folder."""

    def place(contents):
        for path, content in contents.items():
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            (folder / path).write_bytes(content)

    return place


def archive(contents):
    """Pack files into a gzipped tar archive, in order."""
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w:gz", compresslevel=1) as tar:
        for name, content in contents.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))
    return file.getvalue()
