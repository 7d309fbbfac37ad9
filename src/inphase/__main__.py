"""Run the command line as `python -m inphase`, as torchrun does."""

from inphase.cli import main

if __name__ == "__main__":
    main()
