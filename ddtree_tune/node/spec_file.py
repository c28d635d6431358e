"""A sweep's YAML file."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ddtree_tune.core.errors import SpecError
from ddtree_tune.core.spec import SweepSpec

if TYPE_CHECKING:
    from pathlib import Path


def read_spec(path: Path) -> SweepSpec:
    """Read and check a spec file.

    Raises:
        SpecError: it cannot be read or is wrong.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise SpecError(f"{path}: the spec must be a readable YAML file, but got {error}") from None
    return SweepSpec.parse(text, str(path))
