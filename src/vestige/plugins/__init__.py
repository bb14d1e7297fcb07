"""Callbacks and metrics for other frameworks; each file asks for its framework on import.

from vestige.plugins.avalanche import AvalancheRecord       # beside strategies of Avalanche
from vestige.plugins.lightning import LightningMonitor      # and LightningRecord
from vestige.plugins.huggingface import TrainerMonitor      # and TrainerRecord, for the Trainer of transformers
from vestige.plugins.torchmetrics import FIDMetric          # and KIDMetric, MMDMetric, JSMetric
"""
