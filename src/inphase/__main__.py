"""`python -m inphase` is `inphase`: what torchrun starts."""

from inphase.cli import main

if __name__ == "__main__":
    main()
