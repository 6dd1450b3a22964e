"""Lets `python -m composable_memory.cli` run the command line."""

from composable_memory.cli import main

if __name__ == "__main__":
    main()
