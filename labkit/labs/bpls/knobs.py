"""The knobs of the live walk, and what each of them shows."""

from dataclasses import dataclass

from labkit.bpls import ACTIVATIONS
from labkit.labs.bpls.problems import READING_NAMES
from labkit.panels import knob

INVERTIBLE = tuple(a.name for a in ACTIVATIONS.values() if a.inverse is not None)


@dataclass(frozen=True)
class WalkKnobs:
    """What can be turned in the live experiment.

    The stop rule is off, as line 18 of Algorithm 2 has it, so that there is a run to
    turn knobs in.
    """

    sigma: float = knob(
        0.0,
        low=0.0,
        high=1.0,
        step=0.05,
        label="pixel noise sigma",
        unit="of the range",
        help="training images, from the next walk on",
        look_for="The misses leap and settle at a higher level, while the accuracy on "
        "the test images, which stay clean, holds up to 0.4.",
        restart=False,
    )
    label_noise: float = knob(
        0.0,
        low=0.0,
        high=0.8,
        step=0.05,
        unit="share",
        help="labels drawn at random, from the next walk on",
        look_for="Unlike pixel noise it takes the test accuracy down walk by walk; "
        "back at 0 a few walks mend it.",
        restart=False,
    )
    reading: str = knob(
        "min_norm",
        choices=READING_NAMES,
        help="of equation (5)",
        look_for="The overshoot, 1 for min_norm, at once; the accuracy follows only "
        "while many rows are walked: begin a run with identity and mean.",
        restart=False,
    )
    clamp: float = knob(
        1e-2,
        low=1e-8,
        high=0.4,
        log=True,
        unit="of the range",
        help="distance to the ends of the activation's range",
        look_for="The share of targets that it moves; a run that begins with 1e-6 "
        "starts ten points lower, and 1e-8 ends it: float32 cannot tell it from 0.",
        restart=False,
    )
    ridge: float = knob(
        1e-4,
        low=1e-10,
        high=1e-1,
        log=True,
        unit="relative",
        help="of the mean diagonal of H'H",
        look_for="The condition of the input layer: a hundred times the ridge, a tenth "
        "of the condition.",
        restart=False,
    )
    stop: bool = knob(
        False,
        label="stop rule",
        help="end at the first walk whose misses do not fall",
        look_for="How soon the run ends, and what the walks after that would have "
        "gained without noise, or undone with it.",
        restart=False,
    )
    walks: int = knob(
        200,
        low=0,
        high=1000,
        unit="walks",
        help="on the misses at most",
        look_for="The walk that the run ends with; 0 leaves the first walk only.",
        restart=False,
    )
    activation: str = knob(
        "sigmoid",
        choices=INVERTIBLE,
        help="of hidden layers: another network",
        look_for="Targets that the clamp moved: none with identity, two thirds in the "
        "first walk with softmax.",
    )
    width: int = knob(
        50,
        low=2,
        high=200,
        label="hidden width",
        unit="neurons",
        help="another network",
        look_for="The first walk: with identity it is the same from ten neurons on, "
        "one a class; with sigmoid it rises to the end.",
    )
    depth: int = knob(
        1,
        low=1,
        high=4,
        label="hidden layers",
        unit="layers",
        help="another network",
        look_for="The first walk: with identity it stays, with sigmoid the third layer "
        "costs it forty points.",
    )
    seed: int = knob(
        0,
        low=0,
        high=99,
        help="of weights and noise",
        look_for="What chance does: the first walks of six seeds differ by four "
        "points in the test.",
    )
