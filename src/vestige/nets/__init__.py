"""Networks: small ones that learners and estimators train."""

from vestige.nets.batched import BatchedMLP
from vestige.nets.mlp import MLP

__all__ = ["MLP", "BatchedMLP"]
