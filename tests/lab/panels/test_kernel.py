"""A panel in a kernel, whose messages come as a page sends them."""

import inspect

import pytest
from ipykernel import kernelbase
from ipykernel.comm import Comm
from jupyter_client import KernelManager
from jupyter_client.kernelspec import KernelSpecManager

from labkit.lab.panels import Stepper
from labkit.lab.panels.figures.shown import ROUTE, hear_here

PANEL = """
import asyncio, threading
from labkit.lab.panels import Stepper

threads = set()

def rows():
    while True:
        threads.add(threading.current_thread())
        yield

async def look():
    await asyncio.sleep(0.2)
    return stepper.running, threads <= {threading.main_thread()}

stepper = Stepper(rows)
display(stepper)
clicked = {name: each.comm.comm_id for name, each in stepper._buttons.items()}
"""


def test_ipykernel_still_asks_the_private_method_that_panels_replace():
    """Where it does not, ``hear_here`` does nothing, and a click may be lost."""
    assert callable(getattr(Comm, ROUTE))
    assert f'"{ROUTE}"' in inspect.getsource(kernelbase)
    stepper = Stepper(lambda: iter("ab"))
    hear_here(stepper.widget)
    comm = stepper._buttons["step"].comm
    assert not hasattr(comm, ROUTE) or getattr(comm, ROUTE)({}, "a page's") is None


class Page:
    """What a page says to a kernel, by hand."""

    def __init__(self, client):
        self.client, self.thread = client, None

    def ask(self, channel, kind, content):
        """Send a message; return the content of its answer."""
        sent = self.client.session.msg(kind, content)
        getattr(self.client, f"{channel}_channel").send(sent)
        answer = {"parent_header": {}}
        while answer["parent_header"].get("msg_id") != sent["msg_id"]:
            answer = getattr(self.client, f"get_{channel}_msg")(timeout=600)
        return answer["content"]

    def run(self, code, value):
        content = {"code": code, "silent": False, "user_expressions": {"value": value}}
        answer = self.ask("shell", "execute_request", content)
        assert answer["status"] == "ok", answer
        return eval(answer["user_expressions"]["value"]["data"]["text/plain"])

    def click(self, comm):
        data = {"method": "custom", "content": {"event": "click"}}
        sent = self.client.session.msg("comm_msg", {"comm_id": comm, "data": data})
        sent["header"]["subshell_id"] = self.thread
        self.client.shell_channel.send(sent)


@pytest.fixture
def page():
    manager = KernelManager(kernel_spec_manager=KernelSpecManager(kernel_dirs=[]))
    manager.start_kernel()
    client = manager.blocking_client()
    client.start_channels()
    client.wait_for_ready(timeout=600)
    yield Page(client)
    client.stop_channels()
    manager.shutdown_kernel(now=True)


def test_the_end_of_a_page_loses_neither_a_run_nor_a_click(page):
    """A page has the kernel hear it on a thread, which ends with the page's panels."""
    buttons = page.run(PANEL, "clicked")
    page.thread = page.ask("control", "create_subshell_request", {})["subshell_id"]
    for name, runs in (("run", True), ("pause", False), ("run", True)):
        page.click(buttons[name])  # the thread hears what once has answered it
        assert page.run("found = await look()", "found") == (runs, True)
    page.ask("control", "delete_subshell_request", {"subshell_id": page.thread})
    before = page.run("before = stepper.position; await look()", "before")
    assert page.run("", "stepper.position") > before
    page.click(buttons["pause"])
    assert page.run("found = await look()", "found") == (False, True)
