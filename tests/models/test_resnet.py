from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from inphase.models.resnet import PreActivationBlock, ResNet50V2, keras_layers, load_keras, pointwise
from inphase.storage.errors import UnverifiedWeightsWarning

# Keras 3.15 beside numpy 2.4.
pytestmark = pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")


@pytest.fixture(scope="module")
def keras_model(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Build the network with Keras, with weights and statistics that are all different from one another's."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("KERAS_BACKEND", "torch")
        patch.setenv("KERAS_HOME", str(tmp_path_factory.mktemp("keras")))
        keras = pytest.importorskip("keras", reason="Keras, whose network this is compared with, is not installed")
    whole = keras.applications.ResNet50V2(include_top=False, weights=None, input_shape=(None, None, 3))
    model = keras.Model(whole.input, whole.get_layer("conv4_block3_out").output)
    rng = np.random.default_rng(0)
    for layer in model.layers:
        arrays = [array + rng.uniform(-0.05, 0.05, array.shape) for array in layer.get_weights()]
        layer.set_weights(arrays)
    return model


def save(model: Any, path: Path, *, layout: str) -> Path:
    """Write the weights as Keras 3 does, or as the published file has them."""
    import h5py

    if layout == "keras 3":
        model.save_weights(path)
        return path
    with h5py.File(path, "w") as file:
        file.attrs["layer_names"] = [layer.name.encode() for layer in model.layers]
        for layer in model.layers:
            group = file.create_group(layer.name)
            names = [f"{layer.name}/{variable.name}:0" for variable in layer.weights]
            group.attrs["weight_names"] = [name.encode() for name in names]
            for name, array in zip(names, layer.get_weights(), strict=True):
                group[name] = array
    return path


@pytest.mark.parametrize("layout", ["keras 3", "published"])
def test_it_equals_keras(keras_model: Any, tmp_path: Path, layout: str) -> None:
    network = ResNet50V2().eval()
    with pytest.warns(UnverifiedWeightsWarning):
        load_keras(network, save(keras_model, tmp_path / "some.weights.h5", layout=layout))
    images = torch.rand(2, 3, 75, 96, generator=torch.Generator().manual_seed(0)) * 2 - 1
    with torch.no_grad():
        found = network(images)
        expected = keras_model(images.permute(0, 2, 3, 1), training=False).permute(0, 3, 1, 2)
    assert found.shape == (2, 1024, 5, 6)
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=0)
    assert expected.abs().max() > 1  # so that the tolerance means something
    constants = {(layer.epsilon, layer.momentum) for layer in keras_model.layers if layer.name.endswith("_bn")}
    assert constants == {(1.001e-5, 0.99)}


def test_it_has_the_size_that_was_published() -> None:
    network = ResNet50V2()
    norms = [module for _, module in keras_layers(network) if isinstance(module, nn.BatchNorm2d)]
    assert sum(weight.numel() for weight in network.parameters()) == 5_193_856
    assert sum(weight.numel() for norm in norms for weight in norm.parameters()) == 15_744
    assert {(norm.eps, norm.momentum) for norm in norms} == {(1.001e-5, 0.01)}


def test_weights_of_another_network_are_refused(keras_model: Any, tmp_path: Path) -> None:
    import h5py

    path = save(keras_model, tmp_path / "other.h5", layout="published")
    with h5py.File(path, "a") as file:
        del file["conv3_block2_2_conv"]
    with (
        pytest.raises(ValueError, match="layer conv3_block2_2_conv has shapes"),
        pytest.warns(UnverifiedWeightsWarning),
    ):
        load_keras(ResNet50V2(), path)
    with h5py.File(tmp_path / "empty.h5", "w"):
        pass
    with pytest.raises(ValueError, match="holds no weights that Keras saved"), pytest.warns(UnverifiedWeightsWarning):
        load_keras(ResNet50V2(), tmp_path / "empty.h5")


def test_a_product_in_half_precision_is_the_convolution() -> None:
    torch.manual_seed(0)
    layer = nn.Conv2d(16, 24, 1).bfloat16()
    values = torch.randn(2, 16, 5, 7).bfloat16()
    for given in (values.contiguous(memory_format=torch.channels_last), values):
        x, y = given.clone().requires_grad_(), given.clone().requires_grad_()
        found, expected = pointwise(layer, x), layer(y)
        assert found.shape == expected.shape
        torch.testing.assert_close(found, expected, atol=0.02, rtol=0.01)
        torch.testing.assert_close(*(torch.autograd.grad(out.sum(), z)[0] for out, z in ((found, x), (expected, y))))
    product = pointwise(layer, values.contiguous(memory_format=torch.channels_last))
    assert product.is_contiguous(memory_format=torch.channels_last)


def test_gradients_keep_channels_last() -> None:
    block = PreActivationBlock(16, 4, stride=2, first=False)
    values = torch.randn(2, 16, 9, 6).contiguous(memory_format=torch.channels_last).requires_grad_()
    found = block(values)
    assert found.shape == (2, 16, 5, 3)
    (gradient,) = torch.autograd.grad(found.square().sum(), values)
    assert gradient.is_contiguous(memory_format=torch.channels_last)
