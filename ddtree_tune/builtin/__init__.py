"""The embedded engine: a small real target and drafter, decoded with DFlash and DDTree in NumPy."""
