"""``python -m reproduction``: run the papers' tables and figures again."""

from margindist.cli import main


def _command():
    from reproduction.command import reproduce

    return reproduce


if __name__ == "__main__":
    main(load=_command, program="python -m reproduction")
