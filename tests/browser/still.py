"""A page without a kernel, and a recorded run in it."""

import nbformat
from nbformat.v4 import new_code_cell, new_notebook, new_output
from selenium.webdriver.common.by import By

from labkit.lab.runs.page import write_page
from tests.browser.page import wait

OPEN = """
for (let part = arguments[0]; (part = part.parentElement?.closest('details')); )
  part.open = true;
"""


def cell(source, *shown, folded=False):
    """A cell that has shown these, by their kinds, its code perhaps folded."""
    outputs = [new_output("display_data", each) for each in shown]
    fold = {"jupyter": {"source_hidden": folded}}
    return new_code_cell(source, metadata=fold, outputs=outputs)


def exported(folder, *cells):
    """Write the page of a run that has these cells; return its address."""
    folder.mkdir()
    nbformat.write(new_notebook(cells=cells), folder / "rls.ipynb")
    write_page(folder / "rls.ipynb", folder / "rls.html")
    return (folder / "rls.html").as_uri()


LOADED = "return document.readyState === 'complete';"


class Still:
    """A page, opened."""

    def __init__(self, driver, address):
        self.driver = driver
        driver.get(address)  # in a new window it may come back while the page loads
        wait(lambda: self.script(LOADED), "the page is there")

    def find(self, css):
        return self.driver.find_element(By.CSS_SELECTOR, css)

    def script(self, text, *arguments):
        return self.driver.execute_script(text, *arguments)


class Played:
    """The first recorded run of a page."""

    def __init__(self, page):
        wait(lambda: page.find(".labkit-play button"), "it lives")
        self.root = page.find(".labkit-play")
        page.script(OPEN, self.root)
        self.button = self.root.find_element(By.TAG_NAME, "button")
        self.slider = self.root.find_element(By.CSS_SELECTOR, ".labkit-play-step")
        self.knobs = self.root.find_elements(By.CSS_SELECTOR, ".labkit-play-knob")
        page.script("arguments[0].scrollIntoView({block: 'center'})", self.root)

    def press(self):
        self.button.click()

    def step(self):
        """The step that is shown, and the last one."""
        text = self.root.find_element(By.TAG_NAME, "span").text
        return tuple(int(part) for part in text.split(" of "))

    def values(self):
        """Of each knob, what stands beside it."""
        return [each.text for each in self.root.find_elements(By.TAG_NAME, "b")]
