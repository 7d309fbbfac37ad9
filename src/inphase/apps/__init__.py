"""Applications to video files: align, transfer labels, search, retrieve sound, activation maps, 3-D pose."""
