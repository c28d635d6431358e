"""How a server is to be asked is found out by asking it."""

import asyncio
import json

import pytest

from ddtree_tune.core.engine import Route
from ddtree_tune.core.errors import SpecError
from ddtree_tune.node.endpoint import find_endpoint
from tests.node.door_server import EXTENSIONS, DoorServer

TEMPLATE = "{% for message in messages %}<user>{{ message.content }}</user>{% endfor %}<assistant>"


@pytest.fixture
def folder(tmp_path):
    """A model's folder with the template that the servers here apply."""
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"chat_template": TEMPLATE}))
    return str(tmp_path)


def find(server, model=None, **options):
    with server.running():
        return asyncio.run(find_endpoint(server.base_url, model, **options))


def test_a_server_with_both_doors_and_a_readable_template_is_asked_natively(folder):
    server = DoorServer(template=TEMPLATE, info={"tokenizer_path": folder, "max_running_requests": 48})
    found = find(server)
    assert (found.endpoint.served_model_name, found.endpoint.route) == ("m", Route.GENERATE)
    assert found.endpoint.template == folder
    assert found.running_cap == 48
    (native,) = [body for path, body in server.asked if path == "/generate"]
    assert native["text"].startswith("<user>")
    assert native["text"].endswith("</user><assistant>")


def test_a_template_that_costs_other_tokens_than_chat_is_not_the_servers(tmp_path):
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"chat_template": f"system: be kind {TEMPLATE}"}))
    found = find(DoorServer(template=TEMPLATE), template=str(tmp_path))
    assert found.endpoint.route is Route.CHAT
    assert "is not shown to be the server's" in found.how


def test_a_template_that_no_count_confirms_is_not_trusted(folder):
    found = find(DoorServer(template=TEMPLATE, info={"tokenizer_path": folder}, counts=False))
    assert found.endpoint.route is Route.CHAT
    assert "an unknown number of tokens" in found.how


def test_without_a_template_the_chat_door_is_taken_and_what_is_missing_is_said():
    found = find(DoorServer(template=TEMPLATE, info={"tokenizer_path": "somebody/else"}))
    assert found.endpoint.route is Route.CHAT
    assert "no speculation counters" in found.how
    assert "--template" in found.how


def test_a_server_with_one_door_is_asked_through_it():
    assert find(DoorServer(native=False)).endpoint.route is Route.CHAT
    found = find(DoorServer(chat=False))
    assert (found.endpoint.route, found.endpoint.template) == (Route.GENERATE, None)
    assert "no chat template" in found.how


def test_a_server_that_refuses_fields_beyond_openais_is_asked_without_them():
    server = DoorServer(native=False, strict=True)
    found = find(server)
    assert found.endpoint.extensions is False
    first, *_, last = [body for path, body in server.asked if path == "/v1/chat/completions"]
    assert set(first) >= EXTENSIONS
    assert not EXTENSIONS & set(last)


def test_a_trailing_v1_is_no_part_of_the_address():
    server = DoorServer()
    with server.running():
        found = asyncio.run(find_endpoint(f"{server.base_url}/v1/", None))
    assert found.endpoint.base_url == server.base_url


def test_a_key_is_sent_and_never_shown():
    server = DoorServer(native=False, key="secret")
    found = find(server, api_key="secret")
    assert found.endpoint.api_key == "secret"
    assert "secret" not in repr(found)


def test_a_server_that_refuses_the_key_names_the_variable():
    with pytest.raises(SpecError, match="DDTREE_TUNE_API_KEY must hold a key that the server takes, but got"):
        find(DoorServer(locked=True))


def test_a_model_can_be_named_where_the_server_lists_none():
    assert find(DoorServer(models=None), "mine").endpoint.served_model_name == "mine"


@pytest.mark.parametrize(
    ("server", "options", "sentence"),
    [
        (DoorServer(models=("a", "b")), {}, "--model must name what .* it lists a, b"),
        (DoorServer(models=None), {}, "--model must name what .* it lists nothing"),
        (DoorServer(), {"model": "other"}, "--model must be one of m, .* but got other"),
        (DoorServer(native=False), {"route": Route.GENERATE}, "--route generate must work at .* but got http_4xx"),
        (DoorServer(chat=False, native=False), {}, "must complete a chat or a prompt, but got http_4xx"),
        (DoorServer(native=False, key="k"), {}, "must complete a chat or a prompt, but got http_4xx: 401"),
    ],
)
def test_what_is_wrong_is_said_in_one_sentence(server, options, sentence):
    with pytest.raises(SpecError, match=sentence):
        find(server, **options)


def test_nobody_at_the_address_is_one_sentence():
    with pytest.raises(SpecError, match="--base-url must be a server that answers, but got"):
        asyncio.run(find_endpoint("http://127.0.0.1:9", None))


def test_a_template_that_refuses_a_users_message_is_not_taken(tmp_path):
    source = "{{ raise_exception('a system message must come first') }}"
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"chat_template": source}))
    assert find(DoorServer(info={"model_path": str(tmp_path)})).endpoint.template is None
    with pytest.raises(SpecError, match="a system message must come first"):
        find(DoorServer(), template=str(tmp_path))


@pytest.mark.parametrize("strange", [5, True, "m", {"m": 1}, [5, None]])
def test_pages_of_another_form_say_nothing(strange):
    server = DoorServer(info={"internal_states": strange, "max_running_requests": 8})
    server.listed = {"data": strange}
    found = find(server, "mine")
    assert (found.endpoint.served_model_name, found.running_cap) == ("mine", 8)


def test_running_requests_of_all_ranks_are_the_cap():
    states = [{"effective_max_running_requests_per_dp": 24}, {"effective_max_running_requests_per_dp": 24}]
    assert find(DoorServer(info={"max_running_requests": 64, "internal_states": states})).running_cap == 48
    assert find(DoorServer(info={"max_running_requests": None})).running_cap is None
