"""What is known of the memory."""

import subprocess
import sys

import pytest

from vestige.core.machine import free_memory

ASKED = """
import resource
from vestige.core.machine import free_memory
resource.setrlimit(resource.RLIMIT_AS, (3 << 30, 3 << 30))
print(free_memory())
"""


@pytest.mark.slow
def test_a_limit_of_the_process_counts():
    assert free_memory() > 1e8
    done = subprocess.run([sys.executable, "-c", ASKED], capture_output=True, text=True, check=True)
    assert 0 < int(done.stdout) < 3 << 30
