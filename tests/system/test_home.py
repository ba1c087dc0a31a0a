"""Where the home is found, and that what is made of it is private."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from engrain.contracts.errors import InvalidValue, UnsafeFile
from engrain.system.environment import Environment
from engrain.system.home import Home, find_home, make_private_path, user_data_folder


def _mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_the_named_home_wins_over_the_environment() -> None:
    assert find_home("/srv/named", Environment(home="/srv/other")).path == Path("/srv/named")


def test_the_environment_wins_over_the_data_folder() -> None:
    found = find_home(None, Environment(home="/srv/home", data_home="/srv/data"))
    assert found.path == Path("/srv/home")


def test_without_a_name_the_home_is_in_the_users_data_folder(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("HOME", "/home/ana")
    monkeypatch.setattr("sys.platform", "linux")
    assert find_home(None, Environment()).path == Path("/home/ana/.local/share/engrain")
    assert find_home(None, Environment(data_home="/data")).path == Path("/data/engrain")


def test_a_mac_keeps_the_home_in_application_support() -> None:
    found = user_data_folder(Environment(data_home="/data"), "darwin")
    assert found == Path("~/Library/Application Support")


def test_a_relative_data_folder_is_ignored() -> None:
    assert user_data_folder(Environment(data_home="data"), "linux") == Path("~/.local/share")


def test_a_relative_home_counts_from_the_working_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", "/home/ana")
    assert find_home("here", Environment()).path == tmp_path / "here"
    assert find_home("~/there", Environment()).path == Path("/home/ana/there")


def test_an_empty_name_is_refused_and_not_taken_for_the_default() -> None:
    with pytest.raises(InvalidValue, match="home"):
        find_home("", Environment())


def test_an_account_without_a_home_folder_is_told_what_to_do() -> None:
    with pytest.raises(InvalidValue, match="ENGRAIN_HOME"):
        find_home("~no-such-account-here/engrain", Environment())


def test_an_empty_home_variable_does_not_lead_to_the_root_of_the_system(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("HOME", "")
    with pytest.raises(InvalidValue, match="pass --home"):
        find_home(None, Environment())
    assert find_home(None, Environment(home="/srv/home")).path == Path("/srv/home")


def test_the_layout_is_what_the_specification_says() -> None:
    home = Home(Path("/h"))
    assert home.database == Path("/h/memory/engrain.sqlite3")
    assert home.assets == Path("/h/memory/assets")
    assert home.models == Path("/h/models")
    assert home.postgres == Path("/h/postgres")


@pytest.mark.invariant("INV-01")
def test_folders_that_are_made_are_private_whatever_the_umask(tmp_path: Path) -> None:
    home = Home(tmp_path / "a" / "b")
    before = os.umask(0)
    try:
        home.prepare()
    finally:
        os.umask(before)
    assert [_mode(path) for path in (home.path.parent, home.path, home.memory)] == [0o700] * 3
    assert not home.assets.exists()


def test_preparing_twice_changes_nothing(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    home = Home(tmp_path)
    home.prepare()
    home.memory.joinpath("kept").touch()
    home.prepare()
    assert home.memory.joinpath("kept").exists()
    assert _mode(tmp_path) == 0o755


@pytest.mark.invariant("INV-01")
@pytest.mark.parametrize("part", ["path", "memory"])
def test_a_home_that_others_can_write_to_is_refused_by_name(tmp_path: Path, part: str) -> None:
    home = Home(tmp_path / "home")
    home.prepare()
    folder: Path = getattr(home, part)
    folder.chmod(0o770)
    with pytest.raises(UnsafeFile, match=f"{folder}: is writable by others"):
        home.prepare()


def test_a_file_in_the_way_is_refused_by_name(tmp_path: Path) -> None:
    tmp_path.joinpath("file").touch()
    for path in (tmp_path / "file", tmp_path / "file" / "below"):
        with pytest.raises(UnsafeFile, match="file"):
            make_private_path(path)


def test_a_dangling_link_in_the_way_is_refused(tmp_path: Path) -> None:
    tmp_path.joinpath("link").symlink_to(tmp_path / "nowhere")
    with pytest.raises(UnsafeFile, match="is not a directory"):
        make_private_path(tmp_path / "link")
