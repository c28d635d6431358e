"""What the plugin writes is what replay reads."""

from types import SimpleNamespace

import pytest

from ddtree_tune.core.draft_trace import read_trace

torch = pytest.importorskip("torch")
trace = pytest.importorskip("ddtree_tune.sglang_plugin.trace")

HEADER = {"target": "t", "drafter": "d", "block_size": 3, "window": None, "topk": 2, "dtype": "bfloat16"}


def request(name, reply, top_k=1):
    """A request as far as a trace looks at it."""
    state = SimpleNamespace(
        rid=name,
        output_ids=reply,
        origin_input_ids=[1, 2, 3, 4],
        over=False,
        sampling_params=SimpleNamespace(top_k=top_k),
    )
    state.finished = lambda: state.over
    return state


def drafts(*tokens):
    """Costs of 1 and 2 nats for every position, and (B, 2, 2) candidates."""
    costs = torch.tensor([65_536, 131_072]).expand(len(tokens), 2, 2)
    return costs, torch.tensor(tokens)


def test_replies_are_written_when_they_are_over_and_read_by_replay(tmp_path):
    path = tmp_path / "out.jsonl"
    tracer = trace.Tracer(str(path), HEADER)
    first, second = request("a", [11, 12, 13]), request("b", [21, 22])
    sampled, retracted = request("c", [31, 32], top_k=40), request("d", [41, 42, 43, 44])
    tracer.add(
        [first, second, sampled, retracted],
        *drafts([[12, 7], [9, 13]], [[22, 5], [6, 7]], [[1, 2], [3, 4]], [[1, 2], [3, 4]]),
    )
    second.over = sampled.over = True

    class Scheduler:
        def process_batch_result(self, batch, result):
            return (batch, result)

    tracer.follow(Scheduler)
    assert Scheduler().process_batch_result("batch", result="result") == ("batch", "result")
    tracer.add([first], *drafts([[13, 4], [14, 2]]))
    first.over = retracted.over = True
    Scheduler().process_batch_result("batch", "result")
    read = read_trace(path.read_text().splitlines(), "out")
    assert [one.request_id for one in read.requests] == ["b", "a"]
    assert read.header.model_dump() == {"format": "draft_trace", "version": 1} | HEADER
    whole = read.requests[1]
    assert whole.tokens.tolist() == [11, 12, 13]
    assert whole.candidates.tolist() == [[[12, 7], [9, 13]], [[13, 4], [14, 2]]]
    assert whole.log_probs.tolist() == [[[-1.0, -2.0]] * 2] * 2
    assert whole.prompt_tokens == 4


def test_a_file_that_is_there_is_not_overwritten(tmp_path):
    (tmp_path / "kept").write_text("mine")
    with pytest.raises(ValueError, match="DDTREE_TUNE_TRACE must name a file that can be made and is not there"):
        trace.Tracer(str(tmp_path / "kept"), HEADER)
    assert (tmp_path / "kept").read_text() == "mine"
