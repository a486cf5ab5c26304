"""Drive a backend as sglang's model runner and its CUDA-graph runners do, whatever the release.

Arguments are handed over by name, and only those that a release's method takes.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import torch

from rewriter.probes.equivalence.graph import Graph
from rewriter.probes.equivalence.serving import Batch, Call, Server, padded
from rewriter.probes.equivalence.tensors import Conversions, OnHost


def by_name(method: Callable[..., Any], **values: Any) -> Any:
    """Call ``method`` with those of ``values`` that it has parameters for."""
    takes = inspect.signature(method).parameters
    return method(**{name: value for name, value in values.items() if name in takes})


class Inputs:
    """The query and the new keys of every layer, in memory of their own.

    Layers take turns in how they hand them over: in two parts, or as one row.
    """

    def __init__(self, server: Server, tokens: int) -> None:
        self._server = server
        shape = server.shape
        self.q = server.numbers(shape.layers, tokens, shape.heads, shape.width)
        self.k = server.numbers(shape.layers, tokens, 1, shape.width)

    def refill(self, tokens: int) -> None:
        """Put new numbers in place for the first ``tokens`` tokens."""
        for tensor in (self.q, self.k):
            tensor[:, :tokens] = self._server.numbers(*tensor[:, :tokens].shape)

    def forward(self, backend: Any, forward_batch: Any, tokens: int) -> list[Any]:
        """Run all layers; return what each returned."""
        shape = self._server.shape
        decode = forward_batch.forward_mode.is_decode_or_idle()
        method = backend.forward_decode if decode else backend.forward_extend
        outputs = []
        for layer in self._server.layers:
            q, k = self.q[layer.layer_id, :tokens], self.k[layer.layer_id, :tokens]
            nope, rope = k[..., : shape.rank], k[..., shape.rank :]
            parts: dict[str, Any] = {"q": q, "k": k, "v": nope}
            if layer.layer_id % 2 == 0:
                parts = {
                    "q": q[..., : shape.rank].contiguous(), "k": nope, "v": nope,
                    "q_rope": q[..., shape.rank :].contiguous(), "k_rope": rope,
                }  # fmt: skip
            outputs.append(by_name(method, layer=layer, forward_batch=forward_batch, **parts))
        return outputs


def eager(server: Server, backend: Any, batch: Batch) -> None:
    """Run one step without graphs and record it."""
    forward_batch = server.forward_batch(batch)
    with OnHost():
        backend.init_forward_metadata(forward_batch)
    run(server, backend, forward_batch, batch)


def run(server: Server, backend: Any, forward_batch: Any, batch: Batch) -> None:
    """Run the layers of a step that is planned already, and record each."""
    tokens = sum(batch.tokens)
    inputs = Inputs(server, tokens)
    with OnHost(), Conversions() as conversions:
        outputs = inputs.forward(backend, forward_batch, tokens)
    record(server, outputs, [sum(batch.reads)], conversions)


def record(
    server: Server, outputs: Sequence[Any], listed: Sequence[int], conversions: Conversions
) -> None:
    """Note one call a run of the attention kernel.

    Args:
        server: where to note it.
        outputs: what each layer returned.
        listed: the rows that each run referred to; the last one holds for all that follow.
        conversions: the counter that was on meanwhile.
    """
    width = server.shape.packed_width or server.shape.width
    runs = conversions.before_runs or [conversions.elements] * len(outputs)
    kernels = max(1, len(runs) // max(1, len(outputs)))  # of a layer
    marks = runs[kernels - 1 :: kernels]
    for at, (output, before, mark) in enumerate(zip(outputs, [0, *marks], marks, strict=False)):
        whole = torch.cat([part.flatten().float() for part in output]) if isinstance(
            output, tuple
        ) else output  # fmt: skip
        rows = listed[min(at, len(listed) - 1)]
        server.calls.append(Call(whole.clone(), rows, (mark - before) / width))


class GraphRunner:
    """Capture one graph for every batch size, then replay batches on them.

    The buffers that graphs read are written in place: as in sglang, request rows and positions of
    idle lanes keep what an earlier batch left there, and their lengths get the fill value.
    """

    def __init__(self, server: Server, backend: Any, sizes: Sequence[int], like: Batch) -> None:
        self.server, self.backend, self.like = server, backend, like
        self.per_lane = like.window or 1
        lanes = max(sizes)
        tokens = lanes * self.per_lane
        self.fill = self._fill_value()
        self.req_pool_indices = torch.zeros(lanes, dtype=torch.int64)
        self.seq_lens = torch.full((lanes,), self.fill, dtype=torch.int64)
        self.seq_lens_cpu = self.seq_lens.clone()
        self.positions = torch.zeros(tokens, dtype=torch.int64)
        self.out_cache_loc = torch.zeros(tokens, dtype=torch.int64)
        self.inputs = Inputs(server, tokens)
        self.graphs: dict[int, tuple[Graph, list[Any]]] = {}
        with OnHost():
            by_name(backend.init_cuda_graph_state, max_bs=lanes, max_num_tokens=tokens)
            for size in sorted(sizes, reverse=True):
                self._capture(size)

    def _fill_value(self) -> int:
        value: int = self.backend.get_cuda_graph_seq_len_fill_value()
        return value

    def _static(self, lanes: int, lengths_sum: int) -> SimpleNamespace:
        batch = Batch(
            self.like.kind, (self.like.window,) * lanes, window=self.like.window,
            spec=self.like.spec,
        )  # fmt: skip
        view = self.server.forward_batch(batch)
        view.req_pool_indices = self.req_pool_indices[:lanes]
        view.seq_lens = self.seq_lens[:lanes]
        view.seq_lens_cpu = self.seq_lens_cpu[:lanes]
        view.seq_lens_sum = lengths_sum
        view.positions = self.positions[: lanes * self.per_lane]
        view.out_cache_loc = self.out_cache_loc[: lanes * self.per_lane]
        return view

    def _capture(self, lanes: int) -> None:
        view = self._static(lanes, self.fill * lanes)
        self._plan(view, lanes, capture=True)
        self._forward(view, lanes)  # the warm-up, which is not part of the graph
        with Graph() as graph:
            outputs = self._forward(view, lanes)
        self.graphs[lanes] = graph, outputs

    def _forward(self, view: Any, lanes: int) -> list[Any]:
        return self.inputs.forward(self.backend, view, lanes * self.per_lane)

    def _plan(self, view: Any, lanes: int, capture: bool) -> None:
        if hasattr(self.backend, "init_forward_metadata_out_graph"):
            self.backend.init_forward_metadata_out_graph(view, in_capture=capture)
            return
        what = "capture" if capture else "replay"
        by_name(
            getattr(self.backend, f"init_forward_metadata_{what}_cuda_graph"),
            bs=lanes,
            num_tokens=lanes * self.per_lane,
            req_pool_indices=view.req_pool_indices,
            seq_lens=view.seq_lens,
            seq_lens_sum=view.seq_lens_sum,
            encoder_lens=None,
            forward_mode=view.forward_mode,
            spec_info=view.spec_info,
            seq_lens_cpu=view.seq_lens_cpu,
            forward_batch=view,
        )

    def replay(self, batch: Batch) -> None:
        """Replay ``batch`` on the smallest graph that holds it, and record the real lanes."""
        real = len(batch.lengths)
        lanes = min(size for size in self.graphs if size >= real)
        given = self.server.forward_batch(batch)
        tokens = real * self.per_lane
        self.seq_lens.fill_(self.fill)
        self.seq_lens_cpu.fill_(self.fill)
        self.out_cache_loc.zero_()
        self.req_pool_indices[:real] = given.req_pool_indices
        self.seq_lens[:real] = given.seq_lens
        self.seq_lens_cpu[:real] = given.seq_lens_cpu
        if batch.spec == "dflash":  # its host lengths count the window
            self.seq_lens_cpu += batch.window
        self.positions[:tokens] = given.positions
        self.out_cache_loc[:tokens] = given.out_cache_loc
        self.inputs.refill(tokens)
        graph, outputs = self.graphs[lanes]
        with OnHost():
            view = self._static(lanes, sum(batch.lengths) + self.fill * (lanes - real))
            self._plan(view, lanes, capture=False)
        with Conversions() as conversions:
            graph.replay()
        kept = [_head(output, tokens) for output in outputs]
        record(self.server, kept, self._listed(batch, lanes), conversions)

    def _listed(self, batch: Batch, lanes: int) -> list[int]:
        return [sum(padded(batch, lanes, self.fill).reads)]


class DraftRunner(GraphRunner):
    """The same for a multi-step draft: one graph runs all steps, each with a backend of its own."""

    def _fill_value(self) -> int:
        value: int = self.backend.attn_backends[0].get_cuda_graph_seq_len_fill_value()
        return value

    def _forward(self, view: Any, lanes: int) -> list[Any]:
        return draft_steps(self.backend, self.inputs, view, lanes)

    def _listed(self, batch: Batch, lanes: int) -> list[int]:
        layers = self.server.shape.layers
        first = int(self.positions[:lanes].sum())
        steps = range(1, self.backend.speculative_num_steps)
        return [first + lanes * step for step in steps for _ in range(layers)]


def draft_steps(backend: Any, inputs: Inputs, view: Any, tokens: int) -> list[Any]:
    """Run every step of a multi-step draft that is planned already."""
    outputs = []
    for step in range(backend.speculative_num_steps - 1):
        outputs += inputs.forward(backend.attn_backends[step], view, tokens)
    return outputs


def eager_draft(server: Server, backend: Any, batch: Batch) -> None:
    """Plan and run all steps of a multi-step draft without graphs, and record them."""
    view = server.forward_batch(batch)
    tokens = sum(batch.tokens)
    with OnHost():
        backend.init_forward_metadata(view)
    inputs = Inputs(server, tokens)
    with OnHost(), Conversions() as conversions:
        outputs = draft_steps(backend, inputs, view, tokens)
    record(server, outputs, [sum(batch.lengths)], conversions)


def _head(output: Any, tokens: int) -> Any:
    if isinstance(output, tuple):
        return tuple(part[:tokens] for part in output)
    return output[:tokens]
