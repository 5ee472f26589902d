import pytest

pytest.register_assert_rewrite("kvairlock.transport.contract")
