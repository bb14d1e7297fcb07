"""Off-policy evaluation: what is a policy worth, from logs of another one? (LFIW section 3.3.)

`Logs` in (no simulator is needed), a `Policy` to evaluate, and `evaluate` says what it finds and how far to trust it.
With a simulator: `train` policies, `collect` their logs, and `truth_of` one, to compare estimates with.
"""

from vestige.core import Estimate
from vestige.policy.bandits import BanditEvaluation, BanditLogs, evaluate_bandit
from vestige.policy.dynamics import Dynamics, Settings, Trajectories, TransitionRatio
from vestige.policy.environments import REWARDS, Truth, collect, truth_of
from vestige.policy.evaluation import Calibration, Evaluation, evaluate, picture
from vestige.policy.logs import Logs
from vestige.policy.policies import GaussianPolicy, Policy
from vestige.policy.training import PPO, train

__all__ = [
    "PPO",
    "REWARDS",
    "BanditEvaluation",
    "BanditLogs",
    "Calibration",
    "Dynamics",
    "Estimate",
    "Evaluation",
    "GaussianPolicy",
    "Logs",
    "Policy",
    "Settings",
    "Trajectories",
    "TransitionRatio",
    "Truth",
    "collect",
    "evaluate",
    "evaluate_bandit",
    "picture",
    "train",
    "truth_of",
]
