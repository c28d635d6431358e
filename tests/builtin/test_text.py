"""Streams of text: whole characters, thought split off, stop strings, whatever the deliveries."""

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from ddtree_tune.builtin.generation import Generation
from ddtree_tune.builtin.scheduler import Delivery, Finish
from ddtree_tune.builtin.text import ThoughtSplitter, partial_suffix

TEXT = "naïve 🙂 日本語 end\n"


def deliveries_of(tokens, cuts):
    bounds = sorted({0, len(tokens), *(cut % (len(tokens) + 1) for cut in cuts)})
    spans = [tokens[start:end] for start, end in pairwise(bounds)]
    return [
        Delivery("r", tuple(span), len(span) - 1, Finish.LENGTH if index == len(spans) - 1 else None)
        for index, span in enumerate(spans)
    ]


def generation(codec, stops=(), *, inside=False):
    return Generation("r", 3, 8, stops, codec.stream(), ThoughtSplitter(inside=inside), lambda: 0.0, 0.0)


def test_pieces_never_hold_half_a_character(codec):
    reply = generation(codec)
    pieces = [reply.add(one) for one in deliveries_of(codec.encode(TEXT), range(100))]
    assert len(pieces) > len(TEXT) / 2
    assert all("\ufffd" not in piece.text for piece in pieces)
    assert "".join(piece.text for piece in pieces) == reply.text == TEXT


def test_a_character_that_stays_half_is_shown_as_unknown_at_the_end(codec):
    tokens = codec.encode("🙂")
    assert len(tokens) > 1
    reply = generation(codec)
    reply.add(Delivery("r", tuple(tokens[:-1]), None, None))
    assert reply.text == ""
    reply.add(Delivery("r", tuple(codec.encode("🙂")[:1]), None, Finish.LENGTH))
    assert "\ufffd" in reply.text


@given(st.lists(st.integers(0, 2000), min_size=1, max_size=60), st.lists(st.integers(0, 100)))
def test_any_tokens_in_any_deliveries_give_the_text_of_all(codec, tokens, cuts):
    reply = generation(codec)
    said = "".join(reply.add(one).text for one in deliveries_of(tokens, cuts))
    assert said == reply.text == codec.decode(tokens)


@given(st.lists(st.sampled_from(["<think>", "</think>", "<", "th", "ink>", "</", " ", "x", "\n"])), st.data())
def test_thought_and_answer_do_not_depend_on_the_pieces(parts, data):
    text = "".join(parts)
    whole = ThoughtSplitter(inside=False)
    expected = [a + b for a, b in zip(whole.add(text), whole.end(), strict=True)]
    cuts = sorted(data.draw(st.lists(st.integers(0, len(text)))))
    split = ThoughtSplitter(inside=False)
    got = ["", ""]
    for start, end in zip([0, *cuts], [*cuts, len(text)], strict=True):
        got = [a + b for a, b in zip(got, split.add(text[start:end]), strict=True)]
    assert [a + b for a, b in zip(got, split.end(), strict=True)] == expected


def test_thought_is_split_from_the_answer():
    def split(text, *, inside=False):
        splitter = ThoughtSplitter(inside=inside)
        return tuple(a + b for a, b in zip(splitter.add(text), splitter.end(), strict=True))

    assert split("<think>\nhm\n</think>\n42") == ("\nhm\n", "\n42")
    assert split("hm</think>42", inside=True) == ("hm", "42")
    assert split("<think>never closed") == ("never closed", "")
    assert split("no thought </think> here") == ("", "no thought </think> here")
    assert split("<think>a</think>b</think>c") == ("a", "b</think>c")


@given(st.text("ab", max_size=8), st.text("ab", min_size=1, max_size=5))
def test_the_partial_suffix_is_the_longest_beginning_of_the_word(text, word):
    size = partial_suffix(text, word)
    assert size < len(word)
    assert text.endswith(word[:size])
    assert not any(text.endswith(word[:longer]) for longer in range(size + 1, len(word)))


@given(st.lists(st.integers(0, 100)))
def test_a_stop_string_ends_the_reply_before_itself(codec, cuts):
    text = "one two three four"
    reply = generation(codec, ("three", "wo thr"))
    pieces = []
    for one in deliveries_of(codec.encode(text), cuts):
        pieces.append(reply.add(one).text)
        if reply.finish is not None:
            break
    assert "".join(pieces) == reply.text == "one t"
    assert (reply.finish, reply.matched) == (Finish.STOP, "wo thr")
    assert len(reply.token_ids) < len(codec.encode(text))


def test_what_a_stop_string_held_back_is_said_at_the_end(codec):
    reply = generation(codec, ("three!",))
    reply.add(Delivery("r", tuple(codec.encode("one two three")), None, None))
    assert reply.text == "one two "
    reply.add(Delivery("r", tuple(codec.encode(".")), None, Finish.LENGTH))
    assert (reply.text, reply.finish) == ("one two three.", Finish.LENGTH)


def test_thought_tokens_are_counted(codec):
    reply = generation(codec)
    tokens = codec.encode("<think>a b</think> c")
    reply.add(Delivery("r", tuple(tokens), None, Finish.LENGTH))
    assert (reply.thought, reply.answer) == ("a b", " c")
    assert reply.reasoning_tokens == len(codec.encode("<think>a b"))
