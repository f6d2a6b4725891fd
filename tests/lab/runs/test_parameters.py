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


def test_every_part_of_a_line_is_read(write_notebook):
    parameters = {p.name: p for p in read_parameters(write_notebook("01_a"))}
    rank = Parameter("rank", int, 8, "terms kept", low=1, high=64, paper=16)
    assert parameters["rank"] == rank
    assert parameters["corpus"].choices == ("text", "ptb")
    assert parameters["corpus"].paper == "ptb"
    assert (parameters["rate"].low, parameters["rate"].high) == (0, None)


def test_what_is_a_comment_and_what_is_none():
    (mark,) = parse_cell('mark: str = "#; x"  # sign that ends a line')
    assert (mark.default, mark.help) == ("#; x", "sign that ends a line")
    parameters = parse_cell("# the model\nrank: int = 8\n\nrate: float = -1\n")
    assert [(p.name, p.default) for p in parameters] == [("rank", 8), ("rate", -1.0)]


@pytest.mark.parametrize(
    ("cell", "message"),
    [
        ("rank = 8", "name: type = literal"),
        ("rank: int", "name: type = literal"),
        ("rank: list = []", "int, float, str, bool"),
        ("import os", "name: type = literal"),
        ("rank: int = 4 + 4 * n", "literal"),
        ("rank: int = 8.5", "takes int"),
        ("rank: int = True", "takes int"),
        ("rank: int = '8'", "no int"),
        ("rank: int = 8\nrank: int = 9", "declared 2 times"),
        ("rank: int = 0  # terms; 1..64", "takes int, 1..64"),
        ("rank: int = 8  # terms; 1..64; paper=99", "rank=99 is not allowed"),
        ("rank: int = 8  # terms; a|b", r"cannot read .a\|b"),
        ("rank: int = 8  # terms; 1..4..8", "cannot read"),
        ("rank: int = 8  # 1..64", "must begin with the help"),
        ("rank: int = 8  # terms; 1..9; 1..8", "second time"),
        ("rank: int = ", "line 1"),
        ("rank: int\nn: int = 0  # n; 1..", "literal(.|\n)*n takes int, 1.."),
    ],
)
def test_an_ill_written_cell_is_refused(cell, message):
    with pytest.raises(ParameterError, match=message):
        parse_cell(cell)


@pytest.mark.parametrize(("cells", "found"), [((), "no cell"), (("", ""), "2 cells")])
def test_a_notebook_needs_one_parameters_cell(write_notebook, cells, found):
    path = write_notebook("01_bare", "1 + 1", cells=cells)
    with pytest.raises(ParameterError, match=rf"01_bare\.ipynb has {found} tagged"):
        read_parameters(path)


def test_a_file_that_is_no_notebook_is_refused(tmp_path):
    (tmp_path / "01_x.ipynb").write_text("not json")
    with pytest.raises(RunRefused, match="cannot be read as a notebook"):
        read_parameters(tmp_path / "01_x.ipynb")


@pytest.fixture
def parameters(write_notebook):
    return read_parameters(write_notebook("01_a"))


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
    "rank": ("eight", "8.5", 8.5, True, "0", 65),
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


def test_unknown_names_and_profiles_are_told_what_there_is(parameters):
    with pytest.raises(ParameterError, match="did you mean 'rank'") as refusal:
        resolve(parameters, {"rnak": 8, "rate": -1})
    assert all(p.name in str(refusal.value) for p in parameters)
    assert "rate=-1 is not allowed" in str(refusal.value)
    with pytest.raises(ParameterError, match="profiles are quick, paper"):
        resolve(parameters, profile="fast")


def test_a_choice_with_a_star_is_a_file_or_any_words(tmp_path, monkeypatch):
    (data,) = parse_cell('data: str = "a"  # what is read; a|web:*|*.csv; paper=a')
    assert data.allowed == "str, a|web:*|*.csv"
    monkeypatch.chdir(tmp_path)
    (tmp_path / "Mine.CSV").touch()
    read = {each: check_value(data, each) for each in ("a", "web:x", "Mine.CSV")}
    assert read == {"a": "a", "web:x": "web:x", "Mine.CSV": str(tmp_path / "Mine.CSV")}
    assert [data.names_a_file(each) for each in read] == [False, False, True]
    with pytest.raises(ParameterError, match=f"there is no file {tmp_path}/other.csv"):
        check_value(data, "other.csv")
    for unknown in ("A", "b.txt", "webx"):
        with pytest.raises(ParameterError, match="data takes str, a"):
            check_value(data, unknown)
