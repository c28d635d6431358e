"""NVML without a GPU, for processes that ask it."""
