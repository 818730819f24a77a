"""Run the command line by `python -m gedikit`."""

from gedikit.cli import main

if __name__ == "__main__":
    main()
