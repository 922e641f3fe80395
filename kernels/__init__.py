"""Applications whose kernels r3bench ships captures of."""
