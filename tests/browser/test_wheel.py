"""The wheel in a fresh environment: the page that `labkit lab` opens."""

import re
import subprocess

import pytest

pytest.importorskip("selenium")

from selenium.webdriver.common.by import By

from tests.browser.page import wait
from tests.browser.serve import Server, end_group, end_kernels, environment
from tests.test_package import SHARE, installed, wheel  # noqa: F401

pytestmark = pytest.mark.browser


def test_an_installed_lab_opens_the_tour(installed, driver, tmp_path):  # noqa: F811
    log, empty = tmp_path / "log", tmp_path / "empty"
    empty.mkdir()
    env = environment(tmp_path / "home") | {"JUPYTER_PATH": SHARE, "BROWSER": "true"}
    env = {k: v for k, v in env.items() if k != "PYTHONPATH"}
    env |= {"JUPYTERLAB_DIR": f"{SHARE}/lab"}  # its page, outside the packages
    command = [installed / "labkit", "lab"]
    with log.open("w") as out:
        both = {"stdout": out, "stderr": out, "start_new_session": True}
        process = subprocess.Popen(command, cwd=empty, env=env, **both)
    try:
        address = r"(http://127\.0\.0\.1:\d+)/lab\S*\?token=(\w+)"
        found = wait(lambda: re.search(address, log.read_text()), log.read_text)
        driver.get(found[0])
        heads = lambda: driver.find_elements(By.CSS_SELECTOR, ".jp-Notebook h1")  # noqa: E731
        assert wait(heads, "the tour is open")[0].text.startswith("A tour")
        assert (empty / "notebooks/00_tour.ipynb").is_file()
        end_kernels(Server(found[1], found[2], log))
    finally:
        end_group(process)
