"""Schedules in a user's own tests: a kit lets them tick."""

from __future__ import annotations

from datetime import UTC, datetime

from tidemill import Tidemill, testing

NOON = datetime(2030, 6, 1, 12, tzinfo=UTC).timestamp()


def program() -> tuple[Tidemill, list[str]]:
    app, ran = Tidemill("memory://"), list[str]()

    @app.task(name="note")
    async def note(text: str) -> None:
        ran.append(text)

    app.schedule("nightly", note.job("night"), cron="0 3 * * *", tz="Asia/Shanghai")
    return app, ran


def test_a_day_has_one_night() -> None:
    app, ran = program()
    with testing.kit(app, start=NOON) as kit:
        kit.run_for(86_400)
        assert ran == ["night"]
        assert kit.run(app.schedules.get("nightly")).last_job == "nightly@2030-06-01T19:00:00Z"
        kit.run_for(3 * 86_400)
        assert ran == ["night"] * 4


async def test_the_awaited_kit_too() -> None:
    app, ran = program()
    async with testing.kit(app, start=NOON) as kit:
        await kit.run_for(86_400)
        assert ran == ["night"]
        await app.schedules.run_now("nightly")
        await kit.run_until_idle()
        assert ran == ["night", "night"]
