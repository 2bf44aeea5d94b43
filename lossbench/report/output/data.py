"""Results → files for programs: CSV, Parquet where pyarrow is installed, and report.json with all that is stated."""

from __future__ import annotations

import importlib.util
import io
import json
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from lossbench import stats
from lossbench.analysis.ranks import Ranking
from lossbench.analysis.records import flat
from lossbench.analysis.results import Results
from lossbench.core.plain import cell
from lossbench.report.blocks import Figure, Prose, Section, Table
from lossbench.report.output.schema import VERSION, ReportData


def files(results: Results, sections: Sequence[Section]) -> dict[str, bytes]:
    """The contents of every file for programs, by name."""
    frames = {
        "records": results.plain_records,
        "comparisons": results.comparisons,
        "claims": results.claims,
        "published": results.published,
    }
    if results.info.tuning:
        frames["tuning"] = results.tuning
    frames = {name: flat(frame) for name, frame in frames.items()}
    found = {f"{name}.csv": _csv(frame) for name, frame in frames.items()}
    found["report.json"] = (json.dumps(stated(results, sections), indent=1, ensure_ascii=False) + "\n").encode(
        errors="backslashreplace"
    )
    if importlib.util.find_spec("pyarrow"):
        found |= {f"{name}.parquet": _parquet(frame) for name, frame in frames.items()}
    return found


def stated(results: Results, sections: Sequence[Section]) -> dict[str, Any]:
    """Everything that the report states, as plain data that fits the schema; what is not a number is null."""
    info = results.info
    found = {
        "version": VERSION,
        "suite": info.name,
        "title": info.title,
        "profile": info.profile,
        "overrides": info.overrides,
        "note": info.note,
        "command": info.command,
        "baseline": info.baseline,
        "headline": info.headline,
        "margin": info.margin,
        "metrics": [metric.to_json() for metric in info.metrics],
        "level": stats.LEVEL,
        "runs": list(results.runs),
        "statuses": dict(sorted(results.statuses.items())),
        "missing": dict(info.missing),
        "damaged": dict(results.damaged),
        "losses": results.labels,
        "main": _rows(results.main),
        "comparisons": _rows(results.comparisons),
        "claims": _rows(results.claims),
        "published": _rows(results.published),
        "tuning": info.tuning
        and {
            "lr": info.tuning.schedule.get("lr", ""),
            **vars(info.tuning),
            "losses": _rows(results.tuning),
        },
        "ranks": next(map(_ranks, results.rankings), None),
        "rankings": [_ranks(ranking) for ranking in results.rankings],
        "phases": _rows(results.phases),
        "front": _rows(results.front),
        "threats": [warning._asdict() for warning in results.warnings],
        "environments": results.environments,
        "sections": [
            {
                "slug": part.slug,
                "title": part.title,
                "appendix": part.appendix,
                "blocks": [_block(block) for block in part.blocks],
            }
            for part in sections
        ],
    }
    return ReportData.model_validate(plain(found)).model_dump()


def _rows(frame: pd.DataFrame) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = flat(frame).to_dict("records")
    return found


def _ranks(ranking: Ranking) -> dict[str, Any]:
    return {
        "task": ranking.task,
        "backbone": ranking.backbone,
        "averaged": list(ranking.averaged),
        "datasets": ranking.table.datasets,
        "losses": ranking.table.losses,
        "means": ranking.table.means.tolist(),
        "ranks": ranking.test.ranks.tolist(),
        "n": ranking.test.datasets,
        "chi2": ranking.test.chi2,
        "f": ranking.test.f,
        "p": ranking.test.p,
        "critical_difference": ranking.difference if ranking.enough else None,
        "groups": ranking.groups if ranking.enough else None,
    }


def _block(block: Prose | Table | Figure) -> dict[str, Any]:
    match block:
        case Prose(text, code, lead):
            return {"kind": "prose", "text": f"{lead} {text}".strip(), "code": code}
        case Figure():
            return {"kind": "figure", "name": block.name, "caption": block.caption}
        case Table():
            return {"kind": "table", "columns": block.columns, "rows": block.rows, "caption": block.caption}


def plain(value: Any) -> Any:
    """JSON's own types: NaN, infinity and missing values are null."""
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if isinstance(value, np.generic):
        value = value.item()
    return None if value is pd.NA or (isinstance(value, float) and not math.isfinite(value)) else value


def _csv(frame: pd.DataFrame) -> bytes:
    """A frame as CSV in which no text is read as a formula by a spreadsheet; numbers stay numbers."""
    plainer = frame.copy()
    for name in plainer.select_dtypes(exclude="number"):
        if any(isinstance(value, str) for value in plainer[name]):
            plainer[name] = [cell(value) if isinstance(value, str) else value for value in plainer[name]]
    text: str = plainer.to_csv(index=False, lineterminator="\n")
    return text.encode()


def _parquet(frame: pd.DataFrame) -> bytes:
    """A frame as Parquet; lists and tables become JSON text."""
    plainer = frame.copy()
    for name in plainer:
        if any(isinstance(value, dict | list | tuple) for value in plainer[name]):
            plainer[name] = [json.dumps(plain(value)) for value in plainer[name]]
    buffer = io.BytesIO()
    plainer.to_parquet(buffer, index=False)
    return buffer.getvalue()
