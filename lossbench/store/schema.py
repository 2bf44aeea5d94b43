"""The fields of record.json as strict types; every record is validated against them when it is read.

pydantic only validates and builds no objects: a report reads thousands of records. Unknown keys are ignored.
"""

from __future__ import annotations

from typing import Annotated, Any, NotRequired

from pydantic import Field, TypeAdapter, ValidationError
from pydantic_core import from_json
from typing_extensions import TypedDict

from lossbench.core.model import GEOMETRY, SCORED, Cause, CellKind, Status

Number = Annotated[float, Field(allow_inf_nan=False)]
Seconds = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Count = Annotated[int, Field(ge=0)]
InPlane = Annotated[list[Number], Field(min_length=2, max_length=2)]


class _Spec(TypedDict):
    name: str
    options: dict[str, Any]
    label: str
    source: str


class _Plan(TypedDict):
    key: str
    kind: CellKind
    dataset: _Spec
    backbone: _Spec
    losses: Annotated[list[_Spec], Field(min_length=1)]


class _Cell(TypedDict):
    kind: CellKind


class _Point(TypedDict):
    step: Count
    loss: Number
    correct: NotRequired[Count | None]


class _Features(TypedDict):
    points: list[InPlane]
    labels: list[Count]
    weights: list[InPlane]


class _Timing(TypedDict):
    phases: NotRequired[dict[str, dict[str, Annotated[list[Number], Field(min_length=1)]]]]
    disturbed: NotRequired[Count]
    process: NotRequired[list[Count]]  # older records have none: all their rounds are of one process


class _Environment(TypedDict):
    fingerprint: NotRequired[str | None]


class _Value(TypedDict):
    value: Number | None


class _Rate(_Value):
    far: Number


class _Verification(TypedDict):
    auc: _Value
    eer: _Value
    tar: list[_Rate]


_Geometry = TypedDict("_Geometry", dict.fromkeys(GEOMETRY, Number | None))  # type: ignore[misc]  # its keys are schema's


class _Record(TypedDict):
    version: int
    key: str
    status: Status
    error: str | None
    cause: Cause | None
    label: str
    cell: _Cell
    correct: Count | None
    total: Count | None
    accuracy: Number | None
    seconds: dict[str, Number | None]
    bytes: dict[str, Count | None]
    angles: dict[str, list[Number | None]]
    geometry: _Geometry
    verification: dict[str, Any]
    counts: NotRequired[dict[str, Count]]  # older records have none, nor metrics
    metrics: NotRequired[dict[str, Number | None]]
    measured: NotRequired[dict[str, str]]
    curve: list[_Point]
    rounds: dict[str, Annotated[list[Seconds], Field(min_length=1)]]
    features: _Features | None
    timing: _Timing
    flags: list[str]
    digest: str | None
    environment: _Environment
    plan: _Plan
    files: dict[str, str]
    kept: NotRequired[dict[str, str]]


_RECORD = TypeAdapter(_Record).validator
_VERIFICATION = TypeAdapter(_Verification).validator


def parsed(content: bytes, version: int) -> dict[str, Any]:
    """A record of this version from its JSON text; ValueError says what is wrong."""
    try:
        data: dict[str, Any] = from_json(content)
    except ValueError:
        raise ValueError("record.json is not JSON") from None
    if isinstance(data, dict) and data.get("version") != version:
        raise ValueError(_other_version(data.get("version"), version))
    if wrong := _wrong(_RECORD, data):
        raise ValueError(f"record.json does not have the fields of a record: {wrong}")
    _check_results(data)
    if data["verification"]:
        _check_verification(data["verification"])
    if data["rounds"]:
        _check_rounds(data)
    return data


def _wrong(validator: Any, data: Any) -> str:
    """The first error in words; empty if the data is valid."""
    try:
        validator.validate_python(data, strict=True)
    except ValidationError as error:
        return _said(error.errors(include_url=False, include_input=False)[0])
    return ""


def _said(error: Any) -> str:
    where = ".".join(map(str, error["loc"]))
    if error["type"] == "missing":
        return f"'{where}' is missing"
    return f"'{where}': {error['msg']}" if where else error["msg"]


def _other_version(found: Any, version: int) -> str:
    said = "has no version" if found is None else f"has version {found!r:.20}"
    return (
        f"record.json {said}, and this lossbench reads version {version}: report it with the version that "
        "wrote it, or run the suite to train the cell again"
    )


def _check_results(data: dict[str, Any]) -> None:
    correct, total, accuracy = data["correct"], data["total"], data["accuracy"]
    if data["status"] == "done" and data["plan"]["kind"] in SCORED and (correct is None or not total):
        raise ValueError("it is done, but 'correct' or 'total' is missing")
    if correct is None or not total:
        stated = accuracy is None
    else:
        stated = correct <= total and accuracy is not None and abs(accuracy - 100 * correct / total) < 1e-9
    if not stated:
        raise ValueError(f"its accuracy ({accuracy}) is not {correct} of {total} in percent")


def _check_verification(found: dict[str, Any]) -> None:
    if wrong := _wrong(_VERIFICATION, found):
        raise ValueError(f"'verification' does not have its fields: {wrong}")


def _check_rounds(data: dict[str, Any]) -> None:
    losses = {spec["label"] for spec in data["plan"]["losses"]}
    if strange := next(
        (label for label in (*data["rounds"], *data["timing"].get("phases", ())) if label not in losses), ""
    ):
        raise ValueError(f"its rounds are of '{strange}', which is not a loss of the cell")
    counts = {len(seconds) for seconds in data["rounds"].values()}
    if len(counts) > 1:
        raise ValueError("its losses do not have the same number of rounds")
    if "process" in data["timing"] and {len(data["timing"]["process"])} != counts:
        raise ValueError("'timing.process' does not have one entry per round")
