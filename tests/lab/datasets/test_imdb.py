"""Reviews: words, vocabulary, rows, and the two kinds of archive."""

import pytest
import torch

from labkit.lab.datasets import (
    available,
    imdb,
    load,
    load_imdb,
)
from labkit.lab.datasets.imdb import ARCHIVE, PARTS, encode_words, split_words
from tests.lab.datasets.conftest import archive

TEXTS = {
    "aclImdb/train/neg/0_3.txt": "Bad.<br /><br />Bad, bad!",
    "aclImdb/train/neg/1_1.txt": "The plot's a bore",
    "aclImdb/train/pos/0_9.txt": "Good plot; the rest good, too",
    "aclImdb/train/pos/1_10.txt": "A caf\u00e9 film",
    "aclImdb/test/neg/0_2.txt": "a bad musical",
    "aclImdb/test/pos/0_7.txt": "Musical! Good.",
}
OTHERS = {
    "aclImdb/README": "no review",
    "aclImdb/imdb.vocab": "bad",
    "aclImdb/train/unsup/0_0.txt": "unsure",
    "aclImdb/train/urls_pos.txt": "http",
    "aclImdb/train/neg/notes.md": "none",
}


def packed(texts):
    return archive({name: text.encode() for name, text in texts.items()})


ALL = TEXTS | OTHERS
SPLITS = {
    path: packed({name: text for name, text in ALL.items() if f"/{split}/" in name})
    for split, path in PARTS.items()
}
# The published archive, in another order.
WHOLE = {ARCHIVE: packed(dict(reversed(ALL.items())))}
TRAIN, TEST = ({path: content} for path, content in SPLITS.items())


@pytest.fixture(autouse=True)
def small(request):
    """Have the registry pin the small archives above."""
    if "real_data" not in request.keywords:
        request.getfixturevalue("folder")
        pin = request.getfixturevalue("pin")
        for path, content in SPLITS.items():
            pin(path, content)
        pin(ARCHIVE, WHOLE[ARCHIVE], "http://127.0.0.1:9/whole.tar.gz")  # not there


def test_words():
    assert split_words("'tis the 80's; <unk>") == ["tis", "the", "80's", "unk"]


def test_the_vocabulary_is_ranked_and_rows_end_with_the_last_words():
    reviews = [["b", "c", "b", "x"], [], ["a"], ["c"]]
    found = imdb.most_frequent_words(reviews, 5)
    assert found == ("<pad>", "<unk>", "b", "c", "a")  # by count, then by name
    rows = encode_words(reviews, found, 3)
    assert rows.tolist() == [[3, 2, 1], [0, 0, 0], [0, 0, 4], [0, 0, 3]]


def decoded(data):
    """Return (words of the row, target) of each row, in order."""
    rows = zip(data.inputs.tolist(), data.targets.tolist(), strict=True)
    return [
        (" ".join(data.vocabulary[i] for i in row if i), target) for row, target in rows
    ]


@pytest.mark.parametrize("archives", [SPLITS, WHOLE])
def test_either_kind_of_archive_gives_the_same(folder, put, archives):
    put(archives)
    train, test = load_imdb("train", length=5), load_imdb("test", length=5)
    assert set(decoded(train)) == {
        ("bad bad bad", 0),
        ("the plot's a bore", 0),
        ("plot the rest good too", 1),
        ("a caf\u00e9 film", 1),
    }
    # The vocabulary is that of `train`, which lacks the musical.
    assert set(decoded(test)) == {("a bad <unk>", 0), ("<unk> good", 1)}
    assert train.vocabulary == test.vocabulary
    assert train.vocabulary[:4] == ("<pad>", "<unk>", "bad", "a")
    for path in archives:
        (folder / path).unlink()
    put(TRAIN if archives == WHOLE else WHOLE)
    assert decoded(load_imdb("train", length=5)) == decoded(train)


def test_what_is_here_is_seen(folder, put):
    put(TRAIN)
    assert not available()["imdb"].here
    put(TEST)
    assert available()["imdb"].here
    (folder / PARTS["train"]).unlink()
    put(WHOLE)
    assert available()["imdb"].here


@pytest.mark.real_data
def test_counts_and_rows():
    data = load("imdb", "test")
    assert data.name == "imdb"
    assert data.inputs.shape == (25_000, 256) and data.inputs.dtype == torch.int64
    assert torch.bincount(data.targets).tolist() == [12_500, 12_500]
    assert len(data.vocabulary) == len(set(data.vocabulary)) == 20_000
    assert data.vocabulary[:5] == ("<pad>", "<unk>", "the", "and", "a")
    assert (data.inputs[:, -1] != 0).all()
    unknown = (data.inputs == 1).sum() / (data.inputs != 0).sum()
    assert 0.02 < unknown < 0.04  # 3.1 %; of `train`, from which the words are, 2.5 %
    # Shuffled: each hundred has both verdicts, at most about four deviations from 50.
    halves = data.targets.reshape(-1, 100).sum(1)
    assert halves.min() >= 28 and halves.max() <= 72
