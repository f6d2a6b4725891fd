"""Film reviews with their verdicts, as rows of words that an LSTM can read."""

import re
import tarfile
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np
import torch

from labkit.lab.datasets.fetch import fetch, find
from labkit.lab.datasets.results import Labelled

ARCHIVE = "imdb/aclImdb_v1.tar.gz"
PARTS = {  # its labelled reviews, one archive a split
    split: f"imdb/aclImdb_{split}_labelled.tar.gz" for split in ("train", "test")
}
PADDING = "<pad>"  # word 0; no other word has angle brackets
UNKNOWN = "<unk>"  # word 1
_WORD = re.compile(r"[^\W_]+(?:'[^\W_]+)*")
_VERDICTS = ("neg", "pos")
_SEEDS = {"train": 0, "test": 1}


def split_words(text: str) -> list[str]:
    """Split a text into lower-case words, without HTML line breaks and punctuation.

    A word is a run of letters and digits; an apostrophe within it belongs to it.

    Examples
    --------
    >>> split_words("It's <br /><br />NOT 'good'--7/10!")
    ["it's", 'not', 'good', '7', '10']
    """
    return _WORD.findall(text.lower().replace("<br />", " "))


def most_frequent_words(reviews: Iterable[list[str]], words: int) -> tuple[str, ...]:
    """Return the vocabulary of the most frequent words in texts.

    Parameters
    ----------
    reviews : iterable of list of str, the words of each text
    words : int, size of the vocabulary, the two marks included: at least 3

    Returns
    -------
    tuple of str
        ``<pad>``, ``<unk>``, then the most frequent words, the most frequent first;
        among equals in the order of code points. Shorter than `words` if the texts
        have fewer.
    """
    counts = Counter()
    for review in reviews:
        counts.update(review)
    ranked = sorted(counts, key=lambda word: (-counts[word], word))
    return PADDING, UNKNOWN, *ranked[: words - 2]


def encode_words(
    reviews: Sequence[list[str]], vocabulary: Sequence[str], length: int
) -> torch.Tensor:
    """Turn texts into rows of indices of one length.

    The last `length` words of a longer text are kept, as the verdict tends to be there;
    a shorter text is padded in front. So the last step of every row is the text's last
    word, and a recurrent network can classify by its last output.

    Parameters
    ----------
    reviews : list of list of str, the words of N texts
    vocabulary : sequence of str
        ``<pad>``, ``<unk>``, then words, as `most_frequent_words` gives them.
    length : int, at least 1

    Returns
    -------
    tokens : torch.Tensor, shape (N, length), int64
        0 is ``<pad>``; words that are not in `vocabulary` are 1, ``<unk>``.

    Examples
    --------
    >>> vocabulary = ("<pad>", "<unk>", "good", "not")
    >>> reviews = [["not", "very", "good"], ["good"]]
    >>> encode_words(reviews, vocabulary, length=2).tolist()
    [[1, 2], [0, 2]]
    """
    index = {word: i for i, word in enumerate(vocabulary)}
    tokens = np.zeros((len(reviews), length), dtype=np.int64)
    for row, review in enumerate(reviews):
        kept = [index.get(word, 1) for word in review[-length:]]
        tokens[row, length - len(kept) :] = kept
    return torch.from_numpy(tokens)


def load_imdb(split: str, *, words: int = 20_000, length: int = 256) -> Labelled:
    """Read the labelled film reviews of the Large Movie Review Dataset.

    The vocabulary is made from ``train`` alone, so ``test`` needs the texts of
    ``train``, too. The archives hold all negative reviews before the positive ones. The
    rows come in a shuffled order that is always the same and does not depend on the
    kind of archive. If two archives with one split each are on this machine, they are
    read; otherwise the published archive is.

    Parameters
    ----------
    split : {"train", "test"}
    words : int
        Size of the vocabulary with its two marks, at least 3. The default covers
        97.4 % of the words of ``train``.
    length : int
        Words kept of each review, at least 1: the last ones, see `encode_words`. The
        default leaves 71 % of the reviews of ``train`` whole.

    Returns
    -------
    Labelled
        25,000 rows, half of them positive. `inputs` (N, length): indices into
        `vocabulary`, the same for all splits; a short review has ``<pad>``, 0, in
        front. `targets`: 1 for a positive review, 0 for a negative one.

    Raises
    ------
    ChecksumError, DatasetUnavailable : see `labkit.lab.datasets.fetch.fetch`

    References
    ----------
    A. Maas, R. Daly, P. Pham, D. Huang, A. Ng, C. Potts, *Learning word vectors for
    sentiment analysis*, ACL 2011.
    """
    reviews, targets = _read("train")
    vocabulary = most_frequent_words(reviews, words)
    if split != "train":
        del reviews  # frees hundreds of megabytes before as many are read
        reviews, targets = _read(split)
    tokens = encode_words(reviews, vocabulary, length)
    generator = torch.Generator().manual_seed(_SEEDS[split])
    order = torch.randperm(len(reviews), generator=generator)
    return Labelled("imdb", tokens[order], torch.tensor(targets)[order], vocabulary)


def has_imdb() -> bool:
    """Return whether the reviews are on this machine."""
    return all(map(find, PARTS.values())) or find(ARCHIVE) is not None


def _read(split):
    path = fetch(ARCHIVE if find(PARTS[split]) is None else PARTS[split])
    texts = sorted(read_reviews(path, split))
    return [split_words(text) for _, _, text in texts], [good for _, good, _ in texts]


def read_reviews(path: str | Path, split: str) -> list[tuple[str, int, str]]:
    """Read the labelled reviews of one split from an archive, without unpacking it.

    Parameters
    ----------
    path : path-like
        A gzipped tar archive with members ``aclImdb/<split>/<neg or pos>/<name>.txt``;
        other members are skipped.
    split : {"train", "test"}

    Returns
    -------
    list of (str, int, str), name of the member, 1 if it is positive, else 0, and text
    """
    found = []
    with tarfile.open(path, "r|gz") as archive:
        for member in archive:
            match member.name.split("/"):
                case ["aclImdb", part, verdict, name] if (
                    part == split and verdict in _VERDICTS and name.endswith(".txt")
                ):
                    text = archive.extractfile(member).read().decode("utf-8")
                    found.append((member.name, _VERDICTS.index(verdict), text))
    return found
