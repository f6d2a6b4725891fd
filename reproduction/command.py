"""``labkit reproduce``: list the studies, run their units, show what they measured."""

import math
import time
from pathlib import Path
from typing import Annotated

import typer

from labkit.lab.runs.cli import in_a_sentence
from labkit.lab.runs.parameters import RunRefused

app = typer.Typer(
    no_args_is_help=True, help="The papers' tables and figures beside ours."
)
# All paths begin at the checkout, so that the command works in any folder of it.
CHECKOUT = Path(__file__).resolve().parents[1]
RESULTS = CHECKOUT / "reproduction/results"
OUT = CHECKOUT / "runs/reproduce"
DOCS = CHECKOUT / "docs/reproduction"
CLAIMS = CHECKOUT / "labkit/lab/claims.csv"
Results = Annotated[Path, typer.Option(help="Folder of the results.")]
Names = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="NAME...",
        show_default=False,
        help="Studies, such as rtrl/fig3, or papers, such as rtrl; all if none.",
    ),
]


@app.command("list")
@in_a_sentence
def list_studies(names: Names = None, results: Results = RESULTS) -> None:
    """Show the studies, their units and what they take."""
    from reproduction import results as recorded, show
    from reproduction.studies import find_studies

    for study in find_studies(names or ()):
        done, _ = recorded.read(study, results)
        units = f"{len(done)} of {len(study.units)} units done"
        typer.echo(
            f"{study.name}  {study.shows}; {units}\n"
            f"  {study.setting}; {study.data}\n"
            f"  {show.estimate(study)}: {', '.join(study.units)}"
        )


@app.command()
@in_a_sentence
def run(
    name: Annotated[
        str,
        typer.Argument(
            metavar="NAME",
            show_default=False,
            help="A study, or a paper for all of its studies.",
        ),
    ],
    units: Annotated[
        str, typer.Option(help="Which units: names or patterns, parted by commas.")
    ] = "*",
    workers: Annotated[int, typer.Option(min=1, help="Processes here.")] = 1,
    device: Annotated[
        str, typer.Option(help="torch device, such as cuda, that the units compute on.")
    ] = "cpu",
    minutes: Annotated[
        float, typer.Option(help="Stop after so many; the same command goes on.")
    ] = math.inf,
    results: Results = RESULTS,
    out: Annotated[Path, typer.Option(help="Folder of what is under way.")] = OUT,
) -> None:
    """Run those units that are not done; go on with units that were cut off."""
    from reproduction import units as work
    from reproduction.studies import find_studies

    wanted = [(each, each.chosen(units)) for each in find_studies([name])]
    if not any(chosen for _, chosen in wanted):
        known = "; ".join(", ".join(each.units) for each, _ in wanted)
        raise RunRefused(f"no unit of {name} matches {units!r}: {known}")
    for each, _ in wanted:
        work.check(each, results, out, device)
    failed, until = 0, time.time() + 60 * minutes
    for each, chosen in wanted:
        ended = work.run(
            each,
            chosen,
            results,
            out,
            workers=workers,
            device=device,
            until=until,
        )
        for unit, outcome in ended:
            typer.echo(f"{each.name} {unit}: {outcome}")
            failed += outcome not in (work.DONE, work.BUSY, work.OVER)
    if failed:
        raise typer.Exit(1)


@app.command()
@in_a_sentence
def show(names: Names = None, results: Results = RESULTS) -> None:
    """Print the paper's numbers beside ours, and the verdicts."""
    from reproduction import pages
    from reproduction.studies import find_studies

    for study in find_studies(names or ()):
        typer.echo(pages.text(study, results) + "\n")


@app.command()
@in_a_sentence
def pages() -> None:
    """Write a page for each paper, and the table of claims that the package has."""
    from reproduction import pages

    for path in pages.write(RESULTS, DOCS, CLAIMS):
        typer.echo(path)
