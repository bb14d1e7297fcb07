"""The monitor: a generator judged step after step against data that is gone, from a folder that outlives processes."""

from vestige.monitor.alarms import DEFAULT, Alarm, Ring
from vestige.monitor.history import Step
from vestige.monitor.monitor import Monitor

__all__ = ["DEFAULT", "Alarm", "Monitor", "Ring", "Step"]
