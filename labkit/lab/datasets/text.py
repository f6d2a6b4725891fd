"""Text as characters: the embedded text and the Penn Treebank."""

from collections import Counter
from collections.abc import Sequence

import numpy as np
import torch

from labkit.lab.datasets.fetch import fetch
from labkit.lab.datasets.results import Text

OTHER = "\N{REPLACEMENT CHARACTER}"  # occurs in neither text, prints as one sign
N_KEPT = 49  # with OTHER 50 symbols, as many as the Penn Treebank has


def _encode(text: str, symbols: Sequence[str]) -> torch.Tensor:
    """Return a text as indices (T,) of symbols; all others count as the last one."""
    index = {symbol: i for i, symbol in enumerate(symbols)}
    tokens = (index.get(character, len(index) - 1) for character in text)
    return torch.from_numpy(np.fromiter(tokens, np.int64, len(text)))


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
    """
    from pydoc_data.topics import topics

    joined = "\n".join(topics[name] for name in sorted(topics))
    return in_splits("text", " ".join(joined.split()).lower(), split)


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
    # Ties go to the lower code point, so that the choice is unique.
    counts = sorted(
        Counter(parts["train"]).items(), key=lambda pair: (-pair[1], pair[0])
    )
    symbols = (*sorted(character for character, _ in counts[:N_KEPT]), OTHER)
    return Text(name, _encode(parts[split], symbols), symbols)


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
    return Text("ptb", _encode(text, symbols), symbols)


def _ptb_characters(split, blanks):
    lines = fetch(f"ptb/ptb.{split}.txt").read_text(encoding="ascii").splitlines()
    lines = lines if blanks else [line.strip() for line in lines]
    return "".join(line.replace(" ", "_") + "\n" for line in lines)
