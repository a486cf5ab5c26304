"""Stand-ins for what speculative decoding hands to a backend as ``spec_info``."""

from __future__ import annotations

from enum import Enum
from typing import Any

import torch

from rewriter.probes.equivalence.indices import create_flashinfer_kv_indices_triton


class SpecInputType(Enum):
    """The kinds that a backend tells apart."""

    EAGLE_DRAFT = "eagle draft"
    EAGLE_DRAFT_EXTEND = "eagle draft extend"
    EAGLE_VERIFY = "eagle verify"
    DFLASH_VERIFY = "dflash verify"
    NGRAM_VERIFY = "ngram verify"


class SpecInput:
    """What all kinds share; a plain draft has its row pointers and indices set step by step."""

    spec_input_type = SpecInputType.EAGLE_DRAFT
    ragged_verify_layout = None
    custom_mask = None
    kv_indptr: torch.Tensor
    kv_indices: torch.Tensor

    def is_draft_input(self) -> bool:
        """Return whether this is a draft's."""
        return self.spec_input_type in (
            SpecInputType.EAGLE_DRAFT,
            SpecInputType.EAGLE_DRAFT_EXTEND,
        )

    def is_verify_input(self) -> bool:
        """Return whether this is a verification's."""
        return not self.is_draft_input()

    def _window(self) -> int:
        """Return the tokens of a request that its length does not count yet."""
        return 0

    def _queries(self, requests: int) -> torch.Tensor:
        """Return (requests + 1,) int32, where each request's queries start."""
        raise NotImplementedError

    def generate_attn_arg_prefill(
        self,
        req_pool_indices: torch.Tensor,
        paged_kernel_lens: torch.Tensor,
        paged_kernel_lens_sum: int | None,
        req_to_token: torch.Tensor | None = None,
        *,
        translator: Any = None,
        kv_indices_buf: torch.Tensor | None = None,
        **more: Any,
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, None]:
        """Return fresh ``(kv_indices, kv_indptr, qo_indptr, custom_mask)``.

        The indices are as long as the host's sum says, which may be more than are used; written
        into ``kv_indices_buf``, all of it is returned.
        """
        if req_to_token is None:
            req_to_token = translator.req_to_token
        requests = req_pool_indices.shape[0]
        lengths = paged_kernel_lens + self._window()
        indptr = torch.zeros(requests + 1, dtype=torch.int32)
        indptr[1:] = lengths.cumsum(0)
        if kv_indices_buf is not None:
            indices = kv_indices_buf
        else:
            total = int(indptr[-1]) if paged_kernel_lens_sum is None else (
                paged_kernel_lens_sum + self._window() * requests
            )  # fmt: skip
            indices = torch.empty(total, dtype=torch.int32)
        fill = create_flashinfer_kv_indices_triton[(requests,)]
        fill(req_to_token, req_pool_indices, lengths, indptr, None, indices, req_to_token.shape[1])
        return indices, indptr, self._queries(requests), None


class EagleDraftInput(SpecInput):
    """Multi-step drafts; with ``accepted`` tokens a request, the extension of a draft by them."""

    def __init__(self, accepted: torch.Tensor | None = None, window: int = 0) -> None:
        if accepted is not None:
            self.spec_input_type = SpecInputType.EAGLE_DRAFT_EXTEND
            self.accept_length = self.num_correct_drafts = accepted
            self.num_tokens_per_req = window

    def _queries(self, requests: int) -> torch.Tensor:
        starts = torch.zeros(requests + 1, dtype=torch.int32)
        starts[1:] = self.accept_length[:requests].cumsum(0)
        return starts


class EagleVerifyInput(SpecInput):
    """A verification of ``window`` drafted tokens a request."""

    def __init__(self, window: int, kind: SpecInputType = SpecInputType.EAGLE_VERIFY) -> None:
        self.spec_input_type = kind
        self.draft_token_num = self.num_tokens_per_req = window

    def _window(self) -> int:
        return self.draft_token_num

    def _queries(self, requests: int) -> torch.Tensor:
        window = self.draft_token_num
        return torch.arange(0, (requests + 1) * window, window, dtype=torch.int32)
