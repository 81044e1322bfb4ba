"""Responses to arbitrary API requests conform to the OpenAPI document and are never internal errors."""

import asyncio
from typing import Any, Final

import pytest
import schemathesis
from aiohttp import web
from hypothesis import HealthCheck, Phase, given, settings
from schemathesis import Case
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi import checks

from service.console.api import operation_registry
from service.console.api.openapi_document import build_document
from service.feeds.entries.version_parts import VersionParts
from service.model import Channel, PollResult
from service.store import Store
from service.store.client import keys
from service.store.coordination.bot_requests import (
    CommandPreview,
    DryRunReply,
    DryRunRequest,
    MessagePreviewReply,
    MessagePreviewRequest,
)
from service.store.coordination.worker_requests import (
    DirectoriesReply,
    DirectoriesRequest,
    LookupReply,
    LookupRequest,
    PollReply,
    PollRequest,
    ProbeReply,
    WorkerReply,
)
from tests.support.channels import make_channel
from tests.support.console import TOKEN, Asked, make_account, rehearsing, worker

_EXAMPLES: Final = 3
"""Number of examples per operation, valid and invalid."""
_CHECKS = [
    not_a_server_error,
    checks.status_code_conformance,
    checks.content_type_conformance,
    checks.response_headers_conformance,
    checks.response_schema_conformance,
]


async def _filled(store: Store) -> Channel:
    """Create an object of each kind, so that some requests refer to existing ones."""
    await make_account(store)
    channel = await make_channel(store, listed=True)
    uid = keys.user_id("ada@example.org")
    await store.subscriptions.subscribe("ada@example.org", channel.id)
    for version in (2, 3):
        await store.outbox.enqueue([uid], channel.id, version, 1.0, VersionParts(news=()))
        (batch,) = (await store.outbox.claim([uid], 10, 5.0)).values()
        await store.outbox.move_to_dead_letters(uid, batch.message_id, "gone")
    await store.redis.call("HSET", keys.channel(channel.id), "private", "1")
    return channel


def _answer(channel: Channel, asked: Asked) -> WorkerReply:
    match asked:
        case PollRequest():
            return PollReply(PollResult("a" * 40, 1.0, "unchanged", 304))
        case LookupRequest():
            return LookupReply("a" * 40, (), 0)
        case DirectoriesRequest():
            return DirectoriesReply(())
        case _:
            return ProbeReply(channel)


def _said(asked: DryRunRequest | MessagePreviewRequest) -> DryRunReply | MessagePreviewReply:
    if isinstance(asked, MessagePreviewRequest):
        return MessagePreviewReply("*A feed*")
    return DryRunReply(tuple(CommandPreview(command, ("Yes.",), ("Nothing.",)) for command in asked.commands))


def _fuzz(base_url: str) -> None:
    """Send valid and invalid requests to each operation."""
    schema = schemathesis.openapi.from_dict(build_document(operation_registry.PREFIX, operation_registry.OPERATIONS))
    headers = {"Authorization": f"Bearer {TOKEN}"}
    for operation in operation_registry.OPERATIONS:

        @settings(
            max_examples=_EXAMPLES,
            deadline=None,
            derandomize=True,
            database=None,
            phases=(Phase.generate,),
            suppress_health_check=list(HealthCheck),
        )
        @given(case=schema[operation.path][operation.method].as_strategy())
        def fuzz(case: Case[Any]) -> None:
            response = case.call(base_url=base_url, headers=headers)
            case.validate_response(response, checks=_CHECKS)

        fuzz()


@pytest.mark.filterwarnings("default")
async def test_responses_conform_to_the_document(served: tuple[str, web.Application], store: Store) -> None:
    channel = await _filled(store)
    async with worker(store, lambda asked: _answer(channel, asked)), rehearsing(store, _said):
        await asyncio.to_thread(_fuzz, served[0] + operation_registry.PREFIX)
