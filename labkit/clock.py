"""The clock of every race and training history."""

import time

import torch


class Clock:
    """Measure the seconds spent inside ``with`` blocks, device work included.

    Parameters
    ----------
    device : torch.device or str
        The device that the timed work runs on. For any device but the CPU the clock
        waits when a block begins and when it ends, so that it measures the work and
        not its launch.

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
