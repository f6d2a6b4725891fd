"""The settings of Emirahmetoglu and Stewart, and some that suit short runs."""

from dataclasses import dataclass, replace


@dataclass(frozen=True, kw_only=True)
class PaperSetting:
    """The settings of Emirahmetoglu and Stewart for a data set (Table 1, section 6).

    The fields have the names of the options that they set.
    """

    encoder: tuple[int, ...]
    incoming: int = 10  # m0
    batch_size: int  # n1, the first
    max_batch_size: int  # nmax
    theta: float = 0.2
    damping: float  # lambda_1
    damping_decay: float = 0.99  # drop
    gamma: float = 0.7  # gamma_1
    maxiter: int = 150  # maxiter_1
    atol: float = 1e-8
    ftol: float
    table2: dict  # method -> (train, test) error, means of five seeds


PAPER = {
    "curves": PaperSetting(
        encoder=(784, 400, 200, 100, 50, 25, 6),
        incoming=20,
        batch_size=250,
        max_batch_size=2500,
        theta=0.5,
        damping=5.0,
        maxiter=200,
        ftol=1e-7,
        table2={"martens": (0.051, 0.098), "shf": (0.160, 0.214)},
    ),
    "mnist": PaperSetting(
        encoder=(784, 1000, 500, 250, 30),
        batch_size=300,
        max_batch_size=6000,
        damping=12.0,
        damping_decay=0.98,
        ftol=1e-5,
        table2={"martens": (0.910, 1.436), "shf": (0.959, 1.435)},
    ),
    "usps": PaperSetting(
        encoder=(256, 400, 200, 100, 50, 25),
        batch_size=200,
        max_batch_size=2000,
        damping=7.5,
        gamma=0.65,
        atol=1e-6,
        ftol=2e-5,
        table2={"martens": (1.007, 1.961), "shf": (0.999, 1.947)},
    ),
}
# In short runs the error falls faster from a smaller lambda than from the paper's.
SHORT = {
    name: replace(setting, theta=0.5, damping=0.5, damping_decay=0.7)
    for name, setting in PAPER.items()
}
SHORT["digits"] = replace(
    SHORT["usps"],
    encoder=(64, 32, 16, 8),
    batch_size=60,
    max_batch_size=650,
    damping=1.0,
    damping_decay=0.8,
    ftol=1e-5,
    table2={},
)
