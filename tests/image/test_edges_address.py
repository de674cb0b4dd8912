"""The kernels under the runner's second build: valid addresses, nothing undefined, the right result."""

import numpy as np
import pytest
from images_for_tests import random_image, reference

from warpfront.backend import simt
from warpfront.image import _edges_cuda as plans
from warpfront.image.layout import contiguous_pixels
from warpfront.image.operation import operation

pytestmark = pytest.mark.simt

CASES = [
    ("edges", {"sigma": 0, "threshold": 70, "border": "clamp"}, "packed", (21, 45), 3),
    ("edges", {"sigma": 1.5, "norm": "l2", "border": "zero"}, "packed", (9, 160), 4),
    ("edges", {"threshold": 30, "border": "wrap"}, "planar", (18, 33), 3),
    ("blur", {"sigma": 2.0, "border": "reflect"}, "gray", (17, 50), 1),
    ("sobel", {}, "gray", (11, 24), 1),
    ("gray", {}, "packed", (5, 37), 3),
]


@pytest.mark.parametrize(("stage", "options", "layout", "size", "channels"), CASES, ids=str)
def test_chain(stage, options, layout, size, channels):
    image = np.ascontiguousarray(random_image(*size, layout, channels))
    what, pixels = operation(stage, **options), contiguous_pixels(image.shape, layout)
    expected = reference(what, image, layout)
    pitch = size[1] * expected[0].itemsize
    planes = pixels.offsets[1] if pixels.planar else 0
    made = plans.plan(
        what,
        pixels,
        src_align=plans.alignment(pixels.pitch, planes),
        dst_align=plans.alignment(pitch),
        dst_pitch=pitch,
        dst_stride=0,
        tile=(32, 16, 64, 4),
    )
    outs = [np.zeros(want.nbytes, np.uint8) for want in expected]
    pointers = [*outs, np.zeros(16, np.uint8)][: made.outputs]
    kernel = simt.AddressSimt(made.source, [made.expression])
    flat = image.reshape(-1)[: pixels.high]
    kernel.launch(
        made.expression,
        made.grid,
        made.threads,
        [*pointers, flat, *made.tail],
        shared_bytes=made.shared_bytes,
    ).check()
    for out, want in zip(outs, expected, strict=True):
        np.testing.assert_array_equal(out.view(want.dtype).reshape(want.shape), want)
