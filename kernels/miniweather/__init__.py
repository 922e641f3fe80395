"""Dry compressible flow in a vertical plane: seven kernels, a host program, a driver, a reference."""
