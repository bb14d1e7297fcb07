"""The monitor: a generator judged step after step against data that is gone, from a folder that outlives processes."""

from vestige.monitor.alarms import DEFAULT, Alarm, FiredAlarm, Refusal
from vestige.monitor.history import MonitorStep
from vestige.monitor.monitor import Monitor

__all__ = ["DEFAULT", "Alarm", "FiredAlarm", "Monitor", "MonitorStep", "Refusal"]
