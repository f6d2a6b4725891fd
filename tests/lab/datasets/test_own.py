"""Data of one's own through the door: it loads, or is refused in one sentence."""

import io

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.model_selection import train_test_split

from labkit.lab.datasets import Labelled, load
from labkit.lab.problem import load_problem, with_noise

WORDS = ["u", "v"] * 30


def table(n=60, columns=3, **others):
    draw = np.random.default_rng(0).normal(size=(n, columns))
    numbers = pd.DataFrame(draw, columns=[f"x{i}" for i in range(columns)])
    return numbers.assign(**others)


def npz(**arrays):
    file = io.BytesIO()
    np.savez(file, allow_pickle=True, **arrays)
    return file.getvalue()


@pytest.fixture
def write(tmp_path):
    def put(made):
        made.to_csv(tmp_path / "mine.csv", index=False)
        return str(tmp_path / "mine.csv")

    return put


def test_numbers_and_classes(write):
    made = table(kind=["b", "a", "c"] * 20)
    path = write(made)
    train, test = load(path), load(path, "test", dtype=torch.float64)
    assert train.name == "mine" and train.classes == ("a", "b", "c")
    assert train.inputs.shape == (48, 3) and test.inputs.shape == (12, 3)
    assert (train.inputs.dtype, test.inputs.dtype) == (torch.float32, torch.float64)
    assert train.inputs.min(0).values.tolist() == [0, 0, 0]
    assert train.inputs.max(0).values.tolist() == [1, 1, 1]
    assert torch.bincount(test.targets).tolist() == [4, 4, 4]  # as in the file
    # each row is there once, with its own label
    first = torch.cat([train.inputs, test.inputs])[:, 0]
    found = torch.cat([train.targets, test.targets])[first.argsort()]
    assert [train.classes[i] for i in found] == list(made.sort_values("x0").kind)
    train.targets.zero_()
    assert load(path).targets.any()


def test_a_category_is_a_column_for_each_value_of_the_rows_to_learn_from(write):
    made = table(columns=1, colour=["red", "green", "blue"] * 20, y=WORDS)
    made["flag"] = [True, False] * 30
    path = write(made)
    train = load(path, target="y", dtype=torch.float64)
    assert train.inputs.shape[1] == 1 + 1 + 3
    assert (train.inputs[:, 2:].sum(1) == 1).all()
    assert set(train.inputs[:, 1].tolist()) == {0.0, 1.0}
    _, (held_out, *_) = train_test_split(
        range(60), test_size=12, random_state=0, stratify=WORDS
    )
    made = table(columns=1, word="common", y=WORDS)
    made.loc[held_out, "word"] = "rare"
    train, test = load(write(made)), load(write(made), "test")
    assert train.inputs.shape[1] == 2 and (test.inputs[:, 1] == 0).sum() == 1


def test_a_number_has_mean_zero_and_variance_one(write):
    train = load(write(table(y=np.linspace(0.0, 7.3, 60))))
    assert train.targets.shape == (48, 1) and train.classes == () and train.outputs == 1
    assert float(train.targets.mean()) == pytest.approx(0, abs=1e-6)
    assert float(train.targets.std(correction=0)) == pytest.approx(1)
    # whole numbers that hardly repeat are numbers, too
    assert load(write(table(y=range(60)))).classes == ()
    assert load(write(table(y=[3.0, 7.0] * 30))).classes == ("3", "7")


def test_noise_on_a_number_gives_it_that_of_another_row():
    problem = load_problem("diabetes", tune=1 / 6)
    noisy = with_noise(problem, label_noise=0.5).fit.targets
    moved = (noisy != problem.fit.targets).float().mean()
    assert 0.35 < moved < 0.6
    assert torch.isin(noisy, problem.fit.targets).all()


@pytest.mark.parametrize(
    ("name", "classes"),
    [("iris", 3), ("wine", 3), ("breast-cancer", 2), ("diabetes", 0)],
)
def test_sets_that_come_with_scikit_learn(name, classes):
    data = load(name, "test")
    assert isinstance(data, Labelled) and len(data.classes) == classes


X, WORDS_IN_MANY_ROWS = np.zeros((20, 2)), [f"t{i}" for i in range(600)]
REFUSED = [
    (table(y=["u", None] * 30), "target 'y' of .* lacks 30 of 60 values"),
    (table(x1=[None, *range(59)], y=WORDS), "'x1' of .* lacks 1 of 60 .* fill"),
    (table(y=[f"r{i}" for i in range(60)]), "another value in each of 60"),
    (table(y="u"), "the target 'y' of .*mine.csv has one value, u; there is"),
    (table(2, y=["u", "v"]), "mine.csv has 2 rows; it needs 10 or more"),
    (table(y=[np.inf, *range(59)]), "a number that is not finite"),
    (table(columns=1), "has one column and no other to predict it from"),
    (
        table(600, text=WORDS_IN_MANY_ROWS, y=WORDS * 10),
        r"'text' of .* 600 different words; a category has 100 at most",
    ),
]
REFUSED = [("mine.csv", made.to_csv(index=False).encode(), m) for made, m in REFUSED]
REFUSED += [
    ("empty.csv", b"", "cannot be read as a table: No columns"),
    ("ends.csv", b"a,b,y\n" + b"1,2,0,\n" * 60, "without a name.* no row in a comma"),
    (
        "rows.csv",
        table(y=WORDS).to_csv().encode(),
        "a column without a name: name each",
    ),
    ("twice.csv", b"a,y,y\n" + b"1,2,0\n" * 60, "has two columns of one name"),
    ("uneven.csv", b'a,b\n1,2\n3,4,5,6\n"', "cannot be read as a table: .* line 3"),
    ("broken.npz", b"PK\3\4 and no more", "cannot be read as npz: "),
    ("odd.npz", npz(X=X, y=np.zeros(19)), r"X \(20, 2\), y \(19,\)"),
    ("one.npz", npz(X=X), r"must hold two arrays.* X \(20, 2\)"),
    ("any.npz", npz(X=X, y=np.array([{}], object)), "cannot be read as npz"),
    ("spectra.npz", npz(X=1j * X, y=X[:, 0]), "complex numbers; give their parts"),
    ("short.txt", b"too short", "has 9 characters; a text needs 1,000"),
    ("latin.txt", b"\xe4" * 2000, "is not a text in UTF-8"),
]


def test_whole_numbers_without_a_sign_in_any_order_of_bytes_are_numbers(tmp_path):
    file = tmp_path / "unsigned.npz"
    file.write_bytes(npz(X=X, y=np.arange(20).astype(">u2")))
    assert not load(str(file)).classes


@pytest.mark.parametrize(("name", "content", "message"), REFUSED)
def test_what_cannot_be_learned_from_is_refused(tmp_path, name, content, message):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(ValueError, match=message) as caught:
        load(str(tmp_path / name))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"name": "none.csv"}, r"there is no file none\.csv"),
        ({"name": "mnits"}, "'mnits'; there are: text, .*diabetes, and files that end"),
        ({"split": "valid"}, r"'digits' has no split 'valid'; it has: train, test"),
        ({"name": "iris", "split": "valid"}, "'iris' has no split 'valid'"),
        ({"target": "y"}, "of data of one's own, not of 'digits'"),
        ({"dtype": torch.int64}, r"floating-point torch\.dtype, got"),
        ({"dtype": "float32"}, r"floating-point torch\.dtype, got"),
    ],
)
def test_what_is_not_there_is_refused_with_what_is(arguments, message):
    with pytest.raises((ValueError, FileNotFoundError), match=message):
        load(**{"name": "digits"} | arguments)
