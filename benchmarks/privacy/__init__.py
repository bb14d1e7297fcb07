"""`python -m benchmarks privacy`: what a vestige gives away, and what it costs to give away less."""
