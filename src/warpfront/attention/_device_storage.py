"""Memory of a paged cache on a GPU: address space for all pages, memory behind the blocks in use.

CUDA's virtual memory management maps physical granules (2 MiB on today's devices) into a reserved range. Blocks of pages
need not end where granules do, so each granule counts the blocks that lie in it; it is mapped with the first and unmapped
with the last. The first page is always mapped: a lane of a kernel that has nothing to load points there, and even a copy
of no bytes wants a valid address. Addresses never change: kernels, CUDA graphs and tensors keep theirs while the pool
grows and shrinks.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Protocol

from warpfront.attention._problem import ITEMSIZE
from warpfront.errors import NotSupportedError

__all__ = ["DeviceStorage", "Granules", "Mapper"]

_TYPES = {"float16": "<f2", "bfloat16": "<i2", "float32": "<f4"}


class Mapper(Protocol):
    """What maps one granule of a reserved range; the driver, or a stand-in where there is none."""

    def map(self, index: int) -> None:
        """Put memory behind a granule. Raises `NotSupportedError` where there is none left."""

    def unmap(self, index: int) -> None:
        """Take it back."""


class Granules:
    """Which granules of one range are mapped, counted by the spans of bytes that need them."""

    def __init__(self, mapper: Mapper, granule_bytes: int) -> None:
        self._mapper = mapper
        self._bytes = granule_bytes
        self._users: dict[int, int] = {}

    @property
    def mapped_bytes(self) -> int:
        """Bytes of mapped granules."""
        return len(self._users) * self._bytes

    def need(self, begin: int, end: int) -> None:
        """Map what bytes [begin, end) lie in; all of it, or nothing and an error."""
        fresh: list[int] = []
        try:
            for index in self._indices(begin, end):
                if index not in self._users:
                    self._mapper.map(index)
                    fresh.append(index)
        except NotSupportedError:
            for index in fresh:
                self._mapper.unmap(index)
            raise
        for index in self._indices(begin, end):
            self._users[index] = self._users.get(index, 0) + 1

    def drop(self, begin: int, end: int) -> None:
        """Unmap what nothing needs once bytes [begin, end) are no longer needed."""
        for index in self._indices(begin, end):
            self._users[index] -= 1
            if not self._users[index]:
                del self._users[index]
                self._mapper.unmap(index)

    def _indices(self, begin: int, end: int) -> Iterator[int]:
        return iter(range(begin // self._bytes, -(-end // self._bytes)))


class _Range:
    """A reserved range of addresses of one device, as an array that torch can take over; freed with its last user."""

    def __init__(self, device: int, size: int, dtype: str, shape: tuple[int, ...]) -> None:
        self._driver = _driver()
        self._property = _property(self._driver, device)
        kind = self._driver.CUmemAllocationGranularity_flags.CU_MEM_ALLOC_GRANULARITY_MINIMUM
        self.granule_bytes = int(_checked(self._driver.cuMemGetAllocationGranularity(self._property, kind)))
        self._size = -(-size // self.granule_bytes) * self.granule_bytes
        self._handles: dict[int, Any] = {}
        try:
            self._base = int(_checked(self._driver.cuMemAddressReserve(self._size, 0, 0, 0)))
        except RuntimeError as error:
            raise NotSupportedError(f"no address space for {size} bytes of pages: {error}") from error
        self.__cuda_array_interface__ = {
            "shape": shape,
            "typestr": _TYPES[dtype],
            "data": (self._base, False),
            "version": 3,
        }

    def map(self, index: int) -> None:
        """See `Mapper`."""
        driver, at = self._driver, self._base + index * self.granule_bytes
        try:
            handle = self._create()
        except RuntimeError as error:
            raise NotSupportedError(f"the GPU has no memory left for pages: {error}") from error
        _checked(driver.cuMemMap(at, self.granule_bytes, 0, handle, 0))
        access = driver.CUmemAccessDesc()
        access.location = self._property.location
        access.flags = driver.CUmemAccess_flags.CU_MEM_ACCESS_FLAGS_PROT_READWRITE
        _checked(driver.cuMemSetAccess(at, self.granule_bytes, [access], 1))
        self._handles[index] = handle

    def unmap(self, index: int) -> None:
        """See `Mapper`."""
        handle = self._handles.pop(index)
        _checked(self._driver.cuMemUnmap(self._base + index * self.granule_bytes, self.granule_bytes))
        _checked(self._driver.cuMemRelease(handle))

    def _create(self) -> Any:
        """Physical memory of one granule; torch's cache of free memory is given back before this is refused."""
        try:
            return _checked(self._driver.cuMemCreate(self.granule_bytes, self._property, 0))
        except RuntimeError:
            import torch

            torch.cuda.empty_cache()
            return _checked(self._driver.cuMemCreate(self.granule_bytes, self._property, 0))

    def __del__(self) -> None:
        base = getattr(self, "_base", 0)
        if base:
            for index in list(self._handles):
                self.unmap(index)
            self._driver.cuMemAddressFree(base, self._size)


class DeviceStorage:
    """See `warpfront.attention._storage.PageStorage`."""

    def __init__(self, dtype: str, shape: tuple[int, int, int, int], block_pages: int) -> None:
        try:
            import torch
        except ImportError as error:
            raise NotSupportedError(
                'a cache on a GPU needs PyTorch: pip install "warpfront[torch]"'
            ) from error
        if not torch.cuda.is_available():
            raise NotSupportedError("a cache on a GPU needs an NVIDIA GPU, and PyTorch sees none")
        torch.cuda.init()
        device = torch.cuda.current_device()
        torch.empty(1, device=f"cuda:{device}")  # makes the device's context current
        page_bytes = shape[1] * shape[2] * shape[3] * ITEMSIZE[dtype]
        self._block_bytes, self._bytes = block_pages * page_bytes, shape[0] * page_bytes
        self._device = device
        ranges = [_Range(device, self._bytes, dtype, shape) for _ in range(2)]
        self.granule_bytes = ranges[0].granule_bytes
        self._granules = [Granules(r, self.granule_bytes) for r in ranges]
        for granules in self._granules:
            granules.need(0, min(page_bytes, self._bytes))
        self.k, self.v = (self._tensor(memory, dtype) for memory in ranges)

    def _tensor(self, memory: _Range, dtype: str) -> Any:
        """The whole range as a tensor; torch asks the driver about the first address, so memory must be there."""
        import torch

        found = torch.as_tensor(memory, device=f"cuda:{self._device}")
        return found.view(torch.bfloat16) if dtype == "bfloat16" else found

    def commit(self, block: int) -> None:
        """See `PageStorage`."""
        bounds = self._bounds(block)
        self._granules[0].need(*bounds)
        try:
            self._granules[1].need(*bounds)
        except NotSupportedError:
            self._granules[0].drop(*bounds)
            raise

    def release(self, block: int) -> None:
        """See `PageStorage`."""
        import torch

        torch.cuda.synchronize(self._device)
        for granules in self._granules:
            granules.drop(*self._bounds(block))

    def resident_bytes(self) -> int:
        """See `PageStorage`."""
        return sum(granules.mapped_bytes for granules in self._granules)

    def _bounds(self, block: int) -> tuple[int, int]:
        return min(self._bytes, block * self._block_bytes), min(self._bytes, (block + 1) * self._block_bytes)


def _driver() -> Any:
    try:
        from cuda.bindings import driver
    except ImportError as error:
        raise NotSupportedError(
            'a cache on a GPU needs cuda-bindings: pip install "warpfront[torch]"'
        ) from error
    _checked(driver.cuInit(0))
    return driver


def _property(driver: Any, device: int) -> Any:
    """Pinned memory of one device."""
    found = driver.CUmemAllocationProp()
    found.type = driver.CUmemAllocationType.CU_MEM_ALLOCATION_TYPE_PINNED
    found.location.type = driver.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE
    found.location.id = device
    return found


def _checked(result: tuple[Any, ...]) -> Any:
    """Return what a driver call gave beside its code; raises ``RuntimeError`` with the code's name."""
    code, *rest = result
    if int(code) != 0:
        raise RuntimeError(str(code))
    return rest[0] if rest else None
