"""Garbage collection and memory allocation of a process."""

import gc

from service.process_memory import configure_memory


def test_the_threshold_of_the_garbage_collector_is_raised() -> None:
    gc.set_threshold(700)
    configure_memory()
    assert gc.get_threshold()[0] > 10_000
