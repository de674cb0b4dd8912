"""Numeric factorisation: the tree walk, the dense kernels of a front, memory and threads."""
