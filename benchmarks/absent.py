"""Packages that a peer imports and what we call of it does not need: empty modules stand for those that do not import.

Avalanche imports torchvision, loggers and solvers when it is imported itself; a stream of tensors and a plain strategy
call none of them. torch-fidelity imports torchvision for images, adapt tensorflow for networks.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType

OF_AVALANCHE = ("torchvision", "tensorboard", "wandb", "pytorchcv", "gputil", "GPUtil", "gdown", "pycocotools", "lvis")
OF_AVALANCHE += ("quadprog", "qpsolvers", "google", "higher", "ctrl", "psutil", "tqdm")


class EmptyModule(ModuleType):
    """Has every name: modules in lower case, classes that do nothing else."""

    __path__ = ()
    __version__ = "99.0"

    def __getattr__(self, name: str) -> object:
        if name.startswith("__"):
            raise AttributeError(name)
        if name.islower():
            return importlib.import_module(f"{self.__name__}.{name}")
        return type(name, (), {"__init__": lambda self, *args, **kwargs: None})


def _imports(name: str) -> bool:
    """Whether it does; one that fails half-way (built for another torch) leaves nothing behind."""
    try:
        importlib.import_module(name)
    except (ImportError, RuntimeError):
        for loaded in [m for m in sys.modules if m.partition(".")[0] == name]:
            del sys.modules[loaded]
        return False
    return True


class Absent(MetaPathFinder, Loader):
    """Finds the packages of these names that do not import, for good by `install`, or within a `with`."""

    def __init__(self, names: Sequence[str]) -> None:
        self.names = [name for name in names if not _imports(name)]

    def install(self) -> Absent:
        """Before all other finders: a package that is there and does not import is not looked for."""
        sys.meta_path.insert(0, self)
        return self

    def find_spec(self, name: str, path: object = None, target: object = None) -> ModuleSpec | None:
        return ModuleSpec(name, self, is_package=True) if name.partition(".")[0] in self.names else None

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        return EmptyModule(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        pass

    def __enter__(self) -> Absent:
        self.before = set(sys.modules)
        return self.install()

    def __exit__(self, *_: object) -> None:
        sys.meta_path.remove(self)
        gone = [*self.names, "avalanche", "torch.utils.tensorboard", "vestige.plugins.avalanche"]
        for name in set(sys.modules) - self.before:
            if any(name == one or name.startswith(f"{one}.") for one in gone):
                del sys.modules[name]
