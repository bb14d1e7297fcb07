"""The monitor: a generator judged step after step against data that is gone, from a folder that outlives processes."""

from vestige.monitor.alarms import DEFAULT, Alarm, FiredAlarm, Refusal
from vestige.monitor.false_alarms import DriftAlarm
from vestige.monitor.history import MonitorStep
from vestige.monitor.monitor import Monitor

__all__ = ["DEFAULT", "Alarm", "DriftAlarm", "FiredAlarm", "Monitor", "MonitorStep", "Refusal"]
