"""Models for any number of channels, image size and classes; each public function is one."""

from allcores import registry


def build(choice, dataset):
    """The model that a Choice names, for the images of a Dataset.

    Of `channels`, `image_size` and `classes` it is passed those that it takes by name, so that any
    importable module fits, also one that is written for one data set.
    """
    component = registry.model(choice.name)
    fitting = {
        name: value
        for name, value in dataset.model_arguments.items()
        if name in component.arguments
    }
    return component.load()(**fitting, **choice.options)
