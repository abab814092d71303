"""The demo's parts: the diffusion it runs, the variants of its kernel, and the check it makes."""

import numpy as np
import pytest

for extra in ("numba", "matplotlib", "PIL"):
    pytest.importorskip(extra, reason="needs the extra demo")

import ostinato as ost  # noqa: E402
from ostinato.demo import DemoError, photograph  # noqa: E402
from ostinato.demo.diffusion import (  # noqa: E402
    BLUR,
    NATIVE,
    Scene,
    diffuse,
    method_of,
    strips,
)
from ostinato.demo.show import Contestant, check, chosen, contest, costs_as_written, one_by_one  # noqa: E402  # noqa: E402
from ostinato.tune.graphs.tune_graph import Reports  # noqa: E402

METHODS = [NATIVE, *map(method_of, diffuse.variants)]
EXACT = [method for method in METHODS if "quotient=1" not in method.name]


@pytest.fixture
def noisy() -> np.ndarray:
    y, x = np.mgrid[0:37, 0:52]
    disc = ((y - 18) ** 2 + (x - 26) ** 2 < 120).astype(np.float32)
    return photograph.with_noise(np.stack([disc, 1 - disc, disc / 2]))


@pytest.mark.parametrize("count", [1, 3, 16, 1000])
def test_strips_cover_every_row_once(count):
    covered = np.zeros(37 + 2, dtype=int)
    for strip in strips(37, count):
        covered[strip.inner] += 1
        assert strip.halo == slice(strip.inner.start - 1, strip.inner.stop + 1)
    assert covered[1:-1].tolist() == [1] * 37
    assert covered[0] == covered[-1] == 0


def denoised(method, noisy: np.ndarray, count: int, steps: int) -> np.ndarray:
    scene = Scene(noisy, count, [method])
    with ost.compile(scene.step, costs={}) as program:
        program.replay(steps)
    return scene.result(steps)


@pytest.mark.parametrize("method", [NATIVE, BLUR, METHODS[-1]], ids=lambda method: method.name)
def test_the_cut_into_strips_does_not_change_a_bit(noisy, method):
    assert np.array_equal(denoised(method, noisy, 1, 30), denoised(method, noisy, 5, 30))


@pytest.mark.slow
@pytest.mark.parametrize("size", [(37, 52), (5, 3), (2, 1)])
@pytest.mark.parametrize("method", EXACT[1:], ids=lambda method: method.name)
def test_all_variants_but_one_give_the_same_bits(noisy, method, size):
    part = np.ascontiguousarray(noisy[:, : size[0], : size[1]])
    assert np.array_equal(denoised(method, part, 3, 20), denoised(NATIVE, part, 3, 20))


def test_one_variant_gives_other_bits_that_nobody_can_see(noisy):
    (quotient,) = [method for method in METHODS if method not in EXACT]
    result, expected = denoised(quotient, noisy, 3, 20), denoised(NATIVE, noisy, 3, 20)
    assert not np.array_equal(result, expected)
    np.testing.assert_allclose(result, expected, rtol=0, atol=1e-5)


def test_the_frame_stays_as_it_is(noisy):
    scene = Scene(noisy, 4, [NATIVE, BLUR])
    with ost.compile(scene.step, costs={}) as program:
        program.replay(3)
    for _, diffusion in scene.parts:
        for field in diffusion.fields:
            for edge in ((0,), (-1,), (..., 0), (..., -1)):
                assert np.array_equal(field[edge], diffusion.noisy[edge])


def test_a_scene_is_what_its_methods_make_of_it_apart(noisy):
    scene = Scene(noisy, 4, [NATIVE, BLUR])
    assert scene.tasks == 8
    with ost.compile(scene.step, costs={}) as program:
        program.replay(5)
    apart = [denoised(method, noisy, 4, 5) for method in (NATIVE, BLUR)]
    assert np.array_equal(scene.result(5), np.concatenate(apart, axis=1))
    loop = one_by_one(Scene(noisy, 3, [NATIVE, BLUR]), 5)
    loop.advance(range(5))
    assert np.array_equal(loop.picture, scene.result(5))


def test_blurring_levels_the_edge_too(noisy):
    after = denoised(BLUR, noisy, 2, 1000)
    assert after[0, 2:6, 2:6].std() < noisy[0, 2:6, 2:6].std() / 5
    assert after[0, 18, 26] - after[0, 2, 2] < 0.7


def test_diffusion_levels_noise_and_keeps_the_edge(noisy):
    after = denoised(NATIVE, noisy, 2, 1000)
    assert after[0, 2:6, 2:6].std() < noisy[0, 2:6, 2:6].std() / 5
    assert after[0, 18, 26] - after[0, 2, 2] > 0.7


@pytest.mark.parametrize("steps", [1, 7, 25])
def test_everybody_takes_all_steps_in_turns(noisy, steps):
    taken: dict[str, list[int]] = {"a": [], "b": []}
    scene = Scene(noisy, 4, [NATIVE])
    everybody = [
        Contestant(name, "kernel", "", scene, count, lambda numbers, name=name: taken[name].extend(numbers))
        for name, count in (("a", steps), ("b", 2 * steps))
    ]
    contest(everybody)
    assert taken == {"a": list(range(steps)), "b": list(range(2 * steps))}


def test_the_check_sees_one_changed_bit(noisy):
    everybody = [one_by_one(Scene(noisy, count, [NATIVE]), steps) for count, steps in ((3, 6), (4, 6), (2, 5))]
    contest(everybody)
    check(everybody, lambda: Scene(noisy, 3, [NATIVE]))
    everybody[2].scene.parts[0][1].fields[1].view(np.uint32)[1, 2, 3] ^= 1
    with pytest.raises(DemoError, match="the plain loop of diffuse differs from the plain loop in 1 of"):
        check(everybody, lambda: Scene(noisy, 3, [NATIVE]))


def result(variant: str, time: float, **config: object) -> ost.Result:
    candidate = ost.Candidate.call("json:dumps", {"variant": variant, **config})
    return ost.Result(candidate=candidate, op="diffuse", status=ost.Status.OK, time_ns=time, samples=(time,) * 6)


@pytest.mark.parametrize("tie", [False, True])
def test_the_winner_is_chosen_unless_the_default_is_as_good(noisy, tie):
    scene = Scene(noisy, 37, [NATIVE])
    default, best = result("diffuse", 9.0), result("pairs", 8.0, quotient=0)
    ties = (best, default) if tie else (best,)
    reports = Reports()
    for rows, (winner, others) in ((37, (default, (default,))), (1, (best, ties))):
        reports[f"diffuse {rows}"] = ost.Report(
            op="diffuse",
            key={"task": "kernels:diffuse", "arrays": [["float32", [rows, 3, 54], "w"]]},
            policy=ost.Policy(),
            best=winner,
            ties=others,
            results=(default, best),
            default=default,
        )
    assert chosen(reports, scene).name == ("diffuse" if tie else "pairs(quotient=0)")
    assert chosen(reports, Scene(noisy, 1, [NATIVE])).name == "diffuse"
    assert chosen(reports, Scene(noisy, 2, [NATIVE])).name == "diffuse"
    assert costs_as_written(reports, Scene(noisy, 37, [NATIVE, BLUR])) == pytest.approx({"diffuse": 9e-9})


def test_large_photographs_are_made_smaller_and_turned_upright(tmp_path):
    from PIL import Image

    sideways = Image.new("RGB", (1000, 600), "red")
    exif = sideways.getexif()
    exif[0x0112] = 6  # the camera was turned by 90 degrees
    sideways.save(tmp_path / "sideways.jpg", exif=exif)
    assert photograph.load(tmp_path / "sideways.jpg").shape == (3, 512, 307)
