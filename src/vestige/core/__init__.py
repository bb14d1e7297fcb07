"""What every package rests on: errors, checks at the door, seeds, numerics, the machine."""
