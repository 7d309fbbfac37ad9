"""Tools for people who work on the package; not part of it."""
