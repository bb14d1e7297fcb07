"""Real samples are known by their bytes: is any of them in a folder, in any precision, byte order or as text?

Values lie near 1000, where neither weights nor standardised samples do, so that four bytes at any alignment are no
accident.
"""

from pathlib import Path

import numpy as np

KINDS = ("<f8", ">f8", "<f4", ">f4")


def marked(n, seed, d=2):
    """Real samples that can be recognised."""
    return 1000 + np.random.default_rng([77, seed]).normal(size=(n, d))


def found_in(folder, values, kinds=KINDS):
    """(file, encoding) of every file in `folder`, hidden ones too, that holds one of `values`."""
    values = np.asarray(values, dtype=np.float64).ravel()
    hits = []
    for path in sorted(p for p in Path(folder).rglob("*") if p.is_file()):
        data = path.read_bytes()
        hits += [(path.name, kind) for kind in kinds if holds(data, values, kind)]
        text = data.decode("latin-1")
        spelt = {form(value) for value in values.tolist() for form in (repr, "{:.17g}".format, "{:.9g}".format)}
        hits += [(path.name, "text")] * any(word in text for word in spelt)
    return hits


def holds(data, values, kind):
    """Whether `data` has the bytes of a value, at any alignment."""
    size = np.dtype(kind).itemsize
    wanted = np.unique(values.astype(kind).view(f"u{size}"))
    for offset in range(min(size, len(data))):
        words = np.frombuffer(data[offset : offset + (len(data) - offset) // size * size], dtype=f"u{size}")
        if np.isin(wanted, words).any():
            return True
    return False
