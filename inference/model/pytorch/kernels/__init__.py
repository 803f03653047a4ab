"""Kernels in the Triton language, for GPUs. Only these modules import the package `triton`."""
