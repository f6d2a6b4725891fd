"""Reviews: words, vocabulary, rows, and the two kinds of archive."""

import pytest
import torch

from labkit.lab.datasets import available, load, load_imdb
from labkit.lab.datasets.imdb import ARCHIVE, PARTS
from tests.lab.datasets.conftest import archive, pinned

TEXTS = {
    "aclImdb/train/neg/0_3.txt": "Bad.<br /><br />Bad, bad!",
    "aclImdb/train/neg/1_1.txt": "The plot's a 'bore'; <unk>",
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
TRAIN = {PARTS["train"]: SPLITS[PARTS["train"]]}


small = pinned(SPLITS | WHOLE)


def decoded(data):
    """Return (words of the row, target) of each row, in order."""
    rows = zip(data.inputs.tolist(), data.targets.tolist(), strict=True)
    return [(" ".join(data.vocabulary[i] for i in row), target) for row, target in rows]


@pytest.mark.parametrize("archives", [SPLITS, WHOLE])
def test_either_kind_of_archive_gives_the_same(folder, put, archives):
    """Rows end with the last words; the vocabulary goes by count, then by name."""
    put(archives)
    assert available()["imdb"].here
    train, test = load_imdb("train", length=5), load_imdb("test", length=4)
    assert set(decoded(train)) == {
        ("<pad> <pad> bad bad bad", 0),
        ("the plot's a bore unk", 0),
        ("plot the rest good too", 1),
        ("<pad> <pad> a caf\u00e9 film", 1),
    }
    # The vocabulary is that of `train`, which lacks the musical.
    wanted = {("<pad> a bad <unk>", 0), ("<pad> <pad> <unk> good", 1)}
    assert set(decoded(test)) == wanted
    assert train.vocabulary == test.vocabulary
    few = load_imdb("train", words=5).vocabulary
    assert few == ("<pad>", "<unk>", "bad", "a", "good")
    for path in archives:
        (folder / path).unlink()
    put(TRAIN if archives == WHOLE else WHOLE)
    assert available()["imdb"].here == (archives == SPLITS)
    assert decoded(load_imdb("train", length=5)) == decoded(train)


@pytest.mark.real_data
def test_counts_and_rows():
    data = load("imdb", "test")
    assert data.inputs.shape == (25_000, 256) and data.inputs.dtype == torch.int64
    assert torch.bincount(data.targets).tolist() == [12_500, 12_500]
    assert len(data.vocabulary) == len(set(data.vocabulary)) == 20_000
    assert data.vocabulary[:5] == ("<pad>", "<unk>", "the", "and", "a")
    unknown = (data.inputs == 1).sum() / (data.inputs != 0).sum()
    assert 0.02 < unknown < 0.04  # 3.1 %; of `train`, from which the words are, 2.5 %
    # Shuffled: each hundred has both verdicts, at most about four deviations from 50.
    assert (data.targets.reshape(-1, 100).sum(1) - 50).abs().max() <= 22
