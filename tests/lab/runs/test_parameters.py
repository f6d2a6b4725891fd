import math

import numpy as np
import pytest

from labkit.lab.runs import (
    Parameter,
    ParameterError,
    RunRefused,
    read_parameters,
    resolve,
)
from labkit.lab.runs.parameters import check_value, parse_cell


@pytest.fixture
def parameters(write_notebook):
    return read_parameters(write_notebook("01_a"))


def test_every_part_of_a_line_is_read(parameters):
    rank, rate, corpus, *_, run_dir = parameters
    assert rank == Parameter("rank", int, 8, "terms kept", low=1, high=64, paper=16)
    assert (corpus.choices, corpus.paper) == (("text", "ptb"), "ptb")
    assert (rate.low, rate.high) == (0, math.inf)
    assert run_dir.help == "where traces are written; the command line sets it"
    (mark,) = parse_cell('# the model\nmark: str = "#; x"  # a sign\n')
    assert (mark.default, mark.help) == ("#; x", "a sign")


@pytest.mark.parametrize(
    ("cell", "message"),
    [
        ("rank = 8", "'rank = 8' must read 'name: type = literal"),
        ("rank: list = []", "must read"),
        ("import os", "must read"),
        ("rank: int = 4 + 4 * n", "takes int"),
        ("rank: int = 8.5", "takes int"),
        ("rank: int = 8\nrank: int = 9", "declared twice"),
        ("rank: int = 0  # terms; 1..64", "takes int, 1..64"),
        ("rank: int = 8  # terms; 1..64; paper=99", "rank=99 is not allowed"),
        ("rank: int = 8  # terms; 1..4..8", "must read"),
    ],
)
def test_an_ill_written_cell_is_refused(cell, message):
    with pytest.raises(ParameterError, match=message):
        parse_cell(cell)


def test_a_file_that_is_no_notebook_is_refused(tmp_path):
    (tmp_path / "01_x.ipynb").write_text("not json")
    with pytest.raises(RunRefused, match="cannot be read as a notebook"):
        read_parameters(tmp_path / "01_x.ipynb")


def test_a_given_value_wins_over_the_profile_over_the_default(parameters):
    assert resolve(parameters)["rank"] == 8
    values = resolve(parameters, {"corpus": "text"}, "paper")
    assert (values["rank"], values["corpus"], values["rate"]) == (16, "text", 0.1)


@pytest.mark.parametrize(
    ("name", "given", "value"),
    [
        ("rank", "8", 8),
        ("rank", np.int64(3), 3),
        ("rate", "1e-3", 1e-3),
        ("rate", 1, 1.0),
        ("shuffle", "True", True),
        ("shuffle", False, False),
        ("corpus", "ptb", "ptb"),
    ],
)
def test_values_are_read_as_their_type(parameters, name, given, value):
    read = resolve(parameters, {name: given})[name]
    assert read == value and type(read) is type(value)


REFUSED = {
    "rank": ("eight", "8.5", 8.5, True, "0", 65, 10**400),
    "rate": ("nan", math.inf, "-1", None),
    "shuffle": ("yes", 1),
    "corpus": ("bible", 3),
}


@pytest.mark.parametrize(
    ("name", "given"),
    [(name, given) for name, them in REFUSED.items() for given in them],
)
def test_values_that_do_not_fit_are_refused(parameters, name, given):
    with pytest.raises(ParameterError, match=f"{name}={given} .*{name} takes "):
        resolve(parameters, {name: given})


def test_all_that_is_wrong_is_told_at_once_with_what_there_is(parameters):
    with pytest.raises(ParameterError, match="did you mean 'rank'") as refusal:
        resolve(parameters, {"rnak": 8, "rate": -1})
    assert all(p.name in str(refusal.value) for p in parameters)
    assert "rate=-1 is not allowed" in str(refusal.value)


def test_a_choice_with_a_star_is_a_file(tmp_path, monkeypatch):
    (data,) = parse_cell('data: str = "a"  # what is read; a|*.csv; paper=a')
    assert data.allowed == "str, a|*.csv"
    monkeypatch.chdir(tmp_path)
    (tmp_path / "Mine.CSV").touch()
    assert check_value(data, "a") == "a"
    assert check_value(data, "Mine.CSV") == str(tmp_path / "Mine.CSV")
    with pytest.raises(ParameterError, match=f"there is no file {tmp_path}/other.csv"):
        check_value(data, "other.csv")
    for unknown in ("A", "b.txt"):
        with pytest.raises(ParameterError, match="data takes str, a"):
            check_value(data, unknown)
