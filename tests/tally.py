"""Add up what the stages of ``make test`` came to.

    python -m tests.tally build/test lint=0 unit=1 notebooks=0 browser=0

Each stage comes with its exit status; ``build/test/unit.xml`` is what pytest wrote of
it (``--junitxml``). A stage that failed without a count (lint, a crash, nothing
collected) adds one failure. The last line is ``N passed, N failed[, N skipped]``.
"""

import sys
import xml.etree.ElementTree as ElementTree
from collections import Counter
from pathlib import Path


def counted(path):
    """Count the outcomes in a report of pytest; of none if it is missing or torn."""
    try:
        suites = list(ElementTree.parse(path).iter("testsuite"))
    except (OSError, ElementTree.ParseError):
        return Counter()
    sums = Counter()
    for suite in suites:
        sums.update({k: int(suite.get(k)) for k in ("tests", "failures", "errors")})
        sums["skipped"] += int(suite.get("skipped"))
    failed = sums["failures"] + sums["errors"]
    passed = sums["tests"] - failed - sums["skipped"]
    return Counter(passed=passed, failed=failed, skipped=sums["skipped"])


def in_words(counts):
    """Say the counts; skipped ones only where there are some."""
    text = f"{counts['passed']} passed, {counts['failed']} failed"
    return f"{text}, {counts['skipped']} skipped" if counts["skipped"] else text


def main(folder, *stages):
    """Print a line for each stage and the sum."""
    total = Counter()
    for stage in stages:
        name, status = stage.split("=")
        counts = counted(Path(folder, f"{name}.xml"))
        if status != "0" and not counts["failed"]:
            counts["failed"] += 1
        print(f"{name:10} {in_words(counts) if counts else 'no test was run'}")
        total += counts
    print(in_words(total))


if __name__ == "__main__":
    main(*sys.argv[1:])
