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
import fnmatch
import io
import math
import numbers
import tokenize
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

TYPES = {"int": int, "float": float, "str": str, "bool": bool}
PROFILES = ("quick", "paper")

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
    low, high : float or None, smallest and largest allowed value, both inclusive
    choices : tuple of str
        The allowed strings; empty when any string will do. ``*`` stands for any
        characters, and a choice such as ``*.csv`` for a file that must be there.
    paper : int, float, str, bool or None
        The value in the profile ``paper``; None when it is the default.
    """

    name: str
    type: type
    default: Value
    help: str = ""
    low: float | None = None
    high: float | None = None
    choices: tuple[str, ...] = ()
    paper: Value | None = None

    @property
    def allowed(self) -> str:
        """The type with its bounds or choices, as text.

        >>> Parameter("rank", int, 8, low=1, high=64).allowed
        'int, 1..64'
        """
        if self.choices:
            return f"{self.type.__name__}, {'|'.join(self.choices)}"
        if self.low is None and self.high is None:
            return self.type.__name__
        ends = ["" if end is None else f"{end:g}" for end in (self.low, self.high)]
        return f"{self.type.__name__}, {'..'.join(ends)}"

    def names_a_file(self, value: Value) -> bool:
        """Return whether a value is the path of a file, by its ending."""
        endings = (choice for choice in self.choices if choice.startswith("*."))
        return any(_matches(value, ending) for ending in endings)


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
        cell
        for cell in notebook.cells
        if cell.cell_type == "code" and "parameters" in cell.metadata.get("tags", [])
    ]
    if len(cells) != 1:
        found = "no cell" if not cells else f"{len(cells)} cells"
        raise ParameterError(
            f"{path.name} has {found} tagged 'parameters' and needs exactly one: a "
            "code cell with that tag and lines such as "
            "'rank: int = 8  # terms kept; 1..64; paper=16'"
        )
    try:
        return parse_cell(cells[0].source)
    except ParameterError as error:
        raise ParameterError(f"{path.name}, parameters cell: {error}") from error


def parse_cell(source: str) -> tuple[Parameter, ...]:
    """Read the source of a parameters cell.

    >>> (rank,) = parse_cell("rank: int = 8  # terms kept; 1..64; paper=16")
    >>> rank.default, rank.help, rank.allowed, rank.paper
    (8, 'terms kept', 'int, 1..64', 16)
    """
    try:
        body = ast.parse(source).body
    except SyntaxError as error:
        raise ParameterError(f"line {error.lineno}: {error.msg}") from error
    comments = _comments(source)
    parameters = _every(
        lambda node: _declared(node, comments.get(node.end_lineno, "")), body
    )
    names = [parameter.name for parameter in parameters]
    for name in names:
        if names.count(name) > 1:
            raise ParameterError(f"'{name}' is declared {names.count(name)} times")
    return tuple(parameters)


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
    if not isinstance(profile, str):
        raise ParameterError(f"profile must be the name of one, got {profile!r}")
    given = given or {}
    if profile not in PROFILES:
        allowed = ", ".join(PROFILES)
        raise ParameterError(f"unknown profile '{profile}'; profiles are {allowed}")
    known = {parameter.name: parameter for parameter in parameters}

    def value(name: str) -> Value:
        if name not in known:
            raise ParameterError(_unknown(name, parameters))
        if name in given:
            return check_value(known[name], given[name])
        return profile_value(known[name], profile)

    names = dict.fromkeys([*known, *given])
    return dict(zip(names, _every(value, names), strict=True))


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
    try:
        converted = _convert(parameter.type, value)
    except (ValueError, TypeError, OverflowError, AttributeError):
        converted = None
    if converted is None or not _inside(parameter, converted):
        raise ParameterError(
            f"{parameter.name}={value} is not allowed; "
            f"{parameter.name} takes {parameter.allowed}"
        )
    if parameter.names_a_file(converted):
        path = Path(converted).expanduser().absolute()
        if not path.is_file():
            raise ParameterError(f"{parameter.name}={value}: there is no file {path}")
        return str(path)
    return converted


def _matches(value: str, choice: str) -> bool:
    """Return whether a choice has a ``*`` and a string fits it, in any case."""
    return "*" in choice and fnmatch.fnmatchcase(value.lower(), choice.lower())


def _convert(kind: type, value: Value) -> Value | None:
    """Return the value as ``kind``, or None if that would change its meaning."""
    if kind is bool:
        words = {"true": True, "false": False}
        return (
            words.get(value.lower()) if isinstance(value, str) else _only(kind, value)
        )
    if kind is str:
        value.encode("utf-8")  # no notebook can hold half a character
        return _only(str, value)
    if isinstance(value, bool):  # a bool is an int to Python, hardly to the user
        return None
    if isinstance(value, str):
        number = kind(value)
    elif isinstance(value, numbers.Integral if kind is int else numbers.Real):
        number = kind(value)
    else:
        return None
    return number if math.isfinite(number) else None


def _only(kind: type, value: Value) -> Value | None:
    return value if isinstance(value, kind) else None


def _inside(parameter: Parameter, value: Value) -> bool:
    if parameter.choices:
        choices = parameter.choices
        return value in choices or any(_matches(value, c) for c in choices)
    low = -math.inf if parameter.low is None else parameter.low
    high = math.inf if parameter.high is None else parameter.high
    return parameter.type in (str, bool) or low <= value <= high


def _every(call: Callable, items: Iterable) -> list:
    """Return what a function makes of each item, or raise all its errors as one."""
    made, refused = [], []
    for item in items:
        try:
            made.append(call(item))
        except ParameterError as error:
            refused.append(str(error))
    if refused:
        raise ParameterError("\n".join(refused))
    return made


def _unknown(name: str, parameters: tuple[Parameter, ...]) -> str:
    close = difflib.get_close_matches(name, [p.name for p in parameters], n=1)
    hint = f"; did you mean '{close[0]}'?" if close else "."
    listed = ", ".join(f"{p.name} ({p.allowed})" for p in parameters)
    return f"unknown parameter '{name}'{hint} There are: {listed}"


def _comments(source: str) -> dict[int, str]:
    """Return the comments by line number, which tokenize tells from strings."""
    tokens = tokenize.generate_tokens(io.StringIO(source).readline)
    return {
        token.start[0]: token.string.lstrip("#").strip()
        for token in tokens
        if token.type == tokenize.COMMENT
    }


def _declared(node: ast.stmt, comment: str) -> Parameter:
    """Return the Parameter of one annotated assignment and its comment."""
    if not (
        isinstance(node, ast.AnnAssign)
        and isinstance(node.target, ast.Name)
        and isinstance(node.annotation, ast.Name)
        and node.annotation.id in TYPES
        and node.value is not None
    ):
        raise ParameterError(
            f"line {node.lineno}: '{ast.unparse(node)}' must read "
            f"'name: type = literal' with one of the types {', '.join(TYPES)}"
        )
    name, kind = node.target.id, TYPES[node.annotation.id]
    try:
        default = ast.literal_eval(node.value)
    except ValueError as error:
        raise ParameterError(
            f"line {node.lineno}: the value of '{name}' must be a literal"
        ) from error
    # a quoted number is a slip in a cell, though fine on the command line
    if isinstance(default, str) and kind is not str:
        raise ParameterError(
            f"line {node.lineno}: '{name}' is {default!r}, which is no {kind.__name__}"
        )
    help_text, *parts = [part.strip() for part in comment.split(";")]
    if help_text.startswith("paper=") or _bounds(help_text):
        raise ParameterError(f"'{name}': the comment must begin with the help text")
    fields: dict = {"help": help_text}
    for part in filter(None, parts):
        _add_part(fields, name, kind, part)
    return _checked(Parameter(name, kind, default, **fields))


def _add_part(fields: dict, name: str, kind: type, part: str) -> None:
    """Add what one part of the comment says to the fields of a Parameter."""
    if not any(sign in part for sign in ("..", "|", "=")):
        fields["help"] += f"; {part}"  # the help itself has a semicolon
        return
    bounds = _bounds(part)
    if part.startswith("paper="):
        new = {"paper": part.removeprefix("paper=").strip("\"' ")}
    elif bounds and kind in (int, float):
        new = {"low": bounds[0], "high": bounds[1]}
    elif "|" in part and kind is str:
        new = {"choices": tuple(choice.strip() for choice in part.split("|"))}
    else:
        raise ParameterError(
            f"'{name}': cannot read '{part}'; after the help come '1..64' for int "
            "and float, 'a|b' for str, and 'paper=VALUE'"
        )
    if fields.keys() & new:
        raise ParameterError(f"'{name}': '{part}' says a second time what is allowed")
    fields.update(new)


def _bounds(part: str) -> tuple[float | None, float | None] | None:
    low, dots, high = part.partition("..")
    if not dots or not (low or high):
        return None
    try:
        return (float(low) if low else None, float(high) if high else None)
    except ValueError:
        return None


def _checked(parameter: Parameter) -> Parameter:
    """Check the cell's own values against its own bounds."""
    own = {"default": check_value(parameter, parameter.default)}
    if parameter.paper is not None:
        own["paper"] = check_value(parameter, parameter.paper)
    return replace(parameter, **own)
