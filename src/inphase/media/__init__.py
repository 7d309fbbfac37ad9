"""Files ⇄ tensors: the only place that touches a codec."""
