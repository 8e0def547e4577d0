"""The noise that the networks learn to remove."""


def noise(inputs, generator, sigma=0.5):
    """Return a batch of scaled images with normal noise, drawn again in every epoch."""
    return inputs + generator.normal(0, sigma, size=inputs.shape[1:])
