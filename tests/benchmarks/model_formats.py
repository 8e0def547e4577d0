"""What precision and memory format bring: samples per second of a network on one thread."""

import tempfile

from measure import in_turn, report, sized

from allcores.machine import cores

cores.set_thread_variables(1)

from train_once import images, run_of, samples_per_second, train_once  # noqa: E402

# What it is called, model, size of the images, images per step.
CASES = [
    ("LeNet", "lenet", 32, 32),
    ("MobileNet", "mobilenet", 32, 32),
    ("MobileNet v2", "mobilenet_v2", 32, 32),
    ("VGG-11", "vgg11", 32, 32),
    ("ResNet-9", "resnet9", 32, 32),
    ("ResNet-18", "resnet18", 32, 32),
    ("AlexNet, 64 x 64", "alexnet", 64, 32),
    ("ResNet-50, 224 x 224", "resnet50", 224, 8),
][: sized(None, 1)]
STEPS = 10

if __name__ == "__main__":
    rows = []
    for label, name, size, batch in CASES:
        dataset = images(batch * STEPS, size)
        with tempfile.TemporaryDirectory() as folder:

            def throughput(
                precision, memory_format, name=name, dataset=dataset, batch=batch, folder=folder
            ):
                options = {"precision": precision, "memory_format": memory_format}
                run = run_of(name, dataset, "--epochs=2", batch_size=batch, **options)
                return samples_per_second(train_once(run, folder))

            ways = {
                f"{precision}, {memory_format}": lambda how=(precision, memory_format): throughput(
                    *how
                )
                for precision in ("fp32", "bf16")
                for memory_format in ("contiguous", "channels_last")
            }
            found = in_turn(ways, 3)
        rows += [(f"{label}, {how}", "samples/s", values) for how, values in found.items()]
    report("model_formats", rows)
