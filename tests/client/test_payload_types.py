"""The types of a payload, and the errors for invalid ones (docs/reference/payloads.md)."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypedDict

import msgspec
import pytest

from tidemill import ConfigurationError, Context, InvalidPayload, Retry, Tidemill, Unique, testing

PAGE = Path(__file__).parents[2] / "docs/reference/payloads.md"


@dataclass
class Mayor:
    name: str


@dataclass
class City:
    name: str
    country: str = "IT"
    mayor: Mayor | None = None
    twins: list[City] = field(default_factory=list)


class Trip(TypedDict):
    start: City
    by_day: dict[str, City]


class Walk(msgspec.Struct, tag=True):
    steps: int


class Ride(msgspec.Struct, tag=True):
    line: str


class Plain: ...


@pytest.fixture
def app() -> Tidemill:
    return Tidemill("memory://")


def test_every_example_of_the_page_runs() -> None:
    blocks = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    names: dict[str, Any] = {"__name__": "page"}
    for block in blocks:
        exec(compile(block, str(PAGE), "exec", dont_inherit=True), names)  # noqa: S102 - the page is ours
    with testing.kit(names["app"]) as kit:
        sent = names["send"]()
        kit.run_until_idle()
        assert all(kit.job(job).state == "done" for job in sent)


@pytest.mark.parametrize(
    ("annotation", "where"),
    [(Plain, "Plain"), (list[Plain], "Plain"), (dict[str, Plain | None], "Plain"), (object, "object")],
)
def test_a_type_without_json_form_is_refused_when_the_task_is_declared(
    app: Tidemill, annotation: Any, where: str
) -> None:
    def takes(city: Any) -> None: ...
    def gives() -> Any: ...

    takes.__annotations__["city"] = gives.__annotations__["return"] = annotation
    with pytest.raises(
        ConfigurationError, match=rf"parameter city: {where} cannot be read from JSON.*dataclass"
    ):
        app.task(takes)
    with pytest.raises(ConfigurationError, match=rf"return: {where} cannot be read from JSON.*TypedDict"):
        app.task(gives)


SENT: list[tuple[bytes, str]] = [
    (
        b'{"city": {"name": "x", "zip": 3}}',
        "city: City has no field 'zip'; it has name, country, mayor, twins",
    ),
    (b'{"city": {"name": "x", "mayor": {"name": "y", "age": 3}}}', "city.mayor: Mayor has no field 'age'"),
    (
        b'{"city": {"name": "x", "twins": [{"name": "y"}, {"name": "z", "zip": 1}]}}',
        "city.twins[1]: City has",
    ),
    (
        b'{"trip": {"start": {"name": "x"}, "by_day": {"1": {"name": "y", "o": 1}}}}',
        "trip.by_day.1: City has",
    ),
    (b'{"trip": {"start": {"name": "x"}, "by_day": {}, "end": 1}}', "trip: Trip has no field 'end'"),
    (b'{"way": {"type": "Ride", "line": "5", "steps": 3}}', "way: Ride has no field 'steps'; it has line"),
]


def _travel(app: Tidemill) -> Any:
    @app.task(name="travel")
    def travel(
        city: City | None = None, trip: Trip | None = None, way: Walk | Ride | None = None, rest: Any = None
    ) -> None: ...

    return travel


@pytest.mark.parametrize(("payload", "says"), SENT)
def test_an_unknown_member_is_refused_at_enqueue(app: Tidemill, payload: bytes, says: str) -> None:
    travel = _travel(app)
    with pytest.raises(InvalidPayload) as caught:
        travel.definition.payload.decode_strictly(payload)
    assert str(caught.value).startswith(says)
    with pytest.raises(InvalidPayload, match=re.escape(says)):
        travel.job(**msgspec.json.decode(payload))


@pytest.mark.parametrize(("payload", "_says"), SENT)
def test_an_unknown_member_is_ignored_at_run_time(app: Tidemill, payload: bytes, _says: str) -> None:
    """A worker must run the jobs of a producer that is a version ahead."""
    _travel(app).definition.payload.decode(payload)


def test_valid_json_is_accepted(app: Tidemill) -> None:
    travel = _travel(app)
    travel.job(City("x", twins=[City("y")]), {"start": City("x"), "by_day": {"1": City("y")}}, Ride("5"))
    travel.job(way={"type": "Walk", "steps": 3}, city={"name": "x"}, rest={"any": [{"thing": 1}]})


@pytest.mark.parametrize(
    ("call", "says"),
    [
        ({"city": "Pisa"}, "city: must be a City (name, country, mayor, twins) or null, is a string"),
        (
            {"trip": {"start": 5, "by_day": {}}},
            "trip.start: must be a City (name, country, mayor, twins), is a whole",
        ),
        ({"trip": {"start": City("x"), "by_day": {"1": []}}}, "must be a City"),
        ({"city": {"name": 5}}, "Expected `str`, got `int` - at `city.name`"),
    ],
)
def test_an_error_names_the_type_and_its_fields(app: Tidemill, call: dict[str, Any], says: str) -> None:
    with pytest.raises(InvalidPayload) as caught:
        _travel(app).job(**call)
    assert says in str(caught.value)


def test_a_context_that_is_not_first_is_refused(app: Tidemill) -> None:
    def late(number: int, ctx: Context) -> None: ...
    def twice(ctx: Context, other: Context) -> None: ...

    def by_keyword(*, ctx: Context) -> None: ...

    handlers: list[Callable[..., None]] = [late, twice, by_keyword]
    for handler in handlers:
        with pytest.raises(ConfigurationError, match=r"parameter (ctx|other): .* one Context; put it first"):
            app.task(handler)


def test_a_context_annotated_as_something_else_is_refused(app: Tidemill) -> None:
    def perhaps(ctx: Context | None) -> None: ...
    def nameless(ctx, number: int) -> None: ...  # type: ignore[no-untyped-def]

    with pytest.raises(ConfigurationError, match=r"parameter ctx: .* annotate it plain Context"):
        app.task(perhaps)
    with pytest.raises(ConfigurationError, match=r"parameter ctx: the annotation is missing; .*ctx: Context"):
        app.task(nameless)


def test_a_handler_that_yields_is_refused(app: Tidemill) -> None:
    def plain() -> Iterator[int]:
        yield 1

    async def awaited() -> AsyncIterator[int]:
        yield 1

    handlers: list[Callable[..., object]] = [plain, awaited]
    for handler in handlers:
        with pytest.raises(ConfigurationError, match=r"is a generator, .* return the result"):
            app.task(handler)


@pytest.mark.parametrize("option", ["key", "unique"])
@pytest.mark.parametrize(
    "function",
    [lambda town: town, lambda city: city, lambda city, day, more: city, lambda city, /, **r: city],
)
def test_a_function_that_does_not_fit_the_parameters_is_refused(
    app: Tidemill, option: str, function: Callable[..., Any]
) -> None:
    def visit(city: str, day: int = 1) -> None: ...

    with pytest.raises(
        ConfigurationError, match=rf"{option}: .* by their names \(city, day\); take all of them"
    ):
        app.task(**{option: function})(visit)  # type: ignore[call-overload]


def test_a_function_gets_the_arguments_by_name_however_they_were_given(app: Tidemill) -> None:
    @app.task(key=lambda day, city: f"{city} {day}", unique=lambda city, **_: Unique(city))
    def visit(city: str, day: int = 1) -> None: ...

    for request in (visit.job("x"), visit.job("x", 1), visit.job(day=1, city="x")):
        assert (request.job.key, request.job.unique) == ("x 1", Unique("x"))


def test_a_key_function_gets_the_same_values_as_the_handler(app: Tidemill) -> None:
    """A caller may pass a dict for a dataclass and an int for a float: the key is the same."""

    @app.task(key=lambda city, size: f"{city.name} {size}", unique=lambda city, **_: Unique(city.name))
    def visit(city: City, size: float) -> None: ...

    for city in (City("x"), {"name": "x"}):
        request = visit.job(city, 1)  # type: ignore[arg-type]
        assert (request.job.key, request.job.unique) == ("x 1.0", Unique("x"))


@pytest.mark.parametrize("wrong", ["ValueError", (ValueError, 5), int, [None]])
@pytest.mark.parametrize("option", ["on", "give_up_on"])
def test_a_retry_on_a_type_that_is_no_error_is_refused(app: Tidemill, option: str, wrong: Any) -> None:
    def work() -> None: ...

    with pytest.raises(ConfigurationError, match=rf"retry\.{option}: must be exception types, or functions"):
        app.task(retry=Retry(**{option: wrong}))(work)
