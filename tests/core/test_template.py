"""A chat template renders as model hubs render it."""

import json

import pytest

from ddtree_tune.core.template import ChatTemplate

MESSAGES = [{"role": "user", "content": "hi"}]


def template(source, **config):
    return ChatTemplate(json.dumps({"chat_template": source} | config))


def test_blocks_leave_no_line_of_their_own_and_special_tokens_are_known():
    source = "{{ bos_token }}\n{% for message in messages %}\n{{ message.role }}: {{ message.content }}\n{% endfor %}\n"
    assert template(source, bos_token="<s>").render(MESSAGES) == "<s>\nuser: hi\n"
    assert template(source, bos_token={"content": "<s>"}).render(MESSAGES) == "<s>\nuser: hi\n"


def test_options_reach_the_template():
    source = "{% if enable_thinking is defined and not enable_thinking %}off{% else %}on{% endif %}"
    assert template(source).render(MESSAGES) == "on"
    assert template(source).render(MESSAGES, {"enable_thinking": False}) == "off"


def test_what_hub_templates_use_is_there():
    source = (
        "{% for message in messages %}{% if loop.last %}{% break %}{% endif %}{% endfor %}"
        "{{ messages[0] | tojson }} {{ strftime_now('%Y')[:2] }}"
    )
    assert template(source).render([{"role": "user", "content": "ü"}]) == '{"role": "user", "content": "ü"} 20'


def test_the_separate_file_goes_first_and_named_templates_have_a_default():
    named = [{"name": "tool", "template": "tool"}, {"name": "default", "template": "default"}]
    assert template(named).render(MESSAGES) == "default"
    assert ChatTemplate(json.dumps({"chat_template": "config"}), "separate").render(MESSAGES) == "separate"


@pytest.mark.parametrize(
    ("build", "sentence"),
    [
        (lambda: ChatTemplate("{}"), "but got none"),
        (lambda: template("{% if %}"), "must be Jinja"),
        (lambda: template("{{ raise_exception('roles must alternate') }}").render(MESSAGES), "roles must alternate"),
        (lambda: template("{{ messages[0].content + 1 }}").render(MESSAGES), "must fit the chat template"),
        (lambda: template("{{ ''.__class__.__mro__ }}").render(MESSAGES), "must fit the chat template"),
    ],
)
def test_what_is_no_template_or_refuses_is_a_value_error(build, sentence):
    with pytest.raises(ValueError, match=sentence):
        build()
