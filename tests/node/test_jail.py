"""Values cross the channel as they are, and nothing that arrives can do more than be a value."""

import json
import math
import socket

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ddtree_tune.node.jail.channel import Channel, GarbledError, GoneError
from ddtree_tune.node.jail.rebuild import decode
from ddtree_tune.node.jail.values import COMPOUND, MUTABLE, Classes, Encoder

SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.text(st.characters(exclude_categories=())),
    st.binary(),
    st.complex_numbers(allow_nan=False),
    st.decimals(allow_nan=False),
    st.fractions(),
    st.datetimes(),
    st.timedeltas(),
)
KEYS = st.recursive(
    st.one_of(st.none(), st.integers(), st.text(), st.binary()), lambda inner: st.lists(inner, max_size=3).map(tuple)
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.one_of(
        st.lists(inner, max_size=4),
        st.lists(inner, max_size=4).map(tuple),
        st.dictionaries(KEYS, inner, max_size=4),
        st.sets(KEYS, max_size=4),
        st.frozensets(KEYS, max_size=4),
    ),
    max_leaves=20,
)


def refuse(node):
    raise GarbledError(f"no reference is expected, but got {node}")


def through_text(value):
    """A value encoded, sent as text, and rebuilt."""
    graph = Encoder(Classes(""), refuse).graph(value)
    data = json.dumps(graph, ensure_ascii=False).encode("utf-8", "surrogatepass")
    return decode(json.loads(data.decode("utf-8", "surrogatepass")), Classes(""), refuse)[0]


def same(one, other):
    """Equality that tells types and signs apart and knows that NaN is NaN."""
    if type(one) is not type(other):
        return False
    if isinstance(one, float):
        if math.isnan(one):  # a NaN's sign is no part of its value, and text has none
            return math.isnan(other)
        return one == other and math.copysign(1, one) == math.copysign(1, other)
    if isinstance(one, list | tuple):
        return len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, dict):
        return list(one) == list(other) and all(same(one[key], other[key]) for key in one)
    return one == other


@settings(deadline=None)
@given(VALUES)
def test_any_value_survives(value):
    assert same(through_text(value), value)


def test_sharing_survives():
    shared = [1]
    one, (two, three) = through_text([shared, (shared, {"k": shared})])
    assert one is two
    assert three["k"] is one


ITEMS = st.one_of(
    st.none(), st.integers(-2, 4), st.text(max_size=3), st.integers(-1, 4).map(lambda n: [n]), st.just([])
)
KINDS = sorted(
    {*COMPOUND, *MUTABLE, "plain", "bytes", "complex", "range", "number", "time", "enum", "single", "builtin"}
    | {"@", "theirs", "yours", "nonsense"}
)
NODES = st.tuples(
    st.sampled_from(KINDS), st.lists(st.one_of(ITEMS, st.lists(ITEMS, max_size=4), st.just("exec")), max_size=4)
).map(lambda parts: [parts[0], *parts[1]])


@settings(deadline=None, max_examples=500)
@given(st.lists(NODES, max_size=5), ITEMS)
def test_a_forged_graph_is_refused_or_is_plain_data(nodes, root):
    try:
        made = decode({"root": root, "nodes": nodes}, Classes(""), refuse)
    except GarbledError:
        return
    for value in made:
        assert not callable(value) or isinstance(value, type) or value.__name__ in {"abs", "len"}


@pytest.mark.parametrize(
    "node", [["builtin", "exec"], ["builtin", "open"], ["time", "sys", 1], ["number", "os", "1"], ["list", [{"a": 1}]]]
)
def test_only_values_can_be_made(node):
    with pytest.raises(GarbledError):
        decode({"root": [0], "nodes": [node]}, Classes(""), refuse)


def test_a_line_without_the_nonce_is_no_message():
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.sendall(b'pass\n{"ok": true}\nnonc {}\n')
        Channel(ours.fileno(), "nonce").send({"text": "\ud800 and \n"})
        reader = Channel(theirs.fileno(), "nonce")
        assert reader.receive() == {"text": "\ud800 and \n"}
        for line in (b"nonce {\n", b"nonce []\n", b"nonce \xff\n", b"nonce " + b"[" * 100000 + b"\n"):
            ours.sendall(line)
            with pytest.raises(GarbledError):
                reader.receive()
        ours.shutdown(socket.SHUT_RDWR)
        with pytest.raises(GoneError):
            reader.receive()
