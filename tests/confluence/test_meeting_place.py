"""Where rank 0 listens: an address that all know, or one in a file that it removes."""

import ipaddress
import socket

import pytest

from confluence import meeting_place
from confluence.meeting_place import AddressFile, KnownAddress


def test_a_known_address_is_not_changed(tmp_path):
    place = KnownAddress("here:7")
    with place.announce() as found:
        assert found == place.read() == "here:7"
    assert not place.may_change
    assert AddressFile(tmp_path, is_on_one_machine=True).may_change


@pytest.mark.parametrize("is_on_one_machine", [True, False])
def test_rank_0_announces_a_free_port_of_its_machine(is_on_one_machine, tmp_path, monkeypatch):
    monkeypatch.setattr(meeting_place, "_own_address", lambda: "127.0.0.2")
    place = AddressFile(tmp_path, is_on_one_machine=is_on_one_machine)
    with place.announce() as first, AddressFile(tmp_path, is_on_one_machine=True).announce():
        host, _, port = first.partition(":")
        assert host == ("127.0.0.1" if is_on_one_machine else "127.0.0.2")
        # No system gives the ports of services to whoever asks for any.
        assert int(port) >= 1024
        socket.create_server((host, int(port))).close()
    assert list(tmp_path.iterdir()) == []


def test_the_end_of_an_announcement_may_find_no_file(tmp_path, monkeypatch):
    place = AddressFile(tmp_path, is_on_one_machine=True)
    with place.announce() as found:
        (tmp_path / "rank-0.address").unlink()
        # Another process removed it after it was read.
        monkeypatch.setattr(place, "read", lambda: found)


def addresses(monkeypatch, *places):
    asked = []

    def getaddrinfo(name, *_):
        asked.append(name)
        if not places:
            raise socket.gaierror("unknown")
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (place, 0)) for place in places]

    monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)
    found = meeting_place._own_address()
    assert asked == [socket.gethostname()]
    return found


def test_the_own_address_is_one_that_other_machines_reach(monkeypatch):
    assert addresses(monkeypatch, "127.0.1.1", "192.0.2.7", "192.0.2.8") == "192.0.2.7"


def test_without_a_name_the_address_is_that_of_what_it_would_send(monkeypatch):
    class Sender:
        def __init__(self, *kind):
            assert kind == (socket.AF_INET, socket.SOCK_DGRAM)

        def __enter__(self):
            return self

        def __exit__(self, *_):
            pass

        def connect(self, place):
            # What is kept for documentation is the machine of nobody.
            assert ipaddress.ip_address(place[0]) in ipaddress.ip_network("192.0.2.0/24")

        def getsockname(self):
            return ("192.0.2.9", 5)

    monkeypatch.setattr(socket, "socket", Sender)
    assert addresses(monkeypatch, "127.0.1.1") == "192.0.2.9"
    assert addresses(monkeypatch) == "192.0.2.9"
