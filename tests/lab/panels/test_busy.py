"""What the line that says that the kernel is at work hears from it."""

import threading

import pytest

from labkit.lab.panels.live.busy import Busy


@pytest.mark.parametrize(("taken", "answer"), [(False, "free"), (True, "busy")])
def test_a_step_on_another_thread_counts_as_work(taken, answer):
    lock, sent = threading.RLock(), []
    busy = Busy(lock)
    busy.send = sent.append
    if taken:
        lock.acquire()
    thread = threading.Thread(target=busy._asked, args=(busy, "busy?", []))
    thread.start()
    thread.join()
    assert sent == [answer]
