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
        label="pixel noise",
        unit="sd",
        help="sigma of the training images, from the next walk on",
        look_for="The misses leap and settle higher; the test, on clean images, holds "
        "up to 0.4.",
        restart=False,
    )
    label_noise: float = knob(
        0.0,
        low=0.0,
        high=0.8,
        step=0.05,
        unit="share",
        help="labels drawn at random, from the next walk on",
        look_for="The test accuracy falls walk by walk; back at 0 a few walks mend it.",
        restart=False,
    )
    reading: str = knob(
        "min_norm",
        choices=READING_NAMES,
        help="of equation (5)",
        look_for="The overshoot, 1 for min_norm; a run begun with identity and mean "
        "collapses.",
        restart=False,
    )
    clamp: float = knob(
        1e-2,
        low=1e-8,
        high=0.4,
        log=True,
        unit="of the range",
        help="distance to the ends",
        look_for="The share it moves; a run begun at 1e-6 starts ten points lower, "
        "1e-8 ends it.",
        restart=False,
    )
    ridge: float = knob(
        1e-4,
        low=1e-10,
        high=1e-1,
        log=True,
        unit="relative",
        help="of the mean diagonal of H'H",
        look_for="Condition of the input layer: a hundredfold ridge, a tenth of it.",
        restart=False,
    )
    stop: bool = knob(
        False,
        label="stop rule",
        help="end at the first walk whose misses do not fall",
        look_for="How soon a run ends, and what more walks gain, or undo under noise.",
        restart=False,
    )
    walks: int = knob(
        200,
        low=0,
        high=1000,
        label="at most",
        unit="walks",
        help="on the misses, after the first",
        look_for="The walk that a run ends with; 0: the first walk only.",
        restart=False,
    )
    activation: str = knob(
        "sigmoid",
        choices=INVERTIBLE,
        help="another network",
        look_for="Targets moved by the clamp: none with identity, two thirds at first "
        "with softmax.",
    )
    width: int = knob(
        50,
        low=2,
        high=200,
        label="hidden width",
        unit="neurons",
        help="another network",
        look_for="First walk: with identity the same from ten neurons on, with sigmoid "
        "rising to the end.",
    )
    depth: int = knob(
        1,
        low=1,
        high=4,
        label="hidden layers",
        unit="layers",
        help="another network",
        look_for="First walk: identity stays, sigmoid loses forty points with the "
        "third layer.",
    )
    seed: int = knob(
        0,
        low=0,
        high=99,
        help="of weights and noise",
        look_for="Chance: the first walks of six seeds differ by four points in the "
        "test.",
    )
