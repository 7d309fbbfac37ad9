"""Files ⇄ tensors: the only place that touches a codec.

`frames` reads pictures, `audio` and `log_mel` sound, both on one clock; `probe` measures a file; `cache` fills a
`store` of frames that is read without a codec; `render` writes synchronised videos.
"""
