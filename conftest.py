"""What pytest collects: doctests of the package, except of kernels that only load on CUDA devices."""

collect_ignore_glob = ["src/inphase/align/triton/*", "src/inphase/__main__.py"]
