"""Fails a test in which a kernel on a simulated device did what the device's checks find.

A test that expects findings takes them with ``kiln.testing.report()``.
"""

import sys

import pytest


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item):
    result = yield
    testing = sys.modules.get("kiln.testing")
    if testing is not None and testing.is_simulated() and (found := testing.report()):
        pytest.fail("the simulated device found:\n" + "\n".join(found), pytrace=False)
    return result
