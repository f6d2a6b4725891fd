"""What is refused before anything starts, what is shown, and how a command ends."""

import base64
import gzip
import json
import os
import re
import subprocess
import sys

import pytest

from labkit.lab.datasets import fetch
from labkit.lab.runs import report
from tests.lab.runs.conftest import CELL, labkit, refused


@pytest.fixture(autouse=True)
def place(tmp_path, write_notebook, monkeypatch):
    write_notebook("01_rls", "1")
    write_notebook("05_rtrl", cells=[CELL + "hidden: int = 4  # units; 1..\n"])
    monkeypatch.chdir(tmp_path)


def test_list_shows_names_types_bounds_and_paper_values():
    outcome = labkit("list")
    assert outcome.exit_code == 0
    assert "rls\n" in outcome.stdout and "rtrl\n" in outcome.stdout
    assert "rank = 8 (paper: 16)  [int, 1..64]  terms kept" in outcome.stdout
    assert "hidden = 4  [int, 1..]  units" in outcome.stdout


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("run rtlr", "unknown notebook 'rtlr'; there are: rls, rtrl"),
        ("run", "--all"),
        ("run rls -p rakn=8", "did you mean 'rank'? There are: rank (int, 1..64)"),
        ("run rls -p rank", "write -p name=value"),
        ("run rls -p rank=8 -p rank=9", "given twice"),
        ("run --all -p hidden=8", "rls: unknown parameter 'hidden'"),
        ("run rls -p run_dir=x", "'run_dir' is set by the run itself"),
        ("run rls --profile fast", "unknown profile 'fast'; profiles are quick, paper"),
        ("run rls -p device=banana", "a device of this torch, got 'banana'"),
        ("run rls -p device=cuda:99", "got 'cuda:99'"),
        ("run rls --out file/deeper/still", "file is not a folder"),
        ("report --out nowhere", "no folder of runs"),
    ],
)
def test_refusals_come_first_with_what_is_allowed(tmp_path, arguments, message):
    refused(arguments, message, tmp_path)


@pytest.mark.parametrize("verb", ["run rls", "sweep rls -p rank=1:3", "run --all"])
def test_data_that_are_not_here_are_not_downloaded_without_a_word(
    tmp_path, monkeypatch, verb
):
    monkeypatch.setenv("LABKIT_DATA", str(tmp_path / "data"))
    monkeypatch.setattr(fetch, "_SOURCE_TREE", tmp_path)  # whose data may be here
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    words = "the data set 'ptb' is not on this machine; 'python -c \"from labkit.lab "
    words += "import load; [load('ptb', part) for part in ['train', 'valid', 'test']]"
    refused(f"{verb} -p corpus=ptb", words, tmp_path)


@pytest.mark.parametrize(
    ("cells", "message"),
    [
        ([], "06_bare.ipynb has 0 cells tagged 'parameters' and needs one"),
        (["n: int = 8"], "the parameters cell must declare 'device: str', which every"),
    ],
)
def test_the_parameters_cell_must_be_there(tmp_path, write_notebook, cells, message):
    write_notebook("06_bare", cells=cells)
    refused("run bare", message, tmp_path)


# The index over all runs


def kept(folder, *traced, **about):
    """Make a run's folder with a summary, and a trace if it has lines."""
    folder.mkdir(parents=True)
    (folder / "run.json").write_text(json.dumps(about))
    if traced:
        (folder / "fc.jsonl").write_text("\n".join(traced))


def test_the_index_escapes_what_it_shows(tmp_path):
    text = "<script>alert(1)</script>"
    kept(
        tmp_path / "runs/20300102-030405-<b>",
        '{"step": 0}',
        '{"step": 1}',
        '{"st',
        name="<b>",
        error="<img src=x>",
        parameters={"text": text},
    )
    index = report(tmp_path / "runs").read_text()
    assert not any(tag in index for tag in ("<b>", "<script>", "<img"))
    assert "&lt;script&gt;" in index and "(2 rows)" in index


def row(step, seed, label, **numbers):
    return json.dumps({"step": step, "label": label, "seed": seed, "look": 1} | numbers)


def test_the_index_shows_what_was_measured_and_a_picture(tmp_path):
    """The mean over seeds of what each label ended with; parameters that differ."""
    lines = [
        row(1, 0, "Adam", loss=9.0),
        row(2, 0, "Adam", loss=1.0, accuracy=96.0, failed="", seconds=1.5),
        row(2, 1, "Adam", loss=2.0, accuracy=97.0, seconds=0.5),
        row(2, 0, "RLS", loss=0.5, bad=float("nan")),
    ]
    for rank in (1, 2):
        folder = tmp_path / f"runs/20300102-030405-rls-{rank}"
        parameters = {"rank": rank, "corpus": "text"}
        kept(folder, *lines, name="rls", seconds=1.25, parameters=parameters)
    figure = {"data": [{"y": [1]}], "layout": {"title": {"text": "</script>"}}}
    (folder / "picture.json").write_text(json.dumps(figure))
    index = report(tmp_path / "runs").read_text()
    text = " ".join(re.sub(r"<[^>]*>", " ", index[index.index("<main") :]).split())
    assert "loss accuracy bad seconds Adam 1.5 96.5 1 RLS 0.5 nan" in text
    assert text.count("(4 rows)") == 2 and "in 1.2 s" in text
    headings = re.findall(r'<p class="about">(.*?)</p>', index, re.S)
    shown = [re.findall(r"rank=\d|corpus", each) for each in headings]
    assert shown == [["rank=2"], ["rank=1"]]
    (packed,) = re.findall(r'<script type="text/plain">(.*?)</script>', index)
    assert json.loads(gzip.decompress(base64.b64decode(packed))) == figure
    (script,) = (tmp_path / "runs/_static").iterdir()
    assert f'<script src="_static/{script.name}"></script>' in index


def test_the_index_has_the_runs_of_sweeps_and_what_was_cut_off_or_damaged(tmp_path):
    for parent in ("", "sweep-rls-1a", "no-sweep"):
        folder = tmp_path / parent / f"20300102-030405-rls-{parent}0"
        kept(folder, name=f"rls-{parent}0")
        (folder / f"rls-{parent}0.html").touch()
        (tmp_path / parent / f".20300102-030405-rls-{parent}1.partial").mkdir()
    kept(tmp_path / "bad")
    (tmp_path / "bad/run.json").write_text("{")
    index = report(tmp_path).read_text()
    assert "3 runs,\nnewest first" in index and "2 runs without" in index
    assert "no-sweep" not in index and "unreadable" in index
    link = "sweep-rls-1a/20300102-030405-rls-sweep-rls-1a0/rls-sweep-rls-1a0.html"
    assert f'href="{link}"' in index and (tmp_path / link).is_file()
    assert "<code>sweep-rls-1a/.20300102-030405-rls-sweep-rls-1a1.partial" in index
    outcome = labkit("report", "--out", tmp_path / "sweep-rls-1a")
    own = tmp_path / "sweep-rls-1a/index.html"
    assert outcome.stdout.strip() == str(own)
    assert 'href="20300102-030405-rls-sweep-rls-1a0/' in own.read_text()


# How a command ends


def test_a_full_disk_is_said_in_a_line(monkeypatch):
    def full(*_):
        raise OSError(28, "No space left on device", "page.html")

    monkeypatch.setattr("labkit.lab.runs.page.write_page", full)
    outcome = labkit("run", "rls")
    assert outcome.exit_code == 1
    assert "labkit: [Errno 28] No space left on device" in outcome.stderr


@pytest.mark.parametrize("command", ["list", "reproduce show"])
def test_a_reader_who_has_seen_enough_hears_nothing(command):
    """As in `labkit list | head -1`: the pipe is closed before all is written."""
    script = [sys.executable, "-m", "labkit", *command.split()]
    read, write = os.pipe()
    os.close(read)
    done = subprocess.run(script, stdout=write, stderr=subprocess.PIPE, text=True)
    os.close(write)
    assert done.returncode == 1 and done.stderr == ""
