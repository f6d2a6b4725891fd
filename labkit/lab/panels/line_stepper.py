"""Walk the source lines of one real update: the line, its equation, its values."""

from collections.abc import Sequence

from labkit.lab.panels.docstrings import Docstrings
from labkit.lab.panels.embedded import embedded
from labkit.lab.panels.line_view import table_html, walk_data
from labkit.lab.panels.recorder import LineRecord, record_lines


class LineStepper:
    """Run one call of a real function and walk the lines that ran.

    The call is made at once; walking looks at the record, in the page alone: it needs
    no kernel and goes on after a restart, after a reload and in an exported page. First
    the lines with an equation are walked, and all of them where a box is ticked. Lines
    that ran more than once are one stop, with an index for the turns of the loop. A
    ValueError if no line ran that could be shown.

    Parameters
    ----------
    function, args, follow, kwargs : of :func:`~labkit.lab.panels.record_lines`

    Attributes
    ----------
    result, recording : what the call returned; all its lines
    stops : list of lists of LineRecord, of each line its turns
    data : dict, what the page walks, see :func:`~labkit.lab.panels.line_view.walk_data`

    Examples
    --------
    >>> def square(x):
    ...     y = x * x  # (1)
    ...     return y
    >>> walk = LineStepper(square, 3)
    >>> walk, walk.result, walk.data["changing"]
    (LineStepper(2 lines, 1 with an equation), 9, ['y'])
    """

    def __init__(self, function, *args, follow=None, **kwargs):
        self.recording = record_lines(function, *args, follow=follow, **kwargs)
        self.result = self.recording.result
        self.stops = _fold(self.recording.lines)
        if not self.stops:
            raise ValueError(f"no line of {function!r} ran that could be shown")
        self.data = walk_data(self.recording, self.stops)

    def _repr_html_(self) -> str:
        table = table_html(self.stops, Docstrings(self.recording.functions))
        return embedded("walk", self.data, table)

    def __repr__(self):
        told = sum(bool(stop["equations"]) for stop in self.data["stops"])
        return f"LineStepper({len(self.stops)} lines, {told} with an equation)"


def _fold(lines: Sequence[LineRecord]) -> list[list[LineRecord]]:
    stops: dict[tuple, list[LineRecord]] = {}
    for record in lines:
        stops.setdefault(record.path, []).append(record)
    return list(stops.values())
