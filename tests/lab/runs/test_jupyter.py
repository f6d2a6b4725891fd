"""JupyterLab as `labkit lab` opens it."""

import json
from pathlib import Path

from labkit.lab.runs.jupyter import WORKSPACE, lab_command


def test_both_side_bars_are_closed_in_a_workspace_of_its_own(tmp_path, monkeypatch):
    monkeypatch.setenv("JUPYTERLAB_WORKSPACES_DIR", str(tmp_path))
    command = lab_command(Path("/books/a b.ipynb"))
    (written,) = tmp_path.iterdir()
    workspace = json.loads(written.read_text("utf-8"))
    layout = workspace["data"]["layout-restorer:data"]
    assert layout["left"]["collapsed"] and layout["right"]["collapsed"]
    assert workspace["metadata"]["id"] == WORKSPACE
    assert (
        f"--LabApp.default_url=/lab/workspaces/{WORKSPACE}/tree/a%20b.ipynb" in command
    )
    assert "--ServerApp.root_dir=/books" in command
