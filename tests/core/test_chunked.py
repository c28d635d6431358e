"""Any split of the same body gives the same content, and a broken one is refused."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ddtree_tune.core.chunked import BodyDecoder

CHUNKED = {"transfer-encoding": "chunked"}


def encode(chunks, extension=b"", trailer=b""):
    framed = b"".join(b"%x%s\r\n%s\r\n" % (len(chunk), extension, chunk) for chunk in chunks if chunk)
    return framed + b"0\r\n" + trailer + b"\r\n"


def decode(headers, pieces):
    decoder = BodyDecoder(headers)
    return b"".join(decoder.feed(piece) for piece in pieces), decoder.done


def split(data, cuts):
    edges = [0, *sorted(cut for cut in cuts if cut <= len(data)), len(data)]
    return [data[start:end] for start, end in itertools.pairwise(edges)]


@given(
    st.lists(st.binary(max_size=40), max_size=6),
    st.lists(st.integers(0, 300)),
    st.sampled_from([b"", b";name=value"]),
    st.sampled_from([b"", b"Checked: yes\r\n", b"A: 1\r\nB: 2\r\n"]),
)
def test_any_split_of_a_chunked_body_gives_its_content(chunks, cuts, extension, trailer):
    body = encode(chunks, extension, trailer)
    content = b"".join(chunks)
    assert decode(CHUNKED, split(body, cuts)) == (content, True)
    assert decode(CHUNKED, [body[at : at + 1] for at in range(len(body))]) == (content, True)


@given(st.lists(st.binary(min_size=1, max_size=40), min_size=1, max_size=4), st.data())
def test_a_body_cut_short_is_not_done(chunks, data):
    body = encode(chunks)
    kept = data.draw(st.integers(0, len(body) - 1))
    content, done = decode(CHUNKED, [body[:kept]])
    assert not done
    assert b"".join(chunks).startswith(content)


@given(st.binary(max_size=60), st.binary(max_size=10), st.lists(st.integers(0, 80)))
def test_a_body_of_known_length_ends_there(content, after, cuts):
    headers = {"content-length": str(len(content))}
    assert decode(headers, split(content + after, cuts)) == (content, True)


def test_without_either_the_connections_end_is_the_bodys():
    decoder = BodyDecoder({})
    assert decoder.ends_with_connection
    assert decoder.feed(b"all of it") == b"all of it"
    assert not decoder.done
    assert not BodyDecoder(CHUNKED).ends_with_connection
    assert not BodyDecoder({"content-length": "3"}).ends_with_connection


@pytest.mark.parametrize("body", [b"oops\r\n", b"-4\r\nabcd\r\n", b"2\r\nabcd\r\n", b"f" * 2000, b"\r\n"])
def test_a_broken_framing_is_refused(body):
    with pytest.raises(ValueError, match=r"chunk|int"):
        BodyDecoder(CHUNKED).feed(body)
