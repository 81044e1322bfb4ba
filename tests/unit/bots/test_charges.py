"""Whom a bot serves, and how long it can be sure of that."""

from collections import Counter
from collections.abc import Sequence
from typing import cast

import pytest

from bots.cluster.assigned_users import ALL_PARTITIONS, PARTITION_COUNT, AssignedUsers, partition_of
from service.clock import Clock
from service.model import UserId
from service.store.client.keys import user_id
from service.store.delivery.inbound_log import InboundLog

ONE, TWO, GONE = "coronet@b1.example", "coronet@b2.example", "coronet@b3.example"
PEOPLE = [user_id(f"person-{number}@example.org") for number in range(1_000)]


class Now:
    """A clock that stands where it is put."""

    at_s = 0.0

    def monotonic_s(self) -> float:
        return self.at_s


class Homes:
    """Where people wrote first."""

    def __init__(self, homes: dict[UserId, str]) -> None:
        self._homes = homes

    async def home_addresses(self, uids: Sequence[UserId]) -> list[str]:
        return [self._homes.get(uid, "") for uid in uids]


def assigned_users(
    address: str = ONE, addresses: Sequence[str] = (), homes: dict[UserId, str] | None = None
) -> AssignedUsers:
    return AssignedUsers(cast("InboundLog", Homes(homes or {})), cast("Clock", Now()), address, addresses)


def test_everybody_is_in_one_part_and_parts_are_about_as_many() -> None:
    sizes = Counter(map(partition_of, PEOPLE))
    assert set(sizes) <= ALL_PARTITIONS
    assert max(sizes.values()) < 4 * len(PEOPLE) / PARTITION_COUNT


async def test_parts_divide_people_so_that_each_is_somebodys() -> None:
    first, second = assigned_users(), assigned_users()
    first.assign(frozenset(range(PARTITION_COUNT // 2)))
    second.assign(ALL_PARTITIONS - frozenset(range(PARTITION_COUNT // 2)))
    ours, theirs = await first.select(PEOPLE), await second.select(PEOPLE)
    assert sorted(ours + theirs) == sorted(PEOPLE)
    assert (first.is_leader, second.is_leader) == (True, False)


async def test_of_several_addresses_each_serves_whose_home_it_is_and_the_first_all_others() -> None:
    homes = {PEOPLE[0]: TWO, PEOPLE[1]: ONE, PEOPLE[2]: GONE}
    found = []
    for address in (ONE, TWO):
        own = assigned_users(address, (ONE, TWO), homes)
        own.assign(ALL_PARTITIONS)
        found.append(await own.select(PEOPLE[:4]))
    assert found == [PEOPLE[1:4], PEOPLE[:1]]


@pytest.mark.parametrize(("now_s", "certain"), [(9.9, True), (10.0, False)])
def test_it_is_sure_of_them_as_long_as_its_lease_lasts_by_its_own_clock(now_s: float, *, certain: bool) -> None:
    now = Now()
    own = AssignedUsers(cast("InboundLog", Homes({})), cast("Clock", now), ONE)
    assert not own.is_lease_valid()
    own.assign(ALL_PARTITIONS, 10.0)
    now.at_s = now_s
    assert own.is_lease_valid() is certain
