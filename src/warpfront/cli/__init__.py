"""Command line: one cheap module per command, found through the table in `warpfront.cli.main`."""
