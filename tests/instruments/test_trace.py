import dataclasses
import json
import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings, strategies as st

from labkit.instruments import Trace

SCALARS = st.integers() | st.floats() | st.booleans() | st.text(max_size=20)
NAMES = st.text(min_size=1, max_size=8).filter(lambda n: n not in ("step", "self"))


@pytest.fixture
def path(tmp_path):
    """A trace of one row."""
    with Trace(tmp_path / "t.jsonl") as trace:
        trace.log(0, loss=1.0)
    return trace.path


def same(left, right):
    """Equal with nan equal to nan, and with equal types."""
    assert len(left) == len(right)
    for a, b in zip(left, right, strict=True):
        assert a.keys() == b.keys()
        for key in a:
            assert type(a[key]) is type(b[key])
            assert a[key] == b[key] or (math.isnan(a[key]) and math.isnan(b[key]))


@settings(max_examples=40)
@given(rows=st.lists(st.dictionaries(NAMES, SCALARS, max_size=4), max_size=5))
def test_any_rows_come_back_from_disk(tmp_path_factory, rows):
    path = tmp_path_factory.mktemp("trace") / "t.jsonl"
    with Trace(path) as trace:
        for step, row in enumerate(rows):
            trace.log(step, **row)
    loaded = Trace.load(path)
    same(loaded.rows, trace.rows)
    assert [row["step"] for row in loaded.rows] == list(range(len(rows)))


def test_header_holds_parameters_versions_device_and_seed(tmp_path):
    @dataclasses.dataclass(frozen=True)
    class Parameters:
        rank: int = 8
        sizes: tuple = (2, 3)

    path = tmp_path / "new" / "folders" / "t.jsonl"
    trace = Trace(path, parameters=Parameters(), device=torch.device("cpu"), seed=7)
    assert trace.header["parameters"] == {"rank": 8, "sizes": [2, 3]}
    assert trace.header["device"] == "cpu" and trace.header["seed"] == 7
    assert trace.header["versions"].keys() == {"python", "torch", "labkit"}
    assert json.loads(path.read_text().splitlines()[0]) == trace.header
    assert Trace.load(path).header == trace.header


def test_every_cut_of_the_last_line_loads_the_rows_before_it(tmp_path):
    path = tmp_path / "t.jsonl"
    with Trace(path) as trace:
        trace.log(0, loss=1.0)
        trace.log(1, loss=math.nan, note="süß")
    data = path.read_bytes()
    last = len(data) - data.rstrip(b"\n").rfind(b"\n") - 1
    for missing in range(2, last + 1):
        torn = tmp_path / f"torn{missing}.jsonl"
        torn.write_bytes(data[:-missing])
        assert Trace.load(torn).rows == trace.rows[:1]
    path.write_bytes(data[:-1])  # only the newline is missing: the row is whole
    assert len(Trace.load(path)) == 2


@pytest.mark.parametrize(
    ("headed", "text", "message"),
    [
        (True, '{"step": 1, "lo\n{"step": 9}\n', "line 3: not JSON"),
        (True, '{"step": 1, "loss": [1]}\n', "line 3: 'loss' must be"),
        (True, '{"step": -1}\n', "line 3: step -1 after 0"),
        (False, "", "line 1: no header"),
        (False, '{"step": 0}\n', "line 1: not the header"),
        (False, '{"format": "labkit-trace", "version": 99}\n', "version 99"),
    ],
)
def test_a_malformed_line_is_named(path, headed, text, message):
    path.write_text(path.read_text() * headed + text)
    with pytest.raises(ValueError, match=message):
        Trace.load(path)


def test_an_existing_file_is_refused_and_stays_whole(path):
    before = path.read_bytes()
    with pytest.raises(FileExistsError, match="never overwritten"):
        Trace(path)
    assert path.read_bytes() == before


def test_what_cannot_be_begun_leaves_no_file(tmp_path):
    (tmp_path / "file").write_text("x")
    with pytest.raises(NotADirectoryError, match="is a file, not a folder"):
        Trace(tmp_path / "file" / "t.jsonl")
    with pytest.raises(TypeError, match="parameter 'x' cannot be written as JSON"):
        Trace(tmp_path / "t.jsonl", parameters={"x": torch.zeros(1)})
    assert not (tmp_path / "t.jsonl").exists()


def test_scalars_of_every_allowed_kind_become_plain_values():
    trace = Trace()
    values = {"a": torch.tensor(2), "b": torch.tensor(True), "d": np.float32(0.5)}
    weight = torch.nn.Parameter(torch.tensor(0.5))
    trace.log(torch.tensor(3), c=weight, e=np.int64(4), f="text", **values)
    row = {"step": 3, "a": 2, "b": True, "c": 0.5, "d": 0.5, "e": 4, "f": "text"}
    same(trace.rows, [row])


def test_steps_may_repeat_but_not_decrease():
    trace = Trace()
    trace.log(2, a=1.0)
    trace.log(2, b=1.0)
    with pytest.raises(ValueError, match=r"got 1 after 2; .*resume=its_step"):
        trace.log(1, a=0.0)
    trace.log(step=3, a=1.0)
    assert [row["step"] for row in trace.rows] == [2, 2, 3]


def test_subscribers_hear_each_row_after_it_is_on_disk(tmp_path):
    trace = Trace(tmp_path / "t.jsonl")
    heard = []
    stop = trace.subscribe(lambda row: heard.append((row, len(Trace.load(trace.path)))))
    trace.log(0, loss=1.0)
    stop()
    stop()
    trace.log(1, loss=2.0)
    assert heard == [({"step": 0, "loss": 1.0}, 1)]


def test_closed_and_loaded_traces_take_no_rows(path):
    trace = Trace(path, resume=True)
    trace.close()
    for refusing, word in ((trace, "closed"), (Trace.load(path), "read-only")):
        with pytest.raises(RuntimeError, match=word):
            refusing.log(1, loss=1.0)
    assert trace.rows == [{"step": 0, "loss": 1.0}]


def test_nothing_follows_a_line_that_the_disk_refused(tmp_path):
    trace = Trace(tmp_path / "t.jsonl")
    trace.log(0, loss=1.0)
    real = trace._file

    class FullDisk:
        def write(self, data):
            if len(data) < 10:
                raise OSError("no space left")
            return real.write(data[: len(data) - 5])

        close = real.close

    trace._file = FullDisk()
    with pytest.raises(OSError, match="no space"):
        trace.log(1, loss=2.0)
    with pytest.raises(RuntimeError, match="earlier write"):
        trace.log(2, loss=2.0)
    assert Trace.load(trace.path).rows == trace.rows == [{"step": 0, "loss": 1.0}]


def test_columns_and_frame_fill_what_is_missing():
    trace = Trace()
    assert trace.frame().empty and trace.frame().index.name == "step"
    trace.log(0, loss=1.0)
    trace.log(5, cosine=0.5)
    assert [row["step"] for row in trace.rows] == [0, 5]
    frame = trace.frame()
    assert list(frame.index) == [0, 5] and frame.index.name == "step"
    assert frame.loc[5, "cosine"] == 0.5 and math.isnan(frame.loc[0, "cosine"])


# Going on after a kill

ENDS = {"whole": b"", "cut off": b'{"step": 9, "lo', "no newline": None}


@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize(("resume", "kept"), [(True, [0, 1, 1, 2]), (1, [0, 1, 1])])
def test_a_resumed_trace_is_that_of_one_run(tmp_path, resume, kept, end):
    path = tmp_path / "t.jsonl"
    with Trace(path, parameters={"rank": 8}, seed=1) as first:
        for step in (0, 1, 1, 2):
            first.log(step, loss=1.0 / (1 + step))
    data = path.read_bytes()
    path.write_bytes(data[:-1] if ENDS[end] is None else data + ENDS[end])
    with Trace(path, parameters={"rank": 8}, resume=resume) as trace:
        assert trace.header == first.header
        assert [row["step"] for row in trace.rows] == kept
        assert path.read_bytes() == b"".join(data.splitlines(True)[: 1 + len(kept)])
        trace.log(3, loss=0.0)
    same(Trace.load(path).rows, trace.rows)
    assert [row["step"] for row in trace.rows] == [*kept, 3]


def test_resume_begins_where_there_is_nothing(tmp_path):
    with Trace(tmp_path / "t.jsonl", seed=3, resume=True) as trace:
        trace.log(0, loss=1.0)
    assert Trace.load(trace.path).header["seed"] == 3


def test_another_run_or_no_trace_is_not_resumed(path):
    before = path.read_bytes()
    with pytest.raises(ValueError, match="a run with seed None; this one has 5"):
        Trace(path, seed=5, resume=True)
    with pytest.raises(ValueError, match=r"a run with parameters \{\}; this one has"):
        Trace(path, parameters={"rank": 8}, resume=True)
    assert path.read_bytes() == before
    path.write_bytes(b"no trace\n")
    with pytest.raises(ValueError, match="not JSON"):
        Trace(path, resume=True)
    assert path.read_bytes() == b"no trace\n"
