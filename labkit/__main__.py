"""The ``labkit`` command, which says what to install if the lab is missing."""

import sys


def main() -> None:
    """Run the command."""
    try:
        from labkit.lab.command import main as command
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] == "labkit":
            raise
        sys.exit(
            f"labkit: the command needs the lab, and {error.name} is not installed; "
            "'pip install \"labkit[lab]\"' brings all of it"
        )
    command()


if __name__ == "__main__":
    main()
