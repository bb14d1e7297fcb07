"""Tests run one torch thread a process, so that the same seed gives the same bits."""

import torch

torch.set_num_threads(1)
