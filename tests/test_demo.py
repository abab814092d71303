"""The demo's parts: the diffusion it runs and the check it makes."""

import numpy as np
import pytest

for extra in ("numba", "matplotlib", "PIL"):
    pytest.importorskip(extra, reason="needs the extra demo")

from ostinato.demo import DemoError, photograph  # noqa: E402
from ostinato.demo.diffusion import NATIVE, NUMPY, Diffusion, tiles  # noqa: E402
from ostinato.demo.race import _check  # noqa: E402


@pytest.fixture
def noisy() -> np.ndarray:
    y, x = np.mgrid[0:37, 0:52]
    disc = ((y - 18) ** 2 + (x - 26) ** 2 < 120).astype(np.float32)
    return photograph.with_noise(np.stack([disc, 1 - disc, disc / 2]))


@pytest.mark.parametrize("across", [1, 3, 16, 1000])
def test_tiles_cover_every_pixel_once(noisy, across):
    covered = np.zeros(noisy.shape, dtype=int)
    framed = np.zeros((3, 39, 54))
    for tile in tiles(noisy, across):
        covered[tile.picture] += 1
        assert framed[tile.inner].shape == covered[tile.picture].shape
        assert framed[tile.halo].shape == tuple(np.add(framed[tile.inner].shape, (0, 2, 2)))
    assert (covered == 1).all()


def denoised(method, noisy: np.ndarray, across: int, steps: int) -> np.ndarray:
    diffusion = Diffusion(noisy, across)
    with diffusion.capture(method.task).compile() as program:
        program.replay(steps)
    return diffusion.result(steps)


@pytest.mark.parametrize("method", [NATIVE, NUMPY], ids=lambda method: method.name)
def test_the_cut_into_tiles_does_not_change_a_bit(noisy, method):
    assert np.array_equal(denoised(method, noisy, 1, 30), denoised(method, noisy, 5, 30))


def test_both_methods_are_the_same_diffusion(noisy):
    np.testing.assert_allclose(denoised(NATIVE, noisy, 4, 30), denoised(NUMPY, noisy, 4, 30), rtol=0, atol=1e-5)


def test_diffusion_levels_noise_and_keeps_the_edge(noisy):
    after = denoised(NATIVE, noisy, 2, 1000)
    assert after[0, 2:6, 2:6].std() < noisy[0, 2:6, 2:6].std() / 5
    assert after[0, 18, 26] - after[0, 2, 2] > 0.7


def test_the_check_sees_one_changed_bit(noisy):
    changed = noisy.copy()
    changed.view(np.uint32)[1, 2, 3] ^= 1
    _check("replay", noisy, noisy.copy())
    with pytest.raises(DemoError, match="the replay differs from the plain loop in 1 of"):
        _check("replay", changed, noisy)


def test_large_photographs_are_made_smaller_and_turned_upright(tmp_path):
    from PIL import Image

    sideways = Image.new("RGB", (1000, 600), "red")
    exif = sideways.getexif()
    exif[0x0112] = 6  # the camera was turned by 90 degrees
    sideways.save(tmp_path / "sideways.jpg", exif=exif)
    assert photograph.load(tmp_path / "sideways.jpg").shape == (3, 512, 307)
