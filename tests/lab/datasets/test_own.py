"""Data of one's own through the door: it loads, or is refused in one sentence."""

import time

import numpy as np
import pandas as pd
import pytest
import torch

from labkit.lab.datasets import Labelled, load, own
from labkit.lab.problem import in_classes, load_problem, with_noise


def numbers(n=60, columns=3, seed=0):
    draw = np.random.default_rng(seed).normal(size=(n, columns))
    return pd.DataFrame(draw, columns=[f"x{i}" for i in range(columns)])


@pytest.fixture
def write(tmp_path):
    def put(table, name="mine.csv", **options):
        path = tmp_path / name
        table.to_csv(path, index=False, **options)
        return str(path)

    return put


def both(path, **options):
    return load(path, "train", **options), load(path, "test", **options)


def test_numbers_and_classes(write):
    table = numbers().assign(kind=["b", "a", "c"] * 20)
    train, test = both(write(table), seed=1)
    assert train.name == "mine" and train.classes == ("a", "b", "c")
    assert train.inputs.shape == (48, 3) and test.inputs.shape == (12, 3)
    assert train.inputs.dtype == torch.float32 and train.outputs == 3
    assert train.inputs.min(0).values.tolist() == [0, 0, 0]
    assert train.inputs.max(0).values.tolist() == [1, 1, 1]
    assert torch.bincount(test.targets).tolist() == [4, 4, 4]  # as in the file
    assert not torch.equal(train.inputs, load(write(table), seed=2).inputs)
    # each row is there once, with its own label
    both_rows = torch.cat([train.inputs, test.inputs])
    low, high = table.x0.min(), table.x0.max()
    labels = dict(zip((table.x0.rank() - 1).astype(int), table.kind, strict=True))
    found = torch.cat([train.targets, test.targets])[both_rows[:, 0].argsort()]
    assert [train.classes[i] for i in found] == [labels[i] for i in range(60)]
    assert low < high


def test_a_category_is_a_column_for_each_of_its_values(write):
    table = numbers(columns=1).assign(
        colour=["red", "green", "blue"] * 20, flag=[True, False] * 30, y=["u", "v"] * 30
    )
    train, _ = both(write(table), dtype=torch.float64)
    assert train.inputs.shape[1] == 1 + 3 + 1
    assert (train.inputs[:, 1:4].sum(1) == 1).all()
    assert set(train.inputs[:, 4].tolist()) == {0.0, 1.0}


def test_a_value_that_only_the_held_out_rows_have_is_no_column(write):
    table = numbers(columns=1).assign(word="common", y=["u", "v"] * 30)
    path = write(table)
    held_out = own._prepared(path, 0, "", 0)[2]["test"]
    table.loc[held_out[0], "word"] = "rare"
    train, test = both(write(table, "other.csv"))
    assert train.inputs.shape[1] == 2 and (test.inputs[:, 1] == 0).sum() == 1


@pytest.mark.parametrize("column", ["x1", "word"])
def test_missing_values_are_refused(write, column):
    table = numbers().assign(word=["p", "p", "q"] * 20, y=["u", "v"] * 30)
    table.loc[[3, 5, 7], column] = None
    lacks = rf"column '{column}' of .*mine\.csv lacks 3 of 60 values; fill them first"
    with pytest.raises(ValueError, match=lacks):
        load(write(table))


def test_two_hundred_columns_and_three_hundred_classes(write):
    table = numbers(3000, 200).assign(y=np.arange(3000) % 300)
    train, test = both(write(table))
    assert train.inputs.shape == (2400, 200) and len(test.inputs) == 600
    assert train.outputs == 300 and test.targets.unique().numel() == 300


def test_unicode_in_names_values_and_the_mark_at_the_start(write):
    table = numbers(columns=1).rename(columns={"x0": "höhe [µm]"})
    table["färbung"], table["größe"] = ["blau", "grün"] * 30, ["été", "hiver"] * 30
    path = write(table, encoding="utf-8-sig")
    assert load(path).classes == ("hiver", "été")
    assert load(path, target="färbung").classes == ("blau", "grün")


def test_a_number_has_mean_zero_and_variance_one(write):
    table = numbers().assign(y=np.linspace(0.0, 7.3, 60))
    train, test = both(write(table))
    assert train.targets.shape == (48, 1) and train.classes == () and train.outputs == 1
    assert float(train.targets.mean()) == pytest.approx(0, abs=1e-6)
    assert float(train.targets.std(correction=0)) == pytest.approx(1)
    assert test.targets.dtype == torch.float32
    # whole numbers that hardly repeat are numbers, too
    assert load(write(table.assign(y=range(60)))).classes == ()


def test_noise_and_classes_of_a_number():
    problem = load_problem("diabetes", tune=1 / 6)
    noisy = with_noise(problem, label_noise=0.5).fit.targets
    moved = (noisy != problem.fit.targets).float().mean()
    assert 0.35 < moved < 0.6
    assert torch.isin(noisy, problem.fit.targets).all()
    cut = in_classes(problem)
    counts = torch.bincount(cut.fit.targets)
    assert cut.fit.outputs == 5 and counts.max() - counts.min() <= 5
    assert in_classes(cut) is cut


def test_images_in_an_npz(tmp_path):
    draw = np.random.default_rng(0)
    images = draw.integers(0, 256, (50, 6, 6), dtype=np.uint8)
    path = tmp_path / "images.npz"
    np.savez(path, images=images, labels=np.arange(50) % 2)
    train, test = both(str(path))
    assert train.inputs.shape == (40, 36) and train.outputs == 2
    assert (
        0 <= train.inputs.min() and train.inputs.max() <= 1 and len(test.inputs) == 10
    )


def test_a_text(tmp_path):
    path = tmp_path / "mine.txt"
    path.write_text("Das Wörterbuch. " * 200, "utf-8")
    text = load(str(path), "valid")
    whole = sum(
        len(load(str(path), each).tokens) for each in ("train", "valid", "test")
    )
    assert (text.name, whole) == ("mine", 3200) and "ö" in text.symbols


@pytest.mark.parametrize(
    ("name", "classes"),
    [("iris", 3), ("wine", 3), ("breast-cancer", 2), ("diabetes", 0)],
)
def test_sets_that_come_with_scikit_learn(name, classes):
    data = load(name, "test")
    assert isinstance(data, Labelled) and len(data.classes) == classes


def table_of(**columns):
    return numbers().assign(**columns)


@pytest.mark.parametrize(
    ("table", "options", "message"),
    [
        (
            table_of(y="a"),
            {},
            "'y' of .* has one value, a; there is nothing to predict",
        ),
        (table_of(y=["u", "v"] * 30)[:2], {}, "has 2 rows; it needs 10 or more"),
        (table_of(y=["u", None] * 30), {}, "target 'y' of .* lacks 30 of 60 values"),
        (table_of(y=[f"r{i}" for i in range(60)]), {}, "another value in each of 60"),
        (table_of(y=[np.inf, *range(59)]), {}, "a number that is not finite"),
        (table_of(x1=np.inf, y=["u", "v"] * 30), {}, "'x1' of .* not finite"),
        (table_of(), {"target": "z"}, r"has no column 'z'; it has: x0, x1, x2"),
        (table_of()[["x0"]], {}, "has the column 'x0' and no other to predict it from"),
        (table_of(y=["u", "v"] * 30), {"seed": -1}, "seed must be an integer in"),
        (
            numbers(600).assign(text=[f"t{i}" for i in range(600)], y=["u", "v"] * 300),
            {},
            r"'text' of .* different words; a category has 100 at most",
        ),
    ],
)
def test_what_cannot_be_learned_from_is_refused_in_a_sentence(
    write, table, options, message
):
    with pytest.raises(ValueError, match=message) as caught:
        load(write(table), **options)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("broken.csv", b'a,b\n1,2\n3,4,5,6\n"', "cannot be read as a table: "),
        ("empty.csv", b"", "cannot be read as a table: No columns"),
        ("binary.csv", bytes(range(128, 256)) * 20, "cannot be read as a table: "),
        ("broken.npz", b"PK\3\4 and no more", "cannot be read as npz: "),
        ("short.txt", b"too short", "has 9 characters; a text needs 1,000"),
        ("latin.txt", "äöü".encode("latin-1") * 500, "is not a text in UTF-8"),
    ],
)
def test_a_broken_file_is_refused_in_a_sentence(tmp_path, name, content, message):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(ValueError, match=message) as caught:
        load(str(tmp_path / name))
    assert "\n" not in str(caught.value)


def test_arrays_that_do_not_fit_are_refused(tmp_path):
    path = str(tmp_path / "a.npz")
    np.savez(path, X=np.zeros((20, 2)), y=np.zeros(19))
    with pytest.raises(ValueError, match=r"as many rows of numbers as targets"):
        load(path)
    np.savez(path, X=np.zeros((20, 2)))
    with pytest.raises(ValueError, match=r"must hold two arrays.* X \(20, 2\)"):
        load(path)
    np.savez(path, X=np.array([{}], dtype=object), y=np.zeros(1))
    with pytest.raises(ValueError, match="cannot be read as npz"):
        load(path)


def test_what_is_not_there_or_not_for_this_set():
    with pytest.raises(FileNotFoundError, match=r"there is no file none\.csv"):
        load("none.csv")
    with pytest.raises(ValueError, match=r"diabetes, and files that end in \.csv"):
        load("mnits")
    with pytest.raises(ValueError, match="of data of one's own, not of 'digits'"):
        load("digits", target="y")
    with pytest.raises(ValueError, match="'iris' has no split 'valid'"):
        load("iris", "valid")


@pytest.mark.long
def test_a_million_rows(tmp_path):
    path = tmp_path / "large.csv"
    numbers(10**6, 10).assign(y=np.arange(10**6) % 7).to_csv(path, index=False)
    began = time.perf_counter()
    data = load(str(path))
    print(f"a million rows: {time.perf_counter() - began:.1f} s")
    assert data.inputs.shape == (800_000, 10) and data.outputs == 7
