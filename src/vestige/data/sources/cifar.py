"""CIFAR-10 and CIFAR-100: 50 000 + 10 000 colour images of 3 x 32 x 32 pixels (Krizhevsky), from the binary archives.

CIFAR-100 has the fine labels. They and the superclasses are both numbered alphabetically, so the table below is all
there is to know of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from vestige.data.formats import CIFAR_SHAPE, Npz, image_splits, read_records
from vestige.data.source import DataSource, Parts, Remote

CIFAR10_NAMES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
CIFAR10_ARCHIVE = "cifar-10-binary.tar.gz"
CIFAR10_TRAIN = tuple(f"cifar-10-batches-bin/data_batch_{i}.bin" for i in range(1, 6))
CIFAR10_TEST = "cifar-10-batches-bin/test_batch.bin"


def read_npz_cifar10(npz: Npz) -> Parts:
    """From cifar10.npz."""
    return Parts(*image_splits(npz, CIFAR_SHAPE, len(CIFAR10_NAMES)), CIFAR10_NAMES)


def read_files_cifar10(paths: Mapping[str, Path]) -> Parts:
    """From the binary archive: five batches to train, one to test."""
    records = read_records(
        paths[CIFAR10_ARCHIVE], (*CIFAR10_TRAIN, CIFAR10_TEST), label_bytes=1, classes=len(CIFAR10_NAMES)
    )
    train_x = np.concatenate([records[member][0] for member in CIFAR10_TRAIN])
    train_y = np.concatenate([records[member][1] for member in CIFAR10_TRAIN])
    return Parts(train_x, train_y, *records[CIFAR10_TEST], CIFAR10_NAMES)


CIFAR10 = DataSource(
    name="cifar10",
    about="50 000 + 10 000 images, 3 x 32 x 32, 10 classes",
    licence="none stated; research use",
    keys=("train_x", "train_y", "test_x", "test_y"),
    read_npz=read_npz_cifar10,
    read_files=read_files_cifar10,
    remotes=(
        Remote(
            CIFAR10_ARCHIVE,
            (f"https://www.cs.toronto.edu/~kriz/{CIFAR10_ARCHIVE}",),
            "md5:c32a1d4ab5d03f1284b67883e8d87530",
            170_052_171,
        ),
    ),
)

SUPERCLASSES = {
    "aquatic_mammals": "beaver dolphin otter seal whale",
    "fish": "aquarium_fish flatfish ray shark trout",
    "flowers": "orchid poppy rose sunflower tulip",
    "food_containers": "bottle bowl can cup plate",
    "fruit_and_vegetables": "apple mushroom orange pear sweet_pepper",
    "household_electrical_devices": "clock keyboard lamp telephone television",
    "household_furniture": "bed chair couch table wardrobe",
    "insects": "bee beetle butterfly caterpillar cockroach",
    "large_carnivores": "bear leopard lion tiger wolf",
    "large_man-made_outdoor_things": "bridge castle house road skyscraper",
    "large_natural_outdoor_scenes": "cloud forest mountain plain sea",
    "large_omnivores_and_herbivores": "camel cattle chimpanzee elephant kangaroo",
    "medium_mammals": "fox porcupine possum raccoon skunk",
    "non-insect_invertebrates": "crab lobster snail spider worm",
    "people": "baby boy girl man woman",
    "reptiles": "crocodile dinosaur lizard snake turtle",
    "small_mammals": "hamster mouse rabbit shrew squirrel",
    "trees": "maple_tree oak_tree palm_tree pine_tree willow_tree",
    "vehicles_1": "bicycle bus motorcycle pickup_truck train",
    "vehicles_2": "lawn_mower rocket streetcar tank tractor",
}
CIFAR100_GROUP_OF = {fine: coarse for coarse, members in SUPERCLASSES.items() for fine in members.split()}
CIFAR100_NAMES = tuple(sorted(CIFAR100_GROUP_OF))
CIFAR100_GROUPS = tuple(CIFAR100_GROUP_OF[name] for name in CIFAR100_NAMES)
CIFAR100_ARCHIVE = "cifar-100-binary.tar.gz"
CIFAR100_TRAIN, CIFAR100_TEST = "cifar-100-binary/train.bin", "cifar-100-binary/test.bin"


def read_npz_cifar100(npz: Npz) -> Parts:
    """From cifar100.npz."""
    return Parts(*image_splits(npz, CIFAR_SHAPE, len(CIFAR100_NAMES)), CIFAR100_NAMES, CIFAR100_GROUPS)


def read_files_cifar100(paths: Mapping[str, Path]) -> Parts:
    """From the binary archive, whose records begin with the coarse and the fine label."""
    records = read_records(
        paths[CIFAR100_ARCHIVE], (CIFAR100_TRAIN, CIFAR100_TEST), label_bytes=2, classes=len(CIFAR100_NAMES)
    )
    return Parts(*records[CIFAR100_TRAIN], *records[CIFAR100_TEST], CIFAR100_NAMES, CIFAR100_GROUPS)


CIFAR100 = DataSource(
    name="cifar100",
    about="50 000 + 10 000 images, 3 x 32 x 32, 100 classes in 20 groups",
    licence="none stated; research use",
    keys=("train_x", "train_y", "test_x", "test_y"),
    read_npz=read_npz_cifar100,
    read_files=read_files_cifar100,
    remotes=(
        Remote(
            CIFAR100_ARCHIVE,
            (f"https://www.cs.toronto.edu/~kriz/{CIFAR100_ARCHIVE}",),
            "md5:03b5dce01913d631647c71ecec9e9cb8",
            168_513_733,
        ),
    ),
)
