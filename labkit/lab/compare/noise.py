"""What noise does to the rules of notebook 06: tables and figures, also of a sweep."""

import html
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import pandas as pd

from labkit.lab.compare.verdicts import Judged
from labkit.lab.race import Race, spread

if TYPE_CHECKING:
    from labkit.lab.panels.figures.captions import Figure

CAPTION = (
    "A curve that starts low and crosses the others has learned the noise with the "
    "rows. Bars that overlap decide nothing."
)
LEVELS = {
    "input_noise": "standard deviation (inputs span 1)",
    "label_noise": "share of labels drawn at random",
    "gradient_noise": "standard deviation / size of the gradient",
}
NO_GRADIENT = "has no gradient"


def noise_levels(judged: Judged, kind: str) -> pd.DataFrame:
    """Return the score of each rule at each level of a kind of noise, 0 included."""
    levels = judged.noise[kind]
    first = next(iter(levels.values()))
    runs = judged.race.runs
    clean = runs[(runs.seed < first.seeds) & runs.label.isin(first.labels)]
    races = {0.0: Race(clean), **levels}
    return pd.concat({x: spread(race.last(), "score") for x, race in races.items()})


def noise_figure(judged: Judged) -> "Figure":
    """Draw the score of each rule against the level of each kind of noise."""
    from labkit.lab.panels import curves

    panels, shares = {}, judged.comparison.shares
    for kind in judged.noise:
        table = noise_levels(judged, kind)
        table["mean"] = 100 - table["mean"] if shares else table["mean"]
        panels[kind.replace("_", " ").capitalize()] = {
            label: (rule.index.get_level_values(0), rule["mean"], rule.sd)
            for label, rule in table.groupby(level=1, sort=False)
        }
    return curves(
        panels,
        [LEVELS[kind] for kind in judged.noise],
        "test error [%]" if shares else "squared error per test row",
        log_y=True,
        caption=CAPTION,
        height=480,
    )


def noise_table(judged: Judged) -> pd.DataFrame:
    """Return the scores under noise in words, a column for each kind and level."""
    columns = {}
    for kind in judged.noise:
        words = noise_levels(judged, kind).apply(judged.comparison.words, axis=1)
        for level in words.index.unique(0):
            columns[kind.replace("_", " "), f"{level:g}"] = words[level]
    table = pd.DataFrame(columns).reindex(judged.race.labels)
    return table.fillna(NO_GRADIENT).rename_axis("rule")


def noise_row(judged: Judged, levels: Mapping[str, float]) -> dict[str, float]:
    """Return mean and sd of each rule at the largest level of each kind of noise.

    At a level of 0 they are those of the race without noise. A sweep takes its table
    from this row of a trace.
    """
    row = {}
    for kind, level in levels.items():
        clean = judged.ends()
        ends = noise_levels(judged, kind).loc[level] if level else clean
        for rule, found in ends.iterrows():
            row[f"{kind} {rule}"] = found["mean"]
            row[f"{kind} sd {rule}"] = found["sd"]
    return row


# Sweeps over a noise


def swept(results: str | Path) -> str:
    """Return which kind of noise a sweep has varied, the first of them, or ""."""
    table = pd.read_csv(results)
    varied = (kind for kind in LEVELS if kind in table and table[kind].nunique() > 1)
    return next(varied, "")


def sweep_table(results: str | Path, kind: str = "label_noise") -> pd.DataFrame:
    """Return the scores of a sweep of notebook 06 over a kind of noise, one a row.

    Parameters
    ----------
    results : path, the table ``results.csv`` of the sweep
    kind : str, ``"label_noise"``, ``"input_noise"`` or ``"gradient_noise"``, as varied

    Returns
    -------
    DataFrame with the columns ``rule``, ``level``, ``score`` and ``sd``, over the seeds

    Raises
    ------
    ValueError
        If no run of the table has a score under this noise.
    """
    table, start = pd.read_csv(results), f"noise.{kind} "
    rows = [
        {"rule": column.removeprefix(start), "level": level, "score": score, "sd": sd}
        for column in table
        if column.startswith(start) and not column.startswith(f"{start}sd ")
        for level, score, sd in zip(
            table[kind],
            table[column],
            table.get(column.replace(start, f"{start}sd "), table[column] * 0.0),
            strict=True,
        )
    ]
    if not rows:
        raise ValueError(f"no run in {results} has a score under {kind}")
    tidy = pd.DataFrame(rows).dropna(subset="score")
    return tidy.sort_values(["rule", "level"], kind="stable").reset_index(drop=True)


def sweep_figure(table: pd.DataFrame, kind: str = "label_noise") -> "Figure":
    """Draw the scores of a sweep against the noise, rule by rule.

    Parameters
    ----------
    table : DataFrame, as :func:`sweep_table` returns; runs at one level are averaged
    kind : str, the noise that was varied
    """
    from labkit.lab.panels import curves

    means = table.groupby(["rule", "level"])[["score", "sd"]].mean()
    drawn = {
        rule: (found.index.get_level_values("level"), found.score, found.sd)
        for rule, found in means.groupby("rule")
    }
    title = f"{kind.replace('_', ' ').capitalize()}: the score of each rule"
    return curves(
        {title: drawn},
        LEVELS[kind],
        "test score",
        caption=CAPTION.replace("low", "high"),
        height=520,
    )


def draw_sweep(results: Path) -> list[Path]:
    """Write what a sweep over noise has found beside its results.

    Returns
    -------
    list of Path
        ``noise.csv``, a row for each rule and level, and ``noise.html``, the scores of
        each rule against the noise; nothing if no noise was varied.
    """
    from plotly.io import to_html

    if not (kind := swept(results)):
        return []
    csv, page = results.with_name("noise.csv"), results.with_name("noise.html")
    table = sweep_table(results, kind)
    table.to_csv(csv, index=False)
    figure = sweep_figure(table, kind)
    caption = html.escape(figure["layout"]["meta"]["caption"])
    drawn = to_html(dict(figure), config={"responsive": True}, validate=False)
    page.write_text(drawn.replace("</body>", f"<p>{caption}</p></body>"), "utf-8")
    return [csv, page]
