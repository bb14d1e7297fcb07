"""Packages that are imported and not needed: empty modules stand for those that are not installed.

Avalanche imports torchvision, loggers and solvers when it is imported itself. A stream of tensors and a plain strategy
call none of them.
"""

import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import sys
import types

OF_AVALANCHE = ("torchvision", "tensorboard", "wandb", "pytorchcv", "gputil", "GPUtil", "gdown", "pycocotools", "lvis")
OF_AVALANCHE += ("quadprog", "qpsolvers", "google", "higher", "ctrl", "psutil", "tqdm")


class EmptyModule(types.ModuleType):
    """Has every name: modules in lower case, classes that do nothing else."""

    __path__ = ()
    __version__ = "99.0"

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        if name.islower():
            return importlib.import_module(f"{self.__name__}.{name}")
        return type(name, (), {"__init__": lambda self, *args, **kwargs: None})


class Absent(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds the packages of these names that are not installed."""

    def __init__(self, names):
        self.names = [name for name in names if importlib.util.find_spec(name) is None]

    def find_spec(self, fullname, path=None, target=None):
        if fullname.partition(".")[0] in self.names:
            return importlib.machinery.ModuleSpec(fullname, self, is_package=True)
        return None

    def create_module(self, spec):
        return EmptyModule(spec.name)

    def exec_module(self, module):
        pass

    def __enter__(self):
        self.before = set(sys.modules)
        sys.meta_path.append(self)
        return self

    def __exit__(self, *_):
        sys.meta_path.remove(self)
        gone = [*self.names, "avalanche", "torch.utils.tensorboard", "vestige.plugins.avalanche"]
        for name in set(sys.modules) - self.before:
            if any(name == one or name.startswith(f"{one}.") for one in gone):
                del sys.modules[name]
