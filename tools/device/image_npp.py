"""The chain in NPP, as its own calls, for image_measure.py beside it: four calls an image, replicated borders."""

from __future__ import annotations

import ctypes
from pathlib import Path

FOLDER = Path("/usr/local/cuda/lib64")
REPLICATE, MASK_3, MASK_5, L1, GREATER = 2, 200, 201, 1, 4


class Size(ctypes.Structure):
    _fields_ = (("width", ctypes.c_int), ("height", ctypes.c_int))


class Context(ctypes.Structure):
    _fields_ = (
        ("stream", ctypes.c_void_p),
        ("device", ctypes.c_int),
        ("multiprocessors", ctypes.c_int),
        ("threads_per_multiprocessor", ctypes.c_int),
        ("threads_per_block", ctypes.c_int),
        ("shared_bytes", ctypes.c_size_t),
        ("major", ctypes.c_int),
        ("minor", ctypes.c_int),
        ("flags", ctypes.c_uint),
        ("reserved", ctypes.c_int),
    )


def at(address):
    return ctypes.c_void_p(int(address))


def checked(code):
    if code != 0:
        raise RuntimeError(f"NPP returned {code}")


def npp_calls(bench):
    """Return a call that takes every image of the batch through NPP; it raises when a library is not here."""
    import cupy

    from warpfront.backend import capability

    libraries = {name: ctypes.CDLL(str(FOLDER / f"libnpp{name}.so")) for name in ("c", "icc", "if", "itc")}
    gray = libraries["icc"].nppiRGBToGray_8u_C3C1R_Ctx
    blur = libraries["if"].nppiFilterGaussBorder_8u_C1R_Ctx
    sobel = libraries["if"].nppiGradientVectorSobelBorder_8u16s_C1R_Ctx
    compare = libraries["itc"].nppiCompareC_16s_C1R_Ctx
    have, pixels = capability.probe(0), bench.pixels
    width, height = pixels.width, pixels.height
    size, origin, none = Size(width, height), Size(0, 0), ctypes.c_void_p(0)
    flat, soft = cupy.zeros(width * height, cupy.uint8), cupy.zeros(width * height, cupy.uint8)
    magnitude = cupy.zeros(width * height, cupy.int16)
    source, target = bench.sources[0].data.ptr, bench.outs[0].data.ptr

    def call(stream):
        context = Context(
            stream,
            0,
            have.sm_count,
            have.threads_per_sm,
            1024,
            have.shared_bytes,
            have.cc_major,
            have.cc_minor,
            1,
            0,
        )
        for k in range(pixels.batch):
            image, out = at(source + k * pixels.batch_stride), at(target + k * width * height)
            checked(gray(image, 3 * width, at(flat.data.ptr), width, size, context))
            checked(
                blur(
                    at(flat.data.ptr),
                    width,
                    size,
                    origin,
                    at(soft.data.ptr),
                    width,
                    size,
                    MASK_5,
                    REPLICATE,
                    context,
                )
            )
            checked(
                sobel(
                    at(soft.data.ptr), width, size, origin, none, 0, none, 0, at(magnitude.data.ptr), 2 * width, none, 0,
                    size, MASK_3, L1, REPLICATE, context,
                )
            )  # fmt: skip
            checked(
                compare(
                    at(magnitude.data.ptr), 2 * width, ctypes.c_int16(100), out, width, size, GREATER, context
                )
            )

    return call
