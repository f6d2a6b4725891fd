"""What is seen and touched: figures, live panels with knobs, walks through lines.

``figures`` draws, ``live`` runs and turns, ``lines`` walks through the lines of a step.
What only declares (`Experiment`, `Lines`, `knob`, the planes and the theme) is
imported without plotly and ipywidgets.
"""

from labkit.lab import lazily

__getattr__, __dir__, __all__ = lazily(
    __name__,
    {
        "figures.curves": ("Lines", "curves"),
        "figures.images": ("image_rows",),
        "figures.theme": ("COLOURS",),
        "live.boxes": ("Boxes",),
        "live.controls": ("Controls",),
        "live.experiment": ("Experiment", "knob", "within"),
        "live.live_lab": ("LiveLab",),
        "live.live_plot": ("LivePlot",),
        "live.stepper": ("Stepper",),
        "measured": ("Finding", "Measured", "Measurement"),
        "opening": ("Opening",),
        "lines.walk": ("LineStepper",),
    },
)
