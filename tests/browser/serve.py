"""A JupyterLab of its own and a browser on it, both gone when they are left."""

import contextlib
import json
import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from dataclasses import dataclass
from pathlib import Path

from tests import ROOT

PATIENCE = 600  # seconds that anything is waited for: a busy machine is no failure
DATA = ROOT / "data"
LAB = (sys.executable, "-m", "labkit", "lab")

CHROMIUM = (
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--disable-dev-shm-usage",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",  # no network
    "--window-size=1400,1400",
)


@dataclass(frozen=True)
class Server:
    url: str
    token: str
    log: Path

    @property
    def folder(self) -> Path:
        """Where the notebooks are, and their kernels."""
        return self.log.parent / "notebooks"

    def address(self, path: str) -> str:
        return f"{self.url}/{path}?token={self.token}"


def write_notebook(folder: Path, name: str, sources, folded=()) -> None:
    """Write a notebook of these cells; the code of some, by number, is folded."""
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    code = {"cell_type": "code", "execution_count": None, "metadata": {}, "outputs": []}
    cells = [code | {"id": str(i), "source": text} for i, text in enumerate(sources)]
    for i in folded:
        cells[i]["metadata"] = {"jupyter": {"source_hidden": True}}
    made = {"cells": cells, "metadata": {"kernelspec": kernel}}
    made |= {"nbformat": 4, "nbformat_minor": 5}
    folder.mkdir(exist_ok=True)
    (folder / f"{name}.ipynb").write_text(json.dumps(made))


def environment(home: Path) -> dict[str, str]:
    """Return an environment in which nothing of the user's own Jupyter is found."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith("JUPYTER")}
    bin_folder = Path(sys.executable).parent
    return kept | {
        "PATH": f"{bin_folder}{os.pathsep}{os.environ['PATH']}",
        "HOME": str(home),
        "XDG_CONFIG_HOME": str(home / "config"),
        "XDG_CACHE_HOME": str(home / "cache"),
        "XDG_DATA_HOME": str(home / "data"),
        "JUPYTER_CONFIG_DIR": str(home / "jupyter"),
        "JUPYTER_DATA_DIR": str(home / "jupyter-data"),
        "JUPYTER_RUNTIME_DIR": str(home / "jupyter-runtime"),
        "JUPYTER_PLATFORM_DIRS": "0",
        "JUPYTERLAB_WORKSPACES_DIR": str(home / "workspaces"),
        "IPYTHONDIR": str(home / "ipython"),
        "LABKIT_DATA": os.environ.get("LABKIT_DATA", str(DATA)),
        "OMP_NUM_THREADS": "1",
    }


def free_port() -> int:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def end_group(process: subprocess.Popen) -> None:
    """End a process and its children, which share its group."""
    for stop in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.killpg(process.pid, stop)
        except ProcessLookupError:
            pass
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            continue
        # The leader is gone; whoever else is left hears the second, harsher signal.


@contextlib.contextmanager
def jupyterlab(home: Path):
    """Yield a JupyterLab on ``home / "notebooks"``; its kernels end with it."""
    (home / "jupyter").mkdir()
    port, token = free_port(), secrets.token_hex(16)
    made = Server(f"http://127.0.0.1:{port}", token, home / "server.log")
    own = {
        "ServerApp": {"open_browser": False, "port": port, "port_retries": 0},
        "IdentityProvider": {"token": token},
        "LabApp": {"expose_app_in_browser": True},
    }
    for app in ("server", "lab"):
        (home / f"jupyter/jupyter_{app}_config.json").write_text(json.dumps(own))
    with made.log.open("w") as log:
        process = subprocess.Popen(
            LAB,
            stdout=log,
            stderr=log,
            env=environment(home),
            cwd=home,
            start_new_session=True,
        )
    try:
        wait_for_server(made, process)
        yield made
    finally:
        end_kernels(made)
        end_group(process)


def wait_for_server(server: Server, process: subprocess.Popen) -> None:
    end = time.monotonic() + PATIENCE
    while time.monotonic() < end and process.poll() is None:
        try:
            with urllib.request.urlopen(server.address("api/status"), timeout=5):
                return
        except OSError:
            time.sleep(0.2)
    raise RuntimeError(f"JupyterLab did not start:\n{server.log.read_text()[-3000:]}")


def end_kernels(server: Server) -> None:
    """Shut the kernels down; each leads a process group of its own."""
    try:
        with urllib.request.urlopen(server.address("api/kernels"), timeout=5) as reply:
            kernels = json.load(reply)
        for kernel in kernels:
            request = urllib.request.Request(
                server.address(f"api/kernels/{kernel['id']}"), method="DELETE"
            )
            urllib.request.urlopen(request, timeout=20).close()
    except OSError:
        pass  # the server is down; its end took the kernels along


@contextlib.contextmanager
def chromium(profile: Path):
    """Yield a headless Chromium, driven by selenium; None without one on PATH."""
    from selenium.webdriver import Chrome, ChromeOptions
    from selenium.webdriver.chrome.service import Service

    browser, chromedriver = shutil.which("chromium"), shutil.which("chromedriver")
    if not (browser and chromedriver):
        yield None
        return
    options = ChromeOptions()
    options.binary_location = browser
    for flag in (*CHROMIUM, f"--user-data-dir={profile}"):
        options.add_argument(flag)
    service = Service(chromedriver, popen_kw={"start_new_session": True})
    try:
        made = Chrome(options=options, service=service)
        made.set_page_load_timeout(PATIENCE)
        made.set_script_timeout(PATIENCE)
        # In a window that the system does not hold active a page has no focus, and
        # JupyterLab no notebook for its menus and its status bar.
        made.execute_cdp_cmd("Emulation.setFocusEmulationEnabled", {"enabled": True})
        yield made
        made.quit()
    finally:
        if service.process is not None:
            end_group(service.process)
