"""A process that is killed before a given operation on the disk, for tests of what is left behind."""

import os
import signal

OPERATIONS = ("open", "mkdir", "replace", "fsync", "chmod", "unlink", "rmdir")


def die_at(place):
    """From now on the `place`-th operation on the disk is not done: the process is killed before it."""
    counted = iter(range(1, 10**9))

    def deadly(operation):
        def wrapped(*args, **options):
            if next(counted) == place:
                os.kill(os.getpid(), signal.SIGKILL)
            return operation(*args, **options)

        return wrapped

    for name in OPERATIONS:
        setattr(os, name, deadly(getattr(os, name)))
