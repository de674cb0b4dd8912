"""Edges of a stream of frames: one call for one image, a pipeline for many.

Run: python examples/edge_stream.py
"""

from pathlib import Path

import numpy as np
from PIL import Image

from warpfront.image import EdgePipeline, edges

PICTURE = Path(__file__).parent / "data" / "chelsea.png"


def frames(count):
    """A camera that pans over the picture: regions of interest of one array, none of them copied."""
    picture = np.asarray(Image.open(PICTURE))
    for k in range(count):
        left = round((picture.shape[1] - 320) * k / (count - 1))
        yield picture[30:270, left : left + 320]


def main(count=50):
    """Find the edges of all frames; return the share of edge pixels in each, and the run's record."""
    pipeline = EdgePipeline(sigma=1.4, threshold=60, border="clamp")
    shares = [float((found == 255).mean()) for found in pipeline.run(frames(count))]
    record = pipeline.record
    print(
        f"{record.images} frames on {record.device}: {100 * min(shares):.1f} to {100 * max(shares):.1f} % are edges"
    )
    late = 1e3 * record.latency_p99_seconds
    print(f"{record.images_per_second:.0f} frames a second, P99 of a frame {late:.1f} ms")

    # The same pixels alone, and in one batch: the same bits.
    first = next(frames(count))
    alone = edges(first, sigma=1.4, threshold=60, border="clamp")
    batch = edges(np.stack(list(frames(count))), sigma=1.4, threshold=60, border="clamp")
    assert np.array_equal(alone, batch[0])
    return shares, record


if __name__ == "__main__":
    main()
