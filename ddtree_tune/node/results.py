"""The results folder of a sweep for notebooks: its tables as they are kept, and what they say."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ddtree_tune.core.answer import answer_fields
from ddtree_tune.core.conclusion import conclude
from ddtree_tune.core.errors import SpecError, StoreError
from ddtree_tune.core.page.progress import why_partial
from ddtree_tune.core.spec import SweepSpec
from ddtree_tune.node.store import Store

if TYPE_CHECKING:
    import pyarrow as pa

    from ddtree_tune.core.conclusion import Conclusion
    from ddtree_tune.core.record import TrialRecord


@dataclass(frozen=True)
class Results:
    """One results folder, read when it is asked and then kept; ``load`` again to see what a sweep added.

    The tables are Arrow's, with unit and meaning in the metadata of every field. Each becomes a
    data frame by itself: ``results.cells.to_pandas()``, ``polars.from_arrow(results.cells)``.
    """

    store: Store

    @cached_property
    def trials(self) -> pa.Table:
        """A row per trial."""
        return self.store.read_table("trials")

    @cached_property
    def cells(self) -> pa.Table:
        """A row per trial and cell of its load matrix."""
        return self.store.read_table("cells")

    @cached_property
    def requests(self) -> pa.Table:
        """A row per request, with every chunk's arrival."""
        return self.store.read_table("requests")

    @cached_property
    def attempts(self) -> pa.Table:
        """A row per coding problem asked."""
        return self.store.read_table("attempts")

    @cached_property
    def spec(self) -> SweepSpec:
        """What was asked, as it was run."""
        return SweepSpec.parse(self.store.read_spec(), f"{self.store.root}/sweep.yaml")

    @cached_property
    def records(self) -> tuple[TrialRecord, ...]:
        """Every trial as the package itself holds it, without the raw requests."""
        return self.store.read_records()

    def conclusion(self) -> Conclusion:
        """What the sweep found, whole or not."""
        return conclude(self.records, self.spec)

    def answer(self) -> dict[str, Any]:
        """The same as plain data, as ``ddtree-tune report --json`` prints it: ready for data frames."""
        partial = why_partial(self.records, self.spec)
        return answer_fields(self.conclusion(), self.records, self.spec, root=self.store.root, partial=partial)


def load(path: str | Path) -> Results:
    """Open a results folder.

    Args:
        path: the folder, or a URI that pyarrow knows.

    Raises:
        SpecError: no trial and no spec lies there.
        StoreError: it cannot be read.
    """
    where = str(path)
    root = where if "://" in where else str(Path(where).resolve())
    found = Results(Store(root))
    if not found.trials.num_rows:
        try:
            found.store.read_spec()
        except StoreError:
            sentence = f"{root} must be the results folder of a sweep, but got neither trials nor sweep.yaml in it"
            raise SpecError(sentence) from None
    return found
