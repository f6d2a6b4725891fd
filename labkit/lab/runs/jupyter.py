"""The command that opens JupyterLab at a notebook, and the settings that it brings.

``labconfig`` beside this module has defaults for JupyterLab, which a user's own
settings override. All cells are drawn, also those out of sight: otherwise a figure is
drawn only when its reader comes by. JupyterLab neither fetches its project's news nor
asks whether it may: the question would cover the first picture.
"""

import json
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import quote

WORKSPACE = "labkit"  # one of its own, so that what the user left elsewhere stays
_SEARCHED = "JUPYTER_CONFIG_PATH"  # Jupyter's name for further folders of settings
# In the words of JupyterLab's layout: both side bars are closed.
_LAYOUT = {
    "main": {"dock": None, "current": None},
    "down": {"size": 0, "widgets": []},
    "left": {"collapsed": True, "visible": True, "current": None, "widgets": []},
    "right": {"collapsed": True, "visible": True, "current": None, "widgets": []},
    "relativeSizes": [0, 1, 0],
}


def lab_command(notebook: Path) -> list[str]:
    """Return the command that opens JupyterLab at a notebook, for this machine only.

    The file browser is closed, so that a live panel has the room that it is made for;
    it opens as ever by its button. Writes the layout into JupyterLab's folder of
    workspaces.
    """
    from jupyterlab.commands import get_workspaces_dir
    from jupyterlab_server.workspaces_handler import WorkspacesManager

    workspace = {
        "data": {"layout-restorer:data": _LAYOUT},
        "metadata": {"id": WORKSPACE},
    }
    WorkspacesManager(get_workspaces_dir()).save(WORKSPACE, json.dumps(workspace))
    page = f"/lab/workspaces/{WORKSPACE}/tree/{quote(notebook.name)}"
    return [
        sys.executable,
        "-m",
        "jupyterlab",
        "--ip=127.0.0.1",
        f"--ServerApp.root_dir={notebook.parent}",
        f"--LabApp.default_url={page}",
    ]


def lab_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the environment for :func:`lab_command`, with our settings on its path."""
    found = [str(Path(__file__).parent), *environ.get(_SEARCHED, "").split(os.pathsep)]
    return {**environ, _SEARCHED: os.pathsep.join(filter(None, found))}
