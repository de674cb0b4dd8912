"""Sparse direct solver: formats -> analysis -> numeric -> solve. The plan of the room is ``docs/sparse.md``."""
