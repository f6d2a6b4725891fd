"""Random streams: each on the device of what it draws, and kept in checkpoints."""

import hashlib
import warnings

import torch
from torch import Tensor


def on_device(generator: torch.Generator | None, device: torch.device):
    """The generator, or a new one; ValueError if it is of another device."""
    if generator is None:
        return torch.Generator(device)
    if generator.device.type != device.type:
        raise ValueError(
            f"generator must be on {device.type}, as what it draws for, "
            f"got one on {generator.device.type}"
        )
    return generator


def go_on(generator: torch.Generator, stream: Tensor) -> None:
    """Draw from here on what ``stream``, the state of a generator, would have drawn.

    The state of one kind of device is none of another: then the generator is seeded
    from it, with a warning.
    """
    stream = stream.cpu()
    if stream.shape == generator.get_state().shape:
        generator.set_state(stream)
        return
    digest = hashlib.sha256(stream.numpy().tobytes()).digest()
    generator.manual_seed(int.from_bytes(digest[:7], "big"))
    warnings.warn(
        "the saved random stream is of another kind of device, and cannot go on on "
        f"{generator.device}: a new one was seeded from it",
        stacklevel=3,
    )
