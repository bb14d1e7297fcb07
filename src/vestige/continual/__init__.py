"""Learners that are taught task after task, the loop that teaches and tests them, what came out, and its audit."""
