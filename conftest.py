"""What pytest collects: tests, and doctests of the package except of kernels that only load on CUDA devices."""

collect_ignore_glob = [
    "src/inphase/align/triton/*",
    "src/inphase/__main__.py",
    # Programs that tests start or people run.
    "tests/corpus/ray_cluster.py",
    "tests/viewer/screenshots.py",
]
