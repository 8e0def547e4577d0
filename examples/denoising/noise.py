"""The noise that the networks learn to remove."""


def noise(inputs, generator, sigma=0.5):
    """Add normal noise to a batch of scaled images, anew in every epoch."""
    return inputs + generator.normal(0, sigma, size=inputs.shape[1:])
