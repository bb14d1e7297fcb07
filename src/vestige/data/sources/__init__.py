"""Every data set that `load` knows by name: a line each."""

from vestige.data.source import DataSource
from vestige.data.sources.cifar import CIFAR10, CIFAR100
from vestige.data.sources.covtype import COVTYPE
from vestige.data.sources.digits import DIGITS
from vestige.data.sources.electricity import ELECTRICITY
from vestige.data.sources.mnist import FASHION_MNIST, MNIST
from vestige.data.sources.notmnist import NOTMNIST
from vestige.data.sources.omniglot import OMNIGLOT

SOURCES: dict[str, DataSource] = {
    "digits": DIGITS,
    "mnist": MNIST,
    "fashion_mnist": FASHION_MNIST,
    "cifar10": CIFAR10,
    "cifar100": CIFAR100,
    "omniglot": OMNIGLOT,
    "notmnist": NOTMNIST,
    "electricity": ELECTRICITY,
    "covtype": COVTYPE,
}

__all__ = ["SOURCES"]
