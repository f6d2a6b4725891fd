"""JupyterLab as `labkit lab` opens it."""

import json
from pathlib import Path

from jupyterlab_server.settings_utils import _get_overrides

from labkit.lab.runs.jupyter import WORKSPACE, lab_command, lab_environment


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


def test_jupyterlab_finds_our_settings_and_the_users(tmp_path, monkeypatch):
    mine = tmp_path / "labconfig"
    mine.mkdir()
    tracker = "@jupyterlab/notebook-extension:tracker"
    (mine / "default_setting_overrides.json").write_text(
        json.dumps({tracker: {"scrollPastEnd": False}}), "utf-8"
    )
    environ = lab_environment({"JUPYTER_CONFIG_PATH": str(tmp_path)})
    monkeypatch.setenv("JUPYTER_CONFIG_PATH", environ["JUPYTER_CONFIG_PATH"])
    overrides, error = _get_overrides(str(tmp_path / "none"))
    assert not error
    assert overrides[tracker]["windowingMode"] == "none"
    assert overrides[tracker]["scrollPastEnd"] is False
