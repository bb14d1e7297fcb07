"""CIFAR-10 and CIFAR-100: 50 000 + 10 000 colour images of 3 x 32 x 32 pixels (Krizhevsky), from the binary archives.

Their members are records of one or two label bytes and the bytes of the pixels; the last label byte is the class.
CIFAR-100 has the fine labels. They and the superclasses are both numbered alphabetically, so the table below is all
there is to know of them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vestige.core.checks import refuse
from vestige.data.formats import Npz, image_splits, read_members
from vestige.data.source import DataSource, Parts, Remote

SHAPE = (3, 32, 32)
PIXELS = 3 * 32 * 32
# The largest member, CIFAR-100's train.bin, has 50 000 records of 3 074 bytes.
MAX_BYTES = 50_000 * (PIXELS + 2)


def _records(path: Path, members: tuple[str, ...], label_bytes: int, classes: int) -> tuple[NDArray[Any], NDArray[Any]]:
    """Images and labels of `members`, one after the other."""
    found = read_members(path, re.compile("|".join(map(re.escape, members))), max_bytes=MAX_BYTES)
    rows = []
    for member in members:
        data = found.get(member)
        if data is None:
            refuse("members", str(path), f"an archive with {member}", f"only {sorted(found)}")
        if not data or len(data) % (label_bytes + PIXELS):
            refuse(member, str(path), f"whole records of {label_bytes + PIXELS} bytes", f"{len(data)} bytes")
        rows.append(np.frombuffer(data, np.uint8).reshape(-1, label_bytes + PIXELS))
        if (top := int(rows[-1][:, label_bytes - 1].max())) >= classes:
            refuse(member, str(path), f"records with labels in 0..{classes - 1}", f"the label {top}")
    joined = np.concatenate(rows)
    return joined[:, label_bytes:].reshape(-1, *SHAPE), joined[:, label_bytes - 1].astype(np.int64)


def _cifar(
    names: tuple[str, ...],
    groups: tuple[str, ...],
    members: tuple[tuple[str, ...], tuple[str, ...]],
    checksum: str,
    size: int,
) -> DataSource:
    """CIFAR of so many classes; `members` of its archive are for training and for testing."""
    k = len(names)
    archive = f"cifar-{k}-binary.tar.gz"

    def read_npz(npz: Npz) -> Parts:
        return Parts(*image_splits(npz, SHAPE, k), names, groups)

    def read_files(paths: Mapping[str, Path]) -> Parts:
        train, test = (_records(paths[archive], part, 2 if groups else 1, k) for part in members)
        return Parts(*train, *test, names, groups)

    return DataSource(
        name=f"cifar{k}",
        about=f"50 000 + 10 000 images, 3 x 32 x 32, {k} classes"
        + (f" in {len(set(groups))} groups" if groups else ""),
        licence="none stated; research use",
        read_npz=read_npz,
        read_files=read_files,
        remotes=(Remote(archive, (f"https://www.cs.toronto.edu/~kriz/{archive}",), checksum, size),),
    )


CIFAR10 = _cifar(
    ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"),
    (),
    (tuple(f"cifar-10-batches-bin/data_batch_{i}.bin" for i in range(1, 6)), ("cifar-10-batches-bin/test_batch.bin",)),
    "md5:c32a1d4ab5d03f1284b67883e8d87530",
    170_052_171,
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
GROUP_OF = {fine: coarse for coarse, members in SUPERCLASSES.items() for fine in members.split()}

CIFAR100 = _cifar(
    tuple(sorted(GROUP_OF)),
    tuple(GROUP_OF[name] for name in sorted(GROUP_OF)),
    (("cifar-100-binary/train.bin",), ("cifar-100-binary/test.bin",)),
    "md5:03b5dce01913d631647c71ecec9e9cb8",
    168_513_733,
)
