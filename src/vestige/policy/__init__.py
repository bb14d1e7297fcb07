"""Off-policy evaluation: what is a policy worth, from logs of another one? (LFIW section 3.3.)

`Logs` in (no simulator is needed), a `Policy` to judge, and `evaluate` says what it finds and how far to trust it.
"""

from vestige.core import Estimate
from vestige.policy.dynamics import Dynamics, Settings, Trajectories
from vestige.policy.evaluation import Evaluation, evaluate, picture
from vestige.policy.logs import Logs
from vestige.policy.policies import GaussianPolicy, Policy
from vestige.policy.transitions import TransitionRatio

__all__ = [
    "Dynamics",
    "Estimate",
    "Evaluation",
    "GaussianPolicy",
    "Logs",
    "Policy",
    "Settings",
    "Trajectories",
    "TransitionRatio",
    "evaluate",
    "picture",
]
