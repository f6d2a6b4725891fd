"""Finding, checking and downloading, against a server in this process."""

import hashlib
import http.server
import threading
from pathlib import Path

import pytest

from labkit.datasets import (
    ChecksumError,
    DatasetUnavailable,
    available,
    data_folders,
    fetch,
    load,
)
from labkit.datasets.registry import PTB, RemoteFile

GOOD = b"the right bytes\n" * 100
SHA256 = hashlib.sha256(GOOD).hexdigest()
NOWHERE = "http://127.0.0.1:9/file.txt"  # the discard port: nothing listens


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
def server():
    """Serve `pages`, path -> bytes; ``/cut`` promises more than it sends."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            asked.append(self.path)
            body = pages.get(self.path)
            self.send_response(404 if body is None else 200)
            missing = 1000 if self.path == "/cut" else 0
            self.send_header("Content-Length", str(len(body or b"") + missing))
            self.end_headers()
            self.wfile.write(body or b"")

        def log_message(self, *args):
            pass

    pages, asked = {"/good": GOOD, "/bad": b"an error page", "/cut": GOOD[:50]}, []
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as httpd:
        thread = threading.Thread(target=httpd.serve_forever, args=(0.02,), daemon=True)
        thread.start()
        httpd.asked = asked
        httpd.url = f"http://127.0.0.1:{httpd.server_port}"
        yield httpd
        httpd.shutdown()
        thread.join()


def pinned(*urls):
    return RemoteFile("some/file.txt", SHA256, len(GOOD), urls or (NOWHERE,))


def place(folder, content):
    path = folder / "some" / "file.txt"
    path.parent.mkdir(parents=True)
    path.write_bytes(content)
    return path


def files_below(folder):
    return [path for path in folder.rglob("*") if path.is_file()]


def test_the_named_folder_comes_first(folder, tmp_path):
    second = place(tmp_path / "tree" / "data", GOOD)
    assert fetch.fetch(pinned()) == second
    first = place(folder, GOOD)
    assert fetch.fetch(pinned()) == first


@pytest.mark.parametrize("value", [None, ""])
def test_without_the_variable_the_source_tree_is_used(folder, monkeypatch, value):
    if value is None:
        monkeypatch.delenv("LABKIT_DATA")
    else:
        monkeypatch.setenv("LABKIT_DATA", value)
    assert data_folders() == [folder.parent / "tree" / "data"]


def test_an_installed_package_uses_the_cache(folder, monkeypatch):
    (folder.parent / "tree" / "pyproject.toml").unlink()
    monkeypatch.setattr(fetch.pooch, "os_cache", lambda name: f"/cache/{name}")
    assert data_folders() == [folder, Path("/cache/labkit")]


def test_a_file_found_is_not_asked_for(folder, server):
    place(folder, GOOD)
    fetch.fetch(pinned(f"{server.url}/good"))
    assert server.asked == []


def test_a_wrong_file_found_is_refused_and_left(folder, server):
    wrong = place(folder, b"x" * len(GOOD))
    found = hashlib.sha256(b"x" * len(GOOD)).hexdigest()
    message = rf"some.file\.txt is not .* expected SHA-256 {SHA256} .* found {found}"
    with pytest.raises(ChecksumError, match=message):
        fetch.fetch(pinned(f"{server.url}/good"))
    assert wrong.read_bytes() == b"x" * len(GOOD)
    assert server.asked == []


def test_a_longer_file_found_gets_a_hint(folder):
    place(folder, GOOD.replace(b"\n", b"\r\n"))
    with pytest.raises(ChecksumError, match=r"too long: .* CR LF"):
        fetch.fetch(pinned())


def test_a_truncated_ptb_says_both_lengths(folder):
    path = folder / "ptb" / "ptb.train.txt"
    path.parent.mkdir()
    path.write_bytes(b" " * 2_875_392)
    message = r"\(5,101,618 bytes\), found \w{64} \(2,875,392 bytes\).* truncated copy"
    with pytest.raises(ChecksumError, match=message):
        load("ptb")
    assert path.stat().st_size == 2_875_392


def test_a_download_lands_in_the_first_folder(folder, server, capfd):
    path = fetch.fetch(pinned(f"{server.url}/good"))
    assert path == folder / "some" / "file.txt"
    assert path.read_bytes() == GOOD
    assert files_below(folder.parent) == [folder.parent / "tree/pyproject.toml", path]
    assert "100%" in capfd.readouterr().err  # the progress bar
    fetch.fetch(pinned(f"{server.url}/good"))
    assert server.asked == ["/good"]


def test_a_download_makes_the_named_folder(folder, server, monkeypatch):
    monkeypatch.setenv("LABKIT_DATA", str(folder / "not" / "yet"))
    path = fetch.fetch(pinned(f"{server.url}/good"))
    assert path == folder / "not" / "yet" / "some" / "file.txt"


@pytest.mark.parametrize("first", ["/missing", "/bad", "/cut"])
def test_the_second_source_is_tried(folder, server, first):
    path = fetch.fetch(pinned(server.url + first, f"{server.url}/good"))
    assert path.read_bytes() == GOOD
    assert server.asked == [first, "/good"]
    assert files_below(folder) == [path]


def test_a_wrong_download_leaves_nothing(folder, server):
    found = hashlib.sha256(b"an error page").hexdigest()
    message = rf"(?s)some.file\.txt.*bad.* expected SHA-256 {SHA256} .* found {found}"
    with pytest.raises(ChecksumError, match=message):
        fetch.fetch(pinned(f"{server.url}/bad", f"{server.url}/missing"))
    assert files_below(folder) == []


def test_a_download_cut_off_leaves_nothing(folder, server):
    with pytest.raises((DatasetUnavailable, ChecksumError), match=r"some/file\.txt"):
        fetch.fetch(pinned(f"{server.url}/cut"))
    assert files_below(folder) == []


def test_an_interrupted_download_leaves_nothing(folder, server, monkeypatch):
    def interrupt(path, file, **kwargs):
        assert Path(path).read_bytes() == GOOD
        raise KeyboardInterrupt("stop")

    monkeypatch.setattr(fetch, "_check", interrupt)
    with pytest.raises(KeyboardInterrupt, match="stop"):
        fetch.fetch(pinned(f"{server.url}/good"))
    assert files_below(folder) == []


def test_without_a_network_the_error_says_what_to_do(folder):
    other = "http://127.0.0.1:9/other.txt"
    with pytest.raises(DatasetUnavailable, match=r"some/file\.txt is not on") as caught:
        fetch.fetch(pinned(NOWHERE, other))
    message = str(caught.value)
    for place_ in (folder, folder.parent / "tree" / "data"):
        assert str(place_ / "some" / "file.txt") in message
    for part in (NOWHERE, other, "by hand", SHA256, "LABKIT_DATA"):
        assert part in message
    assert files_below(folder) == []


def test_a_download_that_fails_leaves_no_empty_folder(folder):
    with pytest.raises(DatasetUnavailable):
        fetch.fetch(pinned())
    assert list(folder.iterdir()) == []
    other = folder / "some" / "other.txt"
    other.parent.mkdir()
    other.touch()
    with pytest.raises(DatasetUnavailable):
        fetch.fetch(pinned())
    assert other.exists()


def test_a_folder_that_cannot_be_made_is_told(folder):
    (folder / "some").write_text("a file where the folder should be")
    with pytest.raises(DatasetUnavailable, match="folder cannot be made"):
        fetch.fetch(pinned())


def test_the_variable_may_not_name_a_file(folder, monkeypatch):
    path = place(folder, GOOD)
    monkeypatch.setenv("LABKIT_DATA", str(path))
    with pytest.raises(NotADirectoryError, match=r"LABKIT_DATA must name a folder"):
        load("ptb")
    with pytest.raises(NotADirectoryError, match=r"file\.txt is not one"):
        available()


def test_available_sees_what_is_here(folder):
    assert not available()["ptb"].here
    assert "to be downloaded" in str(available()["ptb"])
    assert all(available()[name].here for name in ("text", "digits", "copy", "curves"))
    (folder / "ptb").mkdir()
    for file in PTB.values():
        (folder / file.path).touch()
    assert available()["ptb"].here
