"""What is seen and touched: figures that follow a trace, knobs, the stepper."""

from labkit.lab.panels.controls import Controls
from labkit.lab.panels.curves import curves
from labkit.lab.panels.images import HeatMap, Pictures, heat_maps
from labkit.lab.panels.knobs import knob
from labkit.lab.panels.line_stepper import LineStepper
from labkit.lab.panels.live_lab import Experiment, LiveLab
from labkit.lab.panels.live_plot import LivePlot
from labkit.lab.panels.panel_types import Bars, Lines
from labkit.lab.panels.recorder import record_lines
from labkit.lab.panels.stepper import Stepper

__all__ = [
    "Bars",
    "Controls",
    "Experiment",
    "HeatMap",
    "LineStepper",
    "Lines",
    "LiveLab",
    "LivePlot",
    "Pictures",
    "Stepper",
    "curves",
    "heat_maps",
    "knob",
    "record_lines",
]
