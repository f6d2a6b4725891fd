"""A page without a kernel, and a recorded run in it."""

from selenium.webdriver.common.by import By

from tests.browser.page import wait

OPEN = """
for (let part = arguments[0]; (part = part.parentElement?.closest('details')); )
  part.open = true;
"""


LOADED = "return document.readyState === 'complete';"


class Still:
    """A page, opened; ``again=False`` leaves it as it is if the browser has it open."""

    def __init__(self, driver, address, again=True):
        self.driver = driver
        if again or driver.current_url.partition("#")[0] != address:
            driver.get(address)  # in a new window it may come back while the page loads
        wait(lambda: self.script(LOADED), "the page is there")

    def find(self, css):
        return self.driver.find_element(By.CSS_SELECTOR, css)

    def script(self, text, *arguments):
        return self.driver.execute_script(text, *arguments)


class Played:
    """The first recorded run of a page, or a later one."""

    def __init__(self, page, number=0):
        found = lambda: page.driver.find_elements(By.CSS_SELECTOR, ".labkit-play")  # noqa: E731
        wait(lambda: found()[number].find_elements(By.TAG_NAME, "button"), "it lives")
        self.root = found()[number]
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
