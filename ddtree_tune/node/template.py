"""A model's chat template from its folder."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from ddtree_tune.core.errors import SpecError
from ddtree_tune.core.template import ChatTemplate


@cache
def chat_template(folder: str) -> ChatTemplate:
    """Read the template of a model's or tokenizer's folder.

    Raises:
        SpecError: the folder holds none that works.
    """
    separate = Path(folder) / "chat_template.jinja"
    try:
        config = (Path(folder) / "tokenizer_config.json").read_text(encoding="utf-8")
        template = ChatTemplate(config, separate.read_text(encoding="utf-8") if separate.exists() else None)
        template.render([{"role": "user", "content": "Hello"}])  # all that we ever send is one user's message
    except (OSError, ValueError) as error:
        raise SpecError(f"{folder} must be a folder with a model's chat template, but got: {error}") from None
    return template
