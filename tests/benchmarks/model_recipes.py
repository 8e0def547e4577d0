"""What each model's recipe brings: samples per second of one worker, as `auto` measures them."""

import tempfile

from measure import report, sized

from allcores.machine import cores, lean_torch

CORES = cores.allowed()
cores.set_thread_variables(CORES)
lean_torch.import_torch()

from train_once import images, run_of  # noqa: E402

from allcores.files import read_json  # noqa: E402
from allcores_study.data import preparation  # noqa: E402
from allcores_study.training import recipes  # noqa: E402

# What it is called, model, size of the images, images per step.
CASES = [
    ("LeNet", "lenet", 32, 32),
    ("MobileNet", "mobilenet", 32, 32),
    ("VGG-19", "vgg19", 32, 32),
    ("ResNet-50, 224 x 224", "resnet50", 224, 8),
][: sized(None, 1)]

if __name__ == "__main__":
    rows = []
    for label, name, size, batch in CASES:
        dataset = images(batch, size)
        open_ones = dict.fromkeys(("precision", "memory_format", "threads_per_worker"), "auto")
        run = run_of(name, dataset, batch_size=batch, **open_ones)
        with tempfile.TemporaryDirectory() as folder:
            preparation.prepare(dataset, folder, f"{folder}/data")
            recipes.calibrate(run, f"{folder}/data", CORES, f"{folder}/recipe.json")
            timings = read_json(f"{folder}/recipe.json")["timings"]
        for timing in timings:
            how = [timing["precision"], timing["memory_format"], timing["threads_per_worker"]]
            what = f"{label}, {', '.join(map(str, how))} thread(s)"
            rows.append((what, "samples/s", [timing["images_per_second"]]))
    report("model_recipes", rows)
