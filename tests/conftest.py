"""What all tests in Python stand on."""

import signal


def pytest_configure():
    # What a script starts with `&` ignores Ctrl-C, and the tests of it would wait for ever.
    signal.signal(signal.SIGINT, signal.default_int_handler)
