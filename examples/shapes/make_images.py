"""Draw circles, squares and triangles: photos/, with a folder for each class."""

import random
from pathlib import Path

from PIL import Image, ImageDraw

SIZE, COUNT = 24, 80
generator = random.Random(0)
for shape in ("circle", "square", "triangle"):
    folder = Path("photos", shape)
    folder.mkdir(parents=True, exist_ok=True)
    for number in range(COUNT):
        background, colour = (
            tuple(generator.randrange(low, low + 90) for _ in "rgb") for low in (0, 120)
        )
        image = Image.new("RGB", (SIZE, SIZE), background)
        draw = ImageDraw.Draw(image)
        x, y, radius = generator.randint(7, 16), generator.randint(7, 16), generator.randint(3, 7)
        if shape == "circle":
            draw.ellipse((x - radius, y - radius, x + radius, y + radius), fill=colour)
        elif shape == "square":
            draw.rectangle((x - radius, y - radius, x + radius, y + radius), fill=colour)
        else:
            draw.regular_polygon((x, y, radius + 1), 3, generator.randrange(120), fill=colour)
        image.save(folder / f"{number:03}.png")
