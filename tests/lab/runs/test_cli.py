"""What is refused before anything starts, and what is shown."""

import base64
import gzip
import json
import re

import pytest
import torch

from labkit.lab.datasets import fetch
from labkit.lab.runs import RunRefused, notebooks, report, run
from labkit.lab.runs.execute import (
    _reserve,
    datetime,
    failed,
    prepare,
)
from tests.lab.runs.conftest import CELL, labkit, refused


@pytest.fixture(autouse=True)
def place(tmp_path, write_notebook, monkeypatch):
    write_notebook("01_rls")
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
        ("run rls --all", "--all"),
        ("run rls -p rank=eight", "rank takes int, 1..64"),
        ("run rls -p rank=0", "rank=0 is not allowed; rank takes int, 1..64"),
        ("run rls -p corpus=bible", "corpus takes str, text|ptb"),
        ("run rls -p shuffle=1", "shuffle takes bool"),
        ("run rls -p rakn=8", "did you mean 'rank'? There are: rank (int, 1..64)"),
        ("run rls -p rank", "write -p name=value"),
        ("run rls -p =8", "write -p name=value"),
        ("run rls -p rank=8 -p rank=9", "given twice"),
        ("run --all -p hidden=8", "rls: unknown parameter 'hidden'"),
        ("run rls -p run_dir=x", "'run_dir' is set by the run itself"),
        ("run rls -p interactive=true", "'interactive' is set by the run itself"),
        ("run rls --profile fast", "unknown profile 'fast'; profiles are quick, paper"),
        ("run rls --device banana", "device 'banana' is not available; here are: cpu"),
        ("run rls --device meta", "not available"),
        ("run rls --device cpu -p device=cuda", "given twice"),
        ("run rls --out file", "file is not a folder"),
        ("run rls --out file/deeper/still", "file is not a folder"),
        ("run rls --notebooks nowhere", "no folder of notebooks at nowhere"),
        ("report --out nowhere", "no folder of runs"),
        ("report --out file", "not a folder"),
    ],
)
def test_refusals_come_first_with_what_is_allowed(tmp_path, arguments, message):
    refused(arguments, message, tmp_path)


@pytest.mark.skipif(torch.cuda.is_available(), reason="needs a machine without a GPU")
@pytest.mark.parametrize("verb", ["run rls", "sweep rls -p rank=1:3", "run --all"])
def test_data_that_are_not_here_are_not_downloaded_without_a_word(
    tmp_path, monkeypatch, verb
):
    monkeypatch.setenv("LABKIT_DATA", str(tmp_path / "data"))
    monkeypatch.setattr(fetch, "_SOURCE_TREE", tmp_path)  # whose data may be here
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    words = "the data set 'ptb' is not on this machine; 'python -c \"from labkit.lab "
    words += "import load; load('ptb')\"' downloads it, or set LABKIT_DATA to the"
    refused(f"{verb} -p corpus=ptb", words, tmp_path)


def test_a_gpu_that_is_not_there_is_refused(tmp_path):
    refused("run rls --device cuda", "here are: cpu", tmp_path)


@pytest.mark.parametrize(
    ("cells", "message"),
    [
        ([], "06_bare.ipynb has 0 cells tagged 'parameters' and needs one"),
        ([CELL] * 2, "06_bare.ipynb has 2 cells tagged 'parameters' and needs one"),
        (["n: int = 8"], "'device: str' and 'interactive: bool' and 'run_dir: str'"),
    ],
)
def test_the_parameters_cell_must_be_there(tmp_path, write_notebook, cells, message):
    write_notebook("06_bare", cells=cells)
    refused("run bare", message, tmp_path)


def test_the_function_refuses_like_the_command():
    with pytest.raises(RunRefused, match="rank takes int"):
        run("rls", {"rank": 1.5})


def test_two_notebooks_of_one_name_are_refused(write_notebook):
    folder = write_notebook("01_rls").parent
    write_notebook("02_rls")
    with pytest.raises(RunRefused, match="both 'rls'"):
        notebooks(folder)


def test_runs_of_one_second_get_different_names():
    now, names = datetime(2030, 1, 2, 3, 4, 5), []
    plan = prepare("rls", {}, "quick", None, "runs", None)
    for _ in range(3):
        partial, final = _reserve(plan, now)
        names.append(final.name)
    partial.rename(failed(final))
    names.append(_reserve(plan, now)[1].name)
    stem = "20300102-030405-rls"
    assert names == [stem, f"{stem}-2", f"{stem}-3", f"{stem}-4"]


def test_the_index_escapes_what_it_shows(tmp_path):
    folder = tmp_path / "runs/20300102-030405-<b>"
    folder.mkdir(parents=True)
    record = {"name": "<b>", "status": "failed", "error": "<img src=x>"}
    record["parameters"] = {"text": "<script>alert(1)</script>"}
    (folder / "run.json").write_text(json.dumps(record))
    (folder / "<i>.jsonl").write_text('{"step": 0}\n{"step": 1}\n{"st')
    index = report(tmp_path / "runs").read_text()
    assert not any(tag in index for tag in ("<b>", "<script>", "<img", "<i>"))
    assert "&lt;script&gt;" in index and "(2 rows)" in index


def row(step, seed, label, **numbers):
    return json.dumps({"step": step, "label": label, "seed": seed, "look": 1} | numbers)


def test_the_index_shows_what_was_measured_and_a_picture(tmp_path):
    """The mean over seeds of what each label ended with; parameters that differ."""
    for rank in (1, 2):
        folder = tmp_path / f"runs/20300102-030405-rls-{rank}"
        folder.mkdir(parents=True)
        about = {"name": "rls", "status": "finished", "seconds": 1.25}
        about["parameters"] = {"rank": rank, "corpus": "text"}
        (folder / "run.json").write_text(json.dumps(about))
        lines = [
            row(1, 0, "Adam", loss=9.0),
            row(2, 0, "Adam", loss=1.0, accuracy=96.0, failed="", seconds=1.5),
            row(2, 1, "Adam", loss=2.0, accuracy=97.0, seconds=0.5),
            row(2, 0, "RLS", loss=0.5, bad=float("nan")),
        ]
        (folder / "fc.jsonl").write_text("\n".join(lines) + "\n")
    figure = {"data": [{"y": [1]}], "layout": {"title": {"text": "</script>"}}}
    (folder / "picture.json").write_text(json.dumps(figure))
    index = report(tmp_path / "runs").read_text()
    text = " ".join(re.sub(r"<[^>]*>", " ", index[index.index("<main") :]).split())
    assert "loss accuracy bad seconds Adam 1.5 96.5 1 RLS 0.5 nan" in text
    assert text.count("(4 rows)") == 2 and "in 1.2 s" in text
    headings = re.findall(r'<p class="about">(.*?)</p>', index, re.S)
    assert [re.findall(r"rank=\d|corpus", each) for each in headings] == [
        ["rank=2"],
        ["rank=1"],
    ]
    (packed,) = re.findall(r'<script type="text/plain">(.*?)</script>', index)
    assert json.loads(gzip.decompress(base64.b64decode(packed))) == figure
    (script,) = (tmp_path / "runs/_static").iterdir()
    assert f'<script src="_static/{script.name}"></script>' in index


def test_the_index_has_the_runs_of_sweeps(tmp_path):
    """Those of a folder that only looks like a sweep's are none."""
    for parent in ("", "sweep-rls-1a", "sweep-rls-2b", "no-sweep"):
        folder = tmp_path / parent / f"20300102-030405-rls-{parent}0"
        folder.mkdir(parents=True)
        record = {"name": f"rls-{parent}0", "status": "finished"}
        (folder / "run.json").write_text(json.dumps(record))
        (folder / f"rls-{parent}0.html").touch()
        (folder / "steps.jsonl").write_text('{"step": 0}\n')
        cut_off = tmp_path / parent / f".20300102-030405-rls-{parent}1.partial"
        cut_off.mkdir()
    for sweep in ("sweep-rls-1a", "sweep-rls-2b"):
        (tmp_path / sweep / "sweep.json").write_text("{}")
    index = report(tmp_path).read_text()
    assert "3 runs,\nnewest first" in index and "3 runs without" in index
    assert "no-sweep" not in index
    run = "sweep-rls-2b/20300102-030405-rls-sweep-rls-2b0"
    for link in (f"{run}/rls-sweep-rls-2b0.html", f"{run}/steps.jsonl"):
        assert f'href="{link}"' in index and (tmp_path / link).is_file()
    assert "<code>sweep-rls-2b/.20300102-030405-rls-sweep-rls-2b1.partial" in index
    own = report(tmp_path / "sweep-rls-2b").read_text()
    assert 'href="20300102-030405-rls-sweep-rls-2b0/steps.jsonl"' in own
    assert "sweep-rls-1a" not in own


def test_the_index_of_damaged_and_of_no_runs(tmp_path):
    out = tmp_path / "runs"
    out.mkdir()
    assert "No run has been completed" in report(out).read_text()
    (out / "20300102-030405-rls").mkdir()
    (out / "20300102-030405-rls" / "run.json").write_text("{")
    outcome = labkit("report", "--out", out)
    assert outcome.stdout.strip() == str(out / "index.html")
    assert "unreadable" in (out / "index.html").read_text()
