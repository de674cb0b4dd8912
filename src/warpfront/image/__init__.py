"""Image edges: gray, Gaussian blur, Sobel and threshold, fused or stage by stage, and a streaming pipeline."""

from warpfront.image.edges import edges, explain_edges, gaussian_blur, gray, sobel, sobel_edges
from warpfront.image.pipeline import EdgePipeline
from warpfront.image.pipeline_record import PipelineRecord
from warpfront.image.weights import gaussian_weights

__all__ = [
    "EdgePipeline",
    "PipelineRecord",
    "edges",
    "explain_edges",
    "gaussian_blur",
    "gaussian_weights",
    "gray",
    "sobel",
    "sobel_edges",
]
