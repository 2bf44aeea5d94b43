"""`lossbench.run` from Python: a suite as a dict, typed filters, events."""

from __future__ import annotations

import tomllib

import pytest
from conftest import SMALL

import lossbench
from lossbench import api
from lossbench.core.errors import SuiteError


def test_a_dict_means_the_same_cells_as_its_file(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    text = SMALL.replace('"w_softmax"]', '{ name = "w_softmax", alpha = [0.5, 1.0] }]') + "warm_start = { steps = 2 }\n"
    text += '\n[profile.tiny]\nnote = "Line 1\\nΔ \\"2\\""\nall = { seeds = 1 }\n'
    (tmp_path / "suite.toml").write_text(text)
    for profile in (None, "tiny"):
        one, other = (api.prepare(suite, profile=profile) for suite in ("suite.toml", tomllib.loads(text)))
        assert one.cells == other.cells
        assert [cell.key for cell in one.cells] == [cell.key for cell in other.cells]
        assert one.suite.info == other.suite.info
    assert tomllib.loads(other.suite.text) == tomllib.loads(text)


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"naem": "x"}, "suite: naem: unknown key 'naem'; did you mean 'name'?"),
        ({"title": {1, 2}}, "suite: title: is a set; a suite holds text, numbers, true, false, lists and tables"),
        ({"experiment": []}, "suite: experiment: must be a list of at least one item"),
    ],
)
def test_a_wrong_dict_is_one_sentence(change, sentence):
    with pytest.raises(SuiteError) as refused:
        api.prepare(tomllib.loads(SMALL) | change)
    assert str(refused.value).startswith(sentence) and "\n" not in str(refused.value)


def test_a_run_reports_events_and_returns_its_records(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    events: list[lossbench.Event] = []
    result = lossbench.run(
        tomllib.loads(SMALL), losses=["w_softmax"], seeds=[0, 1], reports=None, jobs=1, on_event=events.append
    )
    assert isinstance(result, lossbench.RunResult)
    assert [(event.kind, event.cell.seed) for event in events] == [
        ("started", 0),
        ("ended", 0),
        ("started", 1),
        ("ended", 1),
    ]
    assert {event.record["status"] for event in events if event.kind == "ended"} == {"done"}
    assert list(result.records["label"]) == ["w_softmax", "w_softmax"]
    assert len(lossbench.load_records(result.folder)) == 2
    again = api.prepare(result.folder / "suite.toml")  # what is kept with the run is a suite file
    assert {cell.key for cell in again.cells} > set(result.statuses)


def test_an_unknown_parameter_is_a_type_error_before_anything_happens(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(TypeError, match="loses"):
        lossbench.run("quick", loses=["softmax"])
    assert list(tmp_path.iterdir()) == []
