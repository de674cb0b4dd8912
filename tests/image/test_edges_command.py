"""``warpfront edges``: files in, edges and a contact sheet out; what is wrong is named."""

import json
import runpy
from pathlib import Path

import numpy as np
import pytest
from images_for_tests import random_image
from PIL import Image

from warpfront.cli.main import main
from warpfront.image import edges
from warpfront.image.files import decode, find
from warpfront.image.sheet import chosen, contact_sheet, pair_of

PICTURE = Path(__file__).resolve().parents[2] / "examples" / "data" / "chelsea.png"


def save(path, pixels, **options):
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(pixels).save(path, **options)
    return path


def load(path):
    return np.asarray(Image.open(path))


def place(shape):
    return np.empty(shape, np.uint8)


def test_a_folder_of_images(tmp_path, capsys):
    pictures = {
        "gray.png": random_image(30, 40, "gray"),
        "sub/colour.png": random_image(21, 33),
        "sub/alpha.png": random_image(9, 50, channels=4),
        "one.png": random_image(1, 1),
    }
    for name, pixels in pictures.items():
        save(tmp_path / "in" / name, pixels)
    (tmp_path / "in" / "notes.txt").write_text("no image")
    report = tmp_path / "r.json"
    out = tmp_path / "in" / "out"  # below the inputs: a second run must not read what the first wrote
    line = ["edges", str(tmp_path / "in"), "-o", str(out), "--sigma", "1", "--threshold", "60"]
    for _ in range(2):
        assert main([*line, "--border", "wrap", "--report", str(report)]) == 0
    for name, pixels in pictures.items():
        expected = edges(pixels, sigma=1, threshold=60, border="wrap")
        assert np.array_equal(load(out / name), expected), name
    said = capsys.readouterr().out
    assert "4 of 4 images" in said
    assert "P95" in said
    assert "P99" in said
    assert "images/s" in said
    for stage in ("decode", "kernel", "encode"):
        assert stage in said
    record = json.loads(report.read_text())
    assert record["images"] == 4
    assert record["failed"] == {}
    sheet = load(out / "contact-sheet.png")
    assert sheet.ndim == 3
    assert sheet.shape[0] > 180


@pytest.mark.parametrize("layout", ["packed", "planar"])
def test_a_photograph_in_every_layout(tmp_path, layout):
    out = tmp_path / "out"
    line = ["edges", str(PICTURE), "-o", str(out), "--layout", layout, "--no-sheet", "--threshold", "none"]
    assert main([*line, "--norm", "l2", "--taps", "7"]) == 0
    expected = edges(load(PICTURE), taps=7, threshold=None, norm="l2")
    assert np.array_equal(load(out / PICTURE.name), expected)
    assert not (out / "contact-sheet.png").exists()


def test_files_that_cannot_be_read_are_named_and_the_others_done(tmp_path, capsys):
    good = save(tmp_path / "a.png", random_image(10, 12))
    whole = save(tmp_path / "b.png", random_image(60, 60)).read_bytes()
    (tmp_path / "b.png").write_bytes(whole[: len(whole) // 2])
    (tmp_path / "c.jpg").write_text("no picture")
    save(tmp_path / "d.png", np.arange(64, dtype=np.uint16).reshape(8, 8))
    assert main(["edges", str(tmp_path), "-o", str(tmp_path / "out")]) == 2
    said = capsys.readouterr()
    assert "1 of 4 images" in said.out
    assert said.err.count("\n") == 1
    assert said.err.startswith("error: 3 of 4 files could not be read; the first: ")
    for name, why in (("b.png", "truncated"), ("c.jpg", "cannot identify"), ("d.png", "more than 8 bits")):
        assert any(name in line and why in line for line in said.out.splitlines()), name
    assert sorted(p.name for p in (tmp_path / "out").iterdir()) == ["a.png", "contact-sheet.png"]
    assert np.array_equal(load(tmp_path / "out" / "a.png"), edges(load(good)))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--border", "mirror"], "border must be one of"),
        (["--threshold", "300"], "threshold must be"),
        (["--threshold", "high"], "threshold must be a whole number from 0 to 255, or none"),
        (["--sigma", "9"], "at most 31"),
        (["--taps", "4"], "odd number"),
        (["--norm", "max"], "l1 or l2"),
        (["--layout", "chw"], "layout must be"),
        (["--device", "gpu"], "device must be"),
        (["--report", "r.txt"], "--report writes .json"),
    ],
)
def test_refusals(tmp_path, capsys, options, message):
    save(tmp_path / "a.png", random_image(3, 3))
    assert main(["edges", str(tmp_path / "a.png"), "-o", str(tmp_path / "out"), *options]) == 2
    said = capsys.readouterr().err
    assert message in said
    assert said.count("\n") == 1
    assert not (tmp_path / "out").exists()


def test_paths_that_do_not_fit(tmp_path, capsys):
    one = save(tmp_path / "in" / "a.png", random_image(3, 3))
    for inputs, out, message in [
        ([tmp_path / "none.png"], tmp_path / "o", "no such file or folder"),
        ([tmp_path / "in"], tmp_path / "in", "would replace an input"),
        ([tmp_path / "in"], one, "not a folder"),
        ([Path(__file__)], tmp_path / "o", "not a .png, .jpg, .jpeg file"),
    ]:
        assert main(["edges", *map(str, inputs), "-o", str(out)]) == 2
        assert message in capsys.readouterr().err
    (tmp_path / "empty").mkdir()
    assert main(["edges", str(tmp_path / "empty"), "-o", str(tmp_path / "o")]) == 2
    assert "no .png, .jpg, .jpeg file in" in capsys.readouterr().err


def test_results_never_meet(tmp_path):
    for name in ("a.png", "a.jpg", "b/a.png", "c.png"):
        save(tmp_path / name, random_image(3, 3))
    found = find([tmp_path, tmp_path / "c.png"], tmp_path / "o")
    assert len({file.target for file in found}) == len(found) == 5
    places = {str(file.target.relative_to(tmp_path / "o")) for file in found}
    assert {"a.png.png", "a.jpg.png", "b/a.png"} <= {p.replace("\\", "/") for p in places}


def test_decoding(tmp_path):
    colour = random_image(6, 9)
    palette = save(tmp_path / "p.png", colour)
    Image.fromarray(colour).convert("P").save(palette)
    assert decode(palette, "packed", place).shape == (6, 9, 3)
    assert decode(palette, "planar", place).shape == (3, 6, 9)
    bits = tmp_path / "bits.png"
    Image.fromarray(colour[..., 0] > 99).save(bits)
    assert np.array_equal(decode(bits, "packed", place), np.where(colour[..., 0] > 99, 255, 0))
    turned = tmp_path / "turned.jpg"
    exif = Image.Exif()
    exif[0x0112] = 6  # the camera was held upright
    Image.fromarray(colour).save(turned, exif=exif)
    assert decode(turned, "packed", place).shape == (9, 6, 3)


def test_contact_sheet_of_many(tmp_path):
    assert chosen(5) == set(range(5))
    picked = chosen(1000)
    assert len(picked) == 24
    assert {0, 999} <= picked
    image = random_image(500, 30)
    pairs = [pair_of(f"{'long name ' * 9}{k} \u4e2d", image, edges(image), "packed") for k in range(7)]
    contact_sheet(pairs, "title", tmp_path / "s.png")
    assert load(tmp_path / "s.png").shape[1] > 900


def test_the_example_runs(capsys):
    example = runpy.run_path(str(PICTURE.parents[1] / "edge_stream.py"), run_name="example")
    shares, record = example["main"](12)
    assert record.images == len(shares) == 12
    assert 0.01 < min(shares) < max(shares) < 0.5
    assert "12 frames on" in capsys.readouterr().out
