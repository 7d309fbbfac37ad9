"""Files ⇄ tensors: the only place that touches a codec.

`frames` reads pictures, `audio` and `log_mel` sound, `pose` the joints of the person in view, all on one clock; `probe`
measures a file; `cache` and `pose_cache` fill stores of frames and poses, which `store` and `pose_store` read without
a codec; `render` writes synchronised videos.
"""
