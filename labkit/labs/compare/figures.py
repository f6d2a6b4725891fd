"""The three views: against seconds, against rows, against noise."""

import plotly.graph_objects as go

from labkit.labs.compare.race import Noise, Race
from labkit.panels.curves import curves
from labkit.panels.theme import COLOURS

RACE_READING = (
    "Lower and further left is better; a rule that moves to the left between the "
    "panels makes little work of a row, one that moves to the right much."
)
NOISE_READING = (
    "A curve that starts low and crosses the others has learned the noise with the "
    "rows; bars that overlap decide nothing."
)


def race_figure(result: Race) -> go.Figure:
    """Test error against own seconds and against rows; means over the seeds."""
    job = result.job
    clocks = {"Against time": "seconds", "Against data": "passes"}
    panels = {title: {} for title in clocks}
    for label, runs in result.runs.groupby("label", sort=False):
        looks = runs.groupby("look")
        means = looks[["seconds", "passes", "score"]].mean()
        means = means[looks.size() == result.seeds]  # looks that all seeds have
        error = 100 - means.score if job.unit == "%" else means.score
        for title, column in clocks.items():
            panels[title][label] = (means[column], error)
    figure = curves(
        panels,
        ("seconds of its own work", "rows handed over / training rows"),
        "test error [%]" if job.unit == "%" else "squared error per test image",
        log_x=True,
        log_y=True,
        reading=RACE_READING,
        height=480,
    )
    return _told_apart(figure, result.labels)


def noise_figure(result: Noise) -> go.Figure:
    """Test error against each kind of noise; means, bars of one sd over the seeds."""
    titles = {"inputs": "Noise on the inputs", "labels": "Noise on the labels"}
    panels, spreads = {}, []
    for kind, title in titles.items():
        panels[title] = {}
        mine = result.runs[result.runs.kind == kind]
        for label, runs in mine.groupby("label", sort=False):
            levels = runs.groupby("level").score
            panels[title][label] = (levels.mean().index, 100 - levels.mean())
            spreads.append(levels.std())
    figure = curves(
        panels,
        ("standard deviation (pixels span 1)", "share of labels drawn at random"),
        "test error [%]",
        log_y=True,
        reading=NOISE_READING,
        height=480,
    )
    lines = [trace for trace in figure.data if trace.legendgroup]
    for trace, spread in zip(lines, spreads, strict=True):
        trace.error_y = {"type": "data", "array": list(spread), "thickness": 1}
    return _told_apart(figure, list(dict.fromkeys(result.runs.label)))


def _told_apart(figure: go.Figure, labels: list[str]) -> go.Figure:
    """Open markers for the rules to whom colours and markers come a second time."""
    for trace in figure.data:
        if trace.legendgroup in labels[len(COLOURS) :]:
            trace.marker.symbol += "-open"
    return figure
