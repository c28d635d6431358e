"""Any split of the same bytes gives the same events, and the events are the standard's."""

import itertools

from hypothesis import given
from hypothesis import strategies as st

from ddtree_tune.core.sse import SseEvent, SseParser

STREAM = (
    "\ufeff: a comment\n"
    'data: {"text": "é漢🙂"}\n\n'
    "event: error\r\ndata: first\r\ndata: second\r\n\r\n"
    "data\n\n"
    "id: 7\rdata:no space\r\r"
    "retry: 10\n\n"
    "data:  two spaces\n\n"
    "data: [DONE]\n\n"
).encode()
EVENTS = [
    SseEvent('{"text": "é漢🙂"}'),
    SseEvent("first\nsecond", "error"),
    SseEvent(""),
    SseEvent("no space"),
    SseEvent(" two spaces"),
    SseEvent("[DONE]"),
]


def parse(pieces):
    parser = SseParser()
    return [event for piece in pieces for event in parser.feed(piece)]


def split(data, cuts):
    edges = [0, *sorted(cuts), len(data)]
    return [data[start:end] for start, end in itertools.pairwise(edges)]


def test_the_standards_line_ends_comments_and_fields_are_read():
    assert parse([STREAM]) == EVENTS


def test_one_byte_at_a_time_gives_the_same_events():
    assert parse([STREAM[at : at + 1] for at in range(len(STREAM))]) == EVENTS


@given(st.lists(st.integers(0, len(STREAM))))
def test_any_split_gives_the_same_events(cuts):
    assert parse(split(STREAM, cuts)) == EVENTS


@given(st.text(alphabet="ad:t \n\r\ufeffé", max_size=60), st.lists(st.integers(0, 120)))
def test_a_split_never_changes_what_arbitrary_text_means(text, cuts):
    data = text.encode()
    whole = parse([data])
    assert parse(split(data, [cut for cut in cuts if cut <= len(data)])) == whole
    assert parse([data[at : at + 1] for at in range(len(data))]) == whole


@given(
    st.lists(st.text(st.characters(exclude_characters="\r\n", exclude_categories=["Cs"])), min_size=1, max_size=5),
    st.sampled_from(["\n", "\r", "\r\n"]),
)
def test_what_is_sent_is_what_comes_out(lines, end):
    sent = "".join(f"data: {line}{end}" for line in lines) + end
    assert parse([sent.encode()]) == [SseEvent("\n".join(lines))]


def test_an_event_without_its_blank_line_never_comes():
    assert parse([b"data: whole\n\ndata: [DONE]\n"]) == [SseEvent("whole")]
    assert parse([b"data: [DONE]"]) == []


def test_malformed_utf8_becomes_the_replacement_character():
    assert parse([b"data: a\xffb\n\n"]) == [SseEvent("a\ufffdb")]
