"""stub"""
from typing import Any
VARIANTS = ("naive", "queue", "classes", "split", "batched", "direction", "persistent", "block")
PUSH_ONLY = VARIANTS[:5]
def block_bytes(n: int, arcs: int) -> int: return 0
def why_not_block(n: int, arcs: int, direction: str, trace: bool) -> Any: return None
def search(*a: Any) -> Any: raise NotImplementedError
