"""Elements and pool rows out of a launch geometry: exact, without shapes, in CUDA graphs too.

torch's ``unrolled_elementwise_kernel`` gives each thread four elements, so that a grid tells the
count of elements to within a block's worth; of a pool of rows it tells the rows exactly, because
a row is longer than that.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from math import prod

from rewriter.probes.trace.recording import Shape

WORK = 4
"""Elements a thread (``thread_work_size()``), unless the kernel's template says another number."""

ROW = 576
"""Values of an MLA pool row (512 + 64) in every model known here; a config can say otherwise."""

_WORK_ARGUMENT = re.compile(r"array<char\s*\*\s*, \d+u?l*>, (\d+),")


@dataclass(frozen=True)
class Elements:
    """Elements of one call, known to within a block.

    Attributes:
        least, most: the range, both included.
        width: values of a row.
        rows: the rows that fit the range; None if no multiple of the width lies in it.
    """

    least: int
    most: int
    width: int

    @property
    def rows(self) -> int | None:
        rows = self.most // self.width
        return rows if rows and rows * self.width >= self.least else None

    @property
    def count(self) -> int:
        """Elements of whole rows, or at most so many."""
        return self.most if self.rows is None else self.rows * self.width


def elements_of(name: str, grid: Shape, block: Shape, width: int = ROW) -> Elements | None:
    """Return the elements of one call, or None without a geometry (older traces, some tools)."""
    if not grid or not block:
        return None
    found = _WORK_ARGUMENT.search(name)
    per_block = prod(block) * (int(found[1]) if found else WORK)
    blocks = prod(grid)
    if blocks <= 0 or per_block <= 0:
        return None
    return Elements((blocks - 1) * per_block + 1, blocks * per_block, width)


def blocks_of(rows: int, width: int = ROW, threads: int = 128) -> int:
    """Return the blocks with which a copy of so many rows is launched."""
    return -(-rows * width // (threads * WORK))
