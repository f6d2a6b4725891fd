"""What is seen and touched: figures that follow a trace, knobs, the stepper."""

from labkit.panels.controls import Controls
from labkit.panels.curves import curves
from labkit.panels.images import HeatMap, Pictures, heat_maps
from labkit.panels.knobs import knob
from labkit.panels.line_stepper import LineStepper
from labkit.panels.live_lab import Experiment, LiveLab
from labkit.panels.live_plot import LivePlot
from labkit.panels.panel_types import Bars, Lines
from labkit.panels.recorder import record_lines
from labkit.panels.stepper import Stepper

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
