"""What is read from the environment, and what counts as absent."""

from __future__ import annotations

import pwd

import pytest

from engrain.contracts.errors import InvalidValue
from engrain.system.environment import Environment, read_environment, read_login_name


def test_every_variable_is_read_under_its_own_name() -> None:
    found = read_environment(
        {
            "ENGRAIN_HOME": "/srv/home",
            "ENGRAIN_DB": "postgresql://db/engrain",
            "ENGRAIN_ORG": "acme",
            "ENGRAIN_USER": "ana",
            "XDG_DATA_HOME": "/srv/data",
            "ENGRAIN_OTHER": "ignored",
        }
    )
    assert (found.home, found.db) == ("/srv/home", "postgresql://db/engrain")
    assert (found.org, found.user, found.data_home) == ("acme", "ana", "/srv/data")


@pytest.mark.parametrize("value", ["", None])
def test_an_empty_variable_is_an_absent_one(value: str | None) -> None:
    names = ("ENGRAIN_HOME", "ENGRAIN_DB", "ENGRAIN_ORG", "ENGRAIN_USER", "XDG_DATA_HOME")
    variables = {} if value is None else dict.fromkeys(names, value)
    assert read_environment(variables) == Environment()


def test_the_process_environment_is_read_when_it_is_asked_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("ENGRAIN_USER", "ana")
    assert read_environment().user == "ana"
    monkeypatch.setenv("ENGRAIN_USER", "ben")
    assert read_environment().user == "ben"


@pytest.mark.invariant("INV-26")
def test_a_password_in_the_database_url_does_not_show_in_a_repr() -> None:
    found = read_environment({"ENGRAIN_DB": "postgresql://ana:hunter2@db/engrain"})
    assert "hunter2" not in repr(found)


def test_the_login_name_is_the_default_user(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOGNAME", "ana")
    assert read_login_name() == "ana"


def test_an_account_without_a_login_name_is_told_what_to_do(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in ("LOGNAME", "USER", "LNAME", "USERNAME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(pwd, "getpwuid", lambda _uid: {}["no such account"])
    with pytest.raises(InvalidValue, match="ENGRAIN_USER"):
        read_login_name()
