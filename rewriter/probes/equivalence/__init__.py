"""Equivalence: the patched backend gives the same bits as the original, with fewer rows converted.

Everything runs on the CPU, with neither sglang nor FlashInfer installed: the release's own file
is loaded among stand-ins (``loading``, ``externals``), served by a stand-in server (``serving``,
``driving``, ``graph``) in every mode of a table (``scenarios``), twice, and compared
(``verifying``). All but this module needs torch.
"""

from __future__ import annotations
