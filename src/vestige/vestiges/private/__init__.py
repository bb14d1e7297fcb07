"""What remains of rows under differential privacy."""

from vestige.vestiges.private.keep import keep_privately
from vestige.vestiges.private.released import Guarantee
from vestige.vestiges.private.vestige import PrivateVestige

__all__ = ["Guarantee", "PrivateVestige", "keep_privately"]
