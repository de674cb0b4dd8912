"""The symmetric solver on the GPU: plan, factorisation, solve (docs/sparse_gpu.md)."""
