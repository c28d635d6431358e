"""What ``/server_info`` answers, narrowed to the fields that any dialect reads."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from ddtree_tune.core.engine import Algorithm, EffectiveConfig
from ddtree_tune.core.errors import EngineError, FailureClass

if TYPE_CHECKING:
    from collections.abc import Iterable

Count = Annotated[int, Field(ge=0, strict=True)]


class _GraphPhase(BaseModel):
    """CUDA graphs of one phase; ``max_bs`` is the largest batch that was captured."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    max_bs: Count | None = None
    backend: str | None = None


class _Graphs(BaseModel):
    model_config = ConfigDict(extra="ignore", frozen=True)

    decode: _GraphPhase = _GraphPhase()


class _State(BaseModel):
    """One data-parallel rank's own view."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    effective_max_running_requests_per_dp: Count | None = None
    disable_cuda_graph: bool | None = None


class ServerInfo(BaseModel):
    """The fields that are read; servers add others freely."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    speculative_algorithm: str | None = None
    speculative_num_draft_tokens: Count | None = None
    speculative_eagle_topk: Count | None = None
    speculative_ddtree_budget: Count | None = None
    speculative_ddtree_topk: Count | None = None
    speculative_draft_window_size: Count | None = None
    speculative_dflash_block_size: Count | None = None
    max_running_requests: Annotated[int, Field(ge=1, strict=True)]
    served_model_name: str
    version: str
    cuda_graph_config: _Graphs | None = None
    internal_states: tuple[_State, ...] = ()

    @classmethod
    def read(cls, server_info: dict[str, object], *, required: Iterable[str] = ()) -> Self:
        """Validate an answer.

        Args:
            server_info: the answer.
            required: fields that this build always has; one that lacks them is another build.

        Raises:
            EngineError: a field is missing or has another form (`identity`).
        """
        missing = next((name for name in required if name not in server_info), None)
        if missing is not None:
            raise EngineError(f"/server_info must have a valid {missing}, but got none", FailureClass.IDENTITY)
        try:
            return cls.model_validate(server_info)
        except ValidationError as error:
            first = error.errors()[0]
            field = ".".join(map(str, first["loc"]))
            got = "none" if first["type"] == "missing" else _short(first["input"])
            raise EngineError(f"/server_info must have a valid {field}, but got {got}", FailureClass.IDENTITY) from None

    @property
    def running_cap(self) -> int:
        """Most requests that run at once: the ranks' own word where they give it, never above what was asked."""
        ranks = [state.effective_max_running_requests_per_dp for state in self.internal_states]
        known = [rank for rank in ranks if rank is not None]
        return min(self.max_running_requests, sum(known)) if known else self.max_running_requests

    @property
    def graph_batch(self) -> int | None:
        """The largest batch that is decoded in a CUDA graph, 0 without any; None where the server does not say."""
        decode = self.cuda_graph_config.decode if self.cuda_graph_config else _GraphPhase()
        return 0 if decode.backend == "disabled" else decode.max_bs

    def effective(
        self,
        algorithm: Algorithm | None,
        *,
        budget: int | None = None,
        topk: int | None = None,
        window: int | None = None,
        block_size: int | None = None,
        inferred: tuple[str, ...] = (),
    ) -> EffectiveConfig:
        """The effective configuration, with what every build says alike."""
        speculates = algorithm is not Algorithm.NONE
        return EffectiveConfig(
            algorithm=algorithm,
            budget=budget if algorithm is Algorithm.TREE else None,
            topk=topk if algorithm is Algorithm.TREE else None,
            window=window if speculates else None,
            block_size=block_size if speculates else None,
            max_running_requests=self.running_cap,
            served_model_name=self.served_model_name,
            version=self.version,
            graph_batch=self.graph_batch,
            inferred=inferred,
        )


def _short(value: Any, limit: int = 80) -> str:
    text = repr(value)
    return text if len(text) <= limit else f"{text[:limit]}…"
