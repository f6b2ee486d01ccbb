"""``python -m margindist`` is the command line."""

from margindist.cli import main

if __name__ == "__main__":
    main()
