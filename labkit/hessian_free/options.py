"""Options as frozen dataclasses, each field with its default and its range."""

from dataclasses import dataclass, field, fields
from typing import Any

from labkit.check import Range, check_options


def option(default: object, allowed: Range) -> Any:
    """Return the field of an option, which :class:`Options` checks."""
    return field(default=default, metadata={"range": allowed})


@dataclass(frozen=True, kw_only=True)
class Options:
    """Options by name; a value out of its range is a ValueError."""

    def __post_init__(self) -> None:
        ranges = {each.name: each.metadata["range"] for each in fields(self)}
        check_options(vars(self), ranges)
