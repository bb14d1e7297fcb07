"""Fashion-MNIST: 60 000 + 10 000 articles of clothing of 28 x 28 pixels (Xiao, Rasul, Vollgraf), in MNIST's format.

Debian packages a copy: the same bytes, compressed anew, so its gzipped files do not have the checksums below.
"""

from __future__ import annotations

from vestige.data.idx import FILES, like_mnist
from vestige.data.source import SystemCopy

NAMES = (
    "T-shirt/top",
    "Trouser",
    "Pullover",
    "Dress",
    "Coat",
    "Sandal",
    "Shirt",
    "Sneaker",
    "Bag",
    "Ankle boot",
)
MIRRORS = (
    "https://github.com/zalandoresearch/fashion-mnist/raw/master/data/fashion/",
    "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/",
)
CHECKSUMS_AND_SIZES = (
    ("md5:8d4fb7e6c68d591d4c3dfef9ec88bf0d", 26_421_880),
    ("md5:25c81989df183df01b3e8a0aad5dffbe", 29_515),
    ("md5:bef4ecab320f06d8554ea6380940ec79", 4_422_102),
    ("md5:bb300cfdad3c16e7a12a480ee83cd310", 5_148),
)

FASHION_MNIST = like_mnist(
    "fashion_mnist",
    NAMES,
    "MIT",
    MIRRORS,
    CHECKSUMS_AND_SIZES,
    SystemCopy("fashion-mnist", FILES, "apt install dataset-fashion-mnist (Debian, Ubuntu)"),
)
