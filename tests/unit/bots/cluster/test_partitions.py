"""The users assigned to a bot, and the validity of the lease."""

from collections import Counter
from collections.abc import Sequence
from typing import cast

import pytest

from bots.cluster.partitions import ALL_PARTITIONS, PARTITION_COUNT, AssignedUsers, partition_of
from service.clock import Clock
from service.model import UserId
from service.store.client.keys import user_id
from service.store.people.users import HomeAddresses

ONE, TWO, GONE = "coronet@b1.example", "coronet@b2.example", "coronet@b3.example"
USERS = [user_id(f"user-{number}@example.org") for number in range(1_000)]


class ManualClock:
    """A clock that the test sets."""

    at_s = 0.0

    def monotonic_s(self) -> float:
        return self.at_s


class FakeHomeAddresses:
    """The home addresses of some users."""

    def __init__(self, homes: dict[UserId, str]) -> None:
        self._homes = homes

    async def of_users(self, uids: Sequence[UserId]) -> list[str]:
        return [self._homes.get(uid, "") for uid in uids]


def assigned_users(
    address: str = ONE, addresses: Sequence[str] = (), homes: dict[UserId, str] | None = None
) -> AssignedUsers:
    return AssignedUsers(
        cast("HomeAddresses", FakeHomeAddresses(homes or {})), cast("Clock", ManualClock()), address, addresses
    )


def test_partitions_have_about_equal_sizes() -> None:
    sizes = Counter(map(partition_of, USERS))
    assert set(sizes) <= ALL_PARTITIONS
    assert max(sizes.values()) < 4 * len(USERS) / PARTITION_COUNT


async def test_each_user_is_assigned_to_one_of_the_processes() -> None:
    first, second = assigned_users(), assigned_users()
    first.assign(frozenset(range(PARTITION_COUNT // 2)))
    second.assign(ALL_PARTITIONS - frozenset(range(PARTITION_COUNT // 2)))
    of_first, of_second = await first.select(USERS), await second.select(USERS)
    assert sorted(of_first + of_second) == sorted(USERS)
    assert (first.is_leader, second.is_leader) == (True, False)


async def test_users_are_assigned_to_their_home_address_or_the_first_address() -> None:
    homes = {USERS[0]: TWO, USERS[1]: ONE, USERS[2]: GONE}
    selected = []
    for address in (ONE, TWO):
        users = assigned_users(address, (ONE, TWO), homes)
        users.assign(ALL_PARTITIONS)
        selected.append(await users.select(USERS[:4]))
    assert selected == [USERS[1:4], USERS[:1]]


@pytest.mark.parametrize(("now_s", "is_valid"), [(9.9, True), (10.0, False)])
def test_the_lease_is_valid_until_it_expires(now_s: float, *, is_valid: bool) -> None:
    clock = ManualClock()
    users = AssignedUsers(cast("HomeAddresses", FakeHomeAddresses({})), cast("Clock", clock), ONE)
    assert not users.is_lease_valid()
    users.assign(ALL_PARTITIONS, 10.0)
    clock.at_s = now_s
    assert users.is_lease_valid() is is_valid
