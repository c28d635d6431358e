"""Compile all kernels for some GPUs, without one: ``python compile_kernels.py 90 100``; prints a line for each."""

import sys

import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from ddtree_tune.sglang_plugin import kernels
from ddtree_tune.sglang_plugin.trees import GRID

OTHERS = {"log_probs": "*fp32", "req_to_token": "*i32", "mask": "*u8", "lengths": "*i32"} | dict.fromkeys(
    ("root_stride", "table_stride"), "i32"
)
"""Arguments that are no pointers to int64."""
SIZES = {
    "DEPTH": 15, "TOPK": 8, "RANKS": 8, "BUDGET": 64, "SLOTS": 128, "NODE_BITS": 7, "RANK_BITS": 3, "DEPTH_BITS": 4,
    "STEPS": GRID, "WORST": GRID * 1024, "NODES": 65, "CELLS": 128, "DEEPEST": 15, "LONGEST": 16,
}  # fmt: skip

for target in map(int, sys.argv[1:]):
    for kernel in (kernels.build, kernels.place, kernels.walk):
        sizes = {name: SIZES[name] for name in kernel.arg_names if name.isupper()}
        types = {name: "constexpr" if name in sizes else OTHERS.get(name, "*i64") for name in kernel.arg_names}
        source = ASTSource(fn=kernel, signature=types, constexprs=sizes)
        compiled = triton.compile(source, target=GPUTarget("cuda", target, 32), options={"num_warps": 1})
        print(kernel.fn.__name__, target, len(compiled.asm["cubin"]))
