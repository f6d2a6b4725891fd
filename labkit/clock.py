"""One clock for every race and history."""

import time

import torch


class Clock:
    """Seconds spent inside ``with`` blocks, with the device's queue drained.

    Parameters
    ----------
    device : torch.device or str
        The device that the timed work runs on. Anything but the CPU is waited for when
        a block begins and when it ends, so that a launch does not count as work.

    Attributes
    ----------
    seconds : float
        Of all blocks so far.
    lap : float
        Of the last block.

    Examples
    --------
    >>> clock = Clock()
    >>> with clock:
    ...     pass
    >>> clock.seconds == clock.lap
    True
    """

    def __init__(self, device: torch.device | str = "cpu"):
        self.device, self.seconds, self.lap = torch.device(device), 0.0, 0.0

    def __enter__(self) -> "Clock":
        self._drain()
        self._began = time.perf_counter()
        return self

    def __exit__(self, *_) -> None:
        self._drain()
        self.lap = time.perf_counter() - self._began
        self.seconds += self.lap

    def _drain(self) -> None:
        if self.device.type != "cpu":
            torch.accelerator.synchronize(self.device)
