"""JupyterLab as `labkit lab` opens it."""

import json
import os

import pytest
from jupyterlab_server.settings_utils import _get_overrides

from labkit.lab.runs.jupyter import WORKSPACE, lab_environment
from tests.lab.runs.conftest import labkit


@pytest.mark.parametrize("user", [0, 1000], ids=["root", "a user"])
def test_both_side_bars_are_closed_and_root_is_told(
    tmp_path, write_notebook, monkeypatch, user
):
    calls, workspaces = [], tmp_path / "workspaces"
    notebook = write_notebook("00_tour")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("JUPYTERLAB_WORKSPACES_DIR", str(workspaces))
    monkeypatch.setattr(os, "execve", lambda _, command, __: calls.append(command))
    monkeypatch.setattr(os, "geteuid", lambda: user)
    warning = labkit("lab").stderr
    assert warning.startswith("labkit: you are root") if user == 0 else warning == ""
    (command,) = calls
    assert ("--allow-root" in command) == (user == 0)
    assert "--ip=127.0.0.1" in command
    assert f"--ServerApp.root_dir={notebook.parent}" in command
    page = f"/lab/workspaces/{WORKSPACE}/tree/00_tour.ipynb"
    assert f"--LabApp.default_url={page}" in command
    (written,) = workspaces.iterdir()
    workspace = json.loads(written.read_text("utf-8"))
    layout = workspace["data"]["layout-restorer:data"]
    assert layout["left"]["collapsed"] and layout["right"]["collapsed"]
    assert workspace["metadata"]["id"] == WORKSPACE


def test_jupyterlab_finds_our_settings_and_the_users(tmp_path, monkeypatch):
    settings = tmp_path / "labconfig"
    settings.mkdir()
    tracker = "@jupyterlab/notebook-extension:tracker"
    (settings / "default_setting_overrides.json").write_text(
        json.dumps({tracker: {"scrollPastEnd": False}}), "utf-8"
    )
    environ = lab_environment({"JUPYTER_CONFIG_PATH": str(tmp_path)})
    monkeypatch.setenv("JUPYTER_CONFIG_PATH", environ["JUPYTER_CONFIG_PATH"])
    overrides, error = _get_overrides(str(tmp_path / "none"))
    assert not error
    assert overrides[tracker]["windowingMode"] == "none"
    assert overrides[tracker]["scrollPastEnd"] is False
