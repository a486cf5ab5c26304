"""Run the modes on both copies of a release and compare them: the logic of ``verify``."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable

import torch

from rewriter.probes.equivalence.externals import MissingStandIn
from rewriter.probes.equivalence.loading import load_companion, load_target, on_a_gpu
from rewriter.probes.equivalence.modes import SCENARIOS, Expect, Scenario
from rewriter.probes.equivalence.paged_modes import PAGED_SCENARIOS
from rewriter.probes.equivalence.rows import ModeRow
from rewriter.probes.equivalence.serving import Call, Server
from rewriter.probes.equivalence.tensors import OnHost, same_bits


def definitions(source: bytes) -> dict[str, frozenset[str]]:
    """Return every name that occurs in each class and method of a file."""
    found: dict[str, frozenset[str]] = {}
    for node in ast.parse(source).body:
        if isinstance(node, ast.ClassDef):
            found[node.name] = _names(node)
            for inner in node.body:
                if isinstance(inner, ast.FunctionDef):
                    found[f"{node.name}.{inner.name}"] = _names(inner)
    return found


def _names(node: ast.AST) -> frozenset[str]:
    names = (
        inner.attr if isinstance(inner, ast.Attribute) else inner.id
        for inner in ast.walk(node)
        if isinstance(inner, (ast.Attribute, ast.Name))
    )  # fmt: skip
    return frozenset(names)


def missing(scenario: Scenario, defined: dict[str, frozenset[str]]) -> str:
    """Return what a release lacks for ``scenario``, or nothing."""
    for places, name in scenario.needs:
        here = [defined[place] for place in places if place in defined]
        if not any(not name or names & set(name.split("|")) for names in here):
            return name or places[-1]
    return ""


def play(
    scenario: Scenario, source: bytes, companion: bytes | None, triton: bool = False
) -> Server:
    """Run a mode on one copy of the file and return the server that recorded it.

    Args:
        scenario: the mode.
        source: the file; a patched one if ``companion`` is given.
        companion: what the patched file imports.
        triton: whether its Triton kernels run, which then need Triton's interpreter; what they
            convert is not counted.
    """
    module = None
    if companion is not None:
        module = load_companion(companion, switch=scenario.switch, triton=triton)
        if scenario.gpu:
            on_a_gpu(module)
    with OnHost():
        target = load_target(source, scenario.server.names(scenario.settings), module)
        server = scenario.server(target, scenario.shape, scenario.settings, module)
        scenario.run(server)
    return server


def compare(scenario: Scenario, original: Server, patched: Server) -> ModeRow:
    """Judge two runs of one mode."""
    layers = scenario.shape.layers
    before = round(sum(call.converted for call in original.calls))
    after = round(sum(call.converted for call in patched.calls))
    listed = sum(call.listed for call in patched.calls)
    said = "equal" if scenario.expect is not Expect.UNTOUCHED else "untouched"
    complaint = ""
    if len(original.calls) != len(patched.calls):
        complaint = f"{len(original.calls)} calls, patched {len(patched.calls)}"
    for at, (one, other) in enumerate(zip(original.calls, patched.calls, strict=False)):
        fault = _fault(scenario, one, other)
        if fault:
            complaint = f"step {at // layers}, layer {at % layers}: {fault}"
            break
    return ModeRow(
        scenario.name, "differs" if complaint else said, before, after, listed, complaint
    )


def _fault(scenario: Scenario, one: Call, other: Call) -> str:
    """Return what is wrong with one run of the patched copy, or nothing."""
    if not same_bits(one.output, other.output):
        return "other bits"
    rows = f"{other.converted:g} rows converted"
    if scenario.expect is Expect.UNTOUCHED and one.converted != other.converted:
        return f"{rows}, {one.converted:g} before"
    if scenario.expect is Expect.NO_MORE and other.converted > one.converted:
        return f"{rows}, {one.converted:g} before"
    if scenario.expect is Expect.FEWER:
        bound = min(other.listed, scenario.shape.rows)
        if other.converted > bound:
            return f"{rows}, expected at most {bound}"
        if one.converted != scenario.shape.rows:
            return f"the original converted {one.converted:g} rows, not the pool"
    return ""


def examine(
    scenario: Scenario,
    original: bytes,
    patched: bytes,
    companion: bytes,
    defined: dict[str, frozenset[str]] | None = None,
) -> ModeRow:
    """Run one mode on both copies and judge it."""
    lacking = missing(scenario, definitions(original) if defined is None else defined)
    if lacking:
        return ModeRow(scenario.name, "not in this release", detail=f"no {lacking}")
    try:
        before = play(scenario, original, None)
    except Exception as error:  # the release does what has no stand-in: nothing is known
        return ModeRow(scenario.name, "not run", detail=f"the original: {_line(error)}")
    try:
        after = play(scenario, patched, companion)
    except MissingStandIn as error:
        return ModeRow(scenario.name, "not run", detail=str(error))
    except Exception as error:
        return ModeRow(scenario.name, "differs", detail=f"patched: {_line(error)}")
    return compare(scenario, before, after)


def scenarios_of(codemod: str) -> tuple[Scenario, ...]:
    """Return the modes that prove a codemod."""
    return {"mla_kv_gather": SCENARIOS, "fa3_kv_gather": PAGED_SCENARIOS}[codemod]


def verify(
    original: bytes,
    patched: bytes,
    companion: bytes,
    scenarios: Iterable[Scenario] = SCENARIOS,
    told: Callable[[ModeRow], None] = lambda row: None,
) -> tuple[ModeRow, ...]:
    """Prove a patched release on the CPU, mode by mode.

    Args:
        original: the backend's file as the release has it.
        patched: the same with the codemod's sites.
        companion: the module that the codemod brings along.
        scenarios: the modes; all by default.
        told: is given each row as soon as it is known.

    Returns:
        One row a mode, in order.
    """
    defined = definitions(original)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # the tensors are tiny
    rows = []
    try:
        for scenario in scenarios:
            rows.append(examine(scenario, original, patched, companion, defined))
            told(rows[-1])
    finally:
        torch.set_num_threads(threads)
    return tuple(rows)


def _line(error: Exception) -> str:
    first = str(error).partition("\n")[0]
    return f"{type(error).__name__}: {first}"
