"""CIFAR-100: 50 000 + 10 000 colour images of 3 x 32 x 32 pixels (Krizhevsky), fine labels, from the binary archive.

Fine labels and superclasses are both numbered alphabetically, so the table below is all there is to know of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from vestige.data.cifar_binary import SHAPE, read_records
from vestige.data.npz import Npz, image_splits
from vestige.data.source import Parts, Remote, Source

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
GROUP_OF = {fine: coarse for coarse, members in SUPERCLASSES.items() for fine in members.split()}
NAMES = tuple(sorted(GROUP_OF))
GROUPS = tuple(GROUP_OF[name] for name in NAMES)
ARCHIVE = "cifar-100-binary.tar.gz"
TRAIN, TEST = "cifar-100-binary/train.bin", "cifar-100-binary/test.bin"


def read_npz(npz: Npz) -> Parts:
    """From cifar100.npz."""
    return Parts(*image_splits(npz, SHAPE, len(NAMES)), NAMES, GROUPS)


def read_files(paths: Mapping[str, Path]) -> Parts:
    """From the binary archive, whose records begin with the coarse and the fine label."""
    records = read_records(paths[ARCHIVE], (TRAIN, TEST), label_bytes=2, classes=len(NAMES))
    return Parts(*records[TRAIN], *records[TEST], NAMES, GROUPS)


CIFAR100 = Source(
    name="cifar100",
    about="50 000 + 10 000 images, 3 x 32 x 32, 100 classes in 20 groups",
    licence="none stated; research use",
    keys=("train_x", "train_y", "test_x", "test_y"),
    read_npz=read_npz,
    read_files=read_files,
    remotes=(
        Remote(
            ARCHIVE,
            (f"https://www.cs.toronto.edu/~kriz/{ARCHIVE}",),
            "md5:03b5dce01913d631647c71ecec9e9cb8",
            168_513_733,
        ),
    ),
)
