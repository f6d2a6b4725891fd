"""The typed parameters of a notebook: read from its cell, checked against it.

A notebook has one code cell tagged ``parameters``.  Each of its lines is::

    name: type = literal  # help; bounds or choices; paper=literal

where ``type`` is ``int``, ``float``, ``str`` or ``bool``.  The comment is split
at the semicolons: first the help, then, each optional, what is allowed
(``1..64`` for numbers, either end may be left out; ``text|ptb|*.txt`` for strings,
where ``*.txt`` stands for a file with this ending) and the value that the profile
``paper`` takes.  The literal on the line is the value of the profile ``quick``.
"""

import ast
import difflib
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

TYPES = {"int": int, "float": float, "str": str, "bool": bool}
PROFILES = ("quick", "paper")
SET_BY_RUN = {"interactive": bool, "run_dir": str}
LINE = re.compile(r"(\w+): (int|float|str|bool) = (.+?)(?:  # ([^#]*))?")
FORM = "name: type = literal  # help; 1..64 or a|b; paper=literal"

Value = int | float | str | bool


class RunRefused(ValueError):
    """The error that a requested run cannot be done; nothing has been started."""


class ParameterError(RunRefused):
    """The error that a parameter, or the cell that declares it, is invalid."""


@dataclass(frozen=True)
class Parameter:
    """One line of the parameters cell.

    Attributes
    ----------
    name : str, the Python name that the notebook reads
    type : type, ``int``, ``float``, ``str`` or ``bool``
    default : int, float, str or bool, the value in the profile ``quick``
    help : str, what the parameter does, in a few words
    low, high : float, smallest and largest allowed number, both inclusive
    choices : tuple of str
        The allowed strings; empty when any string will do. A choice such as ``*.csv``
        stands for a file that must be there.
    paper : int, float, str, bool or None
        The value in the profile ``paper``; None when it is the default.
    """

    name: str
    type: type
    default: Value
    help: str = ""
    low: float = -math.inf
    high: float = math.inf
    choices: tuple[str, ...] = ()
    paper: Value | None = None

    @property
    def allowed(self) -> str:
        """The type with its bounds or choices, as text.

        >>> Parameter("rank", int, 8, low=1, high=64).allowed
        'int, 1..64'
        """
        limits = "|".join(self.choices)
        ends = ["" if math.isinf(end) else f"{end:g}" for end in (self.low, self.high)]
        if any(ends):
            limits = "..".join(ends)
        return f"{self.type.__name__}, {limits}" if limits else self.type.__name__

    def names_a_file(self, value: Value) -> bool:
        """Return whether a value is the path of a file, by its ending."""
        return f"*{Path(str(value)).suffix.lower()}" in self.choices


def read_parameters(path: str | Path) -> tuple[Parameter, ...]:
    """Read the parameters that a notebook's parameters cell declares, in order.

    Raises
    ------
    ParameterError
        If the notebook does not have exactly one code cell tagged ``parameters``,
        or a line of that cell is not ``name: type = literal  # comment``.
    RunRefused : if the file is not a notebook
    """
    import nbformat  # of the lab; the other functions do without it

    path = Path(path)
    try:
        notebook = nbformat.read(path, as_version=4)
    except (OSError, ValueError, nbformat.ValidationError) as error:
        raise RunRefused(f"{path} cannot be read as a notebook: {error}") from error
    cells = [
        cell.source
        for cell in notebook.cells
        if cell.cell_type == "code" and "parameters" in cell.metadata.get("tags", [])
    ]
    if len(cells) != 1:
        raise ParameterError(
            f"{path.name} has {len(cells)} cells tagged 'parameters' and needs one: a "
            f"code cell with that tag and lines such as '{FORM}'"
        )
    try:
        return parse_cell(cells[0])
    except ParameterError as error:
        raise ParameterError(f"{path.name}, parameters cell: {error}") from error


def parse_cell(source: str) -> tuple[Parameter, ...]:
    """Read the source of a parameters cell.

    >>> (rank,) = parse_cell("rank: int = 8  # terms kept; 1..64; paper=16")
    >>> rank.default, rank.help, rank.allowed, rank.paper
    (8, 'terms kept', 'int, 1..64', 16)
    """
    found = {}
    for line in source.splitlines():
        if not line or line.startswith("#"):
            continue
        try:
            parameter = _declared(line)
        except (ValueError, SyntaxError) as error:
            raise ParameterError(f"'{line}' must read '{FORM}': {error}") from error
        if parameter.name in found:
            raise ParameterError(f"'{parameter.name}' is declared twice")
        found[parameter.name] = parameter
    return tuple(found.values())


def _declared(line: str) -> Parameter:
    """Return the Parameter of a line; ValueError if it cannot be read."""
    match = LINE.fullmatch(line)
    if not match:
        raise ValueError("it does not")
    name, kind, literal, comment = match.groups(default="")
    literal = ast.literal_eval(literal) if kind == "str" else literal
    parameter, words = Parameter(name, TYPES[kind], literal), []
    for part in comment.split("; "):
        low, dots, high = part.partition("..")
        if part.startswith("paper="):
            paper = part.removeprefix("paper=").strip("\"'")
            parameter = replace(parameter, paper=paper)
        elif "|" in part:
            parameter = replace(parameter, choices=tuple(part.split("|")))
        elif dots:
            ends = float(low or -math.inf), float(high or math.inf)
            parameter = replace(parameter, low=ends[0], high=ends[1])
        else:
            words.append(part)
    own = {profile: profile_value(parameter, profile) for profile in PROFILES}
    default, paper = (check_value(parameter, own[profile]) for profile in PROFILES)
    paper = None if parameter.paper is None else paper
    return replace(parameter, default=default, paper=paper, help="; ".join(words))


def resolve(
    parameters: tuple[Parameter, ...],
    given: Mapping[str, Value] | None = None,
    profile: str = "quick",
) -> dict[str, Value]:
    """Return the value of every parameter: given, or the profile's, or the default.

    Each is of its parameter's type and within its bounds.

    Parameters
    ----------
    parameters : tuple of Parameter, what the notebook declares
    given : mapping from str to str or value, optional
        Values to set.  Strings are read as the parameter's type (``"8"``,
        ``"1e-3"``, ``"true"``).
    profile : {"quick", "paper"}, where the values come from that are not given

    Raises
    ------
    ParameterError
        If the profile or a name is unknown, or a value is not allowed; it names all
        of them, a line each.

    Examples
    --------
    >>> cell = parse_cell("rank: int = 8  # terms kept; 1..64; paper=16")
    >>> resolve(cell), resolve(cell, profile="paper"), resolve(cell, {"rank": "4"})
    ({'rank': 8}, {'rank': 16}, {'rank': 4})
    """
    given = given or {}
    if profile not in PROFILES:
        allowed = ", ".join(PROFILES)
        raise ParameterError(f"unknown profile {profile!r}; profiles are {allowed}")
    values, known = {}, [parameter.name for parameter in parameters]
    refused = [_unknown(name, parameters) for name in given if name not in known]
    for parameter in parameters:
        value = given.get(parameter.name, profile_value(parameter, profile))
        try:
            values[parameter.name] = check_value(parameter, value)
        except ParameterError as error:
            refused.append(str(error))
    if refused:
        raise ParameterError("\n".join(refused))
    return values


def profile_value(parameter: Parameter, profile: str) -> Value:
    """Return the value that a parameter has in a profile."""
    if profile == "paper" and parameter.paper is not None:
        return parameter.paper
    return parameter.default


def check_value(parameter: Parameter, value: Value) -> Value:
    """Return the value converted to the parameter's type, or raise ParameterError.

    The path of a file is made absolute, since a notebook runs in a folder of its own.

    >>> check_value(Parameter("rate", float, 0.1, low=0), "1e-3")
    0.001
    """
    text, choices = str(value), parameter.choices
    try:
        if parameter.type is bool:
            return {"true": True, "false": False}[text.lower()]
        found = parameter.type(text)
        if parameter.type is str:
            inside = not choices or found in choices or parameter.names_a_file(found)
        else:
            inside = parameter.low <= found <= parameter.high
            inside = inside and -math.inf < found < math.inf
    except (ValueError, KeyError):
        inside = False
    if not inside:
        raise ParameterError(
            f"{parameter.name}={value} is not allowed; "
            f"{parameter.name} takes {parameter.allowed}"
        )
    if parameter.names_a_file(found):
        path = Path(found).expanduser().absolute()
        if not path.is_file():
            raise ParameterError(f"{parameter.name}={value}: there is no file {path}")
        return str(path)
    return found


def _unknown(name: str, parameters: tuple[Parameter, ...]) -> str:
    close = difflib.get_close_matches(
        name, [parameter.name for parameter in parameters], n=1
    )
    hint = f"; did you mean '{close[0]}'?" if close else "."
    listed = ", ".join(
        f"{parameter.name} ({parameter.allowed})" for parameter in parameters
    )
    return f"unknown parameter '{name}'{hint} There are: {listed}"
