"""A JupyterLab of its own and a browser on it, both gone when the tests are over."""

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

import pytest

NOTEBOOKS = Path(__file__).parents[2] / "notebooks"

# What JupyterLab would ask or leave out: news, and cells outside the window.
SETTINGS = {
    "apputils-extension/notification": {
        "fetchNews": "false",
        "checkForUpdates": False,
        "doNotDisturbMode": True,
    },
    "notebook-extension/tracker": {
        "windowingMode": "none",
        "autoStartDefaultKernel": True,
    },
}

# What the notebooks' own numbers shrink to here; the rest stays.
SMALL = {
    "00_tour": {"steps": 10},
    "01_rls": {"epochs": 3, "seeds": 1, "live_steps": 10},
    "02_bpls": {
        "seeds": 1,
        "epochs": 1,
        "epochs_128": 20,
        "sweeps": 2,
        "runs": 200,
        "toy_epochs": 20,
    },
    "03_hessian_free": {
        "seeds": 1,
        "iterations": 60,
        "race_seconds": 0.4,
        "live_steps": 10,
    },
    "04_broad": {
        "cost_samples": 400,
        "cost_start": 100,
        "cost_added": 50,
        "cost_updates": 1,
    },
    "05_rtrl": {"updates": 100, "measured": 10, "race_steps": 40, "text_steps": 50},
    "06_compare": {
        "samples": 300,
        "trials": 1,
        "seeds": 2,
        "other_trials": 1,
        "other_seeds": 2,
        "live_steps": 8,
    },
}

# A notebook of panels alone: quick to run, and no lab can change it.
PANELS = [
    """import time
from dataclasses import dataclass
from pathlib import Path
import torch
from labkit.panels import Experiment, Lines, LineStepper, LiveLab, knob

@dataclass(frozen=True)
class Knobs:
    gain: float = knob(1.0, low=0.0, high=9.0, restart=False)
    seed: int = knob(0, low=0, high=9)

def held():  # keeps the kernel at work as long as the test says
    while Path("hold").exists():
        time.sleep(0.01)

def rows(settings):
    for step in range(1, 100_000):
        held()
        yield {"step": step, "value": settings.gain * (step % 10)}

LOSS = Experiment("rows", Knobs, rows, [Lines(("value",), "Value", "1")])
labs = []""",
    "labs.append(LiveLab(LOSS))\nlabs[-1]",
    """def scaled(x, factor):
    y = factor * x
    z = y + 1
    w = z * y
    return w

LineStepper(scaled, torch.ones(3, 3), 2.0)""",
    "held()\nprint([lab.stepper.running for lab in labs])",
]

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


def shrink(source: str, values: dict[str, float]) -> str:
    """Replace the defaults in a parameters cell: one line each, as in the notebooks."""
    lines = []
    opened = False  # inside the brackets of a default that was replaced
    for line in source.splitlines():
        if opened:
            opened = not line.startswith(")")
            continue
        name = line.partition(":")[0]
        if name in values:
            opened = line.rstrip().endswith("(")
            line = f"{name}: {type(values[name]).__name__} = {values[name]}"
        lines.append(line)
    missing = values.keys() - {line.partition(":")[0] for line in lines}
    assert not missing, f"no parameter {missing}"
    return "\n".join(lines)


def copy_small(folder: Path) -> None:
    """Copy the notebooks, with small numbers, so that the committed ones stay."""
    folder.mkdir()
    for name, values in SMALL.items():
        notebook = json.loads((NOTEBOOKS / f"{name}.ipynb").read_text())
        (cell,) = (
            cell
            for cell in notebook["cells"]
            if "parameters" in cell["metadata"].get("tags", ())
        )
        cell["source"] = shrink("".join(cell["source"]), values)
        for cell in notebook["cells"]:
            if cell["cell_type"] == "code":  # a number then tells that the cell has run
                cell |= {"execution_count": None, "outputs": []}
        (folder / f"{name}.ipynb").write_text(json.dumps(notebook))


def write_panels(folder: Path) -> None:
    """Write the notebook of panels alone, twice: what one test saves stays there."""
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    code = {"cell_type": "code", "execution_count": None, "metadata": {}, "outputs": []}
    cells = [code | {"id": str(i), "source": text} for i, text in enumerate(PANELS)]
    made = {"cells": cells, "metadata": {"kernelspec": kernel}}
    made |= {"nbformat": 4, "nbformat_minor": 5}
    for name in ("panels", "panels_again"):
        (folder / f"{name}.ipynb").write_text(json.dumps(made))


def write_settings(config: Path) -> None:
    for name, values in SETTINGS.items():
        path = config / f"lab/user-settings/@jupyterlab/{name}.jupyterlab-settings"
        path.parent.mkdir(parents=True)
        path.write_text(json.dumps(values))


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
        "IPYTHONDIR": str(home / "ipython"),
        "LABKIT_DATA": os.environ.get("LABKIT_DATA", str(NOTEBOOKS.parent / "data")),
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


@pytest.fixture(scope="session")
def server(tmp_path_factory):
    """Yield a JupyterLab on small copies of the notebooks; its kernels end with it."""
    home = tmp_path_factory.mktemp("jupyter-home")
    write_settings(home / "jupyter")
    copy_small(home / "notebooks")
    write_panels(home / "notebooks")
    port, token = free_port(), secrets.token_hex(16)
    made = Server(f"http://127.0.0.1:{port}", token, home / "server.log")
    command = [
        sys.executable,
        "-m",
        "jupyterlab",
        "--no-browser",
        "--allow-root",
        "--ip=127.0.0.1",
        f"--port={port}",
        "--ServerApp.port_retries=0",
        f"--IdentityProvider.token={token}",
        f"--ServerApp.root_dir={home / 'notebooks'}",
    ]
    with made.log.open("w") as log:
        process = subprocess.Popen(
            command,
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
    end = time.monotonic() + 60
    while time.monotonic() < end and process.poll() is None:
        try:
            with urllib.request.urlopen(server.address("api/status"), timeout=5):
                return
        except OSError:
            time.sleep(0.2)
    pytest.fail(f"JupyterLab did not start:\n{server.log.read_text()[-3000:]}")


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


@pytest.fixture(scope="session")
def driver(tmp_path_factory):
    """Yield a headless Chromium, driven by selenium."""
    from selenium.webdriver import Chrome, ChromeOptions
    from selenium.webdriver.chrome.service import Service

    browser, chromedriver = shutil.which("chromium"), shutil.which("chromedriver")
    if not (browser and chromedriver):
        pytest.skip("needs chromium and chromedriver on PATH")
    options = ChromeOptions()
    options.binary_location = browser
    profile = tmp_path_factory.mktemp("chromium")
    for flag in (*CHROMIUM, f"--user-data-dir={profile}"):
        options.add_argument(flag)
    service = Service(chromedriver, popen_kw={"start_new_session": True})
    try:
        made = Chrome(options=options, service=service)
        made.set_page_load_timeout(60)
        yield made
        made.quit()
    finally:
        if service.process is not None:
            end_group(service.process)


@pytest.fixture
def page(driver, server, tmp_path, request):
    """Open the notebook that the test names; leave a picture behind."""
    from tests.browser.page import Page

    opened = Page(driver, server, request.param)
    yield opened
    picture = tmp_path / f"{request.param}.png"
    driver.save_screenshot(str(picture))
    print(f"screenshot: {picture}")
