"""What people do with it: embeddings in, a playback or a file out."""
