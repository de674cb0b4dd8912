"""``warpfront info``: what this installation is, and what it can run on."""

from __future__ import annotations

from typing import Annotated, Any

import typer

__all__ = ["info"]


def info(
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")] = False,
) -> None:
    """Show versions, the processor, and what GPU work would need."""
    found = _collect()
    if as_json:
        import json

        typer.echo(json.dumps(found, indent=2))
        return
    from warpfront.cli._machine import machine_rows, software_rows
    from warpfront.cli._rows import Section, print_sections

    caches = (("CPU", found["kernel_cache"]["cpu"]), ("GPU", found["kernel_cache"]["gpu"]))
    print_sections(
        [
            Section("Software", tuple(software_rows())),
            Section("CPU", tuple(machine_rows())),
            Section("Folders of compiled kernels", caches),
            Section("GPU", tuple(_gpu_rows(found["gpu"]))),
        ]
    )


def _collect() -> dict[str, Any]:
    from warpfront.backend import settings
    from warpfront.backend.capability import describe
    from warpfront.cli._machine import fingerprint
    from warpfront.cli._record import plain

    return {
        "machine": plain(fingerprint()),
        "kernel_cache": {"cpu": _cpu_kernel_cache(), "gpu": str(settings.cache_dir())},
        "gpu": plain(describe()),
    }


def _cpu_kernel_cache() -> str:
    """Folder that holds the compiled kernels of the sparse solver."""
    from pathlib import Path

    from warpfront.backend import jit
    from warpfront.formats import _canonical_kernels as kernels

    return str(Path(jit._folder(kernels.__name__, "")).parent)


def _gpu_rows(gpu: dict[str, Any]) -> list[tuple[str, str]]:
    rows = [("usable", "yes" if gpu["available"] else f"no: {gpu['reason']}")]
    present = [f"{name} {version}" for name, version in gpu["packages"].items() if version]
    rows.append(("packages", ", ".join(present) or "none"))
    rows.append(("NVRTC", gpu["nvrtc"] or "absent"))
    rows.append(("nvcc", gpu["nvcc"] or "absent"))
    for device in gpu["devices"]:
        total = device["total_bytes"] / 2**30
        rows.append(
            (
                f"device {device['device']}",
                f"compute capability {device['cc_major']}.{device['cc_minor']}, "
                f"{device['sm_count']} SMs, {total:.1f} GiB",
            )
        )
    return rows
