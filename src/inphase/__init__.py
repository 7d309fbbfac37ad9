"""Temporal alignment of videos of the same action."""
