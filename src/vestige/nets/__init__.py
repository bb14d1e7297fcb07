"""Networks: small ones that estimators train, and the classifiers that learners choose from by name."""

from collections.abc import Callable, Sequence

from vestige.core.checks import one_of
from vestige.nets.batched import BatchedMLP
from vestige.nets.classifier import INITS, MLP, Classifier, Dropout, truncated_normal
from vestige.nets.convolutional import Conv, ResNet18, Table4
from vestige.nets.own import OwnNet, own_net

# (input_shape, hidden, n_outputs, seed) -> a network; `hidden` are the fully connected layers of "mlp" and "conv".
NETS: dict[str, Callable[[Sequence[int], Sequence[int], int, int], Classifier]] = {
    "mlp": lambda shape, hidden, k, seed: MLP(shape, hidden, k, seed=seed),
    "conv": lambda shape, hidden, k, seed: Conv(shape, hidden, k, seed=seed),
    "table4": lambda shape, hidden, k, seed: Table4(shape, k, seed=seed),
    "resnet18": lambda shape, hidden, k, seed: ResNet18(shape, k, seed=seed),
    "resnet18_reduced": lambda shape, hidden, k, seed: ResNet18(shape, k, seed=seed, width=20),
}


def build_net(
    name: str,
    input_shape: Sequence[int],
    n_outputs: int,
    *,
    hidden: Sequence[int] = (256, 256),
    init: str = "torch",
    seed: int = 0,
) -> Classifier:
    """The network called `name`, its weights as `init` and `seed` say."""
    net = NETS[one_of(name, NETS, "net", "build_net")](input_shape, hidden, n_outputs, seed)
    if one_of(init, INITS, "init", "build_net") == "truncated_normal":
        truncated_normal(net, seed=seed)
    return net


__all__ = [
    "INITS",
    "MLP",
    "NETS",
    "BatchedMLP",
    "Classifier",
    "Conv",
    "Dropout",
    "OwnNet",
    "ResNet18",
    "Table4",
    "build_net",
    "own_net",
    "truncated_normal",
]
