"""What the papers claim, item by item, and which evidence there is of each.

The items stand in ``coverage.csv``. An item names the size at which it can be shown,
the studies that show it (with patterns of units after a colon, parted by commas), and
a regular expression that finds its claims among those of these studies.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from fnmatch import fnmatchcase
from pathlib import Path

import pandas as pd

from labkit.lab.claims import NO, YES
from reproduction import hessian_free, results, rls, show
from reproduction.bpls_toy import TABLE_2
from reproduction.studies import studies

ITEMS = Path(__file__).with_name("coverage.csv")
AT_SIZE, REDUCED, NOTEBOOK, MISSING = "paper", "reduced", "notebook", "missing"
SIZES = {
    AT_SIZE: "at the paper's size",
    REDUCED: "at a reduced size",
    NOTEBOOK: "in a notebook only",
    MISSING: "missing",
}
HOLDS, FAILS, PARTLY, OPEN = "holds", "does not hold", "holds in part", "open"


def coverage(folder: Path) -> pd.DataFrame:
    """Return the items with the evidence that the results in a folder hold.

    Parameters
    ----------
    folder : path, of the results

    Returns
    -------
    DataFrame
        A row for each item: ``paper``, ``where``, ``claim``, ``before`` and ``now``
        (the size of the evidence in version 0.2.0 and now), ``studies`` (their names),
        ``found`` (holds, does not hold, in part, open, or empty), ``share``, the
        verdicts, such as "yes 2, no 1, open 2", and ``told``, one of those
        that are not yes, a no if there is one.
    """
    items = pd.read_csv(ITEMS, dtype=str, keep_default_na=False)
    known = {name: _evidence(name, folder) for name in studies()}
    rows = []
    for item in items.to_dict("records"):
        verdicts, now = [], item["size"] if item["size"] == NOTEBOOK else MISSING
        named = _meant(item) if item["size"] in (AT_SIZE, REDUCED) else {}
        for name, patterns in named.items():
            done, judged = known[name]
            if any(fnmatchcase(u, p) for u in done for p in patterns):
                now = item["size"]
                verdicts += [
                    row for row in judged if re.search(item["match"], row[show.CLAIM])
                ]
        kept = {key: item[key] for key in ("paper", "where", "claim", "before")}
        kept |= {"now": now, "studies": ", ".join(named), "found": _found(verdicts)}
        held, failed = (
            sum(row["verdict"] == each for row in verdicts) for each in (YES, NO)
        )
        kept["share"] = f"yes {held}, no {failed}, open {len(verdicts) - held - failed}"
        rows.append(kept | {"told": _doubt(verdicts)})
    return pd.DataFrame(rows)


def _doubt(verdicts: list[dict[str, str]]) -> str:
    """Return one that is not yes, a no if there is one, with what was measured."""
    doubted = [row for row in verdicts if row["verdict"] != YES]
    if not doubted:
        return ""
    row = next((row for row in doubted if row["verdict"] == NO), doubted[0])
    return f"{row[show.CLAIM]}, here {row['measured here']}"


def _meant(item: Mapping[str, str]) -> dict[str, list[str]]:
    """Return the patterns of units by study."""
    meant, name = {}, ""
    for part in item["study"].split(","):
        if "/" in part:
            name, _, pattern = part.partition(":")
            meant[name] = [pattern or "*"]
        else:
            meant[name].append(part)
    return meant


def _evidence(name: str, folder: Path) -> tuple[list[str], list[dict]]:
    """Return the units of a study that are done, and its claims as they are judged."""
    study = studies()[name]
    _, done = show.state_of(study, folder)
    return list(done), show.judged_in(folder, study).to_dict("records")


def _found(verdicts: list[dict]) -> str:
    """Return what the verdicts on an item come to."""
    every = Counter(row["verdict"] for row in verdicts)
    if not verdicts:
        return ""
    if every[YES] == len(verdicts):
        return HOLDS
    if every[NO] and not every[YES]:
        return FAILS
    return PARTLY if every[YES] else OPEN


def counts(items: pd.DataFrame) -> pd.DataFrame:
    """Return the number of items by size of the evidence, in version 0.2.0 and now."""
    whens = {"version 0.2.0": "before", "now": "now"}
    table = {name: items[when].value_counts() for name, when in whens.items()}
    found = pd.DataFrame(table).reindex(list(SIZES)).fillna(0).astype(int)
    return found.rename(index=SIZES)


def text(folder: Path) -> str:
    """Return the items and their counts, as ``labkit reproduce coverage`` prints."""
    items = coverage(folder)
    lines = []
    for paper, mine in items.groupby("paper", sort=False):
        lines.append(f"{paper}")
        for row in mine.itertuples():
            where = f" ({row.studies})" if row.studies else ""
            found = f": {row.found}" if row.found else ""
            lines.append(f"  {row.where}: {row.claim}{where}; {SIZES[row.now]}{found}")
    return "\n".join([*lines, "", counts(items).to_string()])


def paragraph(paper: str, items: pd.DataFrame, folder: Path) -> str:
    """Return what stands of a paper, at which size, what does not, and why.

    Parameters
    ----------
    paper : str, as in :data:`reproduction.studies.PAPERS`
    items : DataFrame, :func:`coverage`
    folder : path, of the results
    """
    mine = items[items["paper"] == paper]
    if mine.empty:
        return ""
    also = ALSO[paper](folder) if paper in ALSO else ()
    parts = [_counted(mine), " ".join([WHY.get(paper, ""), *also])]
    return "\n\n".join([*filter(None, parts), "\n".join(_findings(mine))]).strip()


def _counted(mine: pd.DataFrame) -> str:
    size = mine["now"].value_counts()
    return (
        f"We list {len(mine)} claims of this paper. {size.get(AT_SIZE, 0)} have "
        f"evidence at its size, {size.get(REDUCED, 0)} at a reduced size."
    )


def _findings(mine: pd.DataFrame) -> Iterator[str]:
    """Yield a line of a list for the claims that hold, that fail, and that are open."""

    def listed(head: str, claims: pd.DataFrame, told: str = "") -> Iterator[str]:
        if len(claims):
            words = (row.claim + told.format(row=row) for row in claims.itertuples())
            yield f"- **{head}:** {'; '.join(words)}."

    heads = ((HOLDS, "These hold", ""), (FAILS, "These do not hold", " ({row.told})"))
    for found, head, told in heads:
        for now in (AT_SIZE, REDUCED):
            these = mine[(mine["now"] == now) & (mine["found"] == found)]
            yield from listed(f"{head} {SIZES[now]}", these, told)
    in_part, open_ = (mine[mine["found"] == found] for found in (PARTLY, OPEN))
    yield from listed("These hold in part", in_part, " ({row.share})")
    yield from listed("These are open", open_, " ({row.told})")


def _free_bits(folder: Path) -> Iterator[str]:
    """Compare 8-OK with TBPTT-25 at the last step that both have."""
    rows = results.frame(Path(folder) / "rtrl/table2-3.csv")
    if {"label", "valid"} <= set(rows):
        bits = rows.groupby(["label", "look"])["valid"].mean().unstack(0)
        both = (f"{name}, rate 0.001, batch 32" for name in ("8-OK", "25-TBPTT"))
        ours, theirs = (bits.get(x, pd.Series(dtype=float)).dropna() for x in both)
        if common := set(ours.index) & set(theirs.index):
            steps = max(common)
            later = theirs.index[theirs <= ours[steps]]
            told = f" and reaches that after {later.min():,}" if len(later) else ""
            yield (
                f"At a rate of 0.001 8-OK has {ours[steps]:.2f} bits per character "
                f"after {steps:,} steps, where TBPTT-25 has {theirs[steps]:.2f}{told}, "
                "in one run each."
            )


def _seconds(folder: Path) -> Iterator[str]:
    """Tell the seconds of the runs of Figures 2(a) and 3(a) over those of Adam."""
    rows = results.frame(Path(folder) / "rls/fig2a-3a.csv")
    if "seconds" in rows:
        spent = rows.groupby(["label", "seed"])["seconds"].max().groupby("label").mean()
        pairs = {"RLS": "Adam", "RLS+M+R": "Adam", "HRLS": "Adam-CE"}
        told = [
            f"{name} {spent[name] / spent[adam]:.1f}"
            for name, adam in pairs.items()
            if {name, adam} <= set(spent.index)
        ]
        yield (
            "On MNIST, in seconds of one processor at the loads named below, a run "
            f"takes this many times as long as one of Adam: {', '.join(told)}."
        )


def _pixels(folder: Path) -> Iterator[str]:
    """Compare the scales of the pixels of MNIST, by accuracy at the same epoch."""
    names = ("fig2a-3a", "standardised")
    scales = [results.frame(Path(folder) / f"rls/{name}.csv") for name in names]
    if all("accuracy" in rows for rows in scales):
        epoch = scales[1]["look"].max()
        raw, even = (
            rows[rows["look"] == epoch].groupby("label")["accuracy"].mean().round(2)
            for rows in scales
        )
        told = [
            f"{name} has {even[name]} and Adam {even[adam]} % with standardised pixels,"
            f" and {raw[name]} and {raw[adam]} % with pixels in [0, 1]"
            for name, adam in (("HRLS", "Adam-CE"), ("RLS", "Adam"))
            if {name, adam} <= {*raw.index} & {*even.index}
        ]
        if told:
            yield (
                "The paper does not give the scale of the pixels, and the order of the "
                f"means depends on it: after {epoch} epochs {'; '.join(told)}."
            )


def _cifar(folder: Path) -> Iterator[str]:
    """Tell how RLS+M and Adam compare on CIFAR-10 in the runs that ask why."""
    longer, pixels = "in longer runs", "with standardised pixels"
    for study, where in ((rls.LONGER, longer), (rls.CIFAR_PIXELS, pixels)):
        rows = results.frame(Path(folder) / f"{study.name}.csv")
        if "accuracy" not in rows or not {"RLS+M", "Adam"} <= {*rows["label"]}:
            continue
        end = rows["look"].max()
        loss = rows[rows["look"] == end].groupby("label")["loss"].mean()
        judged = {claim: rest for claim, *rest in study.claims(rows)}
        told, held = next(v for k, v in judged.items() if "over all epochs" in k)
        yield (
            f"On CIFAR-10 {where} RLS+M and Adam have mean accuracies of {told} % over "
            f"{end} epochs; RLS+M converges faster there: {held}. Their last training "
            f"losses are {loss['RLS+M']:.3f} and {loss['Adam']:.3f}."
        )


def _told_of_rls(folder: Path) -> Iterator[str]:
    """Tell the seconds, the scales of the pixels, and what was asked on CIFAR-10."""
    yield from _seconds(folder)
    yield from _pixels(folder)
    yield from _cifar(folder)


def _epochs(folder: Path) -> Iterator[str]:
    """Tell the seconds of an epoch of BPLS and of Adam beside those of Table II."""
    rows = results.frame(Path(folder) / "bpls/seconds.csv")
    if "seconds_cpu" in rows:
        here = rows.groupby("label")["seconds_cpu"].mean()
        yield (
            f"Here an epoch of BPLS takes {here['BPLS']:.1f} s and one of Adam with "
            f"batch 1 {here['adam']:.1f} s, where {TABLE_2['BPLS']} and "
            f"{TABLE_2['adam']:,} s are printed."
        )


def _lowest(folder: Path) -> Iterator[str]:
    """Tell when the errors on USPS are lowest, and SHF's errors there, run by run."""
    rows = results.frame(Path(folder) / "hessian_free/table2-usps.csv")
    if "passes" in rows:
        runs = hessian_free.chosen(hessian_free.in_f(rows)).set_index("label")
        if {"shf", "martens"} <= set(runs.index):
            when = runs.groupby("label")["passes"].mean()
            yield (
                f"On average SHF's validation error is lowest after {when['shf']:,.0f} "
                "passes, and the test error of Martens' method after "
                f"{when['martens']:,.0f}."
            )
            fit, test = (
                ", ".join(f"{error:.3f}" for error in runs.loc[["shf"], part])
                for part in ("train", "test")
            )
            printed = hessian_free.TABLE_2["shf"]
            yield (
                f"SHF's runs then have training errors of {fit}, where {printed[0]} is "
                f"printed, and test errors of {test}, where {printed[1]} is printed."
            )


ALSO: Mapping[str, Callable[[Path], Iterator[str]]] = {
    "bpls": _epochs,
    "hessian_free": _lowest,
    "rtrl": _free_bits,
    "rls": _told_of_rls,
}


WHY = {
    "broad": "The tables come out from the original authors' program, two steps of "
    "which the paper's text leaves out. Where the ridge is small, what decides is the "
    "rounding of float64, so that a solver may break down at another size than in the "
    "paper: Chol-1 at 1e-7 loses its pivot later in one draw if only the sums over the "
    "images are made of larger pieces, so that no is about our rounding. At the "
    "largest ridges our first network lies a little lower than the printed one: there "
    "a detail of the recipe that is not known counts, and the no is about our reading "
    "of it.",
    "bpls": "We think that the networks of Table I are linear in the hidden layer: "
    "with an identity there both BPLS and its rivals come near the printed numbers, "
    "with the softmax of the text they do not. Each no about the rivals with a softmax "
    "is therefore about the text, not about the method. With the identity the runs "
    "say no of NAG's test accuracy on MNIST alone, and that is about our momentum, as "
    "the paper prints none: its accuracy lies between those of 0.9, which we took, and "
    "of 0.95; with 0.98 all runs diverge. "
    "On the non-linear toy the correction (5) moves the hidden layer to a worse place: "
    "without it the errors are smaller at every level of noise. With noise Adam, NAG "
    "and AdaGrad stay ahead of that, too: we think that least squares fits the noise "
    "of five points, and 1,000 small steps do so less. The factor of Table II comes "
    "from its rivals: BPLS takes about the seconds that are printed, and steps with "
    "batch 1 take far less.",
    "rls": "RLS with these constants is close to gradient descent with the direction "
    "of the mean input switched off, which gives it a good start. On MNIST Adam at its "
    "default rate is as fast by epochs and ends lower only because it begins to "
    "overfit; by seconds a step of RLS costs more on that network, whose layers are "
    "wide beside the batch; on the CNN and the LSTM it hardly does. We think that the "
    "no on CIFAR-10 is about the scale of the pixels, too: Adam's lead in the first "
    "three epochs is there with pixels in [0, 1] and is not with standardised ones. "
    "Three seeds do not decide whether the two leads differ.",
    "rtrl": "What was run agrees with the authors' logs where there are any, and a "
    "million steps of 8-OK end where the paper says. The ends of 8-KF-AVG and of the "
    "methods of rank 16 on Copy take a GPU a quarter of an hour each and stay open; "
    "the noise of the estimates, which the claims rest on, is as said.",
    "hessian_free": "We think that Table 2 reports f, half the squared error: read "
    "so, Martens' method comes near its printed numbers, and read as the squared error "
    "it does not. SHF's runs come near the printed numbers, too, and differ so much "
    "from each other that three of them decide neither whether it meets those nor "
    "whether it ties with Martens' method. Of the advice on ftol we think that it is "
    "about speed: after the same passes the runs with the larger ftol have come "
    "further, in training and in test; at equal training error their test error is a "
    "little higher in every seed, which is the one no of the short runs.",
}
