"""CUDA kernel sources run and checked on the host: see ``docs/proof.md``."""

from warpfront.backend.simt.address import AddressSimt
from warpfront.backend.simt.build import Build, BuildError, available, build, build_many
from warpfront.backend.simt.driver import In, Out, Simt, Struct
from warpfront.backend.simt.findings import Finding, Place, Report

__all__ = [
    "AddressSimt",
    "Build",
    "BuildError",
    "Finding",
    "In",
    "Out",
    "Place",
    "Report",
    "Simt",
    "Struct",
    "available",
    "build",
    "build_many",
]
