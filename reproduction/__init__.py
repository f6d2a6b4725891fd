"""The papers' tables and figures at their size: units of work, results, verdicts."""
