"""Was the evaluation itself honest? The desiderata of Farquhar and Gal section 5, each answered with evidence."""

from vestige.audit.answer import DESIDERATA, HARDER, QUESTIONS, Answer, Audit
from vestige.audit.description import described, from_record
from vestige.audit.facts import Facts, audit_of
from vestige.audit.growth import growth
from vestige.audit.resemblance import Resemblance, resemblance
from vestige.audit.witness import Witness, audit, audited_run

__all__ = [
    "DESIDERATA",
    "HARDER",
    "QUESTIONS",
    "Answer",
    "Audit",
    "Facts",
    "Resemblance",
    "Witness",
    "audit",
    "audit_of",
    "audited_run",
    "described",
    "from_record",
    "growth",
    "resemblance",
]
