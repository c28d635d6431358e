"""The kernels of a decode step besides SGLang's own: one program per request, or per node.

Suffixes as where they are launched: ``trees.py``, ``placing.py``, ``acceptance.py``.
"""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def _cost(log_probs, at, STEPS: tl.constexpr, WORST: tl.constexpr):
    cost = tl.floor(tl.load(log_probs + at) * -STEPS + 0.5)
    return tl.minimum(tl.where(cost > 0, cost, 0.0), WORST).to(tl.int64)  # no number, in padding, counts as 0


@triton.jit(do_not_specialize=["root_stride"])
def build(
    log_probs,
    tokens,
    roots,
    tokens_out,
    parents_out,
    depths_out,
    root_stride,
    DEPTH: tl.constexpr,
    TOPK: tl.constexpr,
    RANKS: tl.constexpr,
    BUDGET: tl.constexpr,
    SLOTS: tl.constexpr,
    NODE_BITS: tl.constexpr,
    RANK_BITS: tl.constexpr,
    DEPTH_BITS: tl.constexpr,
    STEPS: tl.constexpr,
    WORST: tl.constexpr,
):
    # A key is cost, depth, parent, rank, the dearest first: of equal costs the shallower node is taken first, then the
    # one with the earlier parent, then the better rank. No two are equal.
    NEVER: tl.constexpr = (1 << 63) - 1
    request = tl.program_id(0).to(tl.int64)
    log_probs += request * DEPTH * TOPK
    tokens += request * DEPTH * TOPK
    tokens_out += request * (BUDGET + 1)
    parents_out += request * (BUDGET + 1)
    depths_out += request * (BUDGET + 1)
    tl.store(tokens_out, tl.load(roots + request * root_stride))
    tl.store(parents_out, 0)
    tl.store(depths_out, 0)
    slot = tl.arange(0, SLOTS)
    best = (_cost(log_probs, 0, STEPS, WORST) << (DEPTH_BITS + NODE_BITS + RANK_BITS)) | (1 << (NODE_BITS + RANK_BITS))
    frontier = tl.where(slot == 0, best, NEVER)
    for node in range(1, BUDGET + 1):
        key = tl.min(frontier, 0)
        rank = key & ((1 << RANK_BITS) - 1)
        parent = (key >> RANK_BITS) & ((1 << NODE_BITS) - 1)
        depth = (key >> (RANK_BITS + NODE_BITS)) & ((1 << DEPTH_BITS) - 1)
        cost = key >> (RANK_BITS + NODE_BITS + DEPTH_BITS)
        place = (depth - 1) * TOPK + rank
        tl.store(tokens_out + node, tl.load(tokens + place))
        tl.store(parents_out + node, parent)
        tl.store(depths_out + node, depth)
        # Its next sibling takes its slot, its first child a new one.
        sibling = tl.minimum(rank + 1, RANKS - 1) - rank + place
        sibling_cost = cost + _cost(log_probs, sibling, STEPS, WORST) - _cost(log_probs, place, STEPS, WORST)
        shift = RANK_BITS + NODE_BITS + DEPTH_BITS
        beside = (sibling_cost << shift) | (key & ((1 << shift) - 1)) + 1
        below_at = tl.minimum(depth, DEPTH - 1) * TOPK
        below_cost = cost + _cost(log_probs, below_at, STEPS, WORST)
        below = (((below_cost << DEPTH_BITS) + depth + 1) << (NODE_BITS + RANK_BITS)) | (node << RANK_BITS)
        frontier = tl.where(frontier == key, tl.where(rank + 1 < RANKS, beside, NEVER), frontier)
        frontier = tl.where(slot == node, tl.where(depth < DEPTH, below, NEVER), frontier)


@triton.jit(do_not_specialize_on_alignment=["prefix", "rows"])
def place(
    parents,
    depths,
    prefix,
    rows,
    req_to_token,
    slots_out,
    positions_out,
    mask,
    table_stride,
    DEPTH: tl.constexpr,
    NODES: tl.constexpr,
    CELLS: tl.constexpr,
):
    node = tl.program_id(0)
    request = tl.program_id(1)
    number = tl.arange(0, 128)
    start = tl.zeros((128,), tl.int64)  # of the request's rows: those before it are as long as prefix and nodes
    first = 0
    while first < request:
        before = first + number < request
        start += tl.where(before, tl.load(prefix + first + number, mask=before, other=0).to(tl.int64) + NODES, 0)
        first += 128
    committed = tl.load(prefix + request).to(tl.int64)
    row = tl.load(rows + request).to(tl.int64)
    at = request.to(tl.int64) * NODES + node
    tl.store(slots_out + at, tl.load(req_to_token + row * table_stride + committed + node).to(tl.int64))
    tl.store(positions_out + at, committed + tl.load(depths + at))
    cell = tl.arange(0, CELLS)
    seen = (cell == node) | (cell == 0)
    above = node.to(tl.int64)
    for _ in range(DEPTH - 1):
        above = tl.load(parents + request.to(tl.int64) * NODES + above)
        seen |= cell == above
    own = mask + tl.sum(start, 0) * NODES + node * (committed + NODES) + committed
    tl.store(own + cell, seen.to(tl.uint8), mask=cell < NODES)


@triton.jit(do_not_specialize_on_alignment=["prefix", "tokens_out", "targets", "sources", "rows", "positions"])
def walk(
    tokens,
    parents,
    choices,
    slots,
    prefix,
    lengths,
    ends,
    bonus,
    tokens_out,
    targets,
    sources,
    rows,
    positions,
    DEEPEST: tl.constexpr,
    NODES: tl.constexpr,
    CELLS: tl.constexpr,
    LONGEST: tl.constexpr,
):
    request = tl.program_id(0).to(tl.int64)
    cell = tl.arange(0, CELLS)
    real = (cell > 0) & (cell < NODES)  # the root is nobody's child
    token = tl.load(tokens + request * NODES + cell, mask=real, other=-1)
    parent = tl.load(parents + request * NODES + cell, mask=real, other=-1)
    committed = tl.load(prefix + request)
    node = tl.zeros((), tl.int64)
    length = tl.zeros((), tl.int32)
    alive = length == 0
    choice = tl.load(choices + request * NODES)
    for step in range(LONGEST):
        out = request * LONGEST + step
        front = tl.load(slots + request * NODES + step)
        tl.store(tokens_out + out, choice)
        tl.store(targets + out, front)
        tl.store(sources + out, tl.where(alive, tl.load(slots + request * NODES + node), front))
        tl.store(rows + out, request * NODES + tl.where(alive, node, 0))
        tl.store(positions + out, committed.to(tl.int64) + step)
        length += alive.to(tl.int32)
        child = tl.min(tl.where((parent == node) & (token == choice), cell, CELLS), 0)
        alive = alive & (child < CELLS) & (step < DEEPEST)
        node = tl.where(alive, child.to(tl.int64), node)
        choice = tl.load(choices + request * NODES + node)
    tl.store(lengths + request, length)
    tl.store(ends + request, committed + length)
    tl.store(bonus + request, choice)
