"""GPU kernels in Triton; imported on CUDA devices only."""
