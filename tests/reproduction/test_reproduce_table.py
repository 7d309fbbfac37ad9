from typing import Any

import pytest

from benchmarks.reproduce_table import LAST, insert, key_of

REPORT: dict[str, Any] = {
    "title": "Ablation, on stage by pose",
    "about": {
        "command": "inphase reproduce ablation --data stage --modality pose --seeds 3 --budget small",
        "trained on": "2 × a processor",
        "training took": "0:03:00, 15 runs together",
        "not comparable": "other data",
    },
    "notes": ["GTA is good."],
    "tables": [
        {
            "title": "Ablation",
            "head": ["", "τ, %", "paper: FineGym101"],
            "rows": [["GTA", {"mean": 71.234, "deviation": 1.0, "count": 3}, "49.51"], ["none", None, None]],
            "note": "Mean.",
        },
        {"title": "τ by action, %", "head": ["", "GTA"], "rows": [["kick", None]], "note": "Mean."},
        {"title": "Runs", "head": ["", "seed"], "rows": [["GTA", "0"]], "note": ""},
    ],
}


def test_a_report_finds_its_place_and_keeps_it() -> None:
    page = f"# Title\n\n{LAST}\nThe end.\n"
    once = insert(page, REPORT)
    assert "| GTA | 71.2 ± 1.00 | 49.51 |\n| none | – | – |" in once
    assert "τ by action, %:\n\n|  | GTA |\n| --- | ---: |\n| kick | – |" in once
    assert "| GTA | 0 |" not in once
    assert "Not comparable with the paper: other data." in once
    assert insert(once, REPORT) == once
    other = {**REPORT, "about": {**REPORT["about"], "command": "inphase reproduce few-shot --data stage"}}
    both = insert(once, other)
    assert both.count("<!-- report ") == 2
    beside = insert(both, REPORT, suffix="newer")
    assert beside.count("<!-- report ablation stage pose small") == 2
    assert insert(beside, REPORT, suffix="newer") == beside
    better = {**REPORT, "title": "Ablation again"}
    again = insert(both, better)
    assert again.count("<!-- report ") == 2
    assert "### Ablation again" in again
    assert again.endswith("The end.\n")


def test_reports_differ_by_the_data_they_were_run_on() -> None:
    assert key_of(REPORT["about"]["command"]) == "ablation stage pose small"
    with pytest.raises(ValueError, match="has no single line"):
        insert("# Title\n", REPORT)
