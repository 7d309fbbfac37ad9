"""Annotated collections: what is known of recordings, and how training draws from them."""
