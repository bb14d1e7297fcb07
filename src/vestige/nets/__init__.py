"""Networks: small ones that learners and estimators train."""

from vestige.nets.batched import BatchedMLP

__all__ = ["BatchedMLP"]
