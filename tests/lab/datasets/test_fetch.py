"""Finding, checking and downloading, against a server in this process."""

import hashlib
import http.server
import re
import threading
from contextlib import suppress
from pathlib import Path

import pytest

from labkit.lab.datasets import (
    ChecksumError,
    DatasetUnavailable,
    available,
    fetch,
    load,
)
from labkit.lab.datasets.fetch import FILES
from tests import ROOT

GOOD = b"the right bytes\n" * 100
SHA256 = hashlib.sha256(GOOD).hexdigest()
NOWHERE = "http://127.0.0.1:9/file.txt"  # the discard port: nothing listens
PATH = "some/file.txt"


@pytest.fixture
def server():
    """Serve `pages`; ``/cut`` promises more than it sends, ``/endless`` goes on."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            asked.append(self.path)
            body = pages.get(self.path)
            self.send_response(404 if body is None else 200)
            missing = 1000 if self.path == "/cut" else 0
            self.send_header("Content-Length", str(len(body or b"") + missing))
            self.end_headers()
            with suppress(ConnectionError):  # the reader has had enough
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


@pytest.fixture
def fetched(folder, pin):
    """Fetch the pinned file, from some sources."""
    return lambda *urls: fetch.fetch(pin(PATH, GOOD, *(urls or (NOWHERE,))))


def files_below(folder):
    return [path for path in folder.rglob("*") if path.is_file()]


def test_the_named_folder_comes_first(folder, put, fetched, tmp_path):
    (tmp_path / "tree/data/some").mkdir(parents=True)
    (tmp_path / "tree/data" / PATH).write_bytes(GOOD)
    assert fetched() == tmp_path / "tree/data" / PATH
    put({PATH: GOOD})
    assert fetched() == folder / PATH


def test_without_the_variable_or_the_source_tree(folder, monkeypatch):
    monkeypatch.setattr("pooch.os_cache", lambda name: f"/cache/{name}")
    monkeypatch.setenv("LABKIT_DATA", "")
    assert fetch.data_folders() == [folder.parent / "tree/data"]
    (folder.parent / "tree/pyproject.toml").unlink()
    assert fetch.data_folders() == [Path("/cache/labkit")]


def test_a_wrong_file_found_is_refused_and_left(folder, put, fetched, server):
    wrong = b"x" * len(GOOD)
    put({PATH: wrong})
    found = hashlib.sha256(wrong).hexdigest()
    message = rf"some.file\.txt is not .* expected SHA-256 {SHA256} .* found {found}"
    with pytest.raises(ChecksumError, match=message):
        fetched(f"{server.url}/good")
    assert (folder / PATH).read_bytes() == wrong and server.asked == []


def test_a_download_lands_in_the_first_folder(folder, fetched, server, capfd):
    path = fetched(f"{server.url}/good")
    assert path == folder / PATH and path.read_bytes() == GOOD
    assert files_below(folder.parent) == [folder.parent / "tree/pyproject.toml", path]
    assert path.stat().st_mode & 0o044 == 0o044  # for all who share the folder
    assert "100%" in capfd.readouterr().err  # the progress bar
    assert fetched(f"{server.url}/good") == path
    assert server.asked == ["/good"]


@pytest.mark.parametrize("first", ["/missing", "/bad", "/cut"])
def test_the_second_source_is_tried(folder, fetched, server, first):
    path = fetched(server.url + first, f"{server.url}/good")
    assert path.read_bytes() == GOOD
    assert server.asked == [first, "/good"]
    assert files_below(folder) == [path]


def test_a_failed_download_leaves_no_file(folder, fetched, server):
    with pytest.raises(ChecksumError, match=r"(?s)no source gave the expected.*404"):
        fetched(f"{server.url}/bad", f"{server.url}/missing")
    assert files_below(folder) == []


def test_without_a_network_the_error_says_what_to_do(folder, fetched):
    other = "http://127.0.0.1:9/other.txt"
    with pytest.raises(DatasetUnavailable, match=r"some/file\.txt is not on") as caught:
        fetched(NOWHERE, other)
    message = str(caught.value)
    for place in (folder, folder.parent / "tree" / "data"):
        assert str(place / PATH) in message
    for part in (NOWHERE, other, "by hand", SHA256, "LABKIT_DATA"):
        assert part in message


def test_the_variable_may_not_name_a_file(folder, put, monkeypatch):
    put({PATH: GOOD})
    monkeypatch.setenv("LABKIT_DATA", str(folder / PATH))
    for call in (lambda: load("ptb"), available):
        with pytest.raises(NotADirectoryError, match=r"must name a folder, and"):
            call()


def test_the_page_about_the_data_has_the_pins_of_the_registry():
    page = ROOT.joinpath("data/README.md").read_text("utf-8")
    listed = re.findall(r"^\| `(\S+/\S+)` \| ([\d,]+) \| `(\w{64})` \|", page, re.M)
    pins = [(file.path, f"{file.size:,}", file.sha256) for file in FILES.values()]
    assert listed == pins
