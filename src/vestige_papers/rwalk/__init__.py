"""Tables and figures of Chaudhry et al., "Riemannian Walk for incremental learning"."""
