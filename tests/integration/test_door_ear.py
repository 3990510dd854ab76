"""Where agents tell what became of a message: who is listened to, where, and that nothing stays behind."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import stat
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from broker.doors import ear as ear_module
from broker.doors.ear import Ear
from broker.processes import ProcessId, identify
from shims.claude.inbox import DOOR
from shims.door import News, Notice

pytestmark = pytest.mark.requirement("LD-02", "LD-06")

PATIENCE = 10.0
HELD = json.dumps({"action": "peer_message_status", "orig_msg_id": "k1", "status": "held"}).encode() + b"\n"
DENIED = HELD.replace(b"held", b"denied")


TELLS = """
import socket, sys
made = socket.socket(socket.AF_UNIX)
made.connect(sys.argv[1])
made.sendall(sys.argv[2].encode())
sys.stdin.read()
"""


class Hearing:
    """An ear, and what it was told."""

    def __init__(self, home: Path | str) -> None:
        self.heard: list[tuple[Notice, ProcessId | None]] = []
        self.news = asyncio.Event()
        self.ear = Ear(str(home), self._heard)

    def _heard(self, notice: Notice, teller: ProcessId | None) -> None:
        self.heard.append((notice, teller))
        self.news.set()

    async def next(self) -> tuple[Notice, ProcessId | None]:
        await asyncio.wait_for(self.news.wait(), PATIENCE)
        self.news.clear()
        return self.heard[-1]


@asynccontextmanager
async def hearing(home: Path | str) -> AsyncIterator[Hearing]:
    made = Hearing(home)
    try:
        yield made
    finally:
        made.ear.close()


@pytest.fixture
def place(home: Path) -> Path:
    """A directory of an agent's, of this user alone, with a short path."""
    made = home / "cc-socks"
    made.mkdir(mode=0o700)
    return made


async def say(path: str, *lines: bytes) -> None:
    _, writer = await asyncio.open_unix_connection(path)
    writer.write(b"".join(lines))
    writer.close()
    await writer.wait_closed()


async def is_closed_for(path: str, data: bytes = b"") -> bool:
    """Whether somebody who has said ``data`` and stays is let go of."""
    reader, writer = await asyncio.open_unix_connection(path)
    try:
        writer.write(data)
        return await asyncio.wait_for(reader.read(), PATIENCE) == b""
    except ConnectionError:
        return True
    finally:
        writer.close()


def me() -> ProcessId:
    found = identify(os.getpid())
    assert found is not None
    return found


# hearing


def test_a_notice_is_told_with_the_process_that_gave_it(place: Path) -> None:
    async def story() -> None:
        async with hearing("/home/one") as made:
            path = await made.ear.at(str(place), DOOR)
            await say(path, HELD)
            assert await made.next() == (Notice(("k1",), News.HELD), me())
            child = await asyncio.create_subprocess_exec(
                *(sys.executable, "-c", TELLS, path, DENIED.decode()), stdin=asyncio.subprocess.PIPE
            )
            notice, teller = await made.next()
            assert notice.news is News.DECLINED
            assert teller == identify(child.pid)
            await child.communicate(b"")  # it ends with its input

    asyncio.run(story())


def test_several_notices_may_come_at_once_and_in_pieces(place: Path) -> None:
    async def story() -> None:
        async with hearing("/home/one") as made:
            path = await made.ear.at(str(place), DOOR)
            _, writer = await asyncio.open_unix_connection(path)
            writer.write(HELD + DENIED[:20])
            await made.next()
            writer.write(DENIED[20:])
            await made.next()
            writer.close()
            assert [notice.news for notice, _ in made.heard] == [News.HELD, News.DECLINED]

    asyncio.run(story())


@pytest.mark.parametrize(
    "noise", [b"\n", b"{}\n", b"\xff\xfe\n", b"[" * 60_000 + b"\n", b"null\n7\n", HELD.replace(b"held", b"done"), HELD[:-1]]
)
def test_noise_is_passed_over(place: Path, noise: bytes) -> None:
    """The last is half a line: it counts when its sender has ended it so."""

    async def story() -> None:
        async with hearing("/home/one") as made:
            path = await made.ear.at(str(place), DOOR)
            await say(path, noise if noise.endswith(b"\n") else b"{\n")
            await say(path, DENIED)
            await made.next()
            assert [notice.news for notice, _ in made.heard] == [News.DECLINED]

    asyncio.run(story())


def test_a_line_without_an_end_is_not_read_for_ever(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ear_module, "_LONGEST", 1 << 12)

    async def story() -> None:
        async with hearing("/home/one") as made:
            path = await made.ear.at(str(place), DOOR)
            assert await is_closed_for(path, b"x" * (1 << 16))
            await say(path, DENIED)
            await made.next()

    asyncio.run(story())


def test_who_says_nothing_is_not_waited_for(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ear_module, "_PATIENCE", 0.1)

    async def story() -> None:
        async with hearing("/home/one") as made:
            path = await made.ear.at(str(place), DOOR)
            assert await is_closed_for(path)
            assert await is_closed_for(path, HELD[:10])
            assert made.heard == []

    asyncio.run(story())


def test_somebody_who_leaves_at_once_stops_nothing(place: Path) -> None:
    async def story() -> None:
        async with hearing("/home/one") as made:
            path = await made.ear.at(str(place), DOOR)
            for _ in range(50):
                with socket.socket(socket.AF_UNIX) as gone:
                    gone.connect(path)
            await say(path, DENIED)
            await made.next()

    asyncio.run(story())


# where


def test_the_place_is_its_users_alone_and_empty_again_at_the_end(place: Path) -> None:
    async def story() -> None:
        async with hearing("/home/one") as made:
            path = await made.ear.at(str(place), DOOR)
            assert os.path.dirname(path) == str(place)
            assert stat.S_IMODE(os.stat(path).st_mode) == 0o600
            assert await asyncio.gather(*(made.ear.at(str(place), DOOR) for _ in range(5))) == [path] * 5
        assert os.listdir(place) == []

    asyncio.run(story())


def test_a_directory_is_the_one_that_a_link_leads_to(place: Path, home: Path) -> None:
    (home / "link").symlink_to(place)

    async def story() -> None:
        async with hearing("/home/one") as made:
            path = await made.ear.at(str(home / "link"), DOOR)
            await say(str(place / os.path.basename(path)), HELD)
            await made.next()
        assert os.listdir(place) == []

    asyncio.run(story())


@pytest.mark.parametrize("mode", [0o770, 0o707, 0o777, 0o1777, 0o702])
def test_where_others_may_put_something_we_do_not_listen(place: Path, mode: int) -> None:
    place.chmod(mode)

    async def story() -> None:
        async with hearing("/home/one") as made:
            assert await made.ear.at(str(place), DOOR) == ""
            assert os.listdir(place) == []

    asyncio.run(story())


@pytest.mark.skipif(os.getuid() != 0, reason="only root gives files away")
def test_in_a_directory_of_another_users_we_do_not_listen(place: Path) -> None:
    os.chown(place, 65534, 65534)

    async def story() -> None:
        async with hearing("/home/one") as made:
            assert await made.ear.at(str(place), DOOR) == ""

    asyncio.run(story())


@pytest.mark.parametrize("there", ["nothing", "a file"])
def test_where_no_directory_is_we_do_not_listen(place: Path, there: str) -> None:
    path = place / "x"
    if there == "a file":
        path.touch()

    async def story() -> None:
        async with hearing("/home/one") as made:
            assert await made.ear.at(str(path), DOOR) == ""

    asyncio.run(story())


@pytest.mark.requirement("EN-04")
def test_too_long_a_path_is_none(home: Path) -> None:
    """Counted in bytes."""
    long = home / ("é" * 40)
    long.mkdir(mode=0o700)

    async def story() -> None:
        async with hearing("/home/one") as made:
            assert await made.ear.at(str(long), DOOR) == ""

    asyncio.run(story())


# what stands there already


def test_the_socket_of_a_broker_that_is_gone_is_replaced(place: Path) -> None:
    async def story() -> None:
        async with hearing("/home/one") as first:
            path = await first.ear.at(str(place), DOOR)
        with socket.socket(socket.AF_UNIX) as stale:
            stale.bind(path)
        async with hearing("/home/one") as made:
            assert await made.ear.at(str(place), DOOR) == path, "agents tell it at the same place"
            await say(path, HELD)
            await made.next()
        assert os.listdir(place) == []

    asyncio.run(story())


@pytest.mark.parametrize("kind", ["file", "directory", "link"])
def test_what_is_no_socket_is_left_alone(place: Path, kind: str, caplog: pytest.LogCaptureFixture) -> None:
    async def story() -> None:
        async with hearing("/home/one") as first:
            path = Path(await first.ear.at(str(place), DOOR))
        if kind == "file":
            path.write_text("somebody's")
        elif kind == "directory":
            path.mkdir()
        else:
            path.symlink_to("/nowhere")
        async with hearing("/home/one") as made:
            assert await made.ear.at(str(place), DOOR) == ""
        assert os.path.lexists(path)
        assert "no socket for news" in caplog.text

    asyncio.run(story())


def test_brokers_of_two_homes_hear_their_own(place: Path) -> None:
    async def story() -> None:
        async with hearing("/home/one") as one, hearing("/home/another") as another:
            first, second = await one.ear.at(str(place), DOOR), await another.ear.at(str(place), DOOR)
            assert first != second
            await say(first, HELD)
            await one.next()
            await say(second, DENIED)
            await another.next()
            assert (len(one.heard), len(another.heard)) == (1, 1)
            one.ear.close()
            assert os.listdir(place) == [os.path.basename(second)]
        assert os.listdir(place) == []

    asyncio.run(story())


def test_a_broker_that_was_replaced_takes_nothing_from_the_next(place: Path) -> None:
    """It may end later than the next one begins."""

    async def story() -> None:
        async with hearing("/home/one") as made:
            async with hearing("/home/one") as replaced:
                path = await replaced.ear.at(str(place), DOOR)
                assert await made.ear.at(str(place), DOOR) == path
            await say(path, HELD)
            await made.next()
        assert os.listdir(place) == []

    asyncio.run(story())


def test_a_directory_that_was_emptied_is_listened_in_again(place: Path) -> None:
    async def story() -> None:
        async with hearing("/home/one") as made:
            path = await made.ear.at(str(place), DOOR)
            os.unlink(path)
            assert await made.ear.at(str(place), DOOR) == path
            await say(path, HELD)
            await made.next()
        assert os.listdir(place) == []
        async with hearing("/home/one") as made:
            await made.ear.at(str(place), DOOR)
            os.unlink(path)
            place.rmdir()
            assert await made.ear.at(str(place), DOOR) == ""

    asyncio.run(story())
