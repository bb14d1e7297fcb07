"""What a learner may keep of past data: counted, bounded, and nowhere else."""

from vestige.memory.memory import Memory

__all__ = ["Memory"]
