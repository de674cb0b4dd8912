"""Where work runs, and nothing about what it computes."""
