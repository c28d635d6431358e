"""What Tune keeps of a sweep is restored by Tune itself, and tells the numbers of our tables."""

import io

import pytest
from rich.console import Console

from ddtree_tune.cluster.kept import keep
from ddtree_tune.core.stats import geometric_mean
from ddtree_tune.node.progress import Progress
from ddtree_tune.node.store import Store
from tests.builders import spec

pytestmark = pytest.mark.ray


@pytest.mark.timeout(300)
def test_tune_restores_a_sweep_and_tells_its_numbers(embedded_sweep):
    from ray import tune

    from ddtree_tune.cluster.trial import TuneTrial

    _, folder = embedded_sweep
    (kept,) = (folder / "tune").iterdir()
    grid = tune.Tuner.restore(str(kept), trainable=TuneTrial).get_results()
    records = Store(str(folder)).read_records()
    frame = grid.get_dataframe()
    assert len(grid) == len(frame) == len(records) > 4
    assert grid.num_errors == 0
    assert sorted(frame["config/label"]) == sorted(one.config.label for one in records)
    found = {result.config["proposal"].trial_id: result for result in grid}
    for one in records:
        result = found[one.trial_id]
        scored = [cell.metrics.output_tps for cell in one.cells if cell.metrics.scored]
        assert result.metrics["output_tps"] == (geometric_mean(scored) if scored else None)
        assert result.metrics["seconds"] == one.seconds
        steps = result.metrics_dataframe
        loads = steps[steps["stage"] == "load"]
        assert list(loads["cell_id"]) == [cell.metrics.cell_id for cell in one.cells]
        assert list(loads["output_tps"]) == [cell.metrics.output_tps for cell in one.cells]
    assert sum(file.stat().st_size for file in kept.rglob("*") if file.is_file()) < 40_000 * len(records)


def kept(experiment, store):
    """What is said when an experiment is kept."""
    out = io.StringIO()
    keep(experiment, store, Progress(spec=spec(), console=Console(file=out, width=400)))
    return out.getvalue()


def test_without_room_for_it_the_sweep_is_as_good(tmp_path):
    (tmp_path / "tune/trial-0001").mkdir(parents=True)
    (tmp_path / "tune/trial-0001/result.json").write_text("{}")
    (tmp_path / "tune/.marker").write_text("")
    (tmp_path / "file").write_text("")
    assert "Tune's own experiment is not kept: cannot write" in kept(tmp_path / "tune", Store(str(tmp_path / "file/r")))
    assert not kept(tmp_path / "tune", Store(str(tmp_path / "r")))
    assert [one.name for one in (tmp_path / "r").rglob("*") if one.is_file()] == ["result.json"]


def test_a_sweep_that_had_nothing_left_to_run_keeps_none(tmp_path):
    (tmp_path / "tune").mkdir()
    assert not kept(tmp_path / "tune", Store(str(tmp_path / "r")))
    assert not (tmp_path / "r").exists()
