"""What people do with it: each application takes embeddings or what was read, and gives a `Playback` or files."""
