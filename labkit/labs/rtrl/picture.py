"""README's picture: ``python -m labkit.labs.rtrl.picture FILE.png`` (needs Chromium).

The noise lab on a small network that 400 updates have trained, 2-OK, 120 characters.
"""

import sys

from labkit.labs.rtrl import NoiseKnobs, noise_lab, read_text, trained_network


def main(path: str) -> None:
    """Measure, draw, write the PNG."""
    text = read_text("text")
    networks = {32: trained_network(text, 32, updates=400)}
    knobs = NoiseKnobs(method="OK", rank=2, hidden=32, trained=True)
    lab = noise_lab(text, knobs, interactive=False, networks=networks)
    cosine = lab.run(120).cosine.mean()
    lab.plot.figure.write_image(path, width=960)
    print(f"{path}: mean cosine of 2-OK {cosine:.3f}")


if __name__ == "__main__":
    main(*sys.argv[1:])
