"""Memory configuration and supervision of a process."""

import gc

from service.host_process import configure_memory


def test_the_threshold_of_the_garbage_collector_is_raised() -> None:
    usual = gc.get_threshold()
    try:
        configure_memory()
        assert gc.get_threshold()[0] > 10_000 > usual[0]
    finally:
        gc.set_threshold(*usual)
