"""Errors do not show the values that were passed (I30)."""

from __future__ import annotations

import contextlib
import io
import warnings

import pydantic
import pytest
import structlog

from tidemill import InvalidPayload, Task, Tidemill
from tidemill.logs import LogFormat, configure


class Login(pydantic.BaseModel):
    user: str
    token: int


def _sign_in(app: Tidemill) -> Task[[Login], None]:
    @app.task(name="sign in")
    def sign_in(login: Login) -> None: ...

    return sign_in


def test_an_error_of_pydantic_names_the_field_and_not_the_value_i30() -> None:
    codec = _sign_in(Tidemill("memory://")).definition.payload
    with pytest.raises(InvalidPayload) as caught:
        codec.decode(b'{"login": {"user": "a", "token": "sk-secret"}}')
    assert "token: Input should be a valid integer" in str(caught.value)
    assert "`login`" in str(caught.value)
    assert "secret" not in str(caught.value)


def test_an_invalid_model_is_refused_without_its_value_i30() -> None:
    broken = Login.model_construct(user="sk-secret", token="sk-secret")  # noqa: S106 - what must not be shown
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(InvalidPayload, match="token") as caught:
            _sign_in(Tidemill("memory://")).job(broken)
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize("chosen", ["json", "console"])
def test_a_logged_traceback_shows_no_variables_i30(chosen: LogFormat) -> None:
    before = structlog.get_config() if structlog.is_configured() else None
    lines = io.StringIO()
    structlog.reset_defaults()
    try:
        configure(format=chosen)
        with contextlib.redirect_stderr(lines):
            _log_an_error("sk-secret")
    finally:
        structlog.reset_defaults()
        if before is not None:
            structlog.configure(**before)
    assert "ZeroDivisionError" in lines.getvalue()
    assert "sk-secret" not in lines.getvalue()


def _log_an_error(token: str) -> None:
    try:
        len(token) / 0
    except ZeroDivisionError:
        structlog.get_logger().exception("it broke")
