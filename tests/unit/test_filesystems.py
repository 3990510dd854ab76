"""What lies on another machine is told, and no database is opened there (EN-26)."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path

import pytest

from broker import filesystems
from broker.errors import HomeError
from broker.paths import Home

Mount = Callable[[Iterable[tuple[str, str]]], None]

MOUNTS = (
    ("/", "ext4"),
    ("/mnt", "ext4"),
    ("/mnt/nas", "nfs4"),
    ("/mnt/nas/local", "xfs"),
    ("/mnt/n", "CIFS"),
    ("/s", "fuse.sshfs"),
)


@pytest.fixture
def mount(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[Iterable[tuple[str, str]]], None]:
    """Writes the table of mounts."""

    def write(rows: Iterable[tuple[str, str]]) -> None:
        table = tmp_path / "mounts"
        lines = (f"what {point.replace(' ', chr(92) + '040')} {kind} rw,relatime 0 0\n" for point, kind in rows)
        table.write_text("".join(lines))
        monkeypatch.setattr(filesystems, "_TABLE", str(table))

    return write


@pytest.mark.requirement("EN-26", "SE-06")
@pytest.mark.parametrize(
    ("path", "kind", "network"),
    [
        ("/home/u/.cross-agent", "ext4", False),
        ("/mnt/nas", "nfs4", True),
        ("/mnt/nas/u/.cross-agent", "nfs4", True),
        ("/mnt/nas/local/x", "xfs", False),
        ("/mnt/nasty", "ext4", False),
        ("/mnt/n/x", "CIFS", True),
        ("/s/there", "fuse.sshfs", True),
    ],
)
def test_the_nearest_mount_above_a_path_tells(mount: Mount, path: str, kind: str, network: bool) -> None:
    mount(MOUNTS)
    assert (filesystems.kind_of(path), filesystems.is_network(path)) == (kind, network)


@pytest.mark.requirement("EN-26")
def test_a_link_to_the_network_lies_there(mount: Mount, tmp_path: Path) -> None:
    (tmp_path / "a real one").mkdir()
    (tmp_path / "link").symlink_to("a real one")
    mount((("/", "ext4"), (str(tmp_path / "a real one"), "nfs")))
    assert filesystems.is_network(str(tmp_path / "link" / "state"))
    assert not filesystems.is_network(str(tmp_path))


@pytest.mark.requirement("EN-26")
def test_what_is_mounted_later_on_one_place_counts(mount: Mount) -> None:
    mount((("/home", "nfs4"), ("/home", "ext4")))
    assert not filesystems.is_network("/home/u")


@pytest.mark.requirement("EN-26")
def test_a_table_that_cannot_be_read_stops_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(filesystems, "_TABLE", "/nowhere")
    assert not filesystems.is_network("/home/u")


@pytest.mark.requirement("EN-26")
def test_no_state_directory_is_made_on_the_network(mount: Mount, tmp_path: Path) -> None:
    mount((("/", "nfs4"),))
    home = Home(str(tmp_path / "state"))
    with pytest.raises(HomeError, match="nfs4") as caught:
        home.prepare()
    assert "CROSS_AGENT_HOME" in caught.value.next_step
    assert not (tmp_path / "state").exists()
