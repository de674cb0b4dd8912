"""``warpfront cache``: the compiled GPU kernels kept on disk."""

from __future__ import annotations

import typer

__all__ = ["app"]

app = typer.Typer(
    help="Show or clear the compiled GPU kernels kept on disk.", no_args_is_help=True, add_completion=False
)


@app.command()
def info() -> None:
    """Show where the cache is, how much it holds and how much it may hold."""
    from warpfront.backend.cache import default

    found = default().info()
    typer.echo(f"folder   {found.path}")
    typer.echo(f"entries  {found.entries}")
    typer.echo(f"size     {found.bytes / 2**20:.1f} MiB of at most {found.cap_bytes / 2**20:.0f} MiB")


@app.command()
def clear() -> None:
    """Remove every entry; kernels are compiled anew when they are next used."""
    from warpfront.backend.cache import default

    typer.echo(f"removed {default().clear()} entries")


@app.command()
def path() -> None:
    """Print the folder."""
    from warpfront.backend.cache import default

    typer.echo(str(default().folder))
