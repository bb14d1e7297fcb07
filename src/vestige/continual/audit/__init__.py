"""Was the evaluation itself honest? The desiderata of Farquhar and Gal section 5, each answered with evidence."""

from vestige.continual.audit.answers import DESIDERATA, HARDER, QUESTIONS, Answer, Audit, Facts, audit_of
from vestige.continual.audit.description import described, from_record
from vestige.continual.audit.growth import growth
from vestige.continual.audit.resemblance import Resemblance, resemblance
from vestige.continual.audit.watched import WatchedLearner, audit, audited_run

__all__ = [
    "DESIDERATA",
    "HARDER",
    "QUESTIONS",
    "Answer",
    "Audit",
    "Facts",
    "Resemblance",
    "WatchedLearner",
    "audit",
    "audit_of",
    "audited_run",
    "described",
    "from_record",
    "growth",
    "resemblance",
]
