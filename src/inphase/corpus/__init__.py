"""Corpora: any number of videos as a store of embeddings, on one machine or many; search in it, alignment of all."""
