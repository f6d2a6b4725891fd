"""Random streams on the device that they draw for, which checkpoints save."""

import hashlib
import warnings

import torch
from torch import Tensor

from labkit.check import check_tensor


def on_device(
    generator: torch.Generator | None, device: torch.device, *, draws: bool = True
) -> torch.Generator:
    """Return the generator, or a new one; raise ValueError for another device.

    With ``draws`` a new one is seeded from torch's stream, so that no two are alike.
    """
    if generator is None:
        new = torch.Generator(device)
        seed = torch.randint(2**62, (), device="cpu") if draws else new.initial_seed()
        return new.manual_seed(int(seed))
    if not isinstance(generator, torch.Generator):
        raise TypeError(f"generator must be a torch.Generator, got {generator!r}")
    if generator.device.type != device.type:
        raise ValueError(
            f"generator must be on {device.type}, as what it draws for, "
            f"got one on {generator.device.type}"
        )
    return generator


def go_on(generator: torch.Generator, stream: Tensor) -> None:
    """Set a generator to ``stream``, the saved state of a generator.

    A state of one kind of device means nothing on another: then the generator is seeded
    from it, with a warning. It raises TypeError or ValueError if ``stream`` is no
    state; the generator is then unchanged.
    """
    stream = check_tensor("generator", stream, dtype=torch.uint8).cpu()
    if stream.shape == generator.get_state().shape:
        try:
            generator.set_state(stream)
        except RuntimeError as error:
            raise ValueError(
                f"generator must be a state that torch.Generator gave: {error}"
            ) from error
        return
    digest = hashlib.sha256(stream.numpy().tobytes()).digest()
    generator.manual_seed(int.from_bytes(digest[:7], "big"))
    warnings.warn(
        "the saved random stream is of another kind of device, and cannot go on on "
        f"{generator.device}: a new one was seeded from it",
        stacklevel=3,
    )
