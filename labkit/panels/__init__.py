"""What is seen and touched: figures that follow a trace, knobs, the stepper."""

from labkit.panels.controls import Controls, knob
from labkit.panels.live_lab import LiveLab
from labkit.panels.live_plot import Bars, Lines, LivePlot
from labkit.panels.stepper import Stepper

__all__ = ["Bars", "Controls", "Lines", "LiveLab", "LivePlot", "Stepper", "knob"]
