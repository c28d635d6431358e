"""Tune's searcher over our own study: it translates and decides nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ray.tune.search import Searcher

from ddtree_tune.cluster.trial import EVENT, PROPOSAL

if TYPE_CHECKING:
    from ddtree_tune.core.record import Proposal, TrialRecord
    from ddtree_tune.node.search import Study


class StudySearcher(Searcher):
    """Hands the study's proposals to Tune, as many at a time as there are nodes, and tells it the records."""

    def __init__(self, study: Study, nodes: int) -> None:
        super().__init__()
        self.nodes = nodes
        """Nodes that are up. A proposal beyond them would wait, and know less when it starts."""
        self._study = study
        self.asked: dict[str, Proposal] = {}
        """Trials that have not ended."""

    def suggest(self, trial_id: str) -> dict[str, Any] | str | None:
        """The next proposal; None to wait, FINISHED when there is no more."""
        # One is out even without a node: Tune waits without a word for a searcher that has none.
        if len(self.asked) >= max(1, self.nodes):
            return Searcher.FINISHED if self._study.done else None
        proposal = self._study.ask()
        if proposal is None:
            return Searcher.FINISHED if self._study.done else None
        self.asked[trial_id] = proposal
        config = proposal.config
        return {
            PROPOSAL: proposal,
            "label": config.label,
            "algorithm": config.algorithm.value,
            "budget": config.budget,
            "topk": config.topk,
            "window": config.window,
        }

    @property
    def done(self) -> bool:
        """Whether the study wants nothing more and waits for nothing."""
        return self._study.done

    def on_trial_result(self, trial_id: str, result: dict[str, Any]) -> None:
        """Tell the record of a trial that holds its node beyond its end: it is to be tried elsewhere."""
        event = result[EVENT]
        if event.record is not None and trial_id in self.asked:
            del self.asked[trial_id]
            self._study.tell(event.record)

    def on_trial_complete(self, trial_id: str, result: dict[str, Any] | None = None, error: bool = False) -> None:
        """Tell the record. One that is stopped with the sweep has none, and one in error is told by ``lost``."""
        event = (result or {}).get(EVENT)
        if trial_id in self.asked and event is not None and event.record is not None:
            del self.asked[trial_id]
            self._study.tell(event.record)

    def lost(self, trial_id: str, record: TrialRecord) -> None:
        """Tell what was left of a trial whose process died."""
        del self.asked[trial_id]
        self._study.tell(record)

    def __getstate__(self) -> dict[str, Any]:
        """Stay out of Tune's snapshots too: what is kept of the sweep is read without its study."""
        return {}

    def save(self, checkpoint_path: str) -> None:
        """Nothing to save: the study is rebuilt from the results folder."""

    def restore(self, checkpoint_path: str) -> None:
        """Nothing to restore, see ``save``."""
