"""Atomic files, locks, the cache and array stores: the lowest room, which imports nothing of the package."""
