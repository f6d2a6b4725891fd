"""The command that opens JupyterLab at a notebook, with its file browser closed."""

import json
import sys
from pathlib import Path
from urllib.parse import quote

WORKSPACE = "labkit"  # one of its own, so that what the user left elsewhere stays
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
        *(sys.executable, "-m", "jupyterlab", "--ip=127.0.0.1"),
        "--LabApp.news_url=None",
        f"--ServerApp.root_dir={notebook.parent}",
        f"--LabApp.default_url={page}",
    ]
