"""Write noisy sine, square and sawtooth waves of random pitch and phase: waves.npz."""

import numpy as np

COUNT, LENGTH = 600, 128
generator = np.random.default_rng(0)
labels = np.arange(COUNT) % 3
turns = generator.uniform(2, 6, (COUNT, 1)) * np.linspace(0, 1, LENGTH)
turns = turns + generator.uniform(0, 1, (COUNT, 1))
waves = np.stack(
    [np.sin(2 * np.pi * turns), np.sign(np.sin(2 * np.pi * turns)), 2 * (turns % 1) - 1]
)
signals = waves[labels, np.arange(COUNT)] + generator.normal(0, 0.7, (COUNT, LENGTH))
np.savez("waves.npz", inputs=signals[:, None].astype(np.float32), labels=labels)
