"""Methods: one file each, the loss and the frames it wants."""
