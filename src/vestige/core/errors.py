"""The exception tree.

    VestigeError
    ├── InputError (also ValueError)        what was handed over cannot be used
    │   └── UnknownName (also LookupError)  no such method, data set, stream ...; names the nearest
    ├── NotEstimable (also ValueError)      the samples cannot carry the number that was asked for
    ├── NotFitted (also ValueError and AttributeError, as scikit-learn's)   asked before `fit`
    ├── DataGone                            a past task's data was touched after it was withdrawn
    ├── DataUnavailable                     a data set is nowhere to be found, with the ways to get it
    ├── StoreError                          a stored file is torn, tampered with, or too new
    └── MissingPackage (also ImportError)   an optional package is not installed; says the install line
    VestigeWarning (a UserWarning)          a result that stands, but not on firm ground

`except VestigeError` catches all that this package raises on purpose. Everything else is a bug of ours.
"""


class VestigeError(Exception):
    """Any error that Vestige raises on purpose."""


class InputError(VestigeError, ValueError):
    """An argument or a file cannot be used; nothing was changed."""


class UnknownName(InputError, LookupError):
    """A name that no registry knows."""


class NotEstimable(VestigeError, ValueError):
    """The samples at hand cannot carry the number that was asked for."""


class NotFitted(VestigeError, ValueError, AttributeError):
    """A fitted quantity was asked for before `fit`."""


class DataGone(VestigeError):
    """Data of a past task was touched after the stream withdrew it."""


class DataUnavailable(VestigeError):
    """A data set was found in none of the places that were searched."""


class StoreError(VestigeError):
    """A stored file is torn, was altered, or was written by a newer version."""


class MissingPackage(VestigeError, ImportError):
    """An optional package is not installed."""


class VestigeWarning(UserWarning):
    """A result that stands, but not on firm ground."""


REPEATED = 300  # characters of what was given, in a sentence that refuses it


def shortened(value: object, most: int = REPEATED) -> str:
    """`value` as text of at most `most` characters: its middle is left out where it has more."""
    text = str(value)
    half = (most - 5) // 2
    return text if len(text) <= most else f"{text[:half]} ... {text[-half:]}"
