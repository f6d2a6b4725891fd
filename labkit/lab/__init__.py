"""What shows and runs the papers: data sets, live panels, experiments, the command.

Every name below is imported when it is first asked for (PEP 562), so that, for example,
``labkit.lab.load`` needs no drawing library.
"""

from collections.abc import Callable, Iterable, Mapping
from importlib import import_module


def lazily(
    package: str, modules: Mapping[str, Iterable[str]]
) -> tuple[Callable[[str], object], Callable[[], list[str]], list[str]]:
    """Return ``__getattr__``, ``__dir__`` and ``__all__`` of a package.

    Parameters
    ----------
    package : str, ``__name__`` of the package
    modules : mapping of a module below the package to the names that it defines
        A module without names is itself a name.
    """
    home = {name: module for module, names in modules.items() for name in names}
    home |= {module: "" for module, names in modules.items() if not names}

    def get(name: str) -> object:
        if name not in home:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        module = import_module(f"{package}.{home[name] or name}")
        return getattr(module, name) if home[name] else module

    return get, lambda: sorted(home), sorted(home)


__getattr__, __dir__, __all__ = lazily(
    __name__,
    {
        "claims": ("folded", "recorded", "show_race"),
        "datasets": ("available", "load"),
        "panels": (
            "Boxes",
            "Controls",
            "Experiment",
            "LineStepper",
            "Lines",
            "LiveLab",
            "LivePlot",
            "Stepper",
            "curves",
            "knob",
            "within",
            "Finding",
            "Measured",
            "Measurement",
            "Opening",
        ),
        "problem": ("load_problem", "with_noise"),
        "exercises": ("check", "trying"),
        "runs": ("report", "run", "sweep"),
    },
)
