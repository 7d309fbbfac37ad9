"""Files ⇄ arrays: the only room that touches a codec.

`frames` reads images and `audio` sound, both on the clock of the file; `decode` is the codec behind them; `probe`
measures a file and `listing` finds videos in folders; `frame_store` keeps decoded frames for training; `sampling`
chooses frames; `render` and `encode` write synchronized videos.
"""
