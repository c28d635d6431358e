"""Through which door a trial's load goes: the same one for every setting, or none."""

import asyncio
import json

import pytest

from ddtree_tune.core.engine import Endpoint, Route
from ddtree_tune.core.engine_spec import EngineSpec
from ddtree_tune.core.errors import EngineError, FailureClass
from ddtree_tune.core.spec import GateSpec
from ddtree_tune.node.probe import run_probe
from tests.node.door_server import DoorServer

TEMPLATE = "<u>{{ messages[0].content }}<a>"


def probed(server, folder, template=TEMPLATE):
    folder.joinpath("tokenizer_config.json").write_text(json.dumps({"chat_template": template}))
    engine = EngineSpec(kind="sglang", dialect="sglang-dflash", model=str(folder), draft_model="d")
    gate = GateSpec(deadline_s=10)
    with server.running():
        endpoint = Endpoint(server.base_url, "m")
        return asyncio.run(run_probe(endpoint, gate, 2, alive=True, port_owned=True, engine=engine))


def test_the_native_door_is_taken_where_it_is_the_same_question(tmp_path):
    probe = probed(DoorServer(template=TEMPLATE, info={"version": "0"}), tmp_path)
    assert (probe.door.route, probe.door.template) == (Route.GENERATE, str(tmp_path))
    assert len(probe.crowd) == 2


@pytest.mark.parametrize("there", [{"template": "<user>{{ messages[0].content }}<a>"}, {"native": False}])
def test_another_template_or_no_native_door_leaves_the_chat(tmp_path, there):
    probe = probed(DoorServer(**{"template": TEMPLATE, "info": {"version": "0"}} | there), tmp_path)
    assert probe.door.route is Route.CHAT


def test_a_native_door_that_fails_is_no_reason_to_measure_through_another_one(tmp_path):
    with pytest.raises(EngineError, match="/generate must answer what the chat endpoint answers") as raised:
        probed(DoorServer(template=TEMPLATE, native="broken", info={"version": "0"}), tmp_path)
    assert raised.value.failure is FailureClass.NO_GENERATION
