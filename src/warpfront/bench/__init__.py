"""Proof and measurement of what the rooms compute."""
