"""A class for each pixel: read, moved with the images, trained, scored, predicted."""

import numpy as np
import pandas as pd
import pytest
import torch
from conftest import DDP, RUN, same_weights, task_of, using, vary
from PIL import Image
from sklearn import metrics as sklearn_metrics

from allcores.loop.sharding import shards, shuffled
from allcores_study.analysis import collect, measures, products, tidy
from allcores_study.analysis import metrics as analysis_metrics
from allcores_study.config import checks, fit, registry
from allcores_study.config.run import Entry
from allcores_study.data import preparation, storage
from allcores_study.data.batches import Batches
from allcores_study.datasets import image_masks, npz
from allcores_study.planning import trials
from allcores_study.records import run_files
from allcores_study.serving.model import Model
from allcores_study.serving.predictor import Predictor
from allcores_study.tasks import base as tasks
from allcores_study.tasks._pixel_losses import DiceLoss, cross_entropy
from allcores_study.tasks.base import WITHOUT_CLASS
from allcores_study.training import models, results

COUNT, SIZE = 24, 8
RANDOM = np.random.default_rng(0)
MASKS = np.zeros((COUNT, SIZE, SIZE), np.uint8)
for place in range(COUNT):
    row, column = RANDOM.integers(0, 5, 2)
    MASKS[place, row : row + 3, column : column + 3] = 1 + place % 2
IMAGES = (MASKS * 90 + RANDOM.integers(0, 40, MASKS.shape)).astype(np.uint8)[:, None]
SGD = Entry("SGD", "SGD", {"lr": 0.1})


def run_on(folder, masks=MASKS, images=IMAGES, **changes):
    folder.mkdir(exist_ok=True)
    np.savez(folder / "scenes.npz", images=images, masks=masks)
    options = {"path": str(folder / "scenes.npz"), "task": "segmentation"}
    run = vary(
        dataset=Entry(folder.name, "npz", options),
        model=Entry("unet", "unet", {"width": 0.25, "depth": 2}),
        loss=Entry("CrossEntropyLoss", "CrossEntropyLoss", {}),
        optimizer=SGD,
        schedule=Entry("constant", "constant", {}),
        **{"crop": 0, "flip": False, "folds": 3, "fold": 0, "epochs": 2, "batch_size": 6},
    )
    return vary(run, **changes)


def predictions(laboratory, name="run"):
    frame = pd.read_parquet(laboratory.folder / name / "predictions.parquet")
    return frame, *(np.stack(frame[column]) for column in ("true", "predicted"))


def test_weights_and_scores_are_those_of_a_plain_loop_and_scikit_learn(tmp_path, laboratory):
    run = run_on(tmp_path / "scenes")
    metrics, weights = laboratory.trained(run)
    frame, true, predicted = predictions(laboratory)
    held_out = frame["sample"].to_numpy()
    mine = np.setdiff1d(np.arange(COUNT), held_out)
    pixels = torch.tensor(IMAGES / 255.0)
    mean, std = pixels[mine].mean(), pixels[mine].std(correction=0)
    inputs, masks = ((pixels - mean) / std).float(), torch.tensor(MASKS).long()
    torch.manual_seed(run.seed)
    model = models.build(run, (1, SIZE, SIZE), 3)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for epoch in range(run.epochs):
        for shard in shards(shuffled(mine, run.seed, epoch), 6, 0, 1):
            optimizer.zero_grad()
            scores = model(inputs[shard.samples])
            torch.nn.functional.cross_entropy(scores, masks[shard.samples]).backward()
            optimizer.step()
    for name, expected in model.state_dict().items():
        assert torch.allclose(weights[name], expected, atol=1e-5), name
    told = model(inputs[held_out]).argmax(dim=1).numpy()
    assert np.mean(predicted == told.reshape(len(told), -1)) > 0.99
    flat = true.ravel(), predicted.ravel()
    expected = sklearn_metrics.jaccard_score(*flat, average=None, labels=[0, 1, 2])
    assert [of_one["iou"] for of_one in metrics["of_each"]] == pytest.approx(expected)
    assert metrics["mean_iou"] == pytest.approx(expected.mean())
    dice = sklearn_metrics.f1_score(*flat, average=None, labels=[0, 1, 2])
    assert [of_one["dice"] for of_one in metrics["of_each"]] == pytest.approx(dice)
    assert metrics["mean_dice"] == pytest.approx(dice.mean())
    assert measures.mean_dice(true, predicted, None) == pytest.approx(metrics["mean_dice"])
    assert metrics["pixel_accuracy"] == sklearn_metrics.accuracy_score(*flat)
    assert measures.mean_iou(true, predicted, None) == pytest.approx(metrics["mean_iou"])
    assert measures.pixel_accuracy(true, predicted, None) == metrics["pixel_accuracy"]
    assert np.array_equal(true.reshape(-1, SIZE, SIZE), MASKS[held_out])
    assert metrics["names"] == ["class 0", "class 1", "class 2"]
    table = products.load("per_output_table").table(tidy.outputs([metrics]))
    assert list(table["dice"]) == pytest.approx(dice)


@pytest.mark.parametrize("strategy", ["ddp", "shared_memory", "parameter_server", "hogwild"])
@pytest.mark.parametrize("loss", ["CrossEntropyLoss", "DiceLoss"])
def test_workers_follow_serial_with_crops_flips_and_pixels_without_a_class(
    tmp_path, laboratory, strategy, loss
):
    masks = MASKS.copy()
    masks[:, :2] = WITHOUT_CLASS
    masks[::5] = WITHOUT_CLASS
    options = {"weight": "balanced"} if loss == "CrossEntropyLoss" else {"cross_entropy": 0.5}
    run = run_on(tmp_path / "scenes", masks, loss=Entry(loss, loss, options), crop=2, flip=True)
    serial, expected = laboratory.trained(run, "serial")
    metrics, weights = laboratory.trained(using(Entry(strategy, strategy, {}), 2, run), strategy)
    if strategy == "hogwild":
        assert metrics["diverged"] is None
        return
    for name, value in expected.items():
        assert torch.allclose(weights[name], value, atol=1e-6), name
    assert metrics["loss"] == pytest.approx(serial["loss"], abs=1e-5)


def test_masks_move_as_their_images_do():
    pixels = RANDOM.integers(0, 250, (40, 1, 9, 7), dtype=np.uint8)
    source = Batches(pixels, np.zeros(1), np.full(1, 1 / 255), crop=3, flip=True)
    source.start_epoch(4, 2)
    order = RANDOM.permutation(40)[:25]
    moved = source.moved(order)[:, 0].numpy().round().astype(int)
    masks = source.moved_masks(pixels[:, 0], order)
    is_outside = masks == WITHOUT_CLASS
    assert 0.05 < is_outside.mean() < 0.7
    assert np.array_equal(masks[~is_outside], moved[~is_outside])
    assert (moved[is_outside] == 0).all()


def test_losses_are_means_over_images_of_pixels_with_a_class():
    scores, targets = torch.randn(4, 3, 5, 5), torch.randint(0, 3, (4, 5, 5))
    plain = torch.nn.functional.cross_entropy(scores, targets)
    assert torch.allclose(cross_entropy(scores, targets), plain)
    targets[:2, 0] = WITHOUT_CLASS
    for loss in (cross_entropy, DiceLoss(), DiceLoss(cross_entropy=0.3)):
        of_each = [loss(scores[at : at + 1], targets[at : at + 1]) for at in range(4)]
        assert torch.allclose(loss(scores, targets), torch.stack(of_each).mean())
        changed = scores.clone()
        changed[:2, :, 0] += torch.randn(3, 5)
        assert torch.allclose(loss(changed, targets), loss(scores, targets))
    sure = 100 * torch.nn.functional.one_hot(targets % 255, 3).movedim(3, 1).float()
    assert float(DiceLoss()(sure, targets)) == pytest.approx(0, abs=1e-5)
    inverse = 1 - 2 * 4 / 10  # two of ten true pixels in common, of a class that is nowhere else
    two = torch.zeros(1, 1, 10, dtype=torch.int64)
    two[..., :5] = 1
    told = torch.zeros(1, 2, 1, 10)
    told[:, 1, :, 1:6], told[:, 0, :, 0], told[:, 0, :, 6:] = 100, 100, 100
    assert float(DiceLoss(smooth=0.0)(told, two)) == pytest.approx(inverse, abs=1e-6)


def test_what_is_planted_into_held_out_images_and_masks_changes_no_weight(tmp_path, laboratory):
    weights, images, masks = [], IMAGES.copy(), MASKS.copy()
    for name in ("clean", "planted"):
        run = run_on(tmp_path / name, masks, images, crop=1)
        weights.append(laboratory.trained(run, name)[1])
        held_out = predictions(laboratory, name)[0]["sample"][:3]
        images[held_out], masks[held_out] = 255, 2
    assert same_weights(*weights)


def test_new_images_get_masks_by_a_majority_of_runs(tmp_path, laboratory):
    run = run_on(tmp_path / "scenes", epochs=4)
    for fold in range(3):
        laboratory.trained(vary(run, fold=fold), f"fold{fold}")
    predictors = [Predictor(laboratory.folder / f"fold{fold}") for fold in range(3)]
    frame, _, predicted = predictions(laboratory, "fold0")
    single = predictors[0].scores(IMAGES)
    assert np.array_equal(single[frame["sample"]].reshape(len(frame), -1), predicted)
    said = Model(predictors).predictions(tmp_path / "scenes" / "scenes.npz")
    masks = said.arrays["masks"]
    votes = np.stack([predictor.scores(IMAGES) for predictor in predictors])
    agreed = (votes == votes[0]).all(axis=0)
    assert np.array_equal(masks[agreed], votes[0][agreed])
    shares = said.table[["share_class 0", "share_class 1", "share_class 2"]]
    assert shares.sum(axis=1).to_numpy() == pytest.approx(1)
    assert np.array_equal(Model(predictors).predict(IMAGES), masks)


def folders(folder, masks=None):
    for kind in ("images", "masks"):
        (folder / kind).mkdir()
    for at in range(6):
        picture = np.repeat(IMAGES[at].transpose(1, 2, 0), 3, axis=2)
        Image.fromarray(picture).save(folder / "images" / f"{at}.jpg")
        mask = Image.fromarray(MASKS[at] if masks is None else masks[at])
        if at % 2:
            mask = mask.convert("P")
        mask.save(folder / "masks" / f"{at}.png")
    return {
        **{kind: str(folder / kind) for kind in ("masks",)},
        **{"path": str(folder / "images"), "classes": ["ground", "odd", "even"], "size": SIZE},
    }


@pytest.mark.parametrize(("size", "depth"), [((8, 8), 2), ((13, 7), 3), ((1, 5), 1), ((32, 48), 4)])
def test_a_u_net_takes_any_channels_size_and_classes(size, depth):
    run = vary(model=Entry("unet", "unet", {"width": 0.1, "depth": depth}))
    model = models.build(run, (2, *size), 5)
    scores = model(torch.randn(3, 2, *size))
    assert scores.shape == (3, 5, *size)
    scores.sum().backward()
    assert all(parameter.grad is not None for parameter in model.parameters())
    wider = models.build(vary(run, model=Entry("unet", "unet", {"width": 0.5})), (2, *size), 5)
    sizes = [sum(p.numel() for p in net.parameters()) for net in (model, wider)]
    assert depth > 2 or sizes[0] < sizes[1]


def test_masks_are_told_of_where_a_run_diverged_and_a_strategy_is_no_baseline(tmp_path, laboratory):
    run = run_on(tmp_path / "scenes", epochs=1)
    lost = vary(run, seed=1, optimizer=Entry("SGD", "SGD", {"lr": 1e30}))
    pairs = []
    for number, one in enumerate((run, lost, using(DDP, 2, run))):
        laboratory.trained(one, str(number))
        files = laboratory.folder / str(number)
        pairs.append((run_files.metrics(files), files))
    assert pairs[1][0]["diverged"]
    collect.write_predictions(tmp_path / "all.parquet", pairs, {})
    written = pd.read_parquet(tmp_path / "all.parquet")
    assert written["strategy"].value_counts()["serial"] == len(written) / 2
    others = collect.of_all(pairs[2:], collect._samples)
    frame = pd.concat([collect.predictions_of_all(pairs[:2]), others])
    mean_iou = analysis_metrics.Metric.of("mean_iou")
    facts = products.StudyFacts("s", "serial", None, (), metrics=(mean_iou,))
    drawn = products.load("masks_figure").figure(frame, {}, facts)
    assert len(drawn.axes) > 1


@pytest.mark.parametrize("channels", [1, 2, 3])
def test_the_best_and_the_worst_masks_are_drawn(channels, tmp_path, laboratory):
    masks = MASKS.copy()
    masks[:, 0] = WITHOUT_CLASS
    images = np.repeat(IMAGES, channels, axis=1)
    run = run_on(tmp_path / "scenes", masks, images, epochs=4)
    laboratory.trained(run)
    files = laboratory.folder / "run"
    frame = collect.predictions_of_all([(run_files.metrics(files), files)])
    mean_iou = analysis_metrics.Metric.of("mean_iou")
    facts = products.StudyFacts("s", "serial", None, (), metrics=(mean_iou,))
    datasets = {"scenes": storage.open_dataset(laboratory.data(run.dataset))}
    drawn = products.load("masks_figure").figure(frame, datasets, facts)
    task = tasks.named("segmentation", 3)
    each = [task.measured(row.true[None], row.predicted[None]) for row in frame.itertuples()]
    scores = sorted((of_one["mean_iou"] for of_one in each), reverse=True)
    titles = [panel.get_title().splitlines()[-1] for panel in drawn.axes]
    shown = [*scores[:2], *scores[-2:]]
    assert titles == [f"mean IoU {score:.1%}" for score in shown]
    pictures = [np.asarray(panel.get_images()[0].get_array()) for panel in drawn.axes]
    first_row = -2 * SIZE - 1  # of the true mask
    assert all((picture[first_row] == 1).all() for picture in pictures), "white has no class"
    best = IMAGES[frame["sample"][np.argmax([of_one["mean_iou"] for of_one in each])], 0]
    if channels == 2:  # not an image that can be shown
        assert all(picture.shape == (2 * SIZE + 1, SIZE, 3) for picture in pictures)
    else:
        assert all(picture.shape == (3 * SIZE + 2, SIZE, 3) for picture in pictures)
        shown = (best - best.min()) / np.ptp(best)
        assert np.allclose(pictures[0][:SIZE], shown[..., None])


def test_a_folder_of_images_and_one_of_masks(tmp_path):
    options = folders(tmp_path)
    facts = image_masks.facts(**options)
    made = image_masks.load(None, **options)
    storage.write(tmp_path / "data", made)
    dataset = storage.open_dataset(tmp_path / "data")
    assert np.array_equal(dataset.targets, MASKS[:6])
    assert dataset.facts.names == ["ground", "odd", "even"]
    assert task_of(facts) == dataset.task == tasks.named("segmentation", 3)
    assert facts.shape == dataset.shape == (3, SIZE, SIZE)
    larger = storage.write(tmp_path / "large", image_masks.load(None, **options | {"size": 16}))
    masks = storage.open_dataset(tmp_path / "large").targets
    assert larger is None
    assert np.array_equal(masks[:, ::2, ::2], MASKS[:6])


def test_folders_that_do_not_fit_are_refused(tmp_path):
    options = folders(tmp_path)
    for change, said in (
        ({"classes": ["ground", "odd"]}, r"\d.png: found 2 in the mask"),
        ({"classes": "ground"}, "expected a list of 2 to 255 different"),
        ({"masks": str(tmp_path / "mask")}, "no such folder"),
    ):
        with pytest.raises(ValueError, match=said):
            image_masks.load(None, **options | change)
    (tmp_path / "masks" / "3.png").unlink()
    with pytest.raises(ValueError, match=r"the image 3 has no partner in .*masks \(1 such files\)"):
        image_masks.load(None, **options)
    Image.fromarray(np.zeros((8, 8, 3), np.uint8)).save(tmp_path / "masks" / "3.png")
    with pytest.raises(ValueError, match=r"3\.png: mode RGB; expected one channel"):
        image_masks.load(None, **options)


@pytest.mark.parametrize(
    ("masks", "said"),
    [
        (MASKS[:, :4], "do not fit images .* expected one for each pixel"),
        (MASKS.astype(float), "found float64"),
        (MASKS.astype(int) - 1, "found -1 in the mask of sample"),
        (np.full_like(MASKS, WITHOUT_CLASS), "expected at least two classes"),
    ],
)
def test_arrays_that_are_no_masks_are_refused(tmp_path, masks, said):
    np.savez(tmp_path / "mine.npz", images=IMAGES, masks=masks)
    with pytest.raises(ValueError, match=said):
        npz.load(None, path=str(tmp_path / "mine.npz"), task="segmentation")


def test_masks_belong_to_images(tmp_path):
    np.savez(tmp_path / "mine.npz", inputs=np.ones((len(MASKS), 5)), masks=MASKS)
    with pytest.raises(ValueError, match="expected one for each pixel"):
        npz.load(None, path=str(tmp_path / "mine.npz"), task="segmentation")


def test_a_model_and_a_loss_for_something_else_are_told(tmp_path):
    run = run_on(tmp_path / "scenes")
    facts = registry.facts(run.dataset)
    fits = trials.tried_out(run, facts.shape, task_of(facts), [DDP])
    assert fits["seconds"] > 0
    with pytest.raises(trials.UnfitPartError, match=r"is \(2, 3\) in training; expected \(2, 3, 8"):
        trials.tried_out(vary(run, model=RUN.model), facts.shape, task_of(facts))
    forest = Entry("forest", "sklearn.ensemble:RandomForestClassifier", {})
    estimator = vary(run, model=forest, optimizer=None, batch_size=None)
    with pytest.raises(trials.UnfitPartError, match="does not predict pixels; expected a network"):
        trials.tried_out(estimator, facts.shape, task_of(facts))
    entry = {"batch_size": 4, "epochs": 1, "optimizer": {"name": "sgd", "lr": 0.1}}
    config = {
        "datasets": {"scenes": {"name": "npz", **run.dataset.options}},
        "models": {"unet": entry | {"loss": {"name": "mse"}}},
        "studies": {"a": {"datasets": ["scenes"], "folds": 2, "models": ["unet"]}},
    }
    (found,) = checks.findings(config)
    assert "are pixels, which MSELoss does not take; known: CrossEntropyLoss, DiceLoss" in found
    config["models"]["unet"] = entry | {"loss": {"name": "dice", "smooth": 0.5}}
    assert not checks.findings(config)


def test_masks_that_were_edited_are_prepared_anew(tmp_path):
    options = folders(tmp_path)
    entry = Entry("scenes", "image_masks", options)
    before = preparation.made_of(entry)
    assert preparation.made_of(entry) == before
    Image.fromarray(MASKS[5]).save(tmp_path / "masks" / "0.png")
    assert preparation.made_of(entry) != before


def test_what_cannot_be_meant_is_refused_or_noted(tmp_path):
    masks = np.where(MASKS, 255, 0).astype(np.uint8)
    options = folders(tmp_path, masks)
    with pytest.raises(
        ValueError, match=r"all pixels are 0 or 255, .* expected 1 where a pixel is"
    ):
        image_masks.load(None, **options)
    Image.fromarray(np.full((8, 8), 1, np.uint8)).save(tmp_path / "masks" / "0.png")
    notes = image_masks.load(None, **options).notes
    assert notes[0] == "no pixel of any mask is of even"
    assert "of the pixels have no class: their value is 255" in notes[1]
    with pytest.raises(ValueError, match="2 to 255 different names"):
        image_masks.facts(**options | {"classes": ["a", "a"]})
    Image.fromarray(np.zeros((8, 16), np.uint8)).save(tmp_path / "masks" / "2.png")
    with pytest.raises(ValueError, match=r"2.jpg is 8 x 8 pixels and its mask .* 16 x 8"):
        image_masks.load(None, **options)
    np.savez(tmp_path / "two.npz", images=IMAGES, masks=masks)
    with pytest.raises(ValueError, match="expected at least two classes"):
        npz.load(None, path=str(tmp_path / "two.npz"), task="segmentation")
    test = {"test_images": IMAGES[:1], "test_masks": MASKS[:1] * 0 + 7}
    np.savez(tmp_path / "test.npz", images=IMAGES, masks=MASKS, **test)
    with pytest.raises(ValueError, match="test_masks: found 7 in the mask of sample 0"):
        npz.load(None, path=str(tmp_path / "test.npz"), task="segmentation")


@pytest.mark.parametrize("kind", ["JPEG", "WEBP"])
def test_masks_in_formats_that_lose_numbers_are_refused(tmp_path, kind):
    options = folders(tmp_path)
    Image.open(tmp_path / "masks" / "3.png").convert("L").save(tmp_path / "masks" / "3.x", kind)
    (tmp_path / "masks" / "3.x").rename(tmp_path / "masks" / "3.png")
    with pytest.raises(ValueError, match=f"{kind} loses the exact class numbers; expected PNG"):
        image_masks.load(None, **options)


def test_masks_of_one_class_are_refused(tmp_path):
    options = folders(tmp_path)
    for file in (tmp_path / "masks").iterdir():
        Image.fromarray(np.ones((SIZE, SIZE), np.uint8)).save(file)
    with pytest.raises(ValueError, match="all pixels of all masks have the class odd"):
        image_masks.load(None, **options)


def test_a_crop_as_large_as_an_image_is_refused():
    study = {"datasets": ["digits"], "models": ["m"]}
    for crop, count in ((31, 0), (32, 1)):
        config = {"models": {"m": {"augmentation": {"crop": crop}}}}
        assert len(list(fit._check_augmentation(config, study))) == count


@pytest.mark.parametrize("option", ["smooth", "cross_entropy"])
def test_a_loss_has_no_negative_parts(option):
    loss = registry.losses()["DiceLoss"]
    assert not list(loss.problems((), {option: 0.5}))
    ((place, problem),) = loss.problems((), {option: -1})
    assert place == (option,) and "found -1; expected a number from 0" in problem


def test_where_no_pixel_has_a_class_nothing_is_measured():
    empty, predicted = np.full((2, 3, 3), 255, np.uint8), np.zeros((2, 3, 3), np.uint8)
    for name in ("mean_iou", "mean_dice", "pixel_accuracy"):
        assert np.isnan(analysis_metrics.Metric.of(name).measure(empty, predicted, None))
    columns = {"predicted": predicted.reshape(2, 9)}  # as a task makes them
    assert results.scores(["mean_iou"], empty, columns) == {"mean_iou": None}


def test_a_metric_of_ones_own_gets_masks_of_one_shape_in_inner_runs(tmp_path, monkeypatch):
    (tmp_path / "share_of.py").write_text(
        "def share(true, predicted, p): return (true == predicted).mean()"
    )
    monkeypatch.syspath_prepend(tmp_path)
    true, predicted = np.zeros((2, 3, 3), np.uint8), np.eye(2, 9, dtype=np.uint8)
    assert results.scores(["share_of:share"], true, {"predicted": predicted}) == {
        "share_of:share": 16 / 18
    }
