"""Every data set that `load` knows, by its name."""

from vestige.data.sources.cifar import CIFAR10, CIFAR100
from vestige.data.sources.digits import DIGITS
from vestige.data.sources.mnist import FASHION_MNIST, MNIST
from vestige.data.sources.notmnist import NOTMNIST
from vestige.data.sources.omniglot import OMNIGLOT
from vestige.data.sources.tables import COVTYPE, ELECTRICITY

SOURCES = {
    source.name: source
    for source in (DIGITS, MNIST, FASHION_MNIST, CIFAR10, CIFAR100, OMNIGLOT, NOTMNIST, ELECTRICITY, COVTYPE)
}
