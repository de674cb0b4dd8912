"""Solves with a factor: triangular sweeps over the tree, iterative refinement, condition estimate."""
