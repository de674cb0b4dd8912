"""Benchmarks: what is measured, against whom. ``warpfront bench`` runs them in a clone of the repository."""
