"""Slots, positions and what each node sees, as SGLang's target pass reads them."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ddtree_tune.core import tree as reference
from tests.sglang_plugin.drafts import draft

torch = pytest.importorskip("torch")
placing = pytest.importorskip("ddtree_tune.sglang_plugin.placing")

CONTEXT = 40
UNTOUCHED = 7


@settings(deadline=None, max_examples=10)
@given(st.integers(0, 2**32 - 1), st.integers(1, 12), st.sampled_from([torch.int32, torch.int64]))
def test_nodes_stand_behind_their_prefix_and_see_their_ancestors_alone(seed, budget, kind):
    requests, depth = 3, 4
    random = np.random.default_rng(seed)
    drafted = draft(seed, (requests, depth, 3))
    trees, expected = drafted.built(budget), list(drafted.expected(budget))
    table = torch.from_numpy(random.permutation(6 * CONTEXT).reshape(6, CONTEXT).astype(np.int32))
    prefix, rows = random.integers(0, CONTEXT - budget, requests), random.permutation(6)[:requests]
    nodes = budget + 1
    mask = torch.full((sum(nodes * (int(length) + nodes) for length in prefix) + 5,), UNTOUCHED, dtype=torch.uint8)
    places = placing.place(
        trees,
        torch.from_numpy(prefix).to(kind),
        torch.from_numpy(rows).to(kind),
        table,
        depth=min(depth, budget),
        mask=mask,
    )
    at = 0
    for request, (length, row) in enumerate(zip(prefix.tolist(), rows.tolist(), strict=True)):
        tree, _ = expected[request]
        assert places.slots_BN[request].tolist() == table[row, length : length + nodes].tolist()
        assert places.positions_BN[request].tolist() == [length, *(length + depth for depth in tree.depths_N)]
        cells = mask[at : at + nodes * (length + nodes)].view(nodes, length + nodes)
        assert (cells[:, :length] == UNTOUCHED).all()
        np.testing.assert_array_equal(cells[:, length:].numpy(), reference.visibility(tree))
        at += cells.numel()
    assert (mask[at:] == UNTOUCHED).all()


def test_many_requests_have_their_rows_one_behind_the_other():
    """More than one turn of the kernel's sum over the requests before."""
    requests, nodes = 140, 2
    drafted = draft(1, (requests, 1, 1))
    prefix = torch.arange(requests) % 5
    table = torch.arange(requests * 8, dtype=torch.int32).view(requests, 8)
    mask = torch.full((int((nodes * (prefix + nodes)).sum()),), UNTOUCHED, dtype=torch.uint8)
    placing.place(drafted.built(1), prefix, torch.arange(requests), table, depth=1, mask=mask)
    rows = [[1, 0], [1, 1]]
    expected = [cell for length in prefix.tolist() for row in rows for cell in ([UNTOUCHED] * length + row)]
    assert mask.tolist() == expected
