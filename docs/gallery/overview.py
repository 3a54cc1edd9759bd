"""Write docs/images/overview.webp, the picture of the README, from the reports of a tour.

`scitoolkit tour`, then `python docs/gallery/overview.py runs`. Each panel is the first figure of
the newest report of a workflow.
"""

from __future__ import annotations

import sys
from pathlib import Path

from PIL import Image, ImageDraw, ImageFont

PATH = Path(__file__).parents[1] / "images" / "overview.webp"
CAPTIONS = {
    "rayleigh_benard": "Super-resolution of convection, 4 x 8 x 8",
    "chaos": "Forecast of Lorenz-96, with the best other methods",
    "acac_mace": "MACE potential of acetylacetone on test frames",
    "vlasov_landau": "Training data with a known rate: Landau damping",
}
CELL, CAPTION, MARGIN, QUALITY = (640, 360), 32, 8, 82


def main(runs: Path) -> None:
    """Write the panels in two columns, each below its caption."""
    width, height = CELL
    sheet = Image.new("RGB", (2 * width, len(CAPTIONS) // 2 * height), "white")
    draw, font = ImageDraw.Draw(sheet), ImageFont.load_default(size=20)
    for number, (workflow, caption) in enumerate(CAPTIONS.items()):
        left, top = number % 2 * width, number // 2 * height
        draw.text((left + 2 * MARGIN, top + MARGIN), caption, fill="#222222", font=font)
        figure = sorted(runs.glob(f"{workflow}/*/report/01-*"))[-1]
        with Image.open(figure) as picture:
            image = picture.convert("RGB")
        room = (width - 2 * MARGIN, height - CAPTION - 2 * MARGIN)
        scale = min(room[0] / image.width, room[1] / image.height)
        size = (round(image.width * scale), round(image.height * scale))
        image = image.resize(size, Image.Resampling.LANCZOS)
        sheet.paste(image, (left + (width - size[0]) // 2, top + CAPTION + MARGIN))
    PATH.parent.mkdir(exist_ok=True)
    sheet.save(PATH, quality=QUALITY, method=6)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
