"""What is known of the memory, and where tensors are made."""

import subprocess
import sys

import pytest
import torch

from vestige.core.machine import free_memory, on_cpu

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


def test_on_the_cpu_nothing_is_wrapped_and_elsewhere_tensors_come_back_to_it():
    with on_cpu():
        assert not torch.overrides._get_current_function_mode_stack()
    with torch.device("meta"):
        with on_cpu():
            assert torch.empty(1).device.type == "cpu"
        assert torch.empty(1).device.type == "meta"
