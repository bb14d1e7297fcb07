"""Tables and figures of Grover et al., "Bias correction ... using likelihood-free importance weighting" (LFIW)."""
