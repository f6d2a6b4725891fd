"""The groups of processes that tests of several workers run on."""

import os
import signal
import subprocess
import sys
import textwrap
import time

import psutil
import pytest
import torch
import torch.distributed as dist

from tests.workers import WorkerError


def ranks(rank, world, *args):
    total = torch.tensor([float(rank), 1.0])
    dist.all_reduce(total)
    return rank, world, total, args


def threads_and_pid(rank, world):
    return torch.get_num_threads(), os.getpid()


def fail_on(rank, world, bad):
    if rank == bad:
        raise KeyError("the culprit")
    dist.barrier()


def end_on(rank, world, bad):
    if rank == bad:
        os.kill(os.getpid(), signal.SIGKILL)


def hang_on(rank, world, bad):
    if rank == bad:
        time.sleep(600)


@pytest.mark.parametrize("world", [1, 2, 3])
def test_every_rank_answers_in_order(workers, world):
    answers = workers(ranks, "a", world=world)
    expected = torch.tensor([world * (world - 1) / 2, world])
    for rank, answer in enumerate(answers):
        assert answer[:2] == (rank, world) and answer[3] == ("a",)
        assert torch.equal(answer[2], expected)


def test_a_group_is_kept_and_has_a_thread_each(workers):
    first, again = workers(threads_and_pid), workers(threads_and_pid)
    assert first == again and [n for n, _ in first] == [1, 1]


def overwrite(rank, world, x):
    dist.barrier()
    x += rank + 1
    dist.barrier()
    return x


def test_every_rank_has_arguments_of_its_own(workers):
    x = torch.zeros(1000)
    first, second = workers(overwrite, x)
    assert (x.max(), first.max(), second.max()) == (0, 1, 2)


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (fail_on, "rank 1: Traceback[^$]*KeyError: 'the culprit'"),
        (end_on, "rank 1: the process ended with code -9"),
        (hang_on, "rank 1: no answer"),
        (lambda rank, world, bad: None, "pickle"),
    ],
)
def test_a_failure_names_the_rank_and_ends_the_group(
    workers, monkeypatch, function, message
):
    monkeypatch.setattr("tests.workers.GRACE", 0.1)
    before = [pid for _, pid in workers(threads_and_pid)]
    with pytest.raises(Exception, match=message) as caught:
        workers(function, 1, **({"seconds": 0.5} if function is hang_on else {}))
    if "pickle" not in message:
        assert caught.type is WorkerError
    assert not any(map(psutil.pid_exists, before))
    assert len(workers(ranks)) == 2


LONG = pytest.mark.long


@pytest.mark.parametrize(
    "how", [signal.SIGKILL, pytest.param(signal.SIGINT, marks=LONG)]
)
def test_no_worker_outlives_pytest(tmp_path, how):
    (tmp_path / "test_long.py").write_text(
        textwrap.dedent(
            f"""
            import os, time
            from tests.workers import workers

            def pid(rank, world):
                return os.getpid()

            def sleep(rank, world):
                time.sleep(600)

            def test_long(workers):
                path = {str(tmp_path)!r}
                with open(path + "/pids.part", "w") as file:
                    print(*workers(pid), file=file)
                os.rename(path + "/pids.part", path + "/pids")
                workers(sleep)
            """
        )
    )
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
    root = os.path.dirname(os.path.dirname(__file__))
    process = subprocess.Popen(
        [*command, "--rootdir", str(tmp_path), str(tmp_path)],
        env={**os.environ, "PYTHONPATH": root},
        stdout=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        pids = tmp_path / "pids"
        _wait(lambda: pids.exists() or process.poll() is not None)
        alive = list(map(int, pids.read_text().split()))
        assert len(alive) == 2 and all(map(psutil.pid_exists, alive))
        if how == signal.SIGINT:  # as Ctrl-C in a terminal: to the whole group
            os.killpg(process.pid, how)
        else:
            process.send_signal(how)
        process.wait(600)
        _wait(lambda: not any(map(psutil.pid_exists, alive)))
    finally:
        if process.poll() is None:
            process.kill()


def _wait(condition, seconds=600):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.05)
