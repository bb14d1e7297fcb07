"""Tables and figures of "Continual density ratio estimation" (CDRE)."""
