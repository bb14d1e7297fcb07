"""Before any number: what of either set is out of the other's reach (`reach`), and what follows (`verdict`)."""

from vestige.ratios.support.reach import OUT_OF_REACH, Reach, reach, reachable, verdict

__all__ = ["OUT_OF_REACH", "Reach", "reach", "reachable", "verdict"]
