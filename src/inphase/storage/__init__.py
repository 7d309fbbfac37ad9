"""Files, locks, caches and stores: the lowest room, which imports nothing of the package."""
