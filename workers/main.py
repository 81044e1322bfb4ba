"""The program ``coronet worker``, which creates the parts of a worker and runs its nodes."""

import asyncio
import os
import secrets
import socket
from collections.abc import Iterable
from functools import partial

from aiohttp import web

from service.clock import FleetClock
from service.feeds.sandbox.parser_client import ParserClient
from service.host_process import HostedProgram, HostProcess, NotReady
from service.model import NodeInfo
from service.net.credential_vault import CredentialVault
from service.net.fetcher import create_fetcher
from service.net.peer_client import peer_of
from service.settings import Settings
from service.store import Store
from workers.node import Node, WorkerContext
from workers.ownership.full_texts import LONGEST_WAIT_S
from workers.peers.peer_endpoint import PeerEndpoint
from workers.polling.concurrency_limits import POLL_LIMITS, PROBE_LIMITS, ConcurrencyLanes, ParserTimeBudgets
from workers.polling.credential_reader import find_credential
from workers.polling.politeness import Politeness
from workers.polling.poller import Poller
from workers.polling.websub_subscriber import HubSubscriber
from workers.request_handlers.prober import Prober
from workers.request_handlers.request_dispatcher import RequestDispatcher
from workers.ring_membership import RingMembership

_SLOW_NICENESS = 10
"""Niceness of the parser processes for costly documents; they use processor time that no other process needs."""


class WorkerProgram(HostedProgram):
    """The worker program, which runs in its own process or shares one with other programs."""

    name = "worker"

    def __init__(self, settings: Settings, store: Store) -> None:
        """Create a worker. Its nodes join the ring only when :meth:`run` is called."""
        super().__init__(settings, store)
        self._clock = FleetClock()
        self._peers: PeerEndpoint | None = None
        self._has_joined = False

    def check_ready(self) -> None:
        """Raise NotReady if the worker has not joined the ring yet; see :meth:`HostedProgram.check_ready`.

        A drained worker (one that an admin has taken out of the ring) counts as ready.
        """
        if not self._has_joined:
            raise NotReady("The worker has not joined the ring yet.")

    def routes(self) -> Iterable[web.RouteDef]:
        """Return the route for requests from other workers."""
        return [web.post("/peers/{worker}/{verb}", self._on_peer_request)]

    async def _on_peer_request(self, request: web.Request) -> web.Response:
        if self._peers is None:
            raise web.HTTPNotFound
        return await self._peers.on_request(request)

    async def run(self, process: HostProcess) -> None:
        """Run the nodes of the worker until cancelled; see :meth:`HostedProgram.run`."""
        settings, store = self._settings, self._store
        name = f"{socket.gethostname()}:{os.getpid()}"
        worker = NodeInfo("", 0, name, 0.0, process.metrics_url, secrets.token_hex(8))
        peer = peer_of(worker)
        assert peer is not None  # noqa: S101 - a process with a worker has a health server
        self._peers = peers = PeerEndpoint(settings, store, self._clock, process.timer, peer)
        vault = CredentialVault(settings)
        async with (
            peers.running(),
            create_fetcher(settings, partial(find_credential, store.credentials, vault)) as fetcher,
            ParserClient() as poll_parser,
            ParserClient(_SLOW_NICENESS) as slow_poll_parser,
            ParserClient() as probe_parser,
            ParserClient(_SLOW_NICENESS) as slow_probe_parser,
            ParserClient(0, "trafilatura") as article_parser,
            ParserClient(_SLOW_NICENESS, "trafilatura") as slow_article_parser,
        ):
            politeness = Politeness(store.request_budgets, settings)
            budgets = ParserTimeBudgets()
            poll_lanes = ConcurrencyLanes(POLL_LIMITS, poll_parser, slow_poll_parser, budgets)
            probe_lanes = ConcurrencyLanes(PROBE_LIMITS, probe_parser, slow_probe_parser, budgets)
            poller = Poller(fetcher, politeness, poll_lanes, peers.contents, self._clock)
            dispatcher = RequestDispatcher(store, Prober(fetcher, politeness, probe_lanes, self._clock), vault)
            hubs = HubSubscriber(store, fetcher, politeness, self._clock, settings.console_public_url)
            article_lanes = ConcurrencyLanes(PROBE_LIMITS, article_parser, slow_article_parser, ParserTimeBudgets())
            articles = Prober(fetcher, politeness, article_lanes, self._clock)
            # A version that is not stored within the maintenance interval is given up.
            within_s = min(LONGEST_WAIT_S, settings.maintenance_interval_s / 2)
            read_article = partial(articles.read_article, within_s=within_s)
            context = WorkerContext(
                store, settings, self._clock, politeness, poller, hubs, peers, process.timer, read_article
            )

            async def run_node(info: NodeInfo) -> None:
                await Node(info, context, dispatcher.handle).run()

            async with asyncio.TaskGroup() as nodes:
                for _ in range(settings.nodes_per_worker):
                    membership = RingMembership(worker, store, settings.lease_ttl_s)
                    nodes.create_task(membership.run(run_node, self._on_joined))

    def _on_joined(self) -> None:
        self._has_joined = True
