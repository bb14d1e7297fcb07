"""Every data set that `load` knows by name: one file, one line each."""

from vestige.data.source import Source
from vestige.data.sources.cifar10 import CIFAR10
from vestige.data.sources.cifar100 import CIFAR100
from vestige.data.sources.covtype import COVTYPE
from vestige.data.sources.digits import DIGITS
from vestige.data.sources.electricity import ELECTRICITY
from vestige.data.sources.fashion_mnist import FASHION_MNIST
from vestige.data.sources.mnist import MNIST
from vestige.data.sources.notmnist import NOTMNIST
from vestige.data.sources.omniglot import OMNIGLOT

SOURCES: dict[str, Source] = {
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
