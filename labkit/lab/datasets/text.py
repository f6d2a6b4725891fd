"""Text as characters: the embedded text and the Penn Treebank."""

from collections import Counter
from collections.abc import Sequence

import numpy as np
import torch

from labkit.lab.datasets.fetch import DatasetUnavailable, fetch
from labkit.lab.datasets.results import Text

OTHER = "\N{REPLACEMENT CHARACTER}"  # occurs in neither text, prints as one sign
N_KEPT = 49  # with OTHER 50 symbols, as many as the Penn Treebank has


def encode(text: str, symbols: Sequence[str], other: str | None = None) -> torch.Tensor:
    """Convert a string to indices of symbols, at the speed of numpy.

    Parameters
    ----------
    text : str, T characters
    symbols : sequence of str, distinct single characters
    other : str, optional
        The symbol that stands for all characters that are not in `symbols`.

    Returns
    -------
    torch.Tensor, shape (T,), int64

    Raises
    ------
    ValueError : if a character is not in `symbols` and `other` is not given

    Examples
    --------
    >>> encode("abba?", ("a", "b", "*"), other="*").tolist()
    [0, 1, 1, 0, 2]
    """
    codes = np.frombuffer(text.encode("utf-32-le"), dtype=np.uint32)
    size = 1 + max([0, *map(ord, symbols), int(codes.max(initial=0))])
    table = np.full(size, -1 if other is None else symbols.index(other))
    table[[ord(symbol) for symbol in symbols]] = range(len(symbols))
    tokens = table[codes].astype(np.int64, copy=False)
    if other is None and (tokens < 0).any():
        unknown = text[int((tokens < 0).argmax())]
        raise ValueError(f"{unknown!r} is not one of the symbols {''.join(symbols)!r}")
    return torch.from_numpy(tokens)


def load_text(split: str) -> Text:
    """Read the embedded text: Python's own language reference, as characters.

    The topics of `pydoc_data.topics` in the order of their names, in lower case,
    each run of white space made one space. The first 90 % are ``train``, the next
    5 % ``valid``, the last 5 % ``test``. The symbols are the 49 most frequent
    characters of ``train`` in code point order, then one that stands for all
    others. The text belongs to the running Python, so its length and its symbols
    differ a little from one Python version to the next.

    Returns
    -------
    Text

    Raises
    ------
    DatasetUnavailable : if this Python was packed without `pydoc_data`
    """
    return in_splits("text", _topics(), split)


def in_splits(name: str, text: str, split: str) -> Text:
    """Return one split of a text: 90 % ``train``, 5 % ``valid`` and 5 % ``test``.

    The symbols are the 49 most frequent characters of ``train`` in code point order,
    then one that stands for all others.
    """
    ends = {"train": (0, 90), "valid": (90, 95), "test": (95, 100)}
    if split not in ends:
        raise ValueError(f"{name!r} has no split {split!r}; it has: {', '.join(ends)}")
    parts = {
        name: text[len(text) * start // 100 : len(text) * stop // 100]
        for name, (start, stop) in ends.items()
    }
    symbols = (*_most_frequent(parts["train"], N_KEPT), OTHER)
    return Text(name, encode(parts[split], symbols, other=OTHER), symbols)


def _topics():
    try:
        from pydoc_data.topics import topics
    except ImportError as error:  # some minimal builds leave it out
        raise DatasetUnavailable(
            "the data set 'text' is the standard library's pydoc_data.topics, which "
            f"this Python lacks ({error}); install the full standard library"
        ) from error
    joined = "\n".join(topics[name] for name in sorted(topics))
    return " ".join(joined.split()).lower()


def _most_frequent(text, n):
    # Ties go to the lower code point, so that the choice is unique.
    ranked = sorted(Counter(text).items(), key=lambda item: (-item[1], item[0]))
    return sorted(character for character, _ in ranked[:n])


def load_ptb(split: str, *, blanks: bool = False) -> Text:
    r"""Read the Penn Treebank as characters, made from Mikolov's word files.

    Of each line the outer spaces are dropped, unless ``blanks``: Benzing et al.'s
    program reads them, two easily guessed characters a line, which lowers its bits per
    character. Each character is a token, an inner
    space becomes ``_``, and each line ends with one end mark, the symbol
    ``"\n"``. The rare-word mark ``<unk>`` is five characters. The 50 symbols are
    those of ``train``, in code point order, for all splits; so every split needs
    the train file too.

    Returns
    -------
    Text, 5,017,482 tokens in ``train``, 393,042 in ``valid``, 442,423 in ``test``;
    with ``blanks`` two more for each of 42,068, 3,370 and 3,761 lines

    References
    ----------
    T. Mikolov, I. Sutskever, A. Deoras, H.-S. Le, S. Kombrink, J. Cernocky,
    *Subword language modeling with neural networks*, preprint, 2012.
    """
    train = _ptb_characters("train", blanks)
    text = train if split == "train" else _ptb_characters(split, blanks)
    symbols = tuple(sorted(set(train)))
    return Text("ptb", encode(text, symbols), symbols)


def _ptb_characters(split, blanks):
    lines = fetch(f"ptb/ptb.{split}.txt").read_text(encoding="ascii").splitlines()
    lines = lines if blanks else [line.strip() for line in lines]
    return "".join(line.replace(" ", "_") + "\n" for line in lines)
