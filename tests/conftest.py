"""What all tests in Python stand on."""

import gc
import signal

from hypothesis import HealthCheck, settings

from confluence import compile_cache

# Before JAX is imported: compiling takes most of the time of the tests that use it.
compile_cache.use_compile_cache()

# As the command does.
gc.set_threshold(50_000)

# A busy machine is slow, not wrong.
settings.register_profile("headwater", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("headwater")


def pytest_configure():
    # What a script starts with `&` ignores Ctrl-C, and the tests of it would wait for ever.
    signal.signal(signal.SIGINT, signal.default_int_handler)
