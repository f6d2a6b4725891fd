"""README's picture: the noise of 2-OK on a small network that 400 updates have trained.

PYTHONPATH=. python benchmarks/picture.py FILE.png      (needs Chromium)
"""

import sys

from labkit.lab.datasets import load
from labkit.lab.panels import LiveLab
from labkit.lab.rtrl import NOISE, NoiseKnobs


def main(path: str) -> None:
    knobs = NoiseKnobs(rank=2, hidden=32, trained=True)
    lab = LiveLab(NOISE, load("text"), {}, 400, 20, knobs=knobs, interactive=False)
    cosine = lab.run(120).cosine.mean()
    lab.plot.figure.write_image(path, width=960)
    print(f"{path}: mean cosine of 2-OK {cosine:.3f}")


if __name__ == "__main__":
    main(*sys.argv[1:])
